//! Values of sensitive variables, which no text may show that is read by people.

use std::{
    collections::{BTreeSet, VecDeque},
    fmt,
    ops::Range,
    sync::{Mutex, MutexGuard, PoisonError},
};

use cts_driver_terraform::language::quote;
use cts_tasks::{Literal, ProviderBlock, Task};
use secrecy::ExposeSecret as _;

/// Text that stands for a value, in Terraform's own words.
const HIDDEN: &str = "(sensitive value)";

/// Characters below which a text is hidden only where it stands alone, and a number or a line of
/// several not at all: almost every line holds one of these by chance.
const SHORT: usize = 4;

/// Number of sets of values that are known at once: a run can have an earlier one, because values
/// of providers may change while it waits.
const KEPT: usize = 64;

/// Values of one task's sensitive variables that this process knows.
#[derive(Default)]
pub(crate) struct Mask(Mutex<VecDeque<BTreeSet<String>>>);

impl fmt::Debug for Mask {
    // Not the values, which are secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mask").finish_non_exhaustive()
    }
}

impl Mask {
    fn known(&self) -> MutexGuard<'_, VecDeque<BTreeSet<String>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds the values that go to the platform as sensitive variables: those of providers,
    /// of the environment and of the operator.
    pub(crate) fn note_task(&self, task: &Task, providers: &[ProviderBlock]) {
        let mut texts = BTreeSet::new();
        for provider in providers {
            provider.arguments.values().for_each(|value| add(value, &mut texts));
            for value in provider.task_env.values() {
                add_text(value.expose_secret(), &mut texts);
            }
        }
        for (_, value) in task.env.iter() {
            add_text(value.expose_secret(), &mut texts);
        }
        task.variables.values().for_each(|value| add(value, &mut texts));
        self.note(texts);
    }

    /// Adds texts; those of up to 63 earlier calls stay hidden, too.
    fn note(&self, texts: BTreeSet<String>) {
        let mut known = self.known();
        // Moved to the end, not added twice, or equal sets would push older ones out.
        known.retain(|earlier| *earlier != texts);
        known.push_back(texts);
        if known.len() > KEPT {
            known.pop_front();
        }
    }

    /// Returns the text with every known value replaced, also where it is quoted as
    /// Terraform or JSON quote it.
    pub(crate) fn hide(&self, text: &str) -> String {
        let mut found: Vec<Range<usize>> = Vec::new();
        for value in self.known().iter().flatten() {
            find(text, value, &mut found);
        }
        // By their start, so that overlapping matches become one.
        found.sort_by_key(|range| range.start);
        let mut shown = String::with_capacity(text.len());
        let mut end = 0;
        for range in found {
            if range.start >= end {
                shown.push_str(text.get(end..range.start).unwrap_or_default());
                shown.push_str(HIDDEN);
            }
            end = end.max(range.end);
        }
        shown.push_str(text.get(end..).unwrap_or_default());
        shown
    }
}

/// Adds the places of the value, which may overlap.
fn find(text: &str, value: &str, found: &mut Vec<Range<usize>>) {
    let short = value.chars().count() < SHORT;
    let step = value.chars().next().map_or(1, char::len_utf8);
    let mut from = 0;
    while let Some(at) = text.get(from..).and_then(|rest| rest.find(value)) {
        let range = from + at..from + at + value.len();
        // One character further, not behind the match: in `aaaa`, `aa` is at three places.
        from = range.start + step;
        if !short || stands_alone(text, &range) {
            found.push(range);
        }
    }
}

fn stands_alone(text: &str, range: &Range<usize>) -> bool {
    let before = text.get(..range.start).and_then(|text| text.chars().next_back());
    let after = text.get(range.end..).and_then(|text| text.chars().next());
    ![before, after].into_iter().flatten().any(char::is_alphanumeric)
}

/// Adds the texts by which a value could be seen.
fn add(value: &Literal, texts: &mut BTreeSet<String>) {
    match value {
        Literal::Number(number) => {
            let text = number.to_string();
            if text.len() >= SHORT {
                texts.insert(text);
            }
        }
        Literal::String(text) => add_text(text, texts),
        Literal::List(items) => items.iter().for_each(|item| add(item, texts)),
        Literal::Map(members) => members.values().for_each(|member| add(member, texts)),
        // Booleans and null: hiding every `true` would leave no text readable.
        _ => {}
    }
}

/// Adds each line of a value by itself, because logs are shown line by line.
fn add_text(text: &str, texts: &mut BTreeSet<String>) {
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let single = lines.len() == 1;
    for line in lines {
        if !single && line.chars().count() < SHORT {
            continue;
        }
        texts.insert(line.to_owned());
        let json = serde_json::Value::from(line).to_string();
        // As Go writes JSON: `<`, `>` and `&` are escaped, too.
        let escaped = json.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026");
        for quoted in [quote(line), json, escaped] {
            let bare = quoted.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
            texts.extend(bare.map(str::to_owned));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn mask(values: &[&str]) -> Mask {
        let mask = Mask::default();
        note(&mask, &values.iter().map(|value| Literal::from(*value)).collect::<Vec<_>>());
        mask
    }

    fn note(mask: &Mask, values: &[Literal]) {
        let mut task = cts_tasks::testing::task("web");
        let values = values.iter().enumerate();
        task.variables =
            values.map(|(number, value)| (format!("v{number}"), value.clone())).collect();
        mask.note_task(&task, &[]);
    }

    #[test]
    fn values_are_hidden_however_they_are_quoted() {
        let mask = mask(&["pa\"ss<wo>rd", "-----BEGIN-----\n  4bcd\n}\n"]);
        for line in
            ["is pa\"ss<wo>rd here", "is pa\\\"ss<wo>rd here", "is pa\\\"ss\\u003cwo\\u003erd here"]
        {
            assert_eq!(mask.hide(line), "is (sensitive value) here", "{line}");
        }
        let quoted = r#"key = "-----BEGIN-----\n  4bcd\n}\n""#;
        assert_eq!(mask.hide(quoted), r#"key = "(sensitive value)\n  (sensitive value)\n}\n""#);
        assert_eq!(mask.hide("}"), "}");
    }

    #[test]
    fn short_values_are_hidden_where_they_stand_alone() {
        let mask = mask(&["abc"]);
        let others =
            [Literal::Number(5.into()), Literal::Number(54_321.into()), Literal::Bool(true)];
        note(&mask, &others);
        assert_eq!(
            mask.hide("abc abcd pin=abc Plan: 5 to add, 54321, true"),
            "(sensitive value) abcd pin=(sensitive value) Plan: 5 to add, (sensitive value), true"
        );
    }

    #[test]
    fn earlier_values_stay_hidden_and_overlaps_are_one() {
        let mask = mask(&["first", "secondsecond"]);
        for number in 0..62 {
            note(&mask, &[Literal::from(format!("value-{number}").as_str())]);
        }
        assert_eq!(mask.hide("first value-61"), "(sensitive value) (sensitive value)");
        assert_eq!(mask.hide("secondsecondsecond!"), "(sensitive value)!");
        assert_eq!(format!("{mask:?}"), "Mask { .. }");
    }

    proptest! {
        #[test]
        fn no_value_is_left(value in "[a-zé\"\\\\]{4,8}", before in "\\PC{0,9}", after in "\\PC{0,9}") {
            let mask = mask(&[&value]);
            let shown = mask.hide(&format!("{before}{value}{after}"));
            prop_assert!(shown.contains(HIDDEN));
            prop_assert!(!shown.replace(HIDDEN, "\n").contains(&value));
        }
    }
}
