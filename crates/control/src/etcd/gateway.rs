//! Requests to etcd, over its JSON gateway: which member to ask, logging in, what went wrong.

use super::answers::{AnyAnswer, Login, Refusal, parse};
use super::certificates;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use types::{Code, Error, Result};
use ureq::Agent;
use ureq::tls::TlsConfig;

/// Bytes of an answer, at most: far more than a page of a listing.
const ANSWER_BYTES_MAX: u64 = 256 << 20;
/// Pause before asking again whoever gave no answer; doubles up to the greatest.
const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// A member whose machine is gone answers nothing, not even that. Who is there takes a connection within this time, also when its answers are slow (two
/// tries of the kernel's), ...
const CONNECT_TIME_MAX: Duration = Duration::from_secs(2);
/// ... so one that has not been used for so long is made anew rather than trusted.
const IDLE_TIME_MAX: Duration = Duration::from_millis(500);

/// How to reach etcd, and as whom.
#[derive(Clone, Default)]
pub struct EtcdAccess {
    /// `http://HOST:PORT` or `https://HOST:PORT` of its members.
    pub endpoints: Vec<String>,
    /// PEM file with the authorities that sign the members' certificates; `None`: those of Mozilla.
    pub ca: Option<PathBuf>,
    /// PEM file with this client's certificate, if etcd asks for one, and the one with its key.
    pub cert: Option<PathBuf>,
    pub key: Option<PathBuf>,
    /// Name and password, if etcd asks for them.
    pub login: Option<(String, String)>,
}

/// Why there is no answer.
pub enum Failure {
    /// etcd has said no, or the request never reached it: nothing was done.
    Not(Error),
    /// It may or may not have been done, or be done yet.
    Maybe(Error),
}

impl Failure {
    pub fn into_error(self) -> Error {
        match self {
            Failure::Not(error) | Failure::Maybe(error) => error,
        }
    }
}

/// How one attempt at one member failed.
enum Fault {
    /// It said no; the others would say the same.
    Refused(Error),
    /// It was not reached.
    Unsent(Error),
    /// It is of another cluster, so nothing was done where it was to be.
    Foreign(Error),
    /// No answer, or that it does not know.
    Unknown(Error),
}

/// A client of one etcd.
pub struct Gateway {
    agent: Agent,
    access: EtcdAccess,
    /// Of the files that the agent was made of.
    stamp: certificates::Stamp,
    endpoints: Vec<String>,
    /// Which endpoint is asked.
    at: usize,
    token: Option<String>,
    /// The cluster that answered first.
    cluster: Option<String>,
    attempt_time: Duration,
}

fn agent_of(tls: TlsConfig) -> Agent {
    Agent::config_builder()
        .tls_config(tls)
        .http_status_as_error(false)
        .max_redirects(0)
        .proxy(None)
        .timeout_connect(Some(CONNECT_TIME_MAX))
        .max_idle_age(IDLE_TIME_MAX)
        .build()
        .new_agent()
}

/// Looks at what can be known without asking anybody: endpoints, certificates and key. Errors: `Inval`, `Io`.
pub fn check_access(access: &EtcdAccess) -> Result<()> {
    endpoints_of(access)?;
    certificates::read(access).map(|_| ())
}

fn endpoints_of(access: &EtcdAccess) -> Result<Vec<String>> {
    if access.endpoints.is_empty() {
        return Err(Error::inval("etcd: no endpoint is given"));
    }
    let mut endpoints = Vec::new();
    for endpoint in &access.endpoints {
        if !["http://", "https://"].iter().any(|scheme| endpoint.starts_with(scheme)) {
            return Err(Error::inval(format!(
                "etcd endpoint '{endpoint}' must begin with http:// or https://"
            )));
        }
        endpoints.push(endpoint.trim_end_matches('/').to_string());
    }
    Ok(endpoints)
}

