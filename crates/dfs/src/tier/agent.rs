//! The way to an agent: a program on this machine that reads tiers for programs that cannot.
//!
//! Libraries that are loaded into others know no object stores. They ask over a Unix socket, one connection for each
//! range:
//!
//! | | bytes | field |
//! |---|---|---|
//! | ask | 4 | magic `AZA1` |
//! | | 4 | length of what follows |
//! | | n | container, range and record of the file, as the wire format has them |
//! | answer | 1 | 0: data follow; 1: an error |
//! | | 4 | length of what follows |
//! | | n | the bytes, or the error in the wire format |
//!
//! Numbers have their least significant byte first. An agent reads nothing but what the record of a file names, and proves that it
//! is that by the record's checksum; a caller compares each chunk with its stub's as always.

use super::{TierAsk, TierRecord, TierSource};
use futures_channel::oneshot;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;
use types::{Code, ContId, Error, Result};
use wire::obj::Recx;

/// The variable that names an agent's socket.
pub const SOCKET_VARIABLE: &str = "AZEKURA_TIER_AGENT";
/// Where it is unless that is set.
pub const SOCKET_DEFAULT: &str = "/run/azekura/tier.sock";

const MAGIC: &[u8; 4] = b"AZA1";
/// Most of an ask: the record of a file with as many groups as there can be.
const ASK_BYTES_MAX: u32 = 1 << 20;
/// Most of an answer: the largest part.
const ANSWER_BYTES_MAX: u32 = 1 << 30;
/// How long a caller may take to say what it wants, and to take some of the answer.
const CALLER_PAUSE_MAX: Duration = Duration::from_secs(30);
/// How long an agent may take for an answer: a store that is slow is tried again for minutes.
const AGENT_PAUSE_MAX: Duration = Duration::from_secs(600);

const DATA_FOLLOWS: u8 = 0;
const ERROR_FOLLOWS: u8 = 1;

/// Reads copies by asking an agent.
pub struct AgentSource {
    socket: PathBuf,
}

impl AgentSource {
    /// The agent that the environment names, or the usual one.
    pub fn from_env() -> AgentSource {
        let named = std::env::var_os(SOCKET_VARIABLE).filter(|name| !name.is_empty());
        AgentSource::at(named.map_or_else(|| PathBuf::from(SOCKET_DEFAULT), PathBuf::from))
    }

    /// The agent at a socket.
    pub fn at(socket: impl Into<PathBuf>) -> AgentSource {
        AgentSource { socket: socket.into() }
    }
}

impl TierSource for AgentSource {
    fn read(&self, ask: TierAsk) -> BoxFuture<'static, Result<Vec<u8>>> {
        let socket = self.socket.clone();
        let (sender, answered) = oneshot::channel();
        // On a thread of its own: whoever asks must not block, and a part takes long anyway.
        let started = std::thread::Builder::new().name("azk-tier".into()).spawn(move || {
            // Whoever asked may have gone.
            let _ = sender.send(read_from(&socket, &ask));
        });
        async move {
            started.map_err(|error| Error::io("starting a thread", error))?;
            let gone = |_| Error::new(Code::Io, "the thread that asked the tier's agent has ended");
            answered.await.map_err(gone)?
        }
        .boxed()
    }
}

fn read_from(socket: &Path, ask: &TierAsk) -> Result<Vec<u8>> {
    let mut stream = UnixStream::connect(socket).map_err(|error| {
        Error::new(
            Code::Unreach,
            format!(
                "the data are in tier '{}', which this program cannot reach, and there is no agent at {} ({error}); run \
                 'azekura tier agent', or bring the data back with 'azekura fs tier fetch'",
                ask.record.tier,
                socket.display()
            ),
        )
    })?;
    let failed =
        |error| Error::io(format!("asking the tier's agent at {}", socket.display()), error);
    stream.set_read_timeout(Some(AGENT_PAUSE_MAX)).map_err(failed)?;
    stream.set_write_timeout(Some(CALLER_PAUSE_MAX)).map_err(failed)?;
    stream.write_all(&encode_ask(ask)?).map_err(failed)?;
    let mut head = [0; 5];
    stream.read_exact(&mut head).map_err(failed)?;
    let [tag, length @ ..] = head;
    let body = read_body(&mut stream, u32::from_le_bytes(length), ANSWER_BYTES_MAX)?;
    match tag {
        DATA_FOLLOWS => Ok(body),
        ERROR_FOLLOWS => Err(wire::decode::<Error>(&body)?),
        _ => Err(Error::new(Code::Proto, "the tier's agent gave no answer that has a meaning")),
    }
}

