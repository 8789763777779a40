//! What commands print: tables and lines for people, JSON for programs.
//!
//! Invariants: with `--json` standard output holds exactly one JSON document, also when the
//! command fails (`{"error": …}`); progress bars and warnings go to standard error only, bars
//! only to a terminal. A reader that goes away ends the command quietly.

use crate::exit::{Failure, Outcome, exit_code};
use crate::names::shape::Shape;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;
use std::io::{self, BufWriter, IsTerminal, Write};
use types::Error;

/// Where a command's results go.
#[derive(Clone, Copy, Debug)]
pub struct Output {
    pub json: bool,
    /// No progress bars, no closing remarks.
    pub quiet: bool,
    /// Whose JSON it is.
    pub shape: Shape,
}

impl Output {
    /// Prints `data` as JSON, or what `human` writes.
    pub fn show<T: Serialize + ?Sized>(
        &self,
        data: &T,
        human: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> Outcome {
        let mut out = BufWriter::new(io::stdout().lock());
        let written = if self.json {
            self.write_json(&mut out, data).and_then(|()| out.write_all(b"\n"))
        } else {
            human(&mut out)
        };
        written.and_then(|()| out.flush()).map_err(write_failure)
    }

    fn write_json<T: Serialize + ?Sized>(&self, out: impl Write, data: &T) -> io::Result<()> {
        if self.shape == Shape::Own {
            return Ok(serde_json::to_writer_pretty(out, data)?);
        }
        let ours = serde_json::to_value(data)?;
        let theirs = match ours.get("error") {
            Some(_) => self.shape.failure(ours),
            None => self.shape.report(ours),
        };
        Ok(serde_json::to_writer_pretty(out, &theirs)?)
    }

    /// Prints one line for people, or `{"done": true}` for programs.
    pub fn done(&self, line: &str) -> Outcome {
        #[derive(Serialize)]
        struct Done {
            done: bool,
        }
        let quiet = self.quiet;
        self.show(&Done { done: true }, |out| if quiet { Ok(()) } else { writeln!(out, "{line}") })
    }

    /// True when progress bars make sense.
    pub fn shows_progress(&self) -> bool {
        !self.json && !self.quiet && io::stderr().is_terminal()
    }

    /// Reports a failed command; returns its exit code.
    pub fn fail(&self, failure: &Failure) -> u8 {
        let error = match failure {
            Failure::Reported(exit) => return *exit,
            Failure::ReaderGone => return 0,
            Failure::Error(error) => error,
        };
        let exit = exit_code(error.code);
        if self.json {
            // When nobody reads the report the exit code still tells.
            let _ = self.show(&ErrorReport::of(error), |_| Ok(()));
        } else {
            warn_line(format_args!("azekura: {error}"));
        }
        exit
    }
}

/// A progress bar over bytes on standard error, or none.
pub fn bar(shown: bool) -> ProgressBar {
    let bar = match shown {
        true => ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr_with_hz(10)),
        false => ProgressBar::hidden(),
    };
    let template = "{msg:>10} {wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {eta}";
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar
}

/// For waiting without a known end: something that turns on standard error, with a message, or nothing.
pub fn spinner(shown: bool) -> ProgressBar {
    match shown {
        true => ProgressBar::new_spinner(),
        false => ProgressBar::hidden(),
    }
}

/// Writes a line to standard error; a closed one is no reason to stop.
pub fn warn_line(line: std::fmt::Arguments<'_>) {
    let _ = writeln!(io::stderr(), "{line}");
}

/// What becomes of a failed write to standard output.
pub fn write_failure(error: io::Error) -> Failure {
    if error.kind() == io::ErrorKind::BrokenPipe {
        Failure::ReaderGone
    } else {
        Failure::Error(Error::io("writing the output", error))
    }
}

/// The JSON form of an error.
#[derive(Serialize)]
pub struct ErrorReport {
    error: ErrorBody,
}

#[derive(Serialize)]
struct ErrorBody {
    code: String,
    message: String,
    exit: u8,
}

