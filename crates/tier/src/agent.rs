//! An agent: reaches tiers for programs of this machine that cannot, such as those with the preloaded or the C library.
//!
//! Invariants: a caller that says nothing, or nonsense, costs its own connection and one of [`CALLERS_MAX`] places for a
//! bounded time. The agent has a tier take a file of the pool for who may write that file; else it writes nothing.

use dfs::tier::TierSource;
use dfs::tier::agent::{Ask, SyncAsk, answer, answer_some, receive};
use std::fs::Permissions;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use types::{Code, Error, Result};

/// Callers served at once: each may hold a part in memory.
const CALLERS_MAX: usize = 32;

/// Who asks, as the kernel knows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Caller {
    pub uid: u32,
    pub gid: u32,
}

/// Has the tier take a file, if the caller may write it. Runs on a thread of its own, so it may wait.
pub type Syncs = Arc<dyn Fn(&SyncAsk, Caller) -> Result<()> + Send + Sync>;

/// An agent's socket.
pub struct Agent {
    listener: UnixListener,
    path: PathBuf,
}

impl Agent {
    /// Makes the socket, for those whom `mode` lets in. A socket that nobody serves any more is replaced.
    ///
    /// Errors: `Busy` when another agent serves it; `Exist` when something else has the name.
    pub fn bind(path: &Path, mode: u32) -> Result<Agent> {
        let failed = |error| Error::io(format!("the socket {}", path.display()), error);
        if let Some(dir) = path.parent() {
            std::fs::create_dir_all(dir).map_err(failed)?;
        }
        match std::fs::symlink_metadata(path) {
            Ok(found) if !found.file_type().is_socket() => {
                let text = format!("{} is there and no socket", path.display());
                return Err(Error::new(Code::Exist, text));
            }
            Ok(_) if UnixStream::connect(path).is_ok() => {
                let text = format!("another agent serves {}", path.display());
                return Err(Error::new(Code::Busy, text));
            }
            Ok(_) => std::fs::remove_file(path).map_err(failed)?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(failed(error)),
        }
        // Under another name until its mode is right.
        let hidden = path.with_extension(format!("new{}", std::process::id()));
        let listener = UnixListener::bind(&hidden).map_err(failed)?;
        let opened = std::fs::set_permissions(&hidden, Permissions::from_mode(mode))
            .and_then(|()| std::fs::rename(&hidden, path));
        opened.map_err(|error| {
            // What is left says no more than the error.
            let _ = std::fs::remove_file(&hidden);
            failed(error)
        })?;
        Ok(Agent { listener, path: path.to_path_buf() })
    }

    /// Takes the socket away, so that nobody new comes.
    pub fn hide(&self) {
        // Somebody else may have removed it.
        let _ = std::fs::remove_file(&self.path);
    }

    /// Serves callers for ever.
    pub fn serve(&self, source: &Arc<dyn TierSource>, syncs: &Syncs) -> Result<()> {
        let places = Arc::<Places>::default();
        loop {
            let place = Place::take(&places);
            let (stream, _) = match self.listener.accept() {
                Ok(accepted) => accepted,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(Error::io("accepting callers of tiers", error)),
            };
            let (source, syncs) = (source.clone(), syncs.clone());
            let started = std::thread::Builder::new().name("azk-tier".into()).spawn(move || {
                let _place = place;
                if let Err(error) = serve_one(stream, &*source, &syncs) {
                    tracing::debug!("a caller of tiers: {error}");
                }
            });
            if let Err(error) = started {
                tracing::warn!("a caller of tiers is not served: {error}");
            }
        }
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.hide();
    }
}

