//! A store that speaks as much of S3 as a tier asks for, with faults. It checks no signature.

use std::collections::{BTreeMap, VecDeque};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// When the store's clock begins, seconds since 1970.
const CLOCK_S: i64 = 1_577_836_800;

#[derive(Default)]
pub struct State {
    /// By path, with the bucket.
    pub objects: BTreeMap<String, Vec<u8>>,
    /// When they were put, by the store's clock.
    times_s: BTreeMap<String, i64>,
    /// How far the store's clock is, which stands still otherwise.
    pub clock_s: i64,
    /// Statuses of the next answers; nothing is done then.
    pub faults: VecDeque<u16>,
    /// Somebody has deleted the bucket.
    pub is_deleted: bool,
    /// So many of the next puts of more than so many bytes get no answer.
    pub silent_puts: (u32, usize),
    pub silent_count: u32,
    /// The request of this number is held, until the value is another, and then gets no answer.
    pub hold: Option<Hold>,
    pub is_held: bool,
    pub request_count: u64,
    /// What credentials requests named.
    pub authorizations: Vec<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hold {
    pub request: u64,
    /// What it asks for is done all the same.
    pub is_done: bool,
}

pub struct S3 {
    pub endpoint: String,
    state: Arc<Mutex<State>>,
}

impl S3 {
    pub fn start() -> S3 {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let state = State { clock_s: CLOCK_S, ..State::default() };
        let state = Arc::new(Mutex::new(state));
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
        {
            let mut now = state.lock().unwrap();
            now.request_count += 1;
            now.authorizations.push(authorization);
            let (count, over) = now.silent_puts;
            if method == "PUT" && count > 0 && body.len() > over {
                now.silent_puts.0 -= 1;
                now.silent_count += 1;
                drop(now);
                // Whoever asks gives up first.
                let _ = reader.read_line(&mut String::new());
                return None;
            }
            let hold = now.hold.filter(|hold| hold.request == now.request_count);
            if let Some(hold) = hold {
                drop(now);
                return held(hold, state, &method, &target, body);
            }
        }
        let (mut status, mut answer, time_s) = answer(state, &method, &target, body);
        let mut told = String::new();
        if let Some((from, to)) = range.filter(|_| status == 200) {
            told = format!("Content-Range: bytes {from}-{to}/{}\r\n", answer.len());
            answer = answer.get(from..=to)?.to_vec();
            status = 206;
        }
        let head = format!(
            "HTTP/1.1 {status} x\r\n{told}Content-Length: {}\r\nLast-Modified: {}\r\nETag: \"e\"\r\n\r\n",
            answer.len(),
            http_date(time_s)
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

/// Holds a request while it is said so; whoever asked gets no answer.
fn held(hold: Hold, state: &Mutex<State>, method: &str, target: &str, body: Vec<u8>) -> Option<()> {
    if hold.is_done {
        answer(state, method, target, body);
    }
    state.lock().unwrap().is_held = true;
    while state.lock().unwrap().hold == Some(hold) {
        std::thread::sleep(Duration::from_millis(2));
    }
    None
}

/// Status, body, and when the object was put.
fn answer(state: &Mutex<State>, method: &str, target: &str, body: Vec<u8>) -> (u16, Vec<u8>, i64) {
    let mut state = state.lock().unwrap();
    let now_s = state.clock_s;
    if let Some(status) = state.faults.pop_front() {
        let code = if status == 403 { "AccessDenied" } else { "SlowDown" };
        let text = format!("<Error><Code>{code}</Code><Message>not now</Message></Error>");
        return (status, text.into_bytes(), now_s);
    }
    if state.is_deleted {
        let text = "<Error><Code>NoSuchBucket</Code><Message>none</Message></Error>";
        return (404, text.as_bytes().to_vec(), now_s);
    }
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    match method {
        "PUT" => {
            state.times_s.insert(path.to_string(), now_s);
            state.objects.insert(path.to_string(), body);
            (200, Vec::new(), now_s)
        }
        "DELETE" => {
            state.objects.remove(path);
            (204, Vec::new(), now_s)
        }
        "GET" if query.contains("list-type=2") => {
            let value = |name: &str| {
                query.split('&').find_map(|pair| pair.strip_prefix(name)).unwrap_or_default()
            };
            let prefix = value("prefix=").replace("%2F", "/");
            let bucket = format!("{}/", path.trim_end_matches('/'));
            let keys = state.objects.iter().filter_map(|(at, data)| {
                let key = at.strip_prefix(&bucket).filter(|key| key.starts_with(&prefix))?;
                let (day, time) = date(state.times_s[at]);
                Some(format!(
                    "<Contents><Key>{key}</Key><LastModified>{}-{:02}-{:02}T{time}.000Z</LastModified>\
                     <ETag>\"e\"</ETag><Size>{}</Size></Contents>",
                    day.0,
                    day.1,
                    day.2,
                    data.len()
                ))
            });
            let all: String = keys.collect();
            let head = "<ListBucketResult><IsTruncated>false</IsTruncated>";
            (200, format!("{head}{all}</ListBucketResult>").into_bytes(), now_s)
        }
        "GET" | "HEAD" => match state.objects.get(path) {
            Some(data) => (200, data.clone(), state.times_s[path]),
            None => {
                let text = "<Error><Code>NoSuchKey</Code><Message>none</Message></Error>";
                (404, text.as_bytes().to_vec(), now_s)
            }
        },
        _ => (501, Vec::new(), now_s),
    }
}

/// Year, month, day, and the time of day.
fn date(at_s: i64) -> ((i64, i64, i64), String) {
    let (days, rest) = (at_s.div_euclid(86_400), at_s.rem_euclid(86_400));
    // Years that begin in March, in eras of 400.
    let from = days + 719_468;
    let (era, day) = (from.div_euclid(146_097), from.rem_euclid(146_097));
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let of_month = day - (153 * month + 2) / 5 + 1;
    let (month, later) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    let time = format!("{:02}:{:02}:{:02}", rest / 3600, rest / 60 % 60, rest % 60);
    ((era * 400 + year + later, month, of_month), time)
}

fn http_date(at_s: i64) -> String {
    let ((year, month, day), time) = date(at_s);
    let names = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    let weekday = names[at_s.div_euclid(86_400).rem_euclid(7) as usize];
    let months =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    format!("{weekday}, {day:02} {} {year} {time} GMT", months[month as usize - 1])
}