impl ErrorReport {
    /// The report on an error.
    pub fn of(error: &Error) -> ErrorReport {
        let code = format!("{:?}", error.code);
        ErrorReport {
            error: ErrorBody { code, message: error.to_string(), exit: exit_code(error.code) },
        }
    }
}

/// A table whose columns are as wide as their widest cell.
pub struct Table {
    header: Vec<&'static str>,
    /// Columns set flush right.
    right: Vec<bool>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these column titles; a title that begins with `>` is set flush right.
    pub fn new(titles: &[&'static str]) -> Table {
        Table {
            header: titles.iter().map(|title| title.trim_start_matches('>')).collect(),
            right: titles.iter().map(|title| title.starts_with('>')).collect(),
            rows: Vec::new(),
        }
    }

    pub fn row(&mut self, cells: Vec<String>) {
        debug_assert_eq!(cells.len(), self.header.len(), "a cell for each column");
        self.rows.push(cells);
    }

    pub fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut widths: Vec<usize> =
            self.header.iter().map(|title| title.chars().count()).collect();
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        let line = |cells: &[&str]| {
            let mut text = String::new();
            for (at, cell) in cells.iter().enumerate() {
                let (width, gap) = (widths[at], if at == 0 { "" } else { "  " });
                text += gap;
                if self.right[at] {
                    text += &format!("{cell:>width$}");
                } else {
                    text += &format!("{cell:<width$}");
                }
            }
            text.trim_end().to_string()
        };
        writeln!(out, "{}", line(&self.header))?;
        for row in &self.rows {
            writeln!(out, "{}", line(&row.iter().map(String::as_str).collect::<Vec<_>>()))?;
        }
        Ok(())
    }
}

/// Name and value pairs, one a line.
pub fn write_pairs(out: &mut dyn Write, pairs: &[(&str, String)]) -> io::Result<()> {
    let width = pairs.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    for (name, value) in pairs {
        writeln!(out, "{name:<width$}  {value}")?;
    }
    Ok(())
}

/// A text that others have chosen, without what would move a terminal's cursor.
pub fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

/// A duration as people read it.
pub fn seconds_text(seconds: f64) -> String {
    if seconds < 1e-3 {
        format!("{:.0} µs", seconds * 1e6)
    } else if seconds < 1.0 {
        format!("{:.1} ms", seconds * 1e3)
    } else {
        format!("{seconds:.1} s")
    }
}

/// A time as ISO 8601 in UTC, to the second.
pub fn utc(time_ns: i64) -> String {
    let seconds = time_ns.div_euclid(1_000_000_000);
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    // Days to a Gregorian date, counting years from March (Howard Hinnant's algorithm).
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_index = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_index + 2) / 5 + 1;
    let month = if month_index < 10 { month_index + 3 } else { month_index - 9 };
    let year = era * 400 + year_of_era + i64::from(month <= 2);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// `1 target`, `2 targets`.
pub fn plural(count: usize, word: &str) -> String {
    format!("{count} {word}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let mut table = Table::new(&["NAME", ">SIZE"]);
        table.row(vec!["a".into(), "1 KiB".into()]);
        table.row(vec!["longer".into(), "20 B".into()]);
        let mut out = Vec::new();
        table.write(&mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text, "NAME     SIZE\na       1 KiB\nlonger   20 B\n");
    }

    #[test]
    fn what_others_have_named_moves_no_cursor() {
        assert_eq!(printable("job\x1b[2J\nü"), "job?[2J?ü");
    }

    #[test]
    fn times_are_those_of_the_calendar() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_700_000_000, "2023-11-14T22:13:20Z"),
            (-1, "1969-12-31T23:59:59Z"),
            (4_102_444_799, "2099-12-31T23:59:59Z"),
        ] {
            assert_eq!(utc(seconds * 1_000_000_000), text);
        }
    }

    #[test]
    fn an_error_as_json_carries_code_and_exit() {
        let error = Error::new(types::Code::NonExist, "no pool 'tank'");
        let text = serde_json::to_string(&ErrorReport::of(&error)).unwrap();
        assert_eq!(text, r#"{"error":{"code":"NonExist","message":"no pool 'tank'","exit":3}}"#);
    }
}
