//! Lays a table out for people: columns as wide as their cells, in as many blocks one below the
//! other as a terminal needs, each with the first column, in which a long name has a line of its
//! own. No I/O.

use std::fmt::Write as _;

use super::fold::COLUMNS_MAX;

/// Between two columns.
const GAP: usize = 2;
/// Letters of a name that fit into the first column.
const NAME_MAX: usize = 16;

/// A cell that is longer moves those behind it. The most that a format can pad to is 65,535.
const CELL_MAX: usize = 4096;

/// The table; its first row is the head, and every row has as many cells.
#[must_use]
pub fn table(rows: &[Vec<String>]) -> String {
    let count = rows.first().map_or(0, Vec::len);
    let len = |cell: &String| cell.chars().count();
    let is_long = |row: &[String]| row.first().map_or(0, len) > NAME_MAX;
    let width = |column: usize| {
        let rows = rows.iter().filter(|row| column > 0 || !is_long(row));
        rows.filter_map(|row| row.get(column)).map(len).max().unwrap_or(0).min(CELL_MAX)
    };
    let widths: Vec<usize> = (0..count).map(width).collect();
    let mut out = String::new();
    let mut from = 1;
    while from < count || out.is_empty() && count > 0 {
        let mut wide = widths[0];
        let mut to = from;
        while to < count && (to == from || wide + GAP + widths[to] <= COLUMNS_MAX) {
            wide += GAP + widths[to];
            to += 1;
        }
        if !out.is_empty() {
            out.push('\n');
        }
        for row in rows {
            let mut line = String::new();
            for column in [0].into_iter().chain(from..to) {
                let mut cell = row[column].as_str();
                if column == 0 && is_long(row) {
                    let _ = writeln!(out, "{cell}");
                    cell = "";
                }
                let _ = write!(line, "{cell:<0$}", widths[column] + GAP);
            }
            let _ = writeln!(out, "{}", line.trim_end());
        }
        from = to.max(from + 1);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wide_table_goes_on_below_with_its_first_column() {
        let row = |name: &str, cell: &str| {
            [name].into_iter().chain([cell; 9]).map(str::to_owned).collect::<Vec<_>>()
        };
        let text = table(&[row("policy", "0123456789"), row("fifo", "1.5")]);
        assert!(text.lines().all(|line| line.len() <= COLUMNS_MAX), "{text}");
        assert_eq!(text.lines().filter(|line| line.starts_with("fifo")).count(), 2, "{text}");
        assert_eq!(text.matches("1.5").count(), 9);
        let narrow =
            table(&[vec!["a".to_owned(), "b".to_owned()], vec!["1".to_owned(), "22".to_owned()]]);
        assert_eq!(narrow, "a  b\n1  22\n");
        let long = "a name of many letters";
        let named =
            table(&[vec!["a".to_owned(), "b".to_owned()], vec![long.to_owned(), "22".to_owned()]]);
        assert_eq!(named, format!("a  b\n{long}\n   22\n"));
        assert_eq!(table(&[]), "");
        let huge = "x".repeat(100_000);
        let text = table(&[vec!["a".to_owned(), huge.clone()], vec!["1".to_owned(), huge]]);
        assert!(text.len() > 200_000);
    }
}
