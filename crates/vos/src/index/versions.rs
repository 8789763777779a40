//! Which snapshots a container has: what has to be kept of what is removed.

use std::rc::Rc;

use types::{Code, Epoch, Error, Result, Unit};
use wire::versions::ContStage;

use super::Container;
use crate::record::{StageDf, VersionsDf};

/// Which versions of a container are kept.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Versions {
    /// Of the order that made it so.
    pub revision: u64,
    /// Ascending.
    pub snapshots: Vec<Epoch>,
    /// Everything is kept.
    pub held: bool,
    /// Whether it may be changed.
    pub stage: ContStage,
}

impl Versions {
    /// True when a snapshot sees what was there from `created` to `destroyed`.
    pub(crate) fn sees(&self, created: Epoch, destroyed: Epoch) -> bool {
        if created >= destroyed {
            return false;
        }
        let at = self.snapshots.partition_point(|snapshot| *snapshot < created);
        self.held || self.snapshots.get(at).is_some_and(|snapshot| *snapshot < destroyed)
    }

    /// True when nothing that is removed is kept.
    pub(crate) fn keeps_nothing(&self) -> bool {
        !self.held && self.snapshots.is_empty()
    }

    /// For changes: `None` when nothing is kept.
    pub(crate) fn any(self: &Rc<Self>) -> Option<Rc<Self>> {
        (!self.keeps_nothing()).then(|| self.clone())
    }

    /// True when all that `other` sees is seen.
    fn covers(&self, other: &Versions) -> bool {
        let all = other.snapshots.iter().all(|one| self.snapshots.binary_search(one).is_ok());
        self.held || (!other.held && all)
    }

    pub(crate) fn durable(&self) -> VersionsDf {
        VersionsDf {
            revision: self.revision,
            snapshots: self.snapshots.clone(),
            held: self.held,
            stage: match self.stage {
                ContStage::Open => StageDf::Open,
                ContStage::Frozen => StageDf::Frozen,
                // At which epoch is told with each order.
                ContStage::RollingBack(to) | ContStage::RollingTo { to, .. } => {
                    StageDf::RollingBack(to)
                }
            },
        }
    }

    /// From the durable form; snapshots out of order mean damage.
    pub(crate) fn from_durable(df: VersionsDf) -> Result<Versions> {
        if !df.snapshots.is_sorted() {
            return Err(Error::new(Code::Csum, "log record: snapshots out of order"));
        }
        Ok(Versions {
            revision: df.revision,
            snapshots: df.snapshots,
            held: df.held,
            stage: match df.stage {
                StageDf::Open => ContStage::Open,
                StageDf::Frozen => ContStage::Frozen,
                StageDf::RollingBack(to) => ContStage::RollingBack(to),
            },
        })
    }
}

impl Container {
    /// Takes a new set of versions; what it does not see any more is to be swept.
    pub(crate) fn set_versions(&mut self, versions: Versions) {
        if !versions.covers(&self.versions) {
            self.sweep_from = Some(Unit::NIL);
        }
        self.versions = Rc::new(versions);
    }

    /// True when something may be there that nobody sees.
    pub(crate) fn is_unswept(&self) -> bool {
        self.sweep_from.is_some() || !self.unswept.is_empty()
    }

    /// Up to `count` objects that are to be swept. Those of the walk over all are on the list until
    /// they are: a checkpoint or an error may come between.
    pub(crate) fn next_to_sweep(&mut self, count: usize) -> Vec<Unit> {
        if self.unswept.is_empty()
            && let Some(from) = self.sweep_from
        {
            self.unswept.extend(self.pasts.range(from..).take(count));
            self.sweep_from = match self.unswept.last() {
                Some(last) if self.unswept.len() == count => last.next(),
                _ => None,
            };
        }
        self.unswept.iter().take(count).copied().collect()
    }
}