/// As many bytes as were announced, in memory that grows with what comes.
fn read_body(stream: &mut impl Read, length: u32, most: u32) -> Result<Vec<u8>> {
    if length > most {
        return Err(Error::new(
            Code::Proto,
            format!("a message of {length} bytes; {most} is the most"),
        ));
    }
    let mut body = Vec::new();
    let failed = |error| Error::io("reading from a tier's agent or its caller", error);
    stream.take(length.into()).read_to_end(&mut body).map_err(failed)?;
    match body.len() == length as usize {
        true => Ok(body),
        false => Err(failed(ErrorKind::UnexpectedEof.into())),
    }
}

/// The bytes of an ask.
///
/// Errors: `Inval` for a record that no file can have.
pub fn encode_ask(ask: &TierAsk) -> Result<Vec<u8>> {
    let body = wire::encode(&(ask.cont, ask.range, ask.record.encode()?));
    let mut message = MAGIC.to_vec();
    message.extend_from_slice(&(body.len() as u32).to_le_bytes());
    message.extend_from_slice(&body);
    Ok(message)
}

/// What an ask says, without magic and length.
///
/// Errors: `Proto` for what is none.
pub fn decode_ask(body: &[u8]) -> Result<TierAsk> {
    let (cont, range, record) = wire::decode::<(ContId, Recx, Vec<u8>)>(body)?;
    let record = TierRecord::decode(&record)?;
    if record.part_bytes == 0 || range.index % record.part_bytes != 0 {
        return Err(Error::new(Code::Proto, "no part of the copy begins there"));
    }
    Ok(TierAsk { cont, record, range })
}

/// Reads an ask from a caller.
pub fn receive(stream: &mut UnixStream) -> Result<TierAsk> {
    let failed = |error| Error::io("reading what a caller asks", error);
    stream.set_read_timeout(Some(CALLER_PAUSE_MAX)).map_err(failed)?;
    stream.set_write_timeout(Some(CALLER_PAUSE_MAX)).map_err(failed)?;
    let mut head = [0; 8];
    stream.read_exact(&mut head).map_err(failed)?;
    let [magic @ .., a, b, c, d] = head;
    if magic != *MAGIC {
        return Err(Error::new(Code::Proto, "no ask of a tier"));
    }
    decode_ask(&read_body(stream, u32::from_le_bytes([a, b, c, d]), ASK_BYTES_MAX)?)
}

/// Answers a caller.
pub fn answer(stream: &mut UnixStream, outcome: &Result<Vec<u8>>) -> Result<()> {
    let encoded;
    let (tag, body) = match outcome {
        Ok(data) => (DATA_FOLLOWS, data),
        Err(error) => {
            encoded = wire::encode(error);
            (ERROR_FOLLOWS, &encoded)
        }
    };
    let length = u32::try_from(body.len()).ok().filter(|length| *length <= ANSWER_BYTES_MAX);
    let length = length
        .ok_or_else(|| Error::new(Code::FileTooBig, "a part that is too large to pass on"))?;
    let failed = |error| Error::io("answering a caller", error);
    stream.write_all(&[tag]).map_err(failed)?;
    stream.write_all(&length.to_le_bytes()).map_err(failed)?;
    stream.write_all(body).map_err(failed)
}