impl Gateway {
    /// Reads certificates; connects to nothing yet. One attempt at one member may take
    /// `attempt_time`. Errors: `Inval`, `Io`.
    pub fn new(access: EtcdAccess, attempt_time: Duration) -> Result<Gateway> {
        let endpoints = endpoints_of(&access)?;
        let stamp = certificates::stamp(&access);
        let agent = agent_of(certificates::read(&access)?);
        let (at, token, cluster) = (0, None, None);
        Ok(Gateway { agent, access, stamp, endpoints, at, token, cluster, attempt_time })
    }

    /// Takes certificates and a key that were renewed: those of before may end at any time. What cannot be used leaves things as they are.
    fn renew(&mut self) {
        let now = certificates::stamp(&self.access);
        if now == self.stamp {
            return;
        }
        self.stamp = now;
        match certificates::read(&self.access) {
            Ok(tls) => {
                self.agent = agent_of(tls);
                tracing::info!("etcd: certificates have been read anew");
            }
            // One of two files may have been written so far; the other one changes the stamp.
            Err(error) => tracing::warn!("etcd: the certificates of before are used on: {error}"),
        }
    }

    /// Asks until there is an answer, etcd refuses, no member is reached, or time is up. A request
    /// may be carried out several times. One that may have been carried out is sent again until
    /// that is known; for one that only reads this does not matter.
    pub fn call<T: DeserializeOwned>(
        &mut self,
        path: &str,
        body: &Value,
        until: Instant,
    ) -> Result<T, Failure> {
        self.renew();
        let body = body.to_string();
        let only_reads = path == "/v3/kv/range";
        let mut maybe = false;
        let mut missed = 0;
        let mut foreign = None;
        let mut pause = PAUSE_MIN;
        if Instant::now() >= until {
            let text = "the requests before this one have used up its time";
            return Err(Failure::Not(unreached(&self.endpoints[self.at], text)));
        }
        loop {
            let error = match self.attempt(path, &body, until) {
                Ok(answer) => return Ok(answer),
                Err(Fault::Refused(error)) if maybe && !only_reads => {
                    return Err(Failure::Maybe(error));
                }
                Err(Fault::Refused(error)) => return Err(Failure::Not(error)),
                Err(Fault::Unsent(error)) => {
                    missed += 1;
                    error
                }
                // The others are asked, as where it gives no answer, and the mistake is told when none does.
                Err(Fault::Foreign(error)) => {
                    missed += 1;
                    foreign.insert(error).clone()
                }
                Err(Fault::Unknown(error)) => {
                    (maybe, missed) = (true, 0);
                    error
                }
            };
            self.at = (self.at + 1) % self.endpoints.len();
            if (!maybe || only_reads) && missed >= self.endpoints.len() {
                return Err(Failure::Not(foreign.unwrap_or(error)));
            }
            if Instant::now() + pause >= until {
                let maybe = maybe && !only_reads;
                return Err(if maybe { Failure::Maybe(error) } else { Failure::Not(error) });
            }
            if maybe {
                std::thread::sleep(pause);
                pause = (pause * 2).min(PAUSE_MAX);
            }
        }
    }

    fn attempt<T: DeserializeOwned>(
        &mut self,
        path: &str,
        body: &str,
        until: Instant,
    ) -> Result<T, Fault> {
        self.log_in(until)?;
        let raw = match self.post(path, body, until) {
            Err(Fault::Refused(error)) if error.code == Code::BadHandle => {
                // The token has expired, or users were changed: once more with a new one.
                self.token = None;
                self.log_in(until)?;
                self.post(path, body, until)
            }
            outcome => outcome,
        }?;
        let strange = |error: Error| Fault::Unknown(error.context(self.endpoints[self.at].clone()));
        let any: AnyAnswer = parse(&raw).map_err(strange)?;
        let answer = parse(&raw).map_err(strange)?;
        let cluster = any.header.cluster_id;
        if !cluster.is_empty() {
            let first = self.cluster.get_or_insert_with(|| cluster.clone());
            if *first != cluster {
                return Err(Fault::Foreign(Error::io(
                    format!("etcd at {}", self.endpoints[self.at]),
                    io::Error::other(format!(
                        "it is of cluster {cluster}, the catalog is in cluster {first}; correct \
                         the endpoints and start the engine again"
                    )),
                )));
            }
        }
        Ok(answer)
    }

