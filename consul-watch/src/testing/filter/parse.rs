//! Parser of filter expressions, with Consul's errors.

use super::expression::{Expression, Operator, Selector};

/// Deepest nesting; each level takes space on the stack.
const DEPTH: usize = 100;

const SPACE: &str = r"[ \t\r\n]";

/// Reads an expression. An error says where it went wrong and what could stand there.
pub(super) fn parse(text: &str) -> Result<Expression, String> {
    let mut parser = Parser { text, at: 0, furthest: 0, expected: Vec::new(), depth: 0 };
    let found = parser.whole();
    found.map_err(|fault| match fault {
        Fault::NoMatch => parser.no_match(),
        Fault::Rule { at, text } => format!("{}: {text}", parser.place(at)),
    })
}

enum Fault {
    /// Nothing that is allowed stands here; the furthest such place is reported.
    NoMatch,
    /// A rule of its own is broken.
    Rule { at: usize, text: String },
}

type Parsed<T> = Result<T, Fault>;

struct Parser<'a> {
    text: &'a str,
    at: usize,
    furthest: usize,
    expected: Vec<&'static str>,
    depth: usize,
}

impl<'a> Parser<'a> {
    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    /// Remembers what could have stood here.
    fn miss(&mut self, expected: &'static str) {
        if self.at > self.furthest {
            self.furthest = self.at;
            self.expected.clear();
        }
        if self.at == self.furthest && !self.expected.contains(&expected) {
            self.expected.push(expected);
        }
    }

    fn place(&self, at: usize) -> String {
        let before = self.text.get(..at).unwrap_or_default();
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
        format!("{line}:{column} ({at})")
    }

    fn no_match(&mut self) -> String {
        let mut wanted = std::mem::take(&mut self.expected);
        wanted.sort_unstable_by_key(|expected| (*expected == "EOF", *expected));
        let last = wanted.pop().unwrap_or("EOF");
        let list = if wanted.is_empty() {
            last.to_owned()
        } else {
            format!("{} or {last}", wanted.join(", "))
        };
        format!("{}: no match found, expected: {list}", self.place(self.furthest))
    }

    /// Takes a fixed text; `shown` is how an error shows it.
    fn literal(&mut self, literal: &str, shown: &'static str) -> bool {
        let found = self.rest().starts_with(literal);
        if found {
            self.at += literal.len();
        } else {
            self.miss(shown);
        }
        found
    }

