//! When containers were last opened, and when last changed.
//!
//! The times are in memory and go to the catalog now and then ([`Service::save_times`]): a disk is
//! not written to open a container, and a thousand processes that open one are one write. A crash
//! of the service forgets what happened since the last save; nothing is decided by these times.
//!
//! As in DAOS, a container is *changed* by a snapshot made or destroyed, a rollback, a change of
//! properties or attributes, and by the close of a handle. A handle for reading may ask to be left
//! out of both times.

use super::{Owner, Service};
use crate::keys;
use crate::records::{ContDf, RECORD_VERSION, StageDf, TimesDf};
use crate::store::{Loaded, Tx};
use async_recursion::async_recursion as boxed;
use std::cell::RefCell;
use types::map::HashMap;
use types::{ContId, PoolId, Result};

/// Containers whose times go to the catalog in one commit, at most. Each is compared, and its pool:
/// etcd takes 128 comparisons.
const SAVE_MAX: usize = 60;

/// The times of a container, nanoseconds since 1970.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ContTimes {
    /// The last open; 0: never.
    pub opened_ns: u64,
    /// The last change, or close of a handle.
    pub changed_ns: u64,
}

struct Known {
    times: ContTimes,
    is_saved: bool,
}

/// The times of containers that were looked at since the service began.
#[derive(Default)]
pub(super) struct TimesTable(RefCell<HashMap<(PoolId, ContId), Known>>);

impl TimesTable {
    fn get(&self, of: (PoolId, ContId)) -> Option<ContTimes> {
        self.0.borrow().get(&of).map(|known| known.times)
    }

    /// Takes in what the catalog has of a container, unless it is known.
    fn remember(&self, of: (PoolId, ContId), times: ContTimes) {
        self.0.borrow_mut().entry(of).or_insert(Known { times, is_saved: true });
    }

    /// Sets times of a container that is known; each is later than all before it.
    fn note(&self, of: (PoolId, ContId), now_ns: u64, opened: bool, changed: bool) {
        let mut table = self.0.borrow_mut();
        let Some(known) = table.get_mut(&of) else { return };
        let ContTimes { opened_ns, changed_ns } = known.times;
        let now_ns = now_ns.max(opened_ns.max(changed_ns).saturating_add(1));
        if opened {
            known.times.opened_ns = now_ns;
        }
        if changed {
            known.times.changed_ns = now_ns;
        }
        known.is_saved &= !opened && !changed;
    }

    fn unsaved(&self) -> Vec<((PoolId, ContId), ContTimes)> {
        let table = self.0.borrow();
        let unsaved = table.iter().filter(|(_, known)| !known.is_saved);
        let mut unsaved: Vec<_> = unsaved.map(|(of, known)| (*of, known.times)).collect();
        // The same order in every run.
        unsaved.sort_unstable_by_key(|(of, _)| *of);
        unsaved.truncate(SAVE_MAX);
        unsaved
    }

    fn saved(&self, of: (PoolId, ContId), times: ContTimes) {
        if let Some(known) = self.0.borrow_mut().get_mut(&of) {
            known.is_saved = known.times == times;
        }
    }

    /// Forgets a container that is no more.
    pub fn forget(&self, of: (PoolId, ContId)) {
        self.0.borrow_mut().remove(&of);
    }

    /// Forgets the containers of a pool that is no more.
    pub fn forget_pool(&self, pool: PoolId) {
        self.0.borrow_mut().retain(|(of, _), _| *of != pool);
    }
}

impl Service {
    /// The times of a container.
    pub(super) async fn times(&self, pool: PoolId, cont: &ContDf) -> Result<ContTimes> {
        if let Some(times) = self.times.get((pool, cont.id)) {
            return Ok(times);
        }
        Ok(match self.store.times(pool, cont.id).await? {
            Some(Loaded { record: TimesDf { opened_ns, changed_ns, .. }, .. }) => {
                ContTimes { opened_ns, changed_ns }
            }
            None => ContTimes { opened_ns: 0, changed_ns: cont.created_ns },
        })
    }

    /// Notes an open, a change or both. What is noted has happened, so a catalog that cannot be
    /// read costs the note only.
    pub(super) async fn note_times(
        &self,
        pool: PoolId,
        cont: &ContDf,
        opened: bool,
        changed: bool,
    ) {
        match self.times(pool, cont).await {
            Ok(times) => {
                let now_ns = (self.wall_ns)();
                self.times.remember((pool, cont.id), times);
                self.times.note((pool, cont.id), now_ns, opened, changed);
            }
            Err(error) => {
                tracing::warn!(%pool, cont = %cont.id, "times of the container: {error}");
            }
        }
    }

    /// Notes that a handle was closed. Its open has looked at the container.
    pub(super) fn note_closed(&self, owner: Owner) {
        if let Owner::Cont(pool, cont) = owner {
            self.times.note((pool, cont), (self.wall_ns)(), false, true);
        }
    }

    /// Brings the times of containers to the catalog: to be called every now and then, and before
    /// the service ends. Does nothing when nothing has happened. Errors are the catalog's.
    #[boxed(?Send)]
    pub async fn save_times(&self) -> Result<()> {
        loop {
            let unsaved = self.times.unsaved();
            let mut tx = Tx::new();
            let mut pool = None;
            let mut included = Vec::new();
            for ((pool_id, id), times) in &unsaved {
                if pool.as_ref().is_none_or(|(last, _)| last != pool_id) {
                    // One that is being destroyed takes nothing new.
                    let found = self.store.pool(*pool_id).await?;
                    let found = found.filter(|found| found.record.stage == StageDf::Ready);
                    if let Some(found) = &found {
                        tx = tx.expect(found);
                    }
                    pool = Some((*pool_id, found.is_some()));
                }
                let cont = match pool {
                    Some((_, true)) => self.store.cont(*pool_id, *id).await?,
                    _ => None,
                };
                let Some(cont) = cont else {
                    self.times.forget((*pool_id, *id));
                    continue;
                };
                let record = TimesDf {
                    version: RECORD_VERSION,
                    opened_ns: times.opened_ns,
                    changed_ns: times.changed_ns,
                };
                tx = tx.expect(&cont).put(keys::times(*pool_id, *id), &record);
                included.push(((*pool_id, *id), *times));
            }
            // Else one of them has just changed: they are saved next time.
            if !included.is_empty() && !self.store.commit(tx).await? {
                return Ok(());
            }
            for (of, times) in included {
                self.times.saved(of, times);
            }
            if unsaved.len() < SAVE_MAX {
                return Ok(());
            }
        }
    }
}