    fn log_in(&mut self, until: Instant) -> Result<(), Fault> {
        let Some((name, password)) = self.access.login.as_ref().filter(|_| self.token.is_none())
        else {
            return Ok(());
        };
        let body = json!({ "name": name, "password": password }).to_string();
        let raw =
            self.post("/v3/auth/authenticate", &body, until).map_err(|fault| match fault {
                Fault::Unknown(error) => Fault::Unsent(error),
                fault => fault,
            })?;
        let login: Login = parse(&raw).map_err(Fault::Unsent)?;
        self.token = Some(login.token);
        Ok(())
    }

    fn post(&self, path: &str, body: &str, until: Instant) -> Result<Vec<u8>, Fault> {
        let endpoint = &self.endpoints[self.at];
        let left = until.saturating_duration_since(Instant::now()).min(self.attempt_time);
        let request = self.agent.post(format!("{endpoint}{path}"));
        let mut request = request.config().timeout_global(Some(left)).build();
        request = request.content_type("application/json");
        if let Some(token) = &self.token {
            request = request.header("Authorization", token);
        }
        let failed = |error| fault_of(endpoint, self.access.cert.as_deref(), error);
        let mut response = request.send(body).map_err(failed)?;
        let status = response.status().as_u16();
        let raw = response.body_mut().with_config().limit(ANSWER_BYTES_MAX).read_to_vec();
        let raw = raw.map_err(|error| match failed(error) {
            Fault::Unsent(error) => Fault::Unknown(error),
            fault => fault,
        })?;
        match status {
            200 => Ok(raw),
            _ => Err(refusal(endpoint, status, &raw)),
        }
    }
}

fn unreached(endpoint: &str, why: impl std::fmt::Display) -> Error {
    Error::new(Code::Unreach, format!("etcd at {endpoint}: {why}"))
}

fn fault_of(endpoint: &str, cert: Option<&Path>, error: ureq::Error) -> Fault {
    use io::ErrorKind as Io;
    use ureq::{Error as E, Timeout};
    let mut text = error.to_string();
    // Who refuses a client's certificate hangs up, and most say no more.
    let is_cut = |kind| [Io::BrokenPipe, Io::ConnectionReset, Io::UnexpectedEof].contains(&kind);
    let may_refuse = match &error {
        E::Io(error) => is_cut(error.kind()) || text.contains("received fatal alert"),
        _ => text.contains("received fatal alert"),
    };
    if may_refuse && endpoint.starts_with("https") {
        text += &match cert {
            Some(cert) => format!(
                "; it may refuse the certificate in {}: look when that ends, and who has signed it",
                cert.display()
            ),
            None => "; it may want a certificate ('cert' and 'key')".to_string(),
        };
    }
    let unsent = match &error {
        E::Io(error) => {
            // A certificate is looked at before anything is sent.
            let kinds = [Io::ConnectionRefused, Io::HostUnreachable, Io::NetworkUnreachable];
            kinds.contains(&error.kind()) || text.contains("invalid peer certificate")
        }
        E::Timeout(Timeout::Connect | Timeout::Resolve) => true,
        E::HostNotFound | E::ConnectionFailed | E::BadUri(_) | E::Tls(_) | E::Pem(_) => true,
        _ => text.contains("invalid peer certificate"),
    };
    let error = unreached(endpoint, text);
    if unsent { Fault::Unsent(error) } else { Fault::Unknown(error) }
}

