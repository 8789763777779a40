//! Counting anew which blocks of the data area are in use, and giving back those that nothing refers to.
//!
//! A page of the index that was given up leaves the blocks in use that only it named: nobody knows which they were. They are
//! what is in use and in no page. Others go on meanwhile: blocks whose references changed since the count began are left
//! alone ([`Space::begin_count`]), and what moves from one place of the index to another without such a change only moves
//! to where the count has yet to come: small objects become large ones, what is there becomes past, and all of it garbage.

use std::cell::RefCell;
use std::rc::Rc;

use types::{Code, ContId, Error, Key, Result, Unit};

use crate::blocks::BLOCK_BYTES;
use crate::index::residency::claim_garbage;
use crate::pages::decode;
use crate::record::RecordDf;
use crate::shard::PoolShard;
use crate::space::{BlockChange, Space};

/// Runs of blocks in one record at most.
const RUNS_MAX: usize = 1024;

/// The allocator notes what changes, until dropped.
struct Counting(Rc<RefCell<Space>>);

impl Counting {
    fn begin(space: &Rc<RefCell<Space>>) -> Counting {
        space.borrow_mut().begin_count();
        Counting(space.clone())
    }
}

impl Drop for Counting {
    fn drop(&mut self) {
        self.0.borrow_mut().end_count();
    }
}

impl PoolShard {
    /// Which blocks of the data area are in use, from every page of the index.
    ///
    /// Errors: `Csum` when a page is damaged; `NonExist` when a container is destroyed meanwhile.
    pub(crate) async fn counted_space(&self) -> Result<Space> {
        let mut space = Space::new(self.core.space.borrow().bytes());
        self.state.borrow().claim_prepared(&mut space)?;
        self.core.loans.claim(&mut space)?;
        for cont in self.conts() {
            self.count_cont(cont, &mut space).await?;
        }
        self.state.borrow().index.garbage.claim(&mut space)?;
        let garbage = self.state.borrow().index.garbage.pages.clone();
        for (id, place) in garbage {
            let Some(pages) = &self.pages else { break };
            let image = pages.read(&place).await;
            let is_left = |(of, at): &(_, _)| *of == id && *at == place;
            if !self.state.borrow().index.garbage.pages.iter().any(is_left) {
                // Its blocks came back meanwhile.
                continue;
            }
            let image = image?;
            let (_, body) = decode(&pages.shard, &image)?;
            claim_garbage(&id, body, &mut space)?;
        }
        Ok(space)
    }

    async fn count_cont(&self, cont: ContId, space: &mut Space) -> Result<()> {
        let mut at = Some(0);
        while let Some(hash) = at {
            self.count_pause().await?;
            self.ready_bucket(cont, hash).await?;
            let container = self.look(cont)?;
            let (bucket, next) = container.bucket_at(hash);
            for object in bucket.objects.values() {
                object.claim_all(space)?;
            }
            at = next;
        }
        let large: Vec<Unit> = self.look(cont)?.large_from(0).collect();
        for unit in large {
            let mut start = Some(Key::default());
            while let Some(from) = start {
                self.count_pause().await?;
                self.ready_part(cont, unit, &from).await?;
                let container = self.look(cont)?;
                let object = container.whole(unit);
                let Some((object, parts)) =
                    object.and_then(|object| Some((object, object.parts.as_ref()?)))
                else {
                    break;
                };
                start = parts.end_of(&from);
                object.claim(&from, start.as_deref(), space)?;
                if start.is_none() {
                    // Last, as what is overwritten meanwhile goes there.
                    if parts.past.absent {
                        return Err(Error::new(Code::Csum, "a past is not in memory"));
                    }
                    object.claim_past(space)?;
                }
            }
        }
        Ok(())
    }

    /// Others get their turn.
    async fn count_pause(&self) -> Result<()> {
        self.core.env.yield_now().await;
        self.still_open()
    }

    /// Gives back blocks of the data area that nothing refers to: pages that were given up leave them. Bytes that are free
    /// again; clients go on meanwhile. One call at a time.
    ///
    /// Errors: `Csum` when a page is damaged; `NonExist` when a container is destroyed meanwhile; those of the log.
    pub async fn reclaim_unnamed(&self) -> Result<u64> {
        let counting = Counting::begin(&self.core.space);
        let counted = self.counted_space().await?;
        self.writable()?;
        let runs = self.core.space.borrow().unnamed(&counted);
        drop(counting);
        for runs in runs.chunks(RUNS_MAX) {
            self.change(|_, effects| {
                let lsn = self.log_record(&RecordDf::Reclaim { runs: runs.to_vec() });
                let drops = runs.iter().map(|&(first, count)| BlockChange::Unref { first, count });
                effects.blocks.extend(drops);
                Ok((lsn, ()))
            })?;
        }
        Ok(runs.iter().map(|(_, count)| count * BLOCK_BYTES).sum())
    }
}
