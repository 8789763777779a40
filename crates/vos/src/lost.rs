//! Pages of the index that turn out to be damaged, and giving them up.
//!
//! Whoever owns the shard is called when the first one is found, and decides: what has no copies elsewhere is better
//! refused, as it is while nothing is done. See [`crate::index::lost`] for what giving up means.

use types::{Code, ContId, Error, Key, Result, Unit};

use crate::Lsn;
use crate::index::lost::copies_bit;
use crate::index::page::{PageId, PagePlace};
use crate::pages::decode;
use crate::record::RecordDf;
use crate::shard::PoolShard;

impl PoolShard {
    /// Calls `tell` whenever another damaged page is found, and at once when there is one already. It must not use the shard
    /// before it has returned.
    pub fn on_damaged_page(&self, tell: impl Fn() + 'static) {
        self.damaged.on_found(Box::new(tell));
    }

    /// How many damaged pages can be given up: others may have what they hold.
    pub fn pages_to_give_up(&self) -> usize {
        let state = self.state.borrow();
        let found = self.damaged.known();
        let is_shared = |id: &&PageId| state.index.place_left_by(id).is_some();
        if state.holds_copies { found.iter().filter(is_shared).count() } else { 0 }
    }

    /// Gives these up, durably; what they were, for people. What is given up must not be led before it is compared with others.
    ///
    /// Errors: those of the log.
    pub async fn give_up_pages(&self) -> Result<Vec<String>> {
        let mut told = Vec::new();
        for id in self.damaged.known() {
            self.writable()?;
            let left = self.state.borrow().index.place_left_by(&id);
            let Some((cont, place)) = left.filter(|_| self.holds_copies()) else { continue };
            let (_, ()) = self.change(|state, effects| {
                let lsn = self.log_record(&RecordDf::GiveUp { cont, place: place.durable() });
                state.index.give_up(cont, place, effects);
                Ok((lsn, ()))
            })?;
            self.damaged.forget(&id);
            told.push(id.to_string());
        }
        let last = self.wal.as_ref().map_or(Lsn(0), |wal| wal.last());
        self.written(last).await?;
        Ok(told)
    }

    /// Reads the images of all pages and compares them with their checksums. What is damaged and not in memory is noted as such;
    /// what is in memory is written anew. `pace` waits for as long as so many bytes may take. How many were damaged.
    ///
    /// Errors: `Io` when the device cannot be read.
    pub async fn scrub_pages(&self, pace: impl AsyncFn(u64)) -> Result<u64> {
        let mut damaged = 0;
        for cont in self.conts() {
            let mut at = Some(0);
            while let Some((id, place, next)) = at.and_then(|hash| self.bucket_page(cont, hash)) {
                damaged += self.scrub_page(id, place, &pace).await?;
                at = next;
            }
            let large: Vec<Unit> =
                self.look(cont).map_or(Vec::new(), |container| container.large_from(0).collect());
            for unit in large {
                let mut from = Some(Key::default());
                while let Some((start, next, place)) =
                    from.and_then(|at| self.part_at(cont, unit, at))
                {
                    damaged +=
                        self.scrub_page(PageId::Part { cont, unit, start }, place, &pace).await?;
                    from = next;
                }
                let past = PageId::Past { cont, unit };
                let place =
                    self.state.borrow_mut().index.page_mut(&past).map(|page| page.place.clone());
                damaged += self.scrub_page(past, place.flatten(), &pace).await?;
            }
        }
        if damaged > 0 {
            self.begin_checkpoint();
        }
        Ok(damaged)
    }

    /// The bucket that holds a hash: its page, where its image lies, and the first hash after it.
    fn bucket_page(
        &self,
        cont: ContId,
        hash: u64,
    ) -> Option<(PageId, Option<PagePlace>, Option<u64>)> {
        let container = self.look(cont).ok()?;
        let (bucket, next) = container.bucket_at(hash);
        Some((bucket.id(cont), bucket.page.place.clone(), next))
    }

    /// The part of a large object that a place of its order belongs to: where it begins, where the next one does, and where its
    /// image lies.
    fn part_at(
        &self,
        cont: ContId,
        unit: Unit,
        at: Key,
    ) -> Option<(Key, Option<Key>, Option<PagePlace>)> {
        let container = self.look(cont).ok()?;
        let parts = container.large.get(&unit.list_order())?.parts.as_ref()?;
        let start = parts.start_of(&at);
        let place = parts.pages.get::<[u8]>(&start)?.place.clone();
        Some((start.clone(), parts.end_of(&start), place))
    }

    /// One page; 1 when it is damaged.
    async fn scrub_page(
        &self,
        id: PageId,
        place: Option<PagePlace>,
        pace: &impl AsyncFn(u64),
    ) -> Result<u64> {
        let (Some(pages), Some(place)) = (&self.pages, place) else { return Ok(0) };
        pace(place.bytes.into()).await;
        for _ in 0..2 {
            match pages
                .read(&place)
                .await
                .and_then(|image| decode(&pages.shard, &image).map(|_| ()))
            {
                Ok(()) => return Ok(0),
                Err(error) if error.code == Code::Csum => {}
                Err(error) => return Err(error),
            }
        }
        let is_absent = {
            let index = &mut self.state.borrow_mut().index;
            match index.page_mut(&id) {
                Some(page) if page.place.as_ref() == Some(&place) => page.absent,
                // Written anew meanwhile, or gone.
                _ => return Ok(0),
            }
        };
        match is_absent {
            true => self.damaged.note(self.pool, &id),
            false => self.state.borrow_mut().index.write_anew(&id),
        }
        Ok(1)
    }

    /// True when pages of a container were given up and others were not asked yet for what they held.
    pub fn lacks_pages_of(&self, cont: ContId) -> bool {
        let state = self.state.borrow();
        let container = state.index.conts.get(&cont).filter(|_| state.index.has_given_up);
        container.is_some_and(|container| container.lost.iter().any(|place| place.is_open))
    }

    /// True when there are groups of so many copies here, or were once: also what was lost may have been of one.
    pub fn may_have_groups_of(&self, copies: usize) -> bool {
        self.state.borrow().index.copies_seen & copies_bit(copies) != 0
    }

    /// True when something of a unit was in such a page; with a dkey, something of that.
    pub fn lacks_page_of(&self, cont: ContId, unit: Unit, dkey: Option<&[u8]>) -> bool {
        let state = self.state.borrow();
        state.index.conts.get(&cont).is_some_and(|container| container.is_lost(unit, dkey))
    }

    /// What others had of such pages is here now.
    pub fn close_lost_pages(&self) -> Result<()> {
        if self.conts().into_iter().any(|cont| self.lacks_pages_of(cont)) {
            self.writable()?;
            self.state.borrow_mut().index.close_lost();
            self.log_record(&RecordDf::CloseLost);
        }
        Ok(())
    }

    /// True when what was in a page that was given up may have been an object of one copy: it is refused.
    pub fn refuses_objects(&self) -> bool {
        self.state.borrow().index.has_lost()
    }

    /// Fails with `Csum` when something of a unit was in a page that was given up and others were not asked yet.
    pub fn require_pages_of(&self, cont: ContId, unit: Unit) -> Result<()> {
        match self.lacks_page_of(cont, unit, None) {
            false => Ok(()),
            true => Err(Error::new(
                Code::Csum,
                format!(
                    "object {unit}: a page of the index is damaged on this target, and no other member is there"
                ),
            )),
        }
    }
}
