//! The way in for Prometheus: a socket that answers `GET /metrics`, and nothing else.
//!
//! A thread for each of a few connections, with a deadline; when there are too many, the oldest goes. Nothing
//! that comes in is kept longer than its connection.

use rustix::net::Shutdown;
use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use types::metrics::{Asked, answer, look};
use types::{Error, Result};

/// What a connection may take.
#[derive(Clone, Copy)]
pub struct Limits {
    /// From being accepted to its end.
    pub time_max: Duration,
    pub connections_max: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { time_max: Duration::from_secs(15), connections_max: 16 }
    }
}

/// Who makes the text; `None`: it cannot be had now.
pub type Source = Arc<dyn Fn() -> Option<String> + Send + Sync>;

/// A socket that answers, until this is dropped.
pub struct MetricsDoor {
    listener: Arc<TcpListener>,
    is_closing: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    open: Open,
}

/// Connections that are served, the oldest first.
type Open = Arc<Mutex<VecDeque<(u64, Arc<TcpStream>)>>>;

impl MetricsDoor {
    /// Listens at an address; nobody is answered before [`MetricsDoor::serve`].
    pub fn bind(address: SocketAddr) -> Result<TcpListener> {
        TcpListener::bind(address)
            .map_err(|error| Error::io(format!("listening for metrics at {address}"), error))
    }

    /// Answers who comes.
    pub fn serve(listener: TcpListener, source: Source, limits: Limits) -> Result<MetricsDoor> {
        let listener = Arc::new(listener);
        let is_closing = Arc::new(AtomicBool::new(false));
        let open = Open::default();
        let body = {
            let (listener, is_closing, open) = (listener.clone(), is_closing.clone(), open.clone());
            move || accept_all(&listener, &is_closing, &open, &source, limits)
        };
        let thread = std::thread::Builder::new()
            .name("azk-metrics".into())
            .spawn(body)
            .map_err(|error| Error::io("starting the thread for metrics", error))?;
        Ok(MetricsDoor { listener, is_closing, thread: Some(thread), open })
    }
}

impl Drop for MetricsDoor {
    fn drop(&mut self) {
        self.is_closing.store(true, Ordering::SeqCst);
        // Wakes the thread that accepts.
        let _ = rustix::net::shutdown(&*self.listener, Shutdown::Both);
        if let Some(thread) = self.thread.take() {
            // It has nothing to tell.
            let _ = thread.join();
        }
        for (_, stream) in self.open.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            // Its thread ends by itself.
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
    }
}

fn accept_all(
    listener: &TcpListener,
    is_closing: &AtomicBool,
    open: &Open,
    source: &Source,
    limits: Limits,
) {
    for number in 0.. {
        let accepted = listener.accept();
        if is_closing.load(Ordering::SeqCst) {
            return;
        }
        let stream = match accepted {
            Ok((stream, _)) => Arc::new(stream),
            Err(error) => {
                tracing::warn!("accepting who asks for metrics: {error}");
                // timer: descriptors may be used up: a pause before another try.
                std::thread::sleep(Duration::from_millis(100));
                continue;
            }
        };
        let mut all = open.lock().unwrap_or_else(PoisonError::into_inner);
        while all.len() >= limits.connections_max
            && let Some((_, oldest)) = all.pop_front()
        {
            // Its thread finds it closed.
            let _ = oldest.shutdown(std::net::Shutdown::Both);
        }
        all.push_back((number, stream.clone()));
        drop(all);
        let (opened, source) = (open.clone(), source.clone());
        let body = move || {
            // Who goes away in between has nothing to complain about.
            let _ = serve(&stream, &source, Instant::now() + limits.time_max);
            let mut all = opened.lock().unwrap_or_else(PoisonError::into_inner);
            all.retain(|(known, _)| *known != number);
        };
        let thread = std::thread::Builder::new().name("azk-metrics-call".into()).spawn(body);
        if let Err(error) = thread {
            tracing::warn!("answering who asks for metrics: {error}");
            open.lock()
                .unwrap_or_else(PoisonError::into_inner)
                .retain(|(known, _)| *known != number);
        }
    }
}

/// Time until the deadline; an error when there is none: zero would mean for ever.
fn left(deadline: Instant) -> std::io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(left) }
}

