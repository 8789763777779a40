//! Whom a restarted target waits for before it frees anything that was removed.
//!
//! Open handles live in memory ([`crate::opens`]); the log knows only which clients have some (see
//! [`note_opener`](vos::PoolShard::note_opener)). After a restart each of these is awaited until it says
//! that it has registered all its handles again, or its process has ended (which is known of those on this host, also
//! of who ended while there was no engine), or for [`RETURN_TIME_MAX`], all restarts together: an engine that crashes
//! again and again does not begin anew with who is gone. Meanwhile whatever is removed becomes an orphan, and orphans stay.
//! The same holds for groups that come from another target ([`crate::inherited`]), whose clients nobody here knows.
//!
//! Invariants:
//! - A client's first handle is answered after its note is durable, and what its request changed is
//!   behind the note in the log. So a crash that keeps a handle, or the answer a retry gets, keeps the note.
//! - A note goes only when the client holds nothing open.

use crate::target::{Target, TargetPool};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;
use types::map::HashSet;
use types::{ClientId, PoolId, Unit};
use vos::{Lsn, Opener};
use wire::map::PoolMap;

/// After a restart, clients have this long to register their open handles again. What passed of it before
/// another restart counts.
pub(crate) const RETURN_TIME_MAX: Duration = Duration::from_secs(30);
/// What has come from another target is not kept longer than this where there is little room: who writes would be refused, or wait, for the sake
/// of clients that are seldom so late. It is as long as for locks.
const RETURN_TIME_SHORT_OF_ROOM: Duration = crate::locks::GRACE;
/// So often it is seen whether there is little room.
const ROOM_LOOK_PAUSE: Duration = Duration::from_secs(1);
/// It is noted in steps of this, and who is gone is found.
const AWAITED_STEP: Duration = Duration::from_secs(1);
/// A client that has closed all it held open stays noted this long: it may soon open something else, and
/// need not wait for a new note.
const LINGER_TIME: Duration = Duration::from_secs(5);

/// Who may still say what it holds open in a pool.
#[derive(Default)]
pub(crate) struct Awaited {
    /// Clients of the engine before this one.
    clients: RefCell<HashSet<ClientId>>,
}

impl Awaited {
    fn add(&self, clients: impl Iterator<Item = ClientId>) {
        self.clients.borrow_mut().extend(clients);
    }

    fn contains(&self, client: ClientId) -> bool {
        self.clients.borrow().contains(&client)
    }

    /// False when it was not awaited.
    fn remove(&self, client: ClientId) -> bool {
        self.clients.borrow_mut().remove(&client)
    }

    /// In a fixed order, so that simulated runs repeat.
    fn clients(&self) -> Vec<ClientId> {
        let mut clients: Vec<ClientId> = self.clients.borrow().iter().copied().collect();
        clients.sort_unstable();
        clients
    }

    /// True when all clients of the engine before this one have come, or are given up.
    fn is_nobody(&self) -> bool {
        self.clients.borrow().is_empty()
    }
}

/// Clients that may soon have nothing open any more.
#[derive(Default)]
pub(crate) struct Leaving(RefCell<HashSet<ClientId>>);

impl Leaving {
    /// False when it is among them already.
    fn begin(&self, client: ClientId) -> bool {
        self.0.borrow_mut().insert(client)
    }

    fn end(&self, client: ClientId) {
        self.0.borrow_mut().remove(&client);
    }
}

/// True when a target has little room in a pool, or who keeps copies of what it leads.
fn is_short_of_room(ctx: &TargetPool) -> bool {
    ctx.shard.stat().is_short() || ctx.streams.any_is_short()
}

/// True when the process of a client is known to have ended.
fn is_gone(opener: &Opener) -> bool {
    opener.process.is_some_and(|process| transport::is_gone(&process))
}

impl Target {
    /// After a restart: begins to wait for who held something open.
    pub(crate) fn await_openers(self: &Rc<Self>, pool: PoolId, ctx: &Rc<TargetPool>) {
        let (gone, awaited): (Vec<Opener>, Vec<Opener>) =
            ctx.shard.openers().into_iter().partition(is_gone);
        for opener in &gone {
            ctx.shard.forget_opener(opener.client);
        }
        if awaited.is_empty() {
            return;
        }
        tracing::info!(
            "target {}: pool {pool}: awaits {} clients; {} are gone",
            self.id,
            awaited.len(),
            gone.len()
        );
        ctx.awaited.add(awaited.iter().map(|opener| opener.client));
        let (target, ctx) = (self.clone(), ctx.clone());
        self.env.spawn(async move {
            loop {
                // timer: how long they were awaited is noted in steps, and of a process that ends nobody tells.
                target.env.sleep(AWAITED_STEP).await;
                // Who came last has had all freed.
                if target.is_done_with(&ctx) || ctx.awaited.is_nobody() {
                    return;
                }
                target.note_awaited(&ctx);
                if ctx.awaited.is_nobody() {
                    return target.reap_orphans(&ctx);
                }
            }
        });
    }

