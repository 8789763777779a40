//! Plain tables for people: first column to the left, the others to the right.

use std::fmt;
use types::size;

/// Rows of cells, the first row being the heads.
#[derive(Clone, Debug, Default)]
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these heads.
    pub fn new(heads: &[&str]) -> Table {
        Table { rows: vec![heads.iter().map(|head| head.to_string()).collect()] }
    }

    pub fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        for row in &self.rows {
            let mut line = String::new();
            for (column, cell) in row.iter().enumerate() {
                let width = widths[column];
                if column == 0 {
                    line.push_str(&format!("{cell:<width$}"));
                } else {
                    line.push_str(&format!("  {cell:>width$}"));
                }
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

/// A rate of operations: `1,033,000`, `58.4`.
pub fn rate(per_s: f64) -> String {
    if per_s < 1000.0 {
        return format!("{per_s:.1}");
    }
    let digits = format!("{per_s:.0}");
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A bandwidth: `4,439.0 MiB/s`.
pub fn bandwidth(bytes_per_s: f64) -> String {
    format!("{} MiB/s", rate(bytes_per_s / (1 << 20) as f64))
}

/// A size without a fraction where there is none: `47008 B`, `1 MiB`.
pub fn bytes(bytes: u64) -> String {
    if bytes.is_multiple_of(1024) { size::format(bytes) } else { format!("{bytes} B") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let mut table = Table::new(&["phase", "op/s"]);
        table.row(vec!["create".into(), "1,000".into()]);
        table.row(vec!["x".into(), "9".into()]);
        assert_eq!(table.to_string(), "phase    op/s\ncreate  1,000\nx           9\n");
    }

    #[test]
    fn numbers_read_well() {
        assert_eq!(rate(0.5), "0.5");
        assert_eq!(rate(999.94), "999.9");
        assert_eq!(rate(1_033_000.4), "1,033,000");
        assert_eq!(rate(12_345.0), "12,345");
        assert_eq!(bandwidth(3.0 * 1024.0 * 1024.0), "3.0 MiB/s");
        assert_eq!(bytes(47_008), "47008 B");
        assert_eq!(bytes(1 << 20), "1 MiB");
    }
}
