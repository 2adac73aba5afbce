//! Tables of text, for a terminal.

/// Rows with their columns aligned, two spaces between them; nothing behind the last.
pub(crate) fn aligned(head: &[&str], rows: &[Vec<String>]) -> String {
    let head: Vec<String> = head.iter().map(|&cell| cell.to_owned()).collect();
    let all: Vec<&Vec<String>> = std::iter::once(&head).chain(rows).collect();
    let widths: Vec<usize> = (0..head.len())
        .map(|column| all.iter().filter_map(|row| row.get(column)).map(|cell| width(cell)).max())
        .map(Option::unwrap_or_default)
        .collect();
    let line = |row: &&Vec<String>| {
        let mut line = String::new();
        for (cell, width_of_column) in row.iter().zip(&widths) {
            line.push_str(cell);
            line.extend(std::iter::repeat_n(' ', width_of_column - width(cell) + 2));
        }
        line.truncate(line.trim_end().len());
        line
    };
    all.iter().map(line).collect::<Vec<_>>().join("\n")
}

fn width(text: &str) -> usize {
    text.chars().count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_longest_cell() {
        let rows = [vec!["a".to_owned(), "ä".to_owned()], vec!["long".to_owned(), "b".to_owned()]];
        assert_eq!(aligned(&["X", "Y"], &rows), "X     Y\na     ä\nlong  b");
        assert_eq!(aligned(&["X"], &[]), "X");
    }
}
