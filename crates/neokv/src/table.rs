//! Tables for people: columns as wide as their widest cell, numbers to the right.

use std::fmt;

/// Rows under a head.
pub struct Table {
    head: Vec<&'static str>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub fn new(head: &[&'static str]) -> Table {
        Table {
            head: head.to_vec(),
            rows: Vec::new(),
        }
    }

    pub fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.rows.push(cells.into());
    }

    /// An empty cell fits both; a dash stands for a number that is not known.
    fn is_number(&self, column: usize) -> bool {
        let mut cells = self.rows.iter().filter_map(|row| row.get(column));
        let digit = |cell: &String| cell.starts_with(|it: char| it.is_ascii_digit());
        let plain = |cell: &String| cell.is_empty() || cell == "-" || is_amount(cell);
        cells.clone().all(plain) && cells.any(digit)
    }

    fn width(&self, column: usize, head: &str) -> usize {
        let cells = self.rows.iter().filter_map(|row| row.get(column));
        let widest = cells.map(|cell| cell.chars().count()).max().unwrap_or(0);
        widest.max(head.chars().count())
    }
}

/// `12`, `1.5`, `3.1 MB`, `250 ms`.
fn is_amount(cell: &str) -> bool {
    let number = cell.split(' ').next().unwrap_or_default();
    number.parse::<f64>().is_ok()
}

impl fmt::Display for Table {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shape: Vec<(usize, bool)> = self
            .head
            .iter()
            .enumerate()
            .map(|(column, head)| (self.width(column, head), self.is_number(column)))
            .collect();
        let mut line = |cells: &mut dyn Iterator<Item = &str>| {
            let mut text = String::new();
            for (cell, (width, right)) in cells.zip(&shape) {
                let width = *width;
                match right {
                    true => text.push_str(&format!("{cell:>width$}  ")),
                    false => text.push_str(&format!("{cell:<width$}  ")),
                }
            }
            writeln!(out, "{}", text.trim_end())
        };
        line(&mut self.head.iter().copied())?;
        for row in &self.rows {
            line(&mut row.iter().map(String::as_str))?;
        }
        Ok(())
    }
}

/// Bytes as people say them.
pub fn bytes(count: u64) -> String {
    let units = ["B", "KB", "MB", "GB", "TB"];
    let mut value = count as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    match unit {
        0 => format!("{count} B"),
        _ => format!("{value:.1} {}", units.get(unit).unwrap_or(&"")),
    }
}

/// Milliseconds as people say them.
pub fn time(ms: u64) -> String {
    match ms {
        0..1000 => format!("{ms} ms"),
        1000..120_000 => format!("{:.1} s", ms as f64 / 1000.0),
        _ => format!("{} min", ms / 60_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_go_right_and_words_left() {
        let mut table = Table::new(&["node", "state", "size"]);
        table.row(["1".into(), "up".into(), bytes(3 << 20)]);
        table.row(["12".into(), "dead".into(), "-".into()]);
        let expected = "node  state    size\n   1  up     3.0 MB\n  12  dead        -\n";
        assert_eq!(table.to_string(), expected);
    }

    #[test]
    fn amounts() {
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(1536), "1.5 KB");
        assert_eq!(bytes(u64::MAX), "16777216.0 TB");
        assert_eq!(time(999), "999 ms");
        assert_eq!(time(1500), "1.5 s");
        assert_eq!(time(600_000), "10 min");
    }
}
