//! Just enough HTTP/1.1 to be asked for metrics.

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
pub(super) fn answer(status: &str, body: &str, with_body: bool) -> Vec<u8> {
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
}
