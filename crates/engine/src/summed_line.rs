//! A line of text in a file of its own, with a checksum behind it: people can read it, and a flipped bit is noticed.
//!
//! `17 crc:1a2b3c4d`. Lines of earlier releases have no sum and are taken as they are.

use types::{Code, Error, Result};
use wire::header::crc;

const MARK: &str = " crc:";

/// The line of a file that holds `text`.
pub(crate) fn line(text: &str) -> String {
    format!("{text}{MARK}{:08x}\n", crc(text.as_bytes()))
}

/// What the line of a file holds. `Csum` when it is not what was written.
pub(crate) fn text(line: &str) -> Result<&str> {
    let line = line.trim();
    let Some((text, sum)) = line.rsplit_once(MARK) else { return Ok(line) };
    match u32::from_str_radix(sum, 16) {
        Ok(sum) if sum == crc(text.as_bytes()) => Ok(text),
        _ => Err(Error::new(Code::Csum, "the line is damaged: its checksum does not match")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read_with_and_without_a_sum() {
        assert_eq!(text(&line("17")), Ok("17"));
        assert_eq!(text("17\n"), Ok("17"));
        assert_eq!(text("17 crc:0\n").unwrap_err().code, Code::Csum);
        assert_eq!(text("17 crc:-1\n").unwrap_err().code, Code::Csum);
    }
}
