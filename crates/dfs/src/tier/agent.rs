//! The way to an agent: a program on this machine that reaches tiers for programs that cannot.
//!
//! Libraries that are loaded into others know no object stores. They ask over a Unix socket, one connection for each
//! range, or for each file that the tier is to take:
//!
//! | | bytes | field |
//! |---|---|---|
//! | ask | 4 | magic: `AZA1` to read a part, `AZA2` to read some of one, `AZS1` to sync |
//! | | 4 | length of what follows |
//! | | n | to read: container, range and record of the file, as the wire format has them; to sync: UUIDs of pool and container, the file's directory, name and object |
//! | answer | 1 | 0: data follow; 1: an error |
//! | | 4 | length of what follows |
//! | | n | the bytes (of some of a part first 8 that say where in the file they begin; none of a sync, which is done then), or the error in the wire format |
//!
//! Numbers have their least significant byte first. An agent reads nothing but what the record of a file names, and proves that it
//! is that by the record's checksum; a caller compares each chunk with its stub's as always. Of some of a part there is no checksum in the store: whose
//! chunks differ asks for the whole part. It has a tier take what a file has in the pool, and only for who may write the file.

use super::{CopyPiece, TierAsk, TierRecord, TierSource};
use crate::flags::OpenFlags;
use crate::fs::Dfs;
use crate::node::{Location, Obj};
use async_recursion::async_recursion as boxed;
use futures_channel::oneshot;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, LocalBoxFuture};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use types::{Code, ContId, Error, Key, Oid, Result};
use wire::obj::Recx;

/// The variable that names an agent's socket.
pub const SOCKET_VARIABLE: &str = "AZEKURA_TIER_AGENT";
/// Where it is unless that is set.
pub const SOCKET_DEFAULT: &str = "/run/azekura/tier.sock";

const MAGIC: &[u8; 4] = b"AZA1";
const SOME_MAGIC: &[u8; 4] = b"AZA2";
const SYNC_MAGIC: &[u8; 4] = b"AZS1";
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

/// What a caller wants.
#[derive(Clone, Debug)]
pub enum Ask {
    /// A part of a file's copy.
    Read(TierAsk),
    /// Bytes of a part, at least those of the range.
    ReadSome(TierAsk),
    /// That the tier takes what it does not have of a file.
    Sync(SyncAsk),
}

/// A file that a tier is to take.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SyncAsk {
    /// UUID of the pool.
    pub pool: [u8; 16],
    /// UUID of the container.
    pub cont: [u8; 16],
    /// The directory that the file has its name in.
    pub dir: Oid,
    pub name: Vec<u8>,
    pub oid: Oid,
}

impl SyncAsk {
    /// The file, in a mount of its container.
    ///
    /// Errors: `NonExist` when it has lost that name meanwhile.
    #[boxed(?Send)]
    pub async fn file(&self, fs: &Dfs) -> Result<Obj> {
        types::limits::check_name(&self.name)?;
        let found = fs.shared.fetch_entry(self.dir, &self.name, false).await?;
        let found = found.filter(|found| found.inode.oid == self.oid).ok_or_else(|| {
            Error::new(Code::NonExist, "the file was renamed or removed while it was to be synced")
        })?;
        let location = Location { parent: self.dir, name: Key::new(&self.name) };
        Ok(Obj::new(fs.shared.node(location, found.inode), OpenFlags::READ_WRITE))
    }
}

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
        self.asked(encode_ask(&ask), alone(&ask), Some(AGENT_PAUSE_MAX))
    }

    fn read_around(&self, ask: TierAsk) -> BoxFuture<'static, Result<CopyPiece>> {
        let asked = self.asked(encode_ask_some(&ask), alone(&ask), Some(AGENT_PAUSE_MAX));
        let (agent, part) = (AgentSource::at(&self.socket), ask.whole_part());
        async move {
            match asked.await {
                // An agent of before this could be asked hangs up on it, in most cases after a word.
                Err(error) if matches!(error.code, Code::Proto | Code::Io) => {
                    let read = agent.read(TierAsk { range: part, ..ask });
                    Ok(CopyPiece::new(part.index, Arc::new(read.await?)))
                }
                answer => piece_of(answer?),
            }
        }
        .boxed()
    }

    fn sync<'a>(
        &'a self,
        fs: &'a Dfs,
        file: &'a Obj,
        tier: &'a str,
    ) -> LocalBoxFuture<'a, Result<()>> {
        let cont = fs.container();
        let ask = SyncAsk {
            pool: cont.pool().info().uuid.into_bytes(),
            cont: cont.info().uuid.into_bytes(),
            dir: file.parent_oid(),
            name: file.name().to_vec(),
            oid: file.oid(),
        };
        let alone = format!(
            "the directory's sync policy is posix, and this program cannot reach tier '{tier}'; run 'azekura tier agent', or use a \
             mount or 'azekura fs tier sync'"
        );
        // A file may be large: as long as the agent is there.
        let asked = self.asked(Ok(encode_sync(&ask)), alone, None);
        async move { asked.await.map(|_| ()) }.boxed_local()
    }
}