    /// Another step has passed; gives up who is gone, and who has been away for too long.
    fn note_awaited(&self, ctx: &TargetPool) {
        for client in ctx.awaited.clients() {
            let opener = ctx.shard.opener(client);
            let awaited_s =
                opener.map_or(0, |opener| opener.awaited_s) + AWAITED_STEP.as_secs() as u32;
            let is_late = Duration::from_secs(awaited_s.into()) >= RETURN_TIME_MAX;
            if !is_late && opener.is_some_and(|opener| !is_gone(&opener)) {
                ctx.shard.note_awaited(client, awaited_s);
                continue;
            }
            ctx.awaited.remove(client);
            match self.holds_any(client) {
                // It has registered something, and is to be awaited again after the next restart.
                true => ctx.shard.note_awaited(client, 0),
                false => ctx.shard.forget_opener(client),
            }
        }
    }

    /// Notes that a client holds something open; see [`vos::PoolShard::note_opener`].
    pub(crate) fn note_opener(&self, ctx: &TargetPool, client: ClientId) -> Lsn {
        ctx.shard
            .note_opener(client, || self.seats.pid_of(client).and_then(transport::host_process))
    }

    /// Groups may have come here with a map: waits for who held something open in them, and frees then what nobody has.
    ///
    /// `before` is as in [`Inherited::note`](crate::inherited::Inherited::note).
    pub(crate) fn inherit(self: &Rc<Self>, ctx: &Rc<TargetPool>, before: Option<Rc<PoolMap>>) {
        let begun = self.env.now();
        ctx.inherited.note(begun, before);
        let (target, ctx) = (self.clone(), ctx.clone());
        self.env.spawn(async move {
            // timer: so long clients may come back.
            target.env.sleep(RETURN_TIME_SHORT_OF_ROOM).await;
            while target.env.now() - begun < RETURN_TIME_MAX && !target.is_done_with(&ctx) {
                if is_short_of_room(&ctx) {
                    target.reap_orphans(&ctx);
                }
                // timer: room goes with each write.
                target.env.sleep(ROOM_LOOK_PAUSE).await;
            }
            if !target.is_done_with(&ctx) {
                target.reap_orphans(&ctx);
            }
        });
    }

    /// True while a client may still register that it has had a unit's object open before a restart, or while another target led its group.
    pub(crate) fn awaits_openers(&self, ctx: &TargetPool, unit: Unit) -> bool {
        !ctx.awaited.is_nobody() || self.inherits_openers(ctx, unit)
    }

    fn inherits_openers(&self, ctx: &TargetPool, unit: Unit) -> bool {
        // One of one target, which never moved, nobody else has led.
        if ctx.is_alone(unit.object) {
            return false;
        }
        let since = ctx.inherited.since(self.id, unit, self.env.now(), RETURN_TIME_MAX);
        since.is_some_and(|since| since < RETURN_TIME_SHORT_OF_ROOM || !is_short_of_room(ctx))
    }

    /// True while the client is awaited in any pool.
    pub(crate) fn awaits(&self, client: ClientId) -> bool {
        self.pools.any(|ctx| ctx.awaited.contains(client))
    }

    /// A client has registered all it holds, or its process has ended.
    pub(crate) fn await_no_more(self: &Rc<Self>, client: ClientId) {
        let mut ended: Vec<Rc<TargetPool>> = Vec::new();
        for (_, ctx) in self.pools.all() {
            if ctx.awaited.remove(client) {
                ctx.shard.note_awaited(client, 0);
                if ctx.awaited.is_nobody() {
                    ended.push(ctx.clone());
                }
            }
        }
        self.forget_opener(client);
        for ctx in ended {
            self.reap_orphans(&ctx);
        }
    }

    /// A client has closed something; if that was all, its note goes in time.
    pub(crate) fn note_closed(self: &Rc<Self>, client: ClientId) {
        let is_noted = || self.pools.any(|ctx| ctx.shard.is_opener(client));
        if self.holds_any(client) || !is_noted() || !self.leaving.begin(client) {
            return;
        }
        let target = self.clone();
        self.env.spawn(async move {
            // timer: it may soon open something else.
            target.env.sleep(LINGER_TIME).await;
            target.leaving.end(client);
            if !target.awaits(client) {
                target.forget_opener(client);
            }
        });
    }

    /// Removes the notes of a client if it holds nothing open.
    pub(crate) fn forget_opener(&self, client: ClientId) {
        if !self.is_draining() && !self.holds_any(client) {
            for (_, ctx) in self.pools.all() {
                ctx.shard.forget_opener(client);
            }
        }
    }

    /// True when the client holds anything open, in any pool.
    fn holds_any(&self, client: ClientId) -> bool {
        self.pools.any(|ctx| ctx.handles.holds_any(client))
    }
}