/// What a status other than 200 says.
fn refusal(endpoint: &str, status: u16, raw: &[u8]) -> Fault {
    let Ok(Refusal { code, error }) = parse(raw) else {
        let text = format!("status {status}; is this a client port of etcd 3.4 or newer?");
        return Fault::Unknown(unreached(endpoint, text));
    };
    let has = |part: &str| error.contains(part);
    let refused = |code, advice: &str| {
        Fault::Refused(Error::new(code, format!("etcd at {endpoint}: {error}{advice}")))
    };
    if has("invalid auth token") || has("revision of auth store is old") {
        return refused(Code::BadHandle, "");
    }
    if has("authentication is not enabled") {
        return refused(Code::Inval, "; leave out user and password");
    }
    if has("user name is empty") {
        return refused(Code::NoPerm, "; give user and password");
    }
    if has("authentication failed") || matches!(code, 7 | 16) {
        return refused(Code::NoPerm, "; check user, password and the user's role");
    }
    if has("too large") || has("larger than max") || has("too many operations") {
        return refused(Code::RecordTooBig, "; raise etcd's --max-request-bytes");
    }
    if has("space exceeded") {
        return refused(
            Code::NoSpace,
            "; compact and defragment it, or raise its quota, then disarm",
        );
    }
    if has("compacted") {
        return refused(Code::Stale, "");
    }
    if has("too many requests") {
        return Fault::Unsent(unreached(endpoint, error));
    }
    match code {
        3 | 5 | 9 | 11 | 12 => refused(Code::Io, ""),
        _ => Fault::Unknown(unreached(endpoint, error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader, Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd;
    use std::thread;

    /// Takes no connection any more, as a machine that is gone; ends with what it gives.
    fn fill(listener: &TcpListener) -> Vec<TcpStream> {
        // SAFETY: the descriptor is that of the listener, which lives.
        assert_eq!(unsafe { libc::listen(listener.as_raw_fd(), 0) }, 0);
        let at = listener.local_addr().unwrap();
        let connect = || TcpStream::connect_timeout(&at, Duration::from_millis(300)).ok();
        std::iter::from_fn(connect).collect()
    }

    /// Answers so many requests of one connection, and then nobody.
    fn answer(listener: &TcpListener, count: usize) {
        let (stream, _) = listener.accept().unwrap();
        let mut lines = BufReader::new(stream.try_clone().unwrap());
        for _ in 0..count {
            let mut body_bytes = 0;
            loop {
                let mut line = String::new();
                lines.read_line(&mut line).unwrap();
                if let Some(number) = line.to_lowercase().strip_prefix("content-length:") {
                    body_bytes = number.trim().parse().unwrap();
                }
                if line.trim().is_empty() {
                    break;
                }
            }
            lines.read_exact(&mut vec![0; body_bytes]).unwrap();
            let text = r#"{"header":{"cluster_id":"7"},"kvs":[]}"#;
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", text.len());
            (&stream).write_all(format!("{head}{text}").as_bytes()).unwrap();
        }
        // Not closed: who is gone says nothing.
        std::mem::forget(stream);
    }

    fn look(gateway: &mut Gateway) -> Option<Value> {
        let until = Instant::now() + Duration::from_secs(30);
        gateway.call("/v3/kv/range", &json!({}), until).ok()
    }

    /// An engine and the member of etcd that the leader asks were on one machine, which lost its power: it was eight seconds until the leader asked
    /// another member, and nobody was called down before.
    #[test]
    fn a_member_whose_machine_is_gone_does_not_use_up_the_time() {
        let gone = TcpListener::bind("127.0.0.1:0").unwrap();
        let other = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = |listener: &TcpListener| format!("http://{}", listener.local_addr().unwrap());
        let endpoints = vec![at(&gone), at(&other)];
        let access = EtcdAccess { endpoints, ..EtcdAccess::default() };
        // One attempt could take all there is.
        let mut gateway = Gateway::new(access, Duration::from_secs(60)).unwrap();
        let answering = gone.try_clone().unwrap();
        thread::spawn(move || answer(&answering, 1));
        assert!(look(&mut gateway).is_some());
        let waiting = fill(&gone);
        // The connection to it is there, and nothing comes over it.
        thread::sleep(IDLE_TIME_MAX * 2);
        thread::spawn(move || answer(&other, 1));
        assert!(look(&mut gateway).is_some(), "the other one was not asked");
        drop(waiting);
    }
}