/// What is said to who asks for bytes where there is no agent.
fn alone(ask: &TierAsk) -> String {
    format!(
        "the data are in tier '{}', which this program cannot reach; run 'azekura tier agent', or bring the data back with \
         'azekura fs tier fetch'",
        ask.record.tier
    )
}

impl AgentSource {
    /// Sends a message and waits for the answer; `alone` is said when there is no agent.
    fn asked(
        &self,
        message: Result<Vec<u8>>,
        alone: String,
        pause_max: Option<Duration>,
    ) -> BoxFuture<'static, Result<Vec<u8>>> {
        let socket = self.socket.clone();
        let (sender, answered) = oneshot::channel();
        // On a thread of its own: whoever asks must not block, and a part takes long anyway.
        let started = std::thread::Builder::new().name("azk-tier".into()).spawn(move || {
            let outcome = message.and_then(|message| ask_at(&socket, &message, &alone, pause_max));
            // Whoever asked may have gone.
            let _ = sender.send(outcome);
        });
        async move {
            started.map_err(|error| Error::io("starting a thread", error))?;
            let gone = |_| Error::new(Code::Io, "the thread that asked the tier's agent has ended");
            answered.await.map_err(gone)?
        }
        .boxed()
    }
}

fn ask_at(
    socket: &Path,
    message: &[u8],
    alone: &str,
    pause_max: Option<Duration>,
) -> Result<Vec<u8>> {
    let mut stream = UnixStream::connect(socket).map_err(|error| {
        let text = format!("{alone} (there is no agent at {}: {error})", socket.display());
        Error::new(Code::Unreach, text)
    })?;
    let failed =
        |error| Error::io(format!("asking the tier's agent at {}", socket.display()), error);
    stream.set_read_timeout(pause_max).map_err(failed)?;
    stream.set_write_timeout(Some(CALLER_PAUSE_MAX)).map_err(failed)?;
    stream.write_all(message).map_err(failed)?;
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
    Ok(message(MAGIC, &body_of(ask)?))
}

/// The bytes of an ask for some of a part.
///
/// Errors: as for [`encode_ask`].
pub fn encode_ask_some(ask: &TierAsk) -> Result<Vec<u8>> {
    Ok(message(SOME_MAGIC, &body_of(ask)?))
}

fn body_of(ask: &TierAsk) -> Result<Vec<u8>> {
    Ok(wire::encode(&(ask.cont, ask.range, ask.record.encode()?)))
}

fn message(magic: &[u8; 4], body: &[u8]) -> Vec<u8> {
    let mut message = magic.to_vec();
    message.extend_from_slice(&(body.len() as u32).to_le_bytes());
    message.extend_from_slice(body);
    message
}

/// The bytes of an ask to sync.
pub fn encode_sync(ask: &SyncAsk) -> Vec<u8> {
    message(SYNC_MAGIC, &wire::encode(&(ask.pool, ask.cont, ask.dir, &ask.name, ask.oid)))
}

/// What an ask to sync says, without magic and length.
///
/// Errors: `Proto` for what is none.
pub fn decode_sync(body: &[u8]) -> Result<SyncAsk> {
    let (pool, cont, dir, name, oid) =
        wire::decode::<([u8; 16], [u8; 16], Oid, Vec<u8>, Oid)>(body)?;
    Ok(SyncAsk { pool, cont, dir, name, oid })
}