    /// Takes characters for as long as they are wanted.
    fn run(&mut self, wanted: impl Fn(char) -> bool, shown: &'static str) -> &'a str {
        let rest = self.rest();
        let end = rest.find(|c| !wanted(c)).unwrap_or(rest.len());
        self.at += end;
        self.miss(shown);
        rest.get(..end).unwrap_or_default()
    }

    /// Takes space; says whether there was any.
    fn space(&mut self) -> bool {
        !self.run(|c| matches!(c, ' ' | '\t' | '\r' | '\n'), SPACE).is_empty()
    }

    fn whole(&mut self) -> Parsed<Expression> {
        self.space();
        let expression = self.or()?;
        self.space();
        if self.rest().is_empty() {
            return Ok(expression);
        }
        self.miss("EOF");
        Err(Fault::NoMatch)
    }

    /// A word between spaces; stays where it was if it is not there.
    fn joined_by(&mut self, word: &str, shown: &'static str) -> Parsed<bool> {
        let start = self.at;
        if !self.space() || !self.literal(word, shown) {
            self.at = start;
            return Ok(false);
        }
        if self.space() { Ok(true) } else { Err(Fault::NoMatch) }
    }

    fn or(&mut self) -> Parsed<Expression> {
        let mut parts = vec![self.and()?];
        while self.joined_by("or", "\"or\"")? {
            parts.push(self.and()?);
        }
        Ok(one_or(parts, Expression::Or))
    }

    fn and(&mut self) -> Parsed<Expression> {
        let mut parts = vec![self.not()?];
        while self.joined_by("and", "\"and\"")? {
            parts.push(self.not()?);
        }
        Ok(one_or(parts, Expression::And))
    }

    fn deeper(&mut self, inner: fn(&mut Self) -> Parsed<Expression>) -> Parsed<Expression> {
        self.depth += 1;
        if self.depth > DEPTH {
            let text = format!("expressions nest at most {DEPTH} deep");
            return Err(Fault::Rule { at: self.at, text });
        }
        let found = inner(self);
        self.depth -= 1;
        found
    }

    fn not(&mut self) -> Parsed<Expression> {
        let start = self.at;
        if self.literal("not", "\"not\"") && self.space() {
            return Ok(Expression::Not(Box::new(self.deeper(Self::not)?)));
        }
        self.at = start;
        if self.literal("(", "\"(\"") {
            self.space();
            let inner = self.deeper(Self::or)?;
            self.space();
            if !self.literal(")", "\")\"") {
                let text = "rule \"grouping\": Unmatched parentheses".to_owned();
                return Err(Fault::Rule { at: self.at, text });
            }
            return Ok(inner);
        }
        self.matching()
    }

    fn matching(&mut self) -> Parsed<Expression> {
        let start = self.at;
        if let Some(selector) = self.selector()? {
            if let Some(operator) = self.operator_with_value() {
                let value = self.value()?;
                return Ok(Expression::Match { selector, operator, value });
            }
            if let Some(operator) = self.emptiness() {
                return Ok(Expression::Match { selector, operator, value: String::new() });
            }
            self.at = start;
        }
        let value = self.value()?;
        let before = self.at;
        if self.space() {
            let operator = if self.literal("in", "\"in\"") {
                Some(Operator::In)
            } else if self.literal("not", "\"not\"") && self.space() && self.literal("in", "\"in\"")
            {
                Some(Operator::NotIn)
            } else {
                None
            };
            if let Some(operator) = operator.filter(|_| self.space()) {
                let selector = self.selector()?.ok_or(Fault::NoMatch)?;
                return Ok(Expression::Match { selector, operator, value });
            }
        }
        self.at = before;
        Err(Fault::NoMatch)
    }

    /// An operator between a selector and a value.
    fn operator_with_value(&mut self) -> Option<Operator> {
        let start = self.at;
        let spaced = self.space();
        for (literal, shown, operator) in
            [("==", "\"==\"", Operator::Equal), ("!=", "\"!=\"", Operator::NotEqual)]
        {
            if self.literal(literal, shown) {
                self.space();
                return Some(operator);
            }
        }
        let word = |parser: &mut Self| {
            for (word, shown, operator) in [
                ("contains", "\"contains\"", Operator::In),
                ("matches", "\"matches\"", Operator::Matches),
            ] {
                if parser.literal(word, shown) {
                    return Some(operator);
                }
            }
            None
        };
        if spaced {
            let here = self.at;
            let mut found = word(self);
            if found.is_none() && self.literal("not", "\"not\"") && self.space() {
                found = word(self).map(|operator| match operator {
                    Operator::In => Operator::NotIn,
                    _ => Operator::NotMatches,
                });
            }
            if found.is_some() && self.space() {
                return found;
            }
            self.at = here;
        }
        self.at = start;
        None
    }

    fn emptiness(&mut self) -> Option<Operator> {
        let start = self.at;
        if self.space() && self.literal("is", "\"is\"") && self.space() {
            if self.literal("empty", "\"empty\"") {
                return Some(Operator::IsEmpty);
            }
            if self.literal("not", "\"not\"") && self.space() && self.literal("empty", "\"empty\"")
            {
                return Some(Operator::IsNotEmpty);
            }
        }
        self.at = start;
        None
    }

    fn selector(&mut self) -> Parsed<Option<Selector>> {
        let Some(first) = self.identifier() else { return Ok(None) };
        let mut selector = vec![first.to_owned()];
        loop {
            let start = self.at;
            if self.literal(".", "\".\"") {
                if let Some(part) = self.identifier() {
                    selector.push(part.to_owned());
                    continue;
                }
                self.at = start;
                return Ok(Some(selector));
            }
            if !self.literal("[", "\"[\"") {
                return Ok(Some(selector));
            }
            self.space();
            let at = self.at;
            let Some(part) = self.string()? else {
                return Err(Fault::Rule { at, text: "rule \"index\": Invalid index".to_owned() });
            };
            self.space();
            if !self.literal("]", "\"]\"") {
                let text = "rule \"index\": Unclosed index expression".to_owned();
                return Err(Fault::Rule { at: self.at, text });
            }
            selector.push(part);
        }
    }

    fn identifier(&mut self) -> Option<&'a str> {
        let start = self.at;
        if !self.rest().starts_with(|c: char| c.is_ascii_alphabetic()) {
            self.miss("[a-zA-Z]");
            return None;
        }
        self.run(|c| c.is_ascii_alphanumeric() || c == '_', "[a-zA-Z0-9_]");
        self.text.get(start..self.at)
    }

