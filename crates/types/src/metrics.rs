//! What Prometheus asks, and the text it is answered with: just enough of HTTP/1.1, and its exposition format 0.0.4.
//!
//! Pure: sockets and deadlines are with whoever listens.

use crate::Histogram;
use std::fmt::{Display, Write};

/// Longest head of a request, bytes.
const REQUEST_BYTES_MAX: usize = 8 << 10;

/// What a request wants.
#[derive(Debug, PartialEq, Eq)]
pub enum Asked {
    /// It has not come in whole.
    Incomplete,
    /// The metrics; `false`: only the head of the answer.
    Metrics(bool),
    /// Something else: the status line to answer with.
    Other(&'static str),
}

/// Looks at what has come so far.
pub fn look(bytes: &[u8]) -> Asked {
    let end = bytes.windows(4).any(|four| four == b"\r\n\r\n")
        || bytes.windows(2).any(|two| two == b"\n\n");
    if !end {
        let too_long = bytes.len() >= REQUEST_BYTES_MAX;
        return if too_long {
            Asked::Other("431 Request Header Fields Too Large")
        } else {
            Asked::Incomplete
        };
    }
    let line = bytes.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let mut words = line.trim_ascii_end().split(|byte| *byte == b' ');
    let (method, path, version) = (words.next(), words.next(), words.next());
    if !version.is_some_and(|version| version.starts_with(b"HTTP/1.")) || words.next().is_some() {
        return Asked::Other("400 Bad Request");
    }
    let path = path.unwrap_or_default().split(|byte| *byte == b'?').next();
    match (method, path) {
        (Some(b"GET"), Some(b"/metrics")) => Asked::Metrics(true),
        (Some(b"HEAD"), Some(b"/metrics")) => Asked::Metrics(false),
        (Some(b"GET" | b"HEAD"), _) => Asked::Other("404 Not Found"),
        _ => Asked::Other("405 Method Not Allowed"),
    }
}

/// An answer; the connection is closed after it.
pub fn answer(status: &str, body: &str, with_body: bool) -> Vec<u8> {
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    let mut bytes = head.into_bytes();
    if with_body {
        bytes.extend_from_slice(body.as_bytes());
    }
    bytes
}

/// One family of metrics: its head, then a line for each sample.
pub struct Family<'a> {
    text: &'a mut String,
    name: &'static str,
}

impl<'a> Family<'a> {
    /// Writes the head. `kind`: `gauge`, `counter` or `histogram`.
    pub fn new(text: &'a mut String, name: &'static str, kind: &str, help: &str) -> Family<'a> {
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        Family { text, name }
    }

    /// One line; labels' values may be any text.
    pub fn sample(&mut self, suffix: &str, labels: &[(&str, &str)], value: impl Display) {
        let _ = write!(self.text, "{}{suffix}", self.name);
        for (at, (label, value)) in labels.iter().enumerate() {
            let before = if at == 0 { '{' } else { ',' };
            let _ = write!(self.text, "{before}{label}=\"");
            for one in value.chars() {
                match one {
                    '\\' | '"' => self.text.extend(['\\', one]),
                    '\n' => self.text.push_str("\\n"),
                    _ => self.text.push(one),
                }
            }
            self.text.push('"');
        }
        let close = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(self.text, "{close} {value}");
    }
}

/// The unit that Prometheus wants.
pub fn seconds(us: u64) -> f64 {
    us as f64 / 1e6
}

/// Bounds of a histogram's classes: 2^3 µs (8 µs) to 2^25 µs (34 s).
const CLASS_POWERS: std::ops::RangeInclusive<u32> = 3..=25;

impl Family<'_> {
    /// A histogram of microseconds, as seconds in classes that double.
    pub fn histogram_us(&mut self, labels: &[(&str, &str)], values: &Histogram) {
        let mut buckets = values.buckets.iter().enumerate().peekable();
        let mut below = 0u64;
        for power in CLASS_POWERS {
            let end = 1u64 << power;
            // Whole microseconds: what is less than `end` ends in a bucket before it.
            while let Some((_, count)) =
                buckets.next_if(|(bucket, _)| Histogram::bucket_max(*bucket) < end)
            {
                below = below.saturating_add(*count);
            }
            let bound = seconds(end).to_string();
            let mut labels = labels.to_vec();
            labels.push(("le", &bound));
            self.sample("_bucket", &labels, below);
        }
        let mut all = labels.to_vec();
        all.push(("le", "+Inf"));
        self.sample("_bucket", &all, values.count);
        self.sample("_sum", labels, seconds(values.sum));
        self.sample("_count", labels, values.count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_told_apart() {
        let long = [b'a'; REQUEST_BYTES_MAX];
        for (bytes, asked) in [
            (&b""[..], Asked::Incomplete),
            (b"GET /metrics HTTP/1.1\r\n", Asked::Incomplete),
            (b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n", Asked::Metrics(true)),
            (b"GET /metrics?x=1 HTTP/1.0\n\n", Asked::Metrics(true)),
            (b"HEAD /metrics HTTP/1.1\r\n\r\n", Asked::Metrics(false)),
            (b"GET / HTTP/1.1\r\n\r\n", Asked::Other("404 Not Found")),
            (b"POST /metrics HTTP/1.1\r\n\r\n", Asked::Other("405 Method Not Allowed")),
            (b"GET /metrics\r\n\r\n", Asked::Other("400 Bad Request")),
            (b"\xff\xfe\r\n\r\n", Asked::Other("400 Bad Request")),
            (&long, Asked::Other("431 Request Header Fields Too Large")),
        ] {
            assert_eq!(look(bytes), asked, "{:?}", String::from_utf8_lossy(bytes));
        }
    }

    #[test]
    fn labels_are_quoted_and_classes_count_what_is_below_them() {
        let mut text = String::new();
        let mut family = Family::new(&mut text, "a_seconds", "histogram", "Times.");
        let mut times = Histogram::default();
        [0, 7, 8, 1000, 1 << 25, u64::MAX >> 8].into_iter().for_each(|us| times.record(us));
        family.histogram_us(&[("job", "a\"\\\nb")], &times);
        let job = r#"job="a\"\\\nb""#;
        for line in [
            "# HELP a_seconds Times.".to_string(),
            "# TYPE a_seconds histogram".to_string(),
            format!("a_seconds_bucket{{{job},le=\"0.000008\"}} 2"),
            format!("a_seconds_bucket{{{job},le=\"0.000016\"}} 3"),
            format!("a_seconds_bucket{{{job},le=\"0.000512\"}} 3"),
            format!("a_seconds_bucket{{{job},le=\"0.001024\"}} 4"),
            format!("a_seconds_bucket{{{job},le=\"33.554432\"}} 4"),
            format!("a_seconds_bucket{{{job},le=\"+Inf\"}} 6"),
            format!("a_seconds_count{{{job}}} 6"),
        ] {
            assert!(text.lines().any(|known| known == line), "{line}\n{text}");
        }
        assert_eq!(text.lines().count(), 2 + 23 + 3);
    }
}