/// What an ask says, without magic and length.
///
/// Errors: `Proto` for what is none.
pub fn decode_ask(body: &[u8]) -> Result<TierAsk> {
    let ask = ask_of(body)?;
    if ask.record.part_bytes == 0 || ask.range.index % ask.record.part_bytes != 0 {
        return Err(Error::new(Code::Proto, "no part of the copy begins there"));
    }
    Ok(ask)
}

/// What an ask for some of a part says, without magic and length.
///
/// Errors: `Proto` for what is none.
pub fn decode_ask_some(body: &[u8]) -> Result<TierAsk> {
    let ask = ask_of(body)?;
    let Recx { index, count } = ask.range;
    let within = index.checked_rem(ask.record.part_bytes);
    let end = within.and_then(|within| within.checked_add(count));
    // As much at once as an answer can have: whatever a record says, nobody has more fetched than that.
    let most = ask.record.part_bytes.min(ANSWER_BYTES_MAX as u64);
    if count == 0 || count > most || end.is_none_or(|end| end > ask.record.part_bytes) {
        return Err(Error::new(Code::Proto, "no part of the copy has that range"));
    }
    Ok(ask)
}

fn ask_of(body: &[u8]) -> Result<TierAsk> {
    let (cont, range, record) = wire::decode::<(ContId, Recx, Vec<u8>)>(body)?;
    Ok(TierAsk { cont, record: TierRecord::decode(&record)?, range })
}

/// What an answer with some of a part says.
fn piece_of(mut answer: Vec<u8>) -> Result<CopyPiece> {
    let from = answer.first_chunk().map(|from| u64::from_le_bytes(*from));
    let short = || Error::new(Code::Proto, "the tier's agent does not say what its answer is");
    let from = from.ok_or_else(short)?;
    answer.drain(..size_of::<u64>());
    Ok(CopyPiece::new(from, Arc::new(answer)))
}

/// Reads an ask from a caller.
pub fn receive(stream: &mut UnixStream) -> Result<Ask> {
    let failed = |error| Error::io("reading what a caller asks", error);
    stream.set_read_timeout(Some(CALLER_PAUSE_MAX)).map_err(failed)?;
    stream.set_write_timeout(Some(CALLER_PAUSE_MAX)).map_err(failed)?;
    let mut head = [0; 8];
    stream.read_exact(&mut head).map_err(failed)?;
    let [magic @ .., a, b, c, d] = head;
    let read: fn(&[u8]) -> Result<Ask> = match &magic {
        MAGIC => |body| decode_ask(body).map(Ask::Read),
        SOME_MAGIC => |body| decode_ask_some(body).map(Ask::ReadSome),
        SYNC_MAGIC => |body| decode_sync(body).map(Ask::Sync),
        _ => return Err(Error::new(Code::Proto, "no ask of a tier")),
    };
    read(&read_body(stream, u32::from_le_bytes([a, b, c, d]), ASK_BYTES_MAX)?)
}

/// Answers a caller.
pub fn answer(stream: &mut UnixStream, outcome: &Result<Vec<u8>>) -> Result<()> {
    match outcome {
        Ok(data) => send(stream, DATA_FOLLOWS, &[data]),
        Err(error) => send(stream, ERROR_FOLLOWS, &[&wire::encode(error)]),
    }
}

/// Answers a caller that asked for some of a part.
pub fn answer_some(stream: &mut UnixStream, outcome: &Result<CopyPiece>) -> Result<()> {
    match outcome {
        Ok(piece) => send(stream, DATA_FOLLOWS, &[&piece.from.to_le_bytes(), &piece.bytes]),
        Err(error) => send(stream, ERROR_FOLLOWS, &[&wire::encode(error)]),
    }
}

fn send(stream: &mut UnixStream, tag: u8, body: &[&[u8]]) -> Result<()> {
    let length: usize = body.iter().map(|some| some.len()).sum();
    let length = u32::try_from(length).ok().filter(|length| *length <= ANSWER_BYTES_MAX);
    let length = length
        .ok_or_else(|| Error::new(Code::FileTooBig, "a part that is too large to pass on"))?;
    let failed = |error| Error::io("answering a caller", error);
    stream.write_all(&[tag]).map_err(failed)?;
    stream.write_all(&length.to_le_bytes()).map_err(failed)?;
    body.iter().try_for_each(|some| stream.write_all(some).map_err(failed))
}