    fn value(&mut self) -> Parsed<String> {
        if let Some(selector) = self.selector()? {
            return Ok(selector.join("."));
        }
        if let Some(number) = self.number()? {
            return Ok(number);
        }
        self.string()?.ok_or(Fault::NoMatch)
    }

    fn number(&mut self) -> Parsed<Option<String>> {
        let start = self.at;
        self.literal("-", "\"-\"");
        if !self.literal("0", "\"0\"") {
            if !self.rest().starts_with(|c: char| matches!(c, '1'..='9')) {
                self.miss("[1-9]");
                self.at = start;
                return Ok(None);
            }
            self.run(|c| c.is_ascii_digit(), "[0-9]");
        }
        let whole = self.at;
        if self.literal(".", "\".\"") && self.run(|c| c.is_ascii_digit(), "[0-9]").is_empty() {
            self.at = whole;
        }
        let next = self.rest().chars().next();
        if next.is_none_or(|c| matches!(c, ' ' | '\t' | '\r' | '\n' | ')')) {
            return Ok(self.text.get(start..self.at).map(str::to_owned));
        }
        let text = "rule \"number\": Invalid number literal".to_owned();
        Err(Fault::Rule { at: self.at, text })
    }

    fn string(&mut self) -> Parsed<Option<String>> {
        let start = self.at;
        let quote = if self.literal("`", "\"`\"") {
            '`'
        } else if self.literal("\"", "\"\\\"\"") {
            '"'
        } else {
            return Ok(None);
        };
        let rest = self.rest();
        let Some(end) = rest.find(quote) else {
            let text = "rule \"string\": Unterminated string literal".to_owned();
            return Err(Fault::Rule { at: self.text.len(), text });
        };
        self.at += end + 1;
        let inner = rest.get(..end).unwrap_or_default();
        if quote == '`' {
            return Ok(Some(inner.to_owned()));
        }
        // As Go's own texts in quotes, whose escapes are nearly those of JSON.
        let read = serde_json::from_str(&format!("\"{inner}\""));
        read.map(Some).map_err(|_bad| Fault::Rule {
            at: start,
            text: "rule \"string\": invalid syntax".to_owned(),
        })
    }
}

