//! Layout of text as `terraform fmt` writes it.

/// Lays out text as `terraform fmt` does: indentation by open brackets, and
/// the `=` signs of consecutive one-line attributes below each other.
///
/// Expects what this module prints: one attribute, bracket or comment a line,
/// single spaces around `=`, no heredocs.
///
/// ```
/// use cts_driver_terraform::language::format;
///
/// assert_eq!(format("a {\nb = 1\nccc = 2\n}\n"), "a {\n  b   = 1\n  ccc = 2\n}\n");
/// ```
pub fn format(text: &str) -> String {
    let lines: Vec<Line<'_>> = text.lines().map(Line::read).collect();
    let indents = indents(&lines);
    let widths = widths(&lines);
    let mut formatted = String::with_capacity(text.len() * 2);
    for ((line, indent), width) in lines.iter().zip(indents).zip(widths) {
        if !line.key.is_empty() {
            formatted.extend(std::iter::repeat_n("  ", indent));
            formatted.push_str(line.key);
            if let Some(value) = line.value {
                let padding = width.saturating_sub(line.key.chars().count());
                formatted.extend(std::iter::repeat_n(' ', padding));
                formatted.push_str(" = ");
                formatted.push_str(value);
            }
        }
        formatted.push('\n');
    }
    formatted
}

/// A line: `value` is what follows `=` when the brackets in it are balanced,
/// and then the line takes part in alignment; else all stands in `key`.
struct Line<'a> {
    key: &'a str,
    value: Option<&'a str>,
    /// Opening brackets less closing ones.
    balance: isize,
}

impl<'a> Line<'a> {
    fn read(line: &'a str) -> Self {
        if line.starts_with('#') {
            return Self { key: line, value: None, balance: 0 };
        }
        let (balance, equals) = scan(line);
        let split = equals.and_then(|at| line.split_at_checked(at));
        let assignment = split.and_then(|(key, rest)| {
            let value = rest.strip_prefix('=')?.trim_start();
            (scan(value).0 == 0).then_some((key.trim_end(), value))
        });
        match assignment {
            Some((key, value)) => Self { key, value: Some(value), balance },
            None => Self { key: line, value: None, balance },
        }
    }
}

/// The balance of brackets outside of strings, and where the first `=` stands.
fn scan(line: &str) -> (isize, Option<usize>) {
    let (mut balance, mut equals) = (0, None);
    let (mut quoted, mut escaped) = (false, false);
    for (at, byte) in line.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            _ if quoted => {}
            b'{' | b'[' | b'(' => balance += 1,
            b'}' | b']' | b')' => balance -= 1,
            b'=' if equals.is_none() => equals = Some(at),
            _ => {}
        }
    }
    (balance, equals)
}

/// The depth of each line. A line that opens several brackets adds one level,
/// which ends when as many are closed.
fn indents(lines: &[Line<'_>]) -> Vec<usize> {
    let mut open: Vec<isize> = Vec::new();
    let mut indents = Vec::with_capacity(lines.len());
    for line in lines {
        let mut to_close = -line.balance;
        while to_close > 0 {
            match open.pop() {
                Some(level) if level > to_close => {
                    open.push(level - to_close);
                    to_close = 0;
                }
                Some(level) => to_close -= level,
                None => to_close = 0,
            }
        }
        indents.push(open.len());
        if line.balance > 0 {
            open.push(line.balance);
        }
    }
    indents
}

/// The width of the longest key in the run that each line belongs to.
fn widths(lines: &[Line<'_>]) -> Vec<usize> {
    let mut widths = Vec::with_capacity(lines.len());
    for run in lines.chunk_by(|above, below| above.value.is_some() == below.value.is_some()) {
        let longest = run.iter().map(|line| line.key.chars().count()).max().unwrap_or(0);
        widths.extend(std::iter::repeat_n(longest, run.len()));
    }
    widths
}

#[cfg(test)]
mod tests {
    use super::format;

    #[test]
    fn runs_of_attributes_are_aligned_and_end_at_a_block() {
        let text = "a = 1\nlonger = 2\nobj = {\nx = 1\nyy = []\n}\nb = {}\n\nc = 3\n";
        let expected = "a      = 1\nlonger = 2\nobj = {\n  x  = 1\n  yy = []\n}\nb = {}\n\nc = 3\n";
        assert_eq!(format(text), expected);
    }

    #[test]
    fn brackets_and_equals_in_strings_do_not_count() {
        let text = "x {\n\"a=\\\"{\" = \"}=[\"\nbb = 1\n}\n";
        assert_eq!(format(text), "x {\n  \"a=\\\"{\" = \"}=[\"\n  bb      = 1\n}\n");
    }

    #[test]
    fn objects_in_a_list_are_indented_as_terraform_fmt_does() {
        let text = "l = [{\na = 1\n}, {\nbb = 2\n}]\nc = 1\n";
        assert_eq!(format(text), "l = [{\n  a = 1\n  }, {\n  bb = 2\n}]\nc = 1\n");
    }

    #[test]
    fn comments_are_left_alone() {
        assert_eq!(format("# a = {\nb = 1\n"), "# a = {\nb = 1\n");
    }
}
