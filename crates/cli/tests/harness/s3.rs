//! A store that speaks as much of S3 as a tier asks for, with faults. It checks no signature.

use std::collections::{BTreeMap, VecDeque};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard};

#[derive(Default)]
pub struct State {
    /// By path, with the bucket.
    pub objects: BTreeMap<String, Vec<u8>>,
    /// Statuses of the next answers; nothing is done then.
    pub faults: VecDeque<u16>,
    pub request_count: u64,
    /// What credentials requests named.
    pub authorizations: Vec<String>,
}

pub struct S3 {
    pub endpoint: String,
    state: Arc<Mutex<State>>,
}

impl S3 {
    pub fn start() -> S3 {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let state = Arc::new(Mutex::new(State::default()));
        let shared = state.clone();
        // They end with the test's process.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let state = shared.clone();
                std::thread::spawn(move || serve(stream, &state));
            }
        });
        S3 { endpoint, state }
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }
}

/// Answers requests of a connection until it ends.
fn serve(stream: TcpStream, state: &Mutex<State>) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let mut stream = stream;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let mut words = line.split_whitespace();
        let (method, target) = (words.next()?.to_string(), words.next()?.to_string());
        let (mut length, mut authorization, mut range) = (0, String::new(), None);
        loop {
            let mut header = String::new();
            reader.read_line(&mut header).ok()?;
            let header = header.trim();
            let Some((name, value)) = header.split_once(':') else { break };
            match name.to_ascii_lowercase().as_str() {
                "content-length" => length = value.trim().parse().ok()?,
                "authorization" => authorization = value.trim().to_string(),
                "range" => range = Some(bounds(value.trim())?),
                _ => {}
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).ok()?;
        let (mut status, mut answer) = answer(state, &method, &target, body, authorization);
        let mut told = String::new();
        if let Some((from, to)) = range.filter(|_| status == 200) {
            told = format!("Content-Range: bytes {from}-{to}/{}\r\n", answer.len());
            answer = answer.get(from..=to)?.to_vec();
            status = 206;
        }
        let head = format!(
            "HTTP/1.1 {status} x\r\n{told}Content-Length: {}\r\nLast-Modified: Wed, 01 Jan 2020 00:00:00 GMT\r\nETag: \"e\"\r\n\r\n",
            answer.len()
        );
        stream.write_all(head.as_bytes()).ok()?;
        if method != "HEAD" {
            stream.write_all(&answer).ok()?;
        }
    }
}

/// First and last byte of a range.
fn bounds(range: &str) -> Option<(usize, usize)> {
    let (from, to) = range.strip_prefix("bytes=")?.split_once('-')?;
    Some((from.parse().ok()?, to.parse().ok()?))
}

fn answer(
    state: &Mutex<State>,
    method: &str,
    target: &str,
    body: Vec<u8>,
    authorization: String,
) -> (u16, Vec<u8>) {
    let mut state = state.lock().unwrap();
    state.request_count += 1;
    state.authorizations.push(authorization);
    if let Some(status) = state.faults.pop_front() {
        let code = if status == 403 { "AccessDenied" } else { "SlowDown" };
        let text = format!("<Error><Code>{code}</Code><Message>not now</Message></Error>");
        return (status, text.into_bytes());
    }
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    match method {
        "PUT" => {
            state.objects.insert(path.to_string(), body);
            (200, Vec::new())
        }
        "DELETE" => {
            state.objects.remove(path);
            (204, Vec::new())
        }
        "GET" if query.contains("list-type=2") => {
            let value = |name: &str| {
                query.split('&').find_map(|pair| pair.strip_prefix(name)).unwrap_or_default()
            };
            let prefix = value("prefix=").replace("%2F", "/");
            let bucket = format!("{}/", path.trim_end_matches('/'));
            let keys = state.objects.iter().filter_map(|(at, data)| {
                let key = at.strip_prefix(&bucket).filter(|key| key.starts_with(&prefix))?;
                Some(format!(
                    "<Contents><Key>{key}</Key><LastModified>2020-01-01T00:00:00.000Z</LastModified>\
                     <ETag>\"e\"</ETag><Size>{}</Size></Contents>",
                    data.len()
                ))
            });
            let all: String = keys.collect();
            let head = "<ListBucketResult><IsTruncated>false</IsTruncated>";
            (200, format!("{head}{all}</ListBucketResult>").into_bytes())
        }
        "GET" | "HEAD" => match state.objects.get(path) {
            Some(data) => (200, data.clone()),
            None => (404, b"<Error><Code>NoSuchKey</Code><Message>none</Message></Error>".to_vec()),
        },
        _ => (501, Vec::new()),
    }
}
