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
use std::collections::BTreeMap;
use std::rc::Rc;
use types::{ClientId, ContId, PoolId, Unit};

/// Units that a client has left under maps that are not here yet; what it says beyond is not heard. Bounds what a client costs.
const AHEAD_COUNT_MAX: usize = 65_536;

struct Ahead {
    map_version: u32,
    handle: Handle,
}

/// What clients have left under newer maps of a pool than this target has.
#[derive(Default)]
pub(crate) struct Left {
    /// Ordered, so that simulated runs repeat.
    ahead: RefCell<BTreeMap<ClientId, Vec<Ahead>>>,
}

impl Left {
    /// A client has left something by a map of this version.
    pub fn note(
        &self,
        client: ClientId,
        map_version: u32,
        handles: impl IntoIterator<Item = Handle>,
    ) {
        let mut ahead = self.ahead.borrow_mut();
        let ahead = ahead.entry(client).or_default();
        let room = AHEAD_COUNT_MAX.saturating_sub(ahead.len());
        let handles = handles.into_iter().take(room);
        ahead.extend(handles.map(|handle| Ahead { map_version, handle }));
    }

    /// What may be forgotten under this version of the map; of each client in the order in which it came.
    pub fn take(&self, map_version: u32) -> Vec<(ClientId, Handle)> {
        let mut due = Vec::new();
        self.ahead.borrow_mut().retain(|client, ahead| {
            let taken = ahead.extract_if(.., |one| one.map_version <= map_version);
            due.extend(taken.map(|one| (*client, one.handle)));
            !ahead.is_empty()
        });
        due
    }

    /// A client is given up, and so is all that it held.
    pub fn forget_client(&self, client: ClientId) {
        self.ahead.borrow_mut().remove(&client);
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
        ctx.left.note(client, map_version, units);
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

    fn handle(lo: u64) -> Handle {
        (ContId(1), types::Oid { hi: 1, lo }.first_unit())
    }

    #[test]
    fn what_is_left_waits_for_its_map() {
        let left = Left::default();
        for (map_version, lo) in [(3, 1), (2, 2), (3, 3)] {
            left.note(ClientId(lo), map_version, [handle(lo)]);
        }
        assert_eq!(left.take(1), vec![]);
        assert_eq!(left.take(2), vec![(ClientId(2), handle(2))]);
        assert_eq!(left.take(4), vec![(ClientId(1), handle(1)), (ClientId(3), handle(3))]);
        assert_eq!(left.take(4), vec![]);
    }

    /// Clients shared one bound, and what they had left stayed when they had gone: one that left as much as it could under a map that was
    /// long in coming had the others not heard, and so what they had unlocked elsewhere was locked here for ever.
    #[test]
    fn who_leaves_much_has_itself_not_heard_and_nobody_else() {
        let left = Left::default();
        let [much, other] = [1, 2].map(ClientId);
        left.note(much, 3, (0..AHEAD_COUNT_MAX as u64).map(handle));
        left.note(much, 3, [handle(0)]);
        left.note(other, 3, [handle(1)]);
        assert_eq!(left.ahead.borrow()[&much].len(), AHEAD_COUNT_MAX);
        left.forget_client(much);
        assert_eq!(left.take(3), vec![(other, handle(1))]);
        assert!(left.ahead.borrow().is_empty());
    }
}
