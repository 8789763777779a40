//! Giving up chunks that a copy has, and keeping the file's mtime while data come and go.

use super::{Chunk, DATA, Stub, Survey, TierRecord, dkey_of};
use crate::fs::{Dfs, inline};
use crate::inode::Inode;
use crate::node::Obj;
use async_recursion::async_recursion as boxed;
use types::{Code, Epoch, Result, Unit};
use wire::obj::{Cond, Op, ReadCheck, ReadScope};

/// Chunks given up in one batch.
const CHUNKS_PER_BATCH: usize = 64;

/// What was given up.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Evicted {
    pub chunks: u64,
    pub bytes: u64,
    /// Chunks that changed meanwhile, and stay.
    pub changed: u64,
    /// The newest batch's; [`Epoch::ZERO`] when there was none.
    pub epoch: Epoch,
}

/// A chunk to be given up.
struct Give {
    dkey: [u8; 8],
    seen: Epoch,
    stub: [u8; super::record::STUB_BYTES],
    bytes: u64,
}

impl Dfs {
    /// Gives up chunks from `first` on whose bytes the copy has: `part` are those bytes, as they were read from
    /// the tier just now and compared with the manifest. Chunks that are not clean in `survey`, have changed since, or may not go
    /// ([`Survey::may_go`]) stay as they are.
    ///
    /// To be followed by [`Dfs::tier_keep_mtime`].
    #[boxed(?Send)]
    pub async fn tier_evict(
        &self,
        file: &Obj,
        survey: &Survey,
        record: &TierRecord,
        first: usize,
        part: &[u8],
    ) -> Result<Evicted> {
        file.require_regular()?;
        self.require_writable()?;
        let array = file.node.array();
        let mut evicted = Evicted::default();
        let mut work: Vec<(Unit, Give)> = Vec::new();
        for (at, bytes) in part.chunks_exact(survey.chunk_bytes as usize).enumerate() {
            let chunk = first + at;
            if !survey.may_go(chunk) || !survey.is_clean(record, chunk) {
                continue;
            }
            let (seen, freed) = match survey.chunks[chunk] {
                Chunk::Stub { .. } => continue,
                // The copy may have been read while something was there that has been removed since: a hole reads as zeros, whatever the copy has.
                Chunk::Absent { .. } if bytes.iter().any(|byte| *byte != 0) => {
                    evicted.changed += 1;
                    continue;
                }
                Chunk::Absent { .. } => (Epoch::ZERO, 0),
                Chunk::Data { epoch, .. } => (epoch, survey.chunk_bytes),
            };
            let (dkey, stub) = (dkey_of(chunk as u64), Stub::of(bytes).encode());
            let unit = array.unit_of(chunk as u64 + 1, 0).await?;
            work.push((unit, Give { dkey, seen, stub, bytes: freed }));
        }
        // A batch is of one unit, so that it is one request.
        work.sort_by_key(|(unit, _)| *unit);
        for of_unit in work.chunk_by(|a, b| a.0 == b.0) {
            for some in of_unit.chunks(CHUNKS_PER_BATCH) {
                self.give_up(some, &mut evicted).await?;
            }
        }
        Ok(evicted)
    }

    /// All of some chunks, or each by itself when one of them has changed.
    async fn give_up(&self, some: &[(Unit, Give)], evicted: &mut Evicted) -> Result<()> {
        match self.give_up_together(some).await {
            Ok(epoch) => {
                evicted.chunks += some.len() as u64;
                evicted.bytes += some.iter().map(|(_, give)| give.bytes).sum::<u64>();
                evicted.epoch = evicted.epoch.max(epoch);
                Ok(())
            }
            Err(error) if error.code == Code::TxRestart && some.len() > 1 => {
                for one in some {
                    Box::pin(self.give_up(std::slice::from_ref(one), evicted)).await?;
                }
                Ok(())
            }
            Err(error) if error.code == Code::TxRestart => {
                evicted.changed += 1;
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    async fn give_up_together(&self, some: &[(Unit, Give)]) -> Result<Epoch> {
        let mut batch = self.shared.cont.batch();
        for (unit, give) in some {
            let (unit, dkey) = (*unit, &give.dkey[..]);
            let of = ReadScope::Akey(dkey, DATA);
            batch.check_of_unit(ReadCheck { unit, of, seen: give.seen });
            let akeys = vec![DATA.into(), super::CLEAN.into()];
            batch.op_of_unit(Op::PunchAkeys { unit, dkey, cond: Cond::NONE, akeys });
            let iods = vec![inline(DATA, &give.stub)];
            batch.op_of_unit(Op::Update { unit, dkey, cond: Cond::NONE, iods });
        }
        Ok(batch.run().await?.epoch)
    }

    /// Puts a file's mtime back to what it was before chunks went or came at `epoch`; a change of the data since
    /// then still shows.
    #[boxed(?Send)]
    pub async fn tier_keep_mtime(&self, file: &Obj, mtime_ns: i64, epoch: Epoch) -> Result<()> {
        self.keep_times(file, &Times { mtime_ns, noted: None }, epoch).await
    }

    /// The same with what was found before: an mtime that somebody has set since stays.
    pub(super) async fn keep_times(&self, file: &Obj, before: &Times, epoch: Epoch) -> Result<()> {
        let shared = &self.shared;
        if epoch == Epoch::ZERO {
            return Ok(());
        }
        let Some((location, found)) = shared.fetch_node(&file.node).await? else {
            return Ok(());
        };
        let now = (found.inode.mtime_ns, found.inode.mtime_epoch);
        let is_set = before.noted.is_some_and(|noted| noted != now);
        let mtime_ns = if is_set { found.inode.mtime_ns } else { before.mtime_ns };
        let kept = shared
            .update_inode(location.parent, &location.name, found, |found| {
                let mtime_epoch = found.inode.mtime_epoch.max(epoch);
                Ok(Inode { mtime_ns, mtime_epoch, ..found.inode })
            })
            .await;
        match kept {
            // It lost its name meanwhile.
            Err(error) if error.code == Code::NonExist => Ok(()),
            other => other.map(|_| ()),
        }
    }

    /// A file's time of modification before chunks of it come back: that of the last change, whoever brings others back at this moment.
    pub(super) async fn times(&self, file: &Obj) -> Result<Times> {
        let shared = &self.shared;
        let Some((_, found)) = shared.fetch_node(&file.node).await? else {
            // Nobody can ask for it any more.
            return Ok(Times { mtime_ns: file.node.inode().mtime_ns, noted: None });
        };
        let tail = shared.tail(&found).await?;
        let (inode, mut newest) = (found.inode, tail.epoch);
        if newest > inode.mtime_epoch {
            // A change, or what somebody else has just brought back and has not put the time back for.
            let survey = self.survey_now(file).await?;
            let came_back = |chunk: &Chunk| matches!(chunk, Chunk::Data { epoch, back: true } if *epoch == newest);
            if survey.chunks.iter().any(came_back) {
                let changes = survey.chunks.iter().filter_map(|chunk| match chunk {
                    Chunk::Data { epoch, back: false } => Some(*epoch),
                    _ => None,
                });
                newest = changes.max().unwrap_or(Epoch::ZERO);
            }
        }
        let noted = Some((inode.mtime_ns, inode.mtime_epoch));
        Ok(Times { mtime_ns: inode.mtime_with(newest), noted })
    }
}

/// When a file was modified, before chunks of it go or come.
pub(super) struct Times {
    mtime_ns: i64,
    /// What the inode said of that.
    noted: Option<(i64, Epoch)>,
}
