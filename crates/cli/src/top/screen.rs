//! A terminal on which the same table is shown again and again: only lines that have changed are sent, so that a slow link will do.

use std::io::{self, Write};

/// Rows of a terminal that does not say how many it has.
const ROWS_DEFAULT: usize = 24;

/// What the terminal shows.
#[derive(Default)]
pub struct Screen(Vec<String>);

impl Screen {
    /// Shows a text, as much of it as fits.
    pub fn show(&mut self, text: &[u8]) -> io::Result<()> {
        let mut out = io::stdout().lock();
        let (rows, columns) = size();
        let text = String::from_utf8_lossy(text);
        let lines = fitting(&text, rows.unwrap_or(ROWS_DEFAULT), columns);
        out.write_all(changes(&self.0, &lines).as_bytes())?;
        out.flush()?;
        self.0 = lines;
        Ok(())
    }
}

/// Rows and columns of the terminal, as far as it says.
fn size() -> (Option<usize>, Option<usize>) {
    let mut size = libc::winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: the request writes one `winsize`, and `size` is one.
    if unsafe { libc::ioctl(libc::STDOUT_FILENO, libc::TIOCGWINSZ, &mut size) } != 0 {
        return (None, None);
    }
    let told = |count: u16| Some(usize::from(count)).filter(|count| *count > 0);
    (told(size.ws_row), told(size.ws_col))
}

/// The lines that fit; the last one tells how many do not.
fn fitting(text: &str, rows: usize, columns: Option<usize>) -> Vec<String> {
    let mut lines: Vec<String> = text.lines().map(str::to_string).collect();
    if lines.len() > rows {
        let left = lines.len() - (rows - 1);
        lines.truncate(rows - 1);
        lines.push(format!("… {left} more lines; --filter and --sort choose"));
    }
    if let Some(columns) = columns {
        lines.iter_mut().for_each(|line| *line = line.chars().take(columns).collect());
    }
    lines
}

/// What makes a terminal that shows `before` show `now`.
fn changes(before: &[String], now: &[String]) -> String {
    let mut out = String::new();
    if before.is_empty() {
        // Clears all.
        out += "\x1b[H\x1b[2J";
    }
    for (at, line) in now.iter().enumerate() {
        if before.get(at) != Some(line) {
            // Goes there, writes, clears the rest of the line.
            out += &format!("\x1b[{};1H{line}\x1b[K", at + 1);
        }
    }
    for at in now.len()..before.len() {
        out += &format!("\x1b[{};1H\x1b[K", at + 1);
    }
    out + &format!("\x1b[{};1H", now.len() + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<String> {
        text.lines().map(str::to_string).collect()
    }

    /// What a terminal shows after these bytes.
    fn played(before: &[String], bytes: &str) -> Vec<String> {
        let mut rows = before.to_vec();
        for part in bytes.split("\x1b[").filter(|part| !part.is_empty()) {
            match part {
                "H" | "K" => {}
                "2J" => rows.clear(),
                _ => {
                    let (row, text) = part.split_once(";1H").unwrap();
                    let row: usize = row.parse().unwrap();
                    if rows.len() < row {
                        rows.resize(row, String::new());
                    }
                    if !text.is_empty() || bytes.contains(&format!("\x1b[{row};1H\x1b[K")) {
                        rows[row - 1] = text.to_string();
                    }
                }
            }
        }
        while rows.last().is_some_and(String::is_empty) {
            rows.pop();
        }
        rows
    }

    #[test]
    fn only_what_has_changed_is_sent_and_the_screen_is_right() {
        let (a, b, c) = (lines("one\ntwo\nthree"), lines("one\n2\nthree"), lines("one"));
        let mut shown = Vec::new();
        for next in [&a, &b, &b, &c, &a] {
            let sent = changes(&shown, next);
            assert_eq!(&played(&shown, &sent), next, "{sent:?}");
            shown.clone_from(next);
        }
        assert!(!changes(&a, &b).contains("three"));
    }

    #[test]
    fn what_does_not_fit_is_counted() {
        let lines = fitting("a\nb\nc\ndddd", 3, Some(2));
        assert_eq!(lines, ["a", "b", "… "]);
        assert_eq!(fitting("a\nb", 2, None), ["a", "b"]);
        assert!(fitting("a\nb\nc", 2, None)[1].starts_with("… 2 more lines"));
    }
}