fn one_or(mut parts: Vec<Expression>, join: fn(Vec<Expression>) -> Expression) -> Expression {
    match parts.pop() {
        Some(only) if parts.is_empty() => only,
        last => {
            parts.extend(last);
            join(parts)
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The expression in full parentheses, with values in quotes.
    fn shown(expression: &Expression) -> String {
        match expression {
            Expression::And(parts) => joined(parts, ") and ("),
            Expression::Or(parts) => joined(parts, ") or ("),
            Expression::Not(inner) => format!("not ({})", shown(inner)),
            Expression::Match { selector, operator, value } => {
                let (first, rest) = selector.split_first().expect("a selector has parts");
                let rest = rest.iter().fold(String::new(), |text, part| text + "[`" + part + "`]");
                let selector = format!("{first}{rest}");
                match operator {
                    Operator::Equal => format!("{selector}==`{value}`"),
                    Operator::NotEqual => format!("{selector} != `{value}`"),
                    Operator::In => format!("`{value}` in {selector}"),
                    Operator::NotIn => format!("{selector} not contains `{value}`"),
                    Operator::IsEmpty => format!("{selector} is empty"),
                    Operator::IsNotEmpty => format!("{selector} is not empty"),
                    Operator::Matches => format!("{selector} matches `{value}`"),
                    Operator::NotMatches => format!("{selector} not matches `{value}`"),
                }
            }
        }
    }

    fn joined(parts: &[Expression], by: &str) -> String {
        format!("({})", parts.iter().map(shown).collect::<Vec<_>>().join(by))
    }

    fn expressions() -> impl Strategy<Value = Expression> {
        let operator = prop::sample::select(vec![
            Operator::Equal,
            Operator::NotEqual,
            Operator::In,
            Operator::NotIn,
            Operator::Matches,
            Operator::NotMatches,
        ]);
        let selector = || {
            ("[a-zA-Z][a-zA-Z0-9_]{0,5}", prop::collection::vec("[^`]{0,6}", 0..3)).prop_map(
                |(first, mut rest)| {
                    rest.insert(0, first);
                    rest
                },
            )
        };
        let valued = (selector(), operator, "[^`]{0,8}").prop_map(|(selector, operator, value)| {
            Expression::Match { selector, operator, value }
        });
        let empty = prop::sample::select(vec![Operator::IsEmpty, Operator::IsNotEmpty]);
        let bare = (selector(), empty).prop_map(|(selector, operator)| Expression::Match {
            selector,
            operator,
            value: String::new(),
        });
        prop_oneof![valued, bare].prop_recursive(5, 24, 2, |inner| {
            prop_oneof![
                inner.clone().prop_map(|a| Expression::Not(Box::new(a))),
                prop::collection::vec(inner.clone(), 2..4).prop_map(Expression::And),
                prop::collection::vec(inner, 2..4).prop_map(Expression::Or),
            ]
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]

        #[test]
        fn what_was_written_is_read_again(expression in expressions()) {
            prop_assert_eq!(parse(&shown(&expression)), Ok(expression));
        }

        #[test]
        fn any_text_is_read_or_refused_with_a_place(text in ".{0,60}") {
            if let Err(error) = parse(&text) {
                prop_assert!(error.starts_with(|c: char| c.is_ascii_digit()), "{}", error);
            }
        }

        #[test]
        fn a_broken_expression_is_read_or_refused(
            expression in expressions(), cut in 0usize..200, extra in "[ -~]{0,3}",
        ) {
            let mut text = shown(&expression);
            let mut cut = cut.min(text.len());
            while !text.is_char_boundary(cut) { cut -= 1; }
            text.insert_str(cut, &extra);
            drop(parse(&text));
            text.truncate(cut);
            drop(parse(&text));
        }
    }

    #[test]
    fn and_binds_more_than_or_and_not_more_than_both() {
        let read = |text: &str| shown(&parse(text).unwrap());
        assert_eq!(read("a==1 and not b==2 or c==3"), read("((a==1) and (not (b==2))) or (c==3)"));
        assert_eq!(read("a==1 or b==2 and c==3"), read("(a==1) or ((b==2) and (c==3))"));
    }

    #[test]
    fn nesting_has_a_limit() {
        let deep = |depth: usize| format!("{}a==1{}", "(".repeat(depth), ")".repeat(depth));
        assert!(parse(&deep(50)).is_ok());
        for text in [deep(100_000), "not ".repeat(100_000)] {
            let error = parse(&text).unwrap_err();
            assert!(error.contains("at most 100 deep"), "{error}");
        }
        assert!(parse(&format!("{}a==1", "a==1 or a==1 and ".repeat(10_000))).is_ok());
    }
}
