//! What clients have taken elsewhere: handles and locks of units that others lead now.
//!
//! A target that led a group may lead it again. What a client held by then may have been closed and unlocked elsewhere, so it says when it
//! goes ([`Notice::Left`](wire::obj::Notice::Left)), and what it held is forgotten. Story: after a lock's target had stood still for a while and another led in its place,
//! it still knew the lock; when it led again the file was locked for everybody, by a process that had long ended.
//!
//! Invariant: nothing is forgotten under an older map than the client's: until this target has that one it gives locks to others, and the
//! client has what it held by the newer one.

use crate::opens::Handle;
use crate::target::{Target, TargetPool};
use std::cell::RefCell;
use std::rc::Rc;
use types::{ClientId, ContId, PoolId, Unit};

/// Units that clients have left under maps that are not here yet; who says more is not heard. Bounds what a client costs.
const AHEAD_COUNT_MAX: usize = 65_536;

struct Ahead {
    client: ClientId,
    map_version: u32,
    handle: Handle,
}

/// What clients have left under newer maps of a pool than this target has.
#[derive(Default)]
pub(crate) struct Left {
    ahead: RefCell<Vec<Ahead>>,
}

impl Left {
    /// What may be forgotten under this version of the map, in the order in which it came.
    fn take(&self, map_version: u32) -> Vec<(ClientId, Handle)> {
        let mut ahead = self.ahead.borrow_mut();
        let due = ahead.extract_if(.., |one| one.map_version <= map_version);
        due.map(|one| (one.client, one.handle)).collect()
    }
}

impl Target {
    /// A client says that by a version of the map it is elsewhere with what it held of these units.
    pub(crate) fn client_left(
        self: &Rc<Self>,
        client: ClientId,
        pool: PoolId,
        map_version: u32,
        units: Vec<(ContId, Unit)>,
    ) {
        let Some(ctx) = self.pools.served(pool) else { return };
        let mut ahead = ctx.left.ahead.borrow_mut();
        let room = AHEAD_COUNT_MAX.saturating_sub(ahead.len());
        ahead.extend(units.into_iter().take(room).map(|(cont, unit)| Ahead {
            client,
            map_version,
            handle: (cont, unit),
        }));
        drop(ahead);
        self.forget_left(&ctx);
    }

    /// Forgets what clients have left by the map that is here now.
    pub(crate) fn forget_left(self: &Rc<Self>, ctx: &Rc<TargetPool>) {
        for (client, handle) in ctx.left.take(ctx.map_version()) {
            self.locks.leave_object(client, (ctx.shard.pool(), handle.0, handle.1));
            if ctx.handles.close_all(client, handle) {
                self.reap_if_orphan(ctx, handle);
            }
            self.note_closed(client);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_waits_for_its_map() {
        let left = Left::default();
        let handle = |lo| (ContId(1), types::Oid { hi: 1, lo }.first_unit());
        for (map_version, lo) in [(3, 1), (2, 2), (3, 3)] {
            let one = Ahead { client: ClientId(lo), map_version, handle: handle(lo) };
            left.ahead.borrow_mut().push(one);
        }
        assert_eq!(left.take(1), vec![]);
        assert_eq!(left.take(2), vec![(ClientId(2), handle(2))]);
        assert_eq!(left.take(4), vec![(ClientId(1), handle(1)), (ClientId(3), handle(3))]);
        assert_eq!(left.take(4), vec![]);
    }
}
