//! Open handles and locks when another target comes to lead their group: they are registered and locked again there.
//!
//! The one that led it before has gone, or is told to forget them ([`wire::obj::Notice::Left`]): it may lead again one day, and by then they
//! may have been closed and unlocked elsewhere. The next one frees nothing and gives no lock to others until clients have had time to come.

use crate::client::Client;
use crate::lock::Moved;
use crate::pool::PoolState;
use types::{PoolId, TargetId, Unit};
use wire::map::PoolMap;

/// The target that leads the group of a unit; `None` where nobody does.
pub(crate) fn leader_of(unit: Unit, map: &PoolMap) -> Option<TargetId> {
    let layout = placement::layout(unit.object, map).ok()?;
    let group = unit.group as usize;
    (group < layout.group_count()).then(|| layout.leader(group, map)).flatten()
}

impl Client {
    /// After a change of a pool's map.
    pub(crate) fn follow_leaders(&self, pool: &PoolState) {
        let map = pool.map();
        let id: PoolId = pool.id;
        let mut heirs: Vec<TargetId> = Vec::new();
        for link in self.links() {
            let behind = link.leave_behind(id, &map);
            link.leave(behind.iter().map(|(_, handle, _)| *handle), map.version);
            for (heir, handle, count) in behind {
                let link = self.target(heir);
                link.come_back(&handle);
                link.inherit(handle, count);
                heirs.push(heir);
            }
        }
        for Moved { from, to, handle } in self.options().locks.follow_leaders(self.id(), id, &map) {
            self.target(from).leave([handle], map.version);
            self.target(to).come_back(&handle);
            heirs.push(to);
        }
        // In a fixed order, so that simulated runs repeat.
        heirs.sort_unstable();
        heirs.dedup();
        for heir in heirs {
            let link = self.target(heir);
            link.owe_moved();
            link.keep_connected_to(self, pool);
        }
    }
}