fn serve_one(mut stream: UnixStream, source: &dyn TierSource, syncs: &Syncs) -> Result<()> {
    let outcome = match receive(&mut stream) {
        Ok(Ask::Sync(ask)) => {
            let peer = rustix::net::sockopt::socket_peercred(&stream)
                .map_err(|error| Error::io("asking who calls", error.into()))?;
            let caller = Caller { uid: peer.uid.as_raw(), gid: peer.gid.as_raw() };
            syncs(&ask, caller).map(|()| Vec::new())
        }
        Ok(Ask::Read(ask)) => {
            let tier = ask.record.tier.clone();
            let read = futures_executor::block_on(source.read(ask));
            read.map_err(|error| error.context(format!("tier '{tier}'")))
        }
        Ok(Ask::ReadSome(ask)) => {
            let tier = ask.record.tier.clone();
            let read = futures_executor::block_on(source.read_around(ask));
            let read = read.map_err(|error| error.context(format!("tier '{tier}'")));
            return answer_some(&mut stream, &read);
        }
        Err(error) => Err(error),
    };
    answer(&mut stream, &outcome)
}

/// How many are served.
#[derive(Default)]
struct Places {
    taken: Mutex<usize>,
    left: Condvar,
}

struct Place(Arc<Places>);

impl Place {
    /// Waits for one.
    fn take(places: &Arc<Places>) -> Place {
        let mut taken = places.taken.lock().unwrap_or_else(PoisonError::into_inner);
        while *taken >= CALLERS_MAX {
            taken = places.left.wait(taken).unwrap_or_else(PoisonError::into_inner);
        }
        *taken += 1;
        Place(places.clone())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        *self.0.taken.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        self.0.left.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dfs::tier::agent::{AgentSource, decode_ask_some, encode_ask_some};
    use dfs::tier::{CopyPiece, TierAsk, TierRecord};
    use futures_util::FutureExt;
    use futures_util::future::BoxFuture;
    use std::io::{Read, Write};
    use types::{ContId, Oid};
    use wire::obj::Recx;

    const PART_BYTES: u64 = 1 << 20;

    /// Answers with bytes that tell what was asked; the third part is lost.
    struct Told;

    fn content(ask: &TierAsk) -> Vec<u8> {
        let text = format!("{:?} {:?} {:?}", ask.cont, ask.record, ask.range);
        text.bytes().cycle().take(ask.range.count as usize).collect()
    }

    impl TierSource for Told {
        fn read(&self, ask: TierAsk) -> BoxFuture<'static, Result<Vec<u8>>> {
            async move {
                match ask.range.index / PART_BYTES {
                    2 => Err(Error::new(Code::NonExist, "the part is gone")),
                    _ => Ok(content(&ask)),
                }
            }
            .boxed()
        }

        /// From a KiB before the range to its end.
        fn read_around(&self, ask: TierAsk) -> BoxFuture<'static, Result<CopyPiece>> {
            let Recx { index, count } = ask.range;
            let range = Recx { index: index - 1024, count: count + 1024 };
            let read = self.read(TierAsk { range, ..ask });
            async move { Ok(CopyPiece::new(range.index, Arc::new(read.await?))) }.boxed()
        }
    }

    fn ask(part: u64) -> TierAsk {
        let record = TierRecord {
            oid: Oid::default(),
            version: 3,
            size: 3 * PART_BYTES,
            part_bytes: PART_BYTES,
            upload: None,
            manifest_sum: [7; 32],
            tier: "cold".into(),
            manifest: "key".into(),
            synced: vec![types::Epoch(5)],
        };
        TierAsk {
            cont: ContId::default(),
            record,
            range: Recx { index: part * PART_BYTES, count: PART_BYTES },
        }
    }

    #[test]
    fn an_agent_reads_for_others_and_hands_errors_on() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run/tier.sock");
        let caller = AgentSource::at(&path);
        let nobody = futures_executor::block_on(caller.read(ask(0))).unwrap_err();
        assert_eq!(nobody.code, Code::Unreach);
        assert!(nobody.to_string().contains("azekura tier agent"), "{nobody}");
        let agent = Agent::bind(&path, 0o600).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        serve(agent);
        let callers: Vec<_> = (0..100)
            .map(|number| {
                let part = number % 2;
                let read = caller.read(ask(part));
                std::thread::spawn(move || {
                    assert!(futures_executor::block_on(read).unwrap() == content(&ask(part)))
                })
            })
            .collect();
        callers.into_iter().for_each(|caller| caller.join().unwrap());
        let lost = futures_executor::block_on(caller.read(ask(2))).unwrap_err();
        assert_eq!(lost.code, Code::NonExist);
        assert!(lost.to_string().contains("the part is gone"), "{lost}");
        let busy = Agent::bind(&path, 0o600).err().unwrap();
        assert_eq!(busy.code, Code::Busy);
        // Nonsense costs its own connection only.
        for nonsense in
            [&b"GET / HTTP/1.1\r\n\r\n"[..], b"AZA1\xff\xff\xff\xff", b"AZA1\x03\0\0\0abc"]
        {
            let mut stream = UnixStream::connect(&path).unwrap();
            stream.write_all(nonsense).unwrap();
            let mut told = Vec::new();
            // The agent may hang up before it has read all.
            let _ = stream.read_to_end(&mut told);
            assert!(told.is_empty() || told[0] == 1, "{told:?}");
        }
        assert!(futures_executor::block_on(caller.read(ask(1))).is_ok());
    }

    fn serve(agent: Agent) {
        let syncs: Syncs = Arc::new(|_, _| Err(Error::new(Code::Access, "not yours")));
        std::thread::spawn(move || agent.serve(&(Arc::new(Told) as Arc<dyn TierSource>), &syncs));
    }

    /// A program that had asked for 4 KiB of a part once waited for all of it, for nothing else could be asked for.
    #[test]
    fn some_of_a_part_comes_without_the_rest_of_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tier.sock");
        serve(Agent::bind(&path, 0o600).unwrap());
        let caller = AgentSource::at(&path);
        let some = |index, count| TierAsk { range: Recx { index, count }, ..ask(0) };
        let read = |ask| futures_executor::block_on(caller.read_around(ask));
        let piece = read(some(PART_BYTES + 4096, 4096)).unwrap();
        let told = content(&some(PART_BYTES + 3072, 5120));
        assert!(piece.from == PART_BYTES + 3072 && *piece.bytes == told);
        assert_eq!(read(some(2 * PART_BYTES + 4096, 10)).unwrap_err().code, Code::NonExist);
        // What no part has is not asked of the store.
        for (index, count) in [(4096, PART_BYTES), (4096, 0), (0, PART_BYTES + 1), (5, u64::MAX)] {
            let refused = encode_ask_some(&some(index, count)).unwrap();
            assert_eq!(decode_ask_some(&refused[8..]).unwrap_err().code, Code::Proto);
        }
        let last = encode_ask_some(&some(PART_BYTES - 1, 1)).unwrap();
        assert_eq!(decode_ask_some(&last[8..]).unwrap().range.count, 1);
    }

    /// An agent that runs on from before an upgrade knows of whole parts only.
    #[test]
    fn an_older_agent_gives_the_whole_part() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tier.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let older = std::thread::spawn(move || {
            let mut asked = Vec::new();
            while asked.len() < 2 {
                let (mut stream, _) = listener.accept().unwrap();
                let mut magic = [0; 4];
                stream.read_exact(&mut magic).unwrap();
                asked.push(magic);
                let outcome = match &magic {
                    b"AZA1" => Ok(content(&ask(1))),
                    _ => Err(Error::new(Code::Proto, "no ask of a tier")),
                };
                answer(&mut stream, &outcome).unwrap();
            }
            asked
        });
        let range = Recx { index: PART_BYTES + 4096, count: 4096 };
        let read = AgentSource::at(&path).read_around(TierAsk { range, ..ask(1) });
        let piece = futures_executor::block_on(read).unwrap();
        assert!(piece.from == PART_BYTES && *piece.bytes == content(&ask(1)));
        assert_eq!(older.join().unwrap(), [*b"AZA2", *b"AZA1"]);
    }

    #[test]
    fn what_is_no_socket_is_left_alone_and_a_dead_one_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, "precious").unwrap();
        assert_eq!(Agent::bind(&path, 0o600).err().unwrap().code, Code::Exist);
        assert_eq!(std::fs::read(&path).unwrap(), b"precious");
        let path = dir.path().join("socket");
        drop(UnixListener::bind(&path).unwrap());
        let agent = Agent::bind(&path, 0o660).unwrap();
        drop(agent);
        assert!(!path.exists());
    }
}