/// Reads a request, answers it.
fn serve(mut stream: &TcpStream, source: &Source, deadline: Instant) -> std::io::Result<()> {
    let mut head = Vec::new();
    let mut room = [0; 1024];
    let reply = loop {
        match look(&head) {
            Asked::Incomplete => {}
            Asked::Metrics(with_body) => {
                break match source() {
                    Some(text) => answer("200 OK", &text, with_body),
                    None => answer("503 Service Unavailable", "the engine does not answer\n", true),
                };
            }
            Asked::Other(status) => break answer(status, &format!("{status}\n"), true),
        }
        stream.set_read_timeout(Some(left(deadline)?))?;
        match stream.read(&mut room) {
            Ok(0) => return Ok(()),
            Ok(bytes) => head.extend_from_slice(&room[..bytes]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    };
    let mut rest = &reply[..];
    while !rest.is_empty() {
        stream.set_write_timeout(Some(left(deadline)?))?;
        match stream.write(rest) {
            Ok(bytes) => rest = &rest[bytes..],
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    // Closing with something unread would take the answer back.
    stream.shutdown(std::net::Shutdown::Write)?;
    loop {
        stream.set_read_timeout(Some(left(deadline)?))?;
        if stream.read(&mut room)? == 0 {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(3600);

    fn door(limits: Limits, source: Source) -> (MetricsDoor, SocketAddr) {
        let listener = MetricsDoor::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.local_addr().unwrap();
        (MetricsDoor::serve(listener, source, limits).unwrap(), address)
    }

    fn limits(time_max: Duration) -> Limits {
        Limits { time_max, connections_max: 4 }
    }

    fn ask(address: SocketAddr, request: &[u8]) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(request).unwrap();
        let mut text = Vec::new();
        stream.read_to_end(&mut text).unwrap();
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn who_asks_in_order_is_answered_and_garbage_is_refused() {
        let (_door, address) = door(limits(LONG), Arc::new(|| Some("a 1\n".into())));
        for _ in 0..20 {
            let text = ask(address, b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
            assert!(text.starts_with("HTTP/1.1 200 ") && text.ends_with("\r\n\r\na 1\n"), "{text}");
        }
        let text = ask(address, b"HEAD /metrics HTTP/1.1\r\n\r\n");
        assert!(text.contains("Content-Length: 4\r\n") && text.ends_with("\r\n\r\n"), "{text}");
        assert!(ask(address, b"GET /else HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404 "));
        assert!(ask(address, b"\0\xff\xfe\r\n\r\n").starts_with("HTTP/1.1 400 "));
        assert!(ask(address, &[b'a'; 9000]).starts_with("HTTP/1.1 431 "));
        let (_door, address) = door(limits(LONG), Arc::new(|| None));
        assert!(ask(address, b"GET /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 503 "));
    }

    #[test]
    fn who_says_nothing_is_closed_in_time() {
        let (_door, address) = door(limits(Duration::from_millis(1)), Arc::new(|| None));
        let mut stream = TcpStream::connect(address).unwrap();
        let mut room = [0; 1];
        // Closed in order, or by a reset.
        assert!(matches!(stream.read(&mut room), Ok(0) | Err(_)));
    }

    #[test]
    fn many_who_say_nothing_keep_nobody_out() {
        let (_door, address) = door(limits(LONG), Arc::new(|| Some("a 1\n".into())));
        let idle: Vec<TcpStream> = (0..40).map(|_| TcpStream::connect(address).unwrap()).collect();
        let text = ask(address, b"GET /metrics HTTP/1.1\r\n\r\n");
        assert!(text.starts_with("HTTP/1.1 200 "), "{text}");
        let mut room = [0; 1];
        assert!(matches!((&idle[0]).read(&mut room), Ok(0) | Err(_)));
    }

    #[test]
    fn a_closed_door_leaves_no_thread_and_no_socket() {
        let (door, address) = door(limits(LONG), Arc::new(|| None));
        let mut idle = TcpStream::connect(address).unwrap();
        drop(door);
        let mut room = [0; 1];
        assert!(matches!(idle.read(&mut room), Ok(0) | Err(_)));
    }
}
