//! Where the copies and cells of an object are.

use crate::cont::Container;
use placement::Layout;
use types::{Oid, Rank, Result, TargetId};
use wire::map::{DownReason, TargetState};

/// One member of one group of an object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ObjectCopy {
    pub target: TargetId,
    /// The engine that has the target.
    pub rank: Rank,
    /// Its address, `HOST:PORT`.
    pub address: String,
    /// As the pool map has it.
    pub state: TargetState,
    /// Why it is down; `None` when it is not.
    pub reason: Option<DownReason>,
    /// It answers for the group.
    pub leads: bool,
}

impl Container {
    /// The members of each group of an object, in their order. Asks nobody.
    ///
    /// Errors: as [`Container::layout`].
    pub fn copies(&self, oid: Oid) -> Result<Vec<Vec<ObjectCopy>>> {
        Ok(self.members_of(&*self.layout(oid)?))
    }

    /// Who has the cells of each group of an object with an erasure code, in their order; `None` for other objects. Asks
    /// nobody.
    ///
    /// Errors: as [`Container::layout`].
    pub fn cells(&self, oid: Oid) -> Result<Option<Vec<Vec<ObjectCopy>>>> {
        match oid.cells() {
            Some(_) => placement::cell_layout(oid, &self.pool().map())
                .map(|layout| Some(self.members_of(&layout))),
            None => Ok(None),
        }
    }

    fn members_of(&self, layout: &Layout) -> Vec<Vec<ObjectCopy>> {
        let map = self.pool().map();
        let of = |group: usize| {
            let leader = layout.leader(group, &map);
            let copy = |&target: &TargetId| {
                let info = map.target(target);
                let engine = map.engine_of(target);
                ObjectCopy {
                    target,
                    rank: info.map_or(Rank(u32::MAX), |info| info.rank),
                    address: engine.map(|engine| engine.tcp.clone()).unwrap_or_default(),
                    // Maps forget no target that objects are placed on.
                    state: info.map_or(TargetState::DownOut, |info| info.state),
                    reason: info.and_then(|info| info.reason),
                    leads: leader == Some(target),
                }
            };
            layout.members(group).iter().map(copy).collect()
        };
        (0..layout.group_count()).map(of).collect()
    }
}
