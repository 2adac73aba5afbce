//! Compares what a command prints with what the guide shows.
//!
//! A line `...` stands for any number of lines, `[..]` within a line for any characters.
//! Spaces at the ends of lines and of the whole do not count, and several count as one, since
//! columns are as wide as what is in them.

/// Returns `true` if `printed` is what is `shown`.
pub(crate) fn matches(shown: &str, printed: &str) -> bool {
    let (shown, printed) = (plain(shown), plain(printed));
    let shown: Vec<&str> = shown.iter().map(String::as_str).collect();
    let printed: Vec<&str> = printed.iter().map(String::as_str).collect();
    lines(&shown, &printed)
}

fn plain(text: &str) -> Vec<String> {
    let one_space = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    text.trim_end().lines().map(one_space).collect()
}

fn lines(shown: &[&str], printed: &[&str]) -> bool {
    match (shown, printed) {
        ([], rest) => rest.is_empty(),
        (["...", more @ ..], rest) => (0..=rest.len())
            .any(|skipped| rest.get(skipped..).is_some_and(|rest| lines(more, rest))),
        ([first, more @ ..], [line, rest @ ..]) => within(first, line) && lines(more, rest),
        (_, []) => false,
    }
}

fn within(shown: &str, line: &str) -> bool {
    let Some((before, after)) = shown.split_once("[..]") else { return shown == line };
    let Some(rest) = line.strip_prefix(before) else { return false };
    rest.char_indices()
        .map(|(at, _)| at)
        .chain([rest.len()])
        .any(|at| rest.get(at..).is_some_and(|rest| within(after, rest)))
}

#[test]
fn wildcards_stand_for_lines_and_characters() {
    assert!(matches("a\n...\nd", "a\nb\nc\nd\n"));
    assert!(matches("...", ""));
    assert!(matches("took [..] s, [..]", "took 0.1 s, done  "));
    assert!(matches("TASK STATUS\n  a  b", "TASK    STATUS\n a b \n\n"));
    assert!(!matches("a", "a\nb"));
    assert!(!matches("", "a"));
    assert!(!matches("took [..] s", "took 0.1"));
    assert!(!matches("a\n...\nd", "a\nb\n"));
}
