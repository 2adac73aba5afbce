//! Quoted strings and bare names of the Terraform language.

use std::fmt::Write as _;

/// The text as a quoted string of the Terraform language.
///
/// Quotes, backslashes and line breaks are escaped, `${` and `%{` are doubled
/// so that nothing is evaluated, and what cannot be seen is written as
/// `\uXXXX` or `\UXXXXXXXX`.
///
/// ```
/// use cts_driver_terraform::language::quote;
///
/// assert_eq!(quote("say \"${hi}\"\n"), r#""say \"$${hi}\"\n""#);
/// ```
pub fn quote(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    push_quoted(&mut quoted, text);
    quoted
}

/// Appends the text as [`quote`] gives it.
pub(crate) fn push_quoted(quoted: &mut String, text: &str) {
    // Nearly every text of Consul's is plain, and there are many of them.
    let is_plain =
        |byte: u8| matches!(byte, b' '..=b'~') && !matches!(byte, b'"' | b'\\' | b'$' | b'%');
    quoted.reserve(text.len() + 2);
    quoted.push('"');
    if text.bytes().all(is_plain) {
        quoted.push_str(text);
        quoted.push('"');
        return;
    }
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            '"' | '\\' => quoted.extend(['\\', character]),
            '$' | '%' if characters.peek() == Some(&'{') => quoted.extend([character; 2]),
            _ if is_printable(character) => quoted.push(character),
            _ => push_code_point(quoted, character),
        }
    }
    quoted.push('"');
}

/// Returns `true` if the text can stand as a bare name: a letter or `_`, then letters,
/// digits, `_` and `-`, all of ASCII.
pub(crate) fn is_identifier(text: &str) -> bool {
    let mut bytes = text.bytes();
    bytes.next().is_some_and(|first| first == b'_' || first.is_ascii_alphabetic())
        && bytes.all(|byte| byte == b'_' || byte == b'-' || byte.is_ascii_alphanumeric())
}

fn push_code_point(quoted: &mut String, character: char) {
    let code = u32::from(character);
    let written = if code <= 0xffff {
        write!(quoted, "\\u{code:04x}")
    } else {
        write!(quoted, "\\U{code:08x}")
    };
    debug_assert!(written.is_ok(), "writing to a string cannot fail");
}

/// Letters, marks, numbers, punctuation, symbols and the ASCII space.
///
/// The standard library keeps that table for `str::escape_debug`, which leaves
/// them as they are anywhere but at the start of a text, where it also
/// escapes combining marks.
fn is_printable(character: char) -> bool {
    if character.is_ascii() {
        return !character.is_ascii_control();
    }
    let mut buffer = String::with_capacity(5);
    buffer.push('a');
    buffer.push(character);
    buffer.escape_debug().nth(1) == Some(character)
}

#[cfg(test)]
mod tests {
    use super::{is_identifier, quote};

    #[test]
    fn what_the_language_could_misread_is_escaped() {
        for (text, expected) in [
            ("", r#""""#),
            ("plain", r#""plain""#),
            ("a\tb\r\n", r#""a\tb\r\n""#),
            (r#"back\slash "quote""#, r#""back\\slash \"quote\"""#),
            ("${a} %{b} $ { $${c}", r#""$${a} %%{b} $ { $$${c}""#),
            ("$", r#""$""#),
            ("\0\u{1b}\u{7f}", r#""\u0000\u001b\u007f""#),
            ("\u{2028}\u{feff}\u{fffe}", r#""\u2028\ufeff\ufffe""#),
            ("\u{e000}\u{10ffff}", r#""\ue000\U0010ffff""#),
            ("e\u{301} é 語 🦀", "\"e\u{301} é 語 🦀\""),
            ("\u{a0}", r#""\u00a0""#),
        ] {
            assert_eq!(quote(text), expected, "{text:?}");
        }
    }

    #[test]
    fn only_ascii_names_are_bare() {
        for name in ["a", "_", "a-b_9", "A1"] {
            assert!(is_identifier(name), "{name}");
        }
        for name in ["", "1a", "-a", "a b", "a.b", "é", "a\n"] {
            assert!(!is_identifier(name), "{name}");
        }
    }
}
