//! `azekura metrics`: the figures of an engine, as Prometheus gets them.

use crate::exit::Outcome;
use crate::session::Session;
use engine::EngineConfig;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::path::PathBuf;
use types::{Code, Error, Result};

/// Most that an engine's figures take, bytes.
const TEXT_BYTES_MAX: u64 = 256 << 20;

/// Print the figures of an engine, as Prometheus gets them.
///
/// The engine's configuration says where: `listen` under `[metrics]`. docs/monitor.md tells what each figure means.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  azekura metrics 127.0.0.1:7711
  azekura metrics --config /etc/azekura/engine.toml | grep ^azekura_log")]
pub struct MetricsArgs {
    /// Where the engine tells its figures
    #[arg(value_name = "HOST:PORT", required_unless_present = "config", conflicts_with = "config")]
    address: Option<String>,
    /// The engine's configuration file, which says where
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// Runs the command.
pub fn run(session: &Session, args: &MetricsArgs) -> Outcome {
    let address = match (&args.address, &args.config) {
        (Some(address), _) => address.clone(),
        (None, Some(file)) => {
            let config = EngineConfig::read(file)?;
            let Some(metrics) = config.metrics else {
                return Err(Error::inval(format!(
                    "{}: the engine tells no figures; give it listen = \"127.0.0.1:7711\" under [metrics]",
                    file.display()
                ))
                .into());
            };
            if metrics.address()?.port() == 0 {
                let why =
                    "the engine chooses a port when it starts; its log tells which, give HOST:PORT";
                return Err(Error::inval(why).into());
            }
            metrics.listen
        }
        (None, None) => return Err(Error::inval("give HOST:PORT or --config FILE").into()),
    };
    let text = ask(session, &address)?;
    session.out.show(&text, |out| write!(out, "{text}"))
}

/// The figures that are told at an address.
pub fn ask(session: &Session, address: &str) -> Result<String> {
    let failed = |error: std::io::Error| {
        let why = match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => "no answer in time".to_string(),
            _ => error.to_string(),
        };
        Error::new(Code::Unreach, format!("no figures of an engine at {address}: {why}"))
    };
    let mut places = address
        .to_socket_addrs()
        .map_err(|error| Error::inval(format!("'{address}' is no HOST:PORT: {error}")))?;
    let place = places.next().ok_or_else(|| Error::inval(format!("'{address}' has no address")))?;
    let mut stream = TcpStream::connect_timeout(&place, session.timeout).map_err(failed)?;
    stream.set_read_timeout(Some(session.timeout)).map_err(failed)?;
    let request = format!("GET /metrics HTTP/1.1\r\nHost: {address}\r\n\r\n");
    stream.write_all(request.as_bytes()).map_err(failed)?;
    let mut answer = Vec::new();
    stream.take(TEXT_BYTES_MAX).read_to_end(&mut answer).map_err(failed)?;
    let answer = String::from_utf8_lossy(&answer);
    let nonsense =
        || Error::new(Code::Unreach, format!("what is at {address} is no engine's figures"));
    let (head, text) = answer.split_once("\r\n\r\n").ok_or_else(nonsense)?;
    let status = head.lines().next().unwrap_or_default();
    match status.strip_prefix("HTTP/1.1 ") {
        Some("200 OK") => Ok(text.to_string()),
        Some(other) => {
            Err(Error::new(Code::Unreach, format!("the engine at {address} says: {other}")))
        }
        None => Err(nonsense()),
    }
}
