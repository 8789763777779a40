//! The lock service of a target: requests, waits, and whose locks end when.
//!
//! Locks live in memory, beside open handles, and end by the same rule: with the client, when its
//! connection is gone and does not come back soon. After a restart of the engine clients lock
//! again what they held (*reclaim*) as soon as they reach it; until [`GRACE`] has passed nobody
//! gets anything else, so that none is robbed. Who comes back later finds its locks taken, or
//! not, and is told ([`LockOp::Reclaim`]).
//!
//! A wait lasts as long as somebody asks for it: the client asks again every [`WAIT_SLICE`], and
//! the wait keeps its place meanwhile.

mod table;

use crate::batch::patience;
use crate::target::{Target, TargetPool};
use futures_channel::oneshot;
use futures_util::future::{Either, select};
use std::cell::{Cell, RefCell};
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;
use table::{LockTable, Object, Outcome, Ticket, Wish};
use transport::{Incoming, Responder};
use types::map::HashMap;
use types::{ClientId, Code, Error, Result};
use wire::Header;
use wire::lock::{LockKind, LockMode, LockOp, LockOwner, LockRange, LockReply, LockRequest};
use wire::obj::Request;

/// After a restart nobody but who held locks before gets any for this long. Clients look every
/// half second for an engine that has gone.
pub(crate) const GRACE: Duration = Duration::from_secs(5);
/// A waiting client is answered "still waiting" after this long, or half of its own patience.
const WAIT_SLICE: Duration = Duration::from_secs(10);
/// A wait that nobody asks for again ends after this long.
const UNATTENDED: Duration = Duration::from_secs(5);

/// What a shared owner holds is kept for this long after the last client has parted: a process that
/// was just made by `fork` has not said yet that it shares it. As long as a client that is gone is
/// waited for.
const JOIN_GRACE: Duration = Duration::from_secs(2);

/// The locks of a target.
#[derive(Default)]
pub(crate) struct Locks {
    table: RefCell<LockTable>,
    /// Requests that wait, by what they wait for.
    waits: RefCell<HashMap<Ticket, Wait>>,
    /// Requests for locks that have not come to the table yet.
    coming: RefCell<Vec<Rc<Coming>>>,
    /// The target's clock when the grace ends; zero when there is none.
    grace_until: Cell<Duration>,
}

/// A request for a lock on its way to the table: it may have to wait until this target may show what it leads, or has a newer map.
struct Coming {
    client: ClientId,
    key: table::Key,
    owner: LockOwner,
    range: LockRange,
    wait: Option<u64>,
    /// Whoever asked does so no more.
    is_left: Cell<bool>,
}

struct Wait {
    /// Counts requests, so that a timer can tell whether another one came.
    attended: u64,
    /// Of the request that waits now; told whether it has got the lock.
    waker: oneshot::Sender<bool>,
}

impl Locks {
    /// Locks of a target that starts now; after a `restart`, others may have had some.
    pub fn new(now: Duration, restart: bool) -> Locks {
        let locks = Locks::default();
        if restart {
            locks.grace_until.set(now + GRACE);
        }
        locks
    }

    /// Wakes requests whose waits have ended.
    fn wake(&self, granted: Vec<Ticket>) {
        let mut waits = self.waits.borrow_mut();
        for ticket in granted {
            if let Some(wait) = waits.remove(&ticket) {
                // A request that is gone comes again, or its client ends.
                let _ = wait.waker.send(true);
            }
        }
    }

    /// Takes everything from a client that has gone.
    pub fn drop_client(&self, client: ClientId) {
        self.take_from(client, |_| true);
    }

    /// Takes from a client whose process has ended what no other process can have: not what shared
    /// owners hold, for others may be about to join them.
    pub fn drop_process(&self, client: ClientId) {
        self.take_from(client, |owner| !owner.is_shared());
    }

    fn take_from(&self, client: ClientId, which: impl Fn(&LockOwner) -> bool) {
        let mut granted = Vec::new();
        self.table.borrow_mut().drop_client(client, which, &mut granted);
        self.waits.borrow_mut().retain(|ticket, _| ticket.client != client);
        self.wake(granted);
    }

    /// Takes from a client what it holds of an object: others decide about that now, and it is there.
    pub fn leave_object(&self, client: ClientId, object: Object) {
        let mut granted = Vec::new();
        for space in LockKind::SPACES {
            self.table.borrow_mut().leave((object, space), client, &mut granted);
        }
        self.wake(granted);
    }

    /// Ends a wait; with `release`, also a lock that it led to.
    pub fn leave(
        &self,
        client: ClientId,
        key: table::Key,
        owner: LockOwner,
        range: LockRange,
        wait: Option<u64>,
        release: bool,
    ) {
        if range.first > range.last {
            return;
        }
        let ticket = wait.map(|number| Ticket { client, number });
        // It came behind the request, and overtakes it while that waits for something else.
        let is_it = |coming: &&Rc<Coming>| {
            (coming.client, coming.key, coming.owner) == (client, key, owner)
                && (coming.range, coming.wait) == (range, wait)
        };
        self.coming.borrow().iter().filter(is_it).for_each(|coming| coming.is_left.set(true));
        let mut granted = Vec::new();
        let mut table = self.table.borrow_mut();
        let waited = ticket.is_some_and(|ticket| table.cancel(ticket, &mut granted));
        if !waited && release {
            table.release(key, owner, range, &mut granted);
        }
        drop(table);
        if waited
            && let Some(ticket) = ticket
            && let Some(wait) = self.waits.borrow_mut().remove(&ticket)
        {
            let _ = wait.waker.send(false);
        }
        self.wake(granted);
    }
}

/// A request for a lock is on its way, as long as this lives.
struct Comes(Rc<Coming>, Rc<Target>);

impl Comes {
    fn new(target: &Rc<Target>, client: ClientId, request: &LockRequest) -> Option<Comes> {
        let &LockRequest { pool, cont, unit, kind, owner, .. } = request;
        let LockOp::Set { range, wait, .. } = request.op else { return None };
        let key = ((pool, cont, unit), kind.space());
        let is_left = Cell::new(false);
        let coming = Rc::new(Coming { client, key, owner, range, wait, is_left });
        target.locks.coming.borrow_mut().push(coming.clone());
        Some(Comes(coming, target.clone()))
    }
}

impl Drop for Comes {
    fn drop(&mut self) {
        self.1.locks.coming.borrow_mut().retain(|coming| !Rc::ptr_eq(coming, &self.0));
    }
}

impl Target {
    /// Serves a request about locks. Noted at once: words about it may come before it is served.
    pub(crate) fn serve_lock(
        self: Rc<Self>,
        client: ClientId,
        incoming: Incoming,
    ) -> impl Future<Output = ()> + 'static {
        let Incoming { header, body, responder, .. } = incoming;
        let request = match wire::decode::<Request<'_>>(&body) {
            Ok(Request::Lock(request)) => Ok(request),
            Ok(_) => Err(Error::bare(Code::Proto)),
            Err(error) => Err(error),
        };
        let asked = request.map(|request| (Comes::new(&self, client, &request), request));
        async move {
            let answer = match asked {
                Ok((coming, request)) => {
                    let pool = request.pool;
                    match self.lock(client, &header, request, coming, &responder).await {
                        Ok(reply) => wire::encode(&Ok::<_, Error>(reply)),
                        Err(error) => self.refusal(pool, &header, &error),
                    }
                }
                Err(error) => wire::encode(&Err::<(), _>(error)),
            };
            self.send(responder, 0, &answer, &[]).await;
        }
    }

    async fn lock(
        self: &Rc<Self>,
        client: ClientId,
        header: &Header,
        request: LockRequest,
        coming: Option<Comes>,
        responder: &Responder,
    ) -> Result<LockReply> {
        let ctx = self.pools.mapped(request.pool).await?;
        self.know_map_of(&ctx, header).await?;
        self.asked_cont(&ctx, request.cont).await?;
        self.check_is_home(&ctx, header.map_version, &request)?;
        let LockRequest { pool, cont, unit, kind, owner, op } = request.clone();
        let key = ((pool, cont, unit), kind.space());
        let wish = |range, mode, pid| Wish { kind, owner, pid, client, range, mode };
        if let LockOp::Test { .. } | LockOp::Set { .. } = op {
            let doubt = self.doubt_of(&ctx, [unit].into_iter());
            self.settle_doubt(pool, &ctx, doubt).await?;
            self.check_is_home(&ctx, header.map_version, &request)?;
        }
        let locks = &self.locks;
        let mut granted = Vec::new();
        match op {
            LockOp::Clear { range } => {
                check_range(range)?;
                locks.table.borrow_mut().release(key, owner, range, &mut granted);
                locks.wake(granted);
                Ok(LockReply::Done)
            }
            LockOp::Test { range, mode } => {
                check_range(range)?;
                self.wait_out_grace(&ctx, &request).await?;
                let found = locks.table.borrow().test(key, &wish(range, mode, 0));
                Ok(found.map_or(LockReply::Done, LockReply::Held))
            }
            LockOp::Join => {
                let mut table = locks.table.borrow_mut();
                match table.join(key, owner, client) {
                    true => Ok(LockReply::Joined(table.held(key, owner))),
                    false => Err(Error::bare(Code::NonExist)),
                }
            }
            LockOp::Part => {
                if locks.table.borrow().is_last(key, owner, client) {
                    // Others that share the owner may be about to join.
                    let target = self.clone();
                    self.env.spawn(async move {
                        // timer: others that share the owner have this long to join.
                        target.env.sleep(JOIN_GRACE).await;
                        let mut granted = Vec::new();
                        let locks = &target.locks;
                        locks.table.borrow_mut().part(key, owner, client, &mut granted);
                        locks.wake(granted);
                    });
                    return Ok(LockReply::Done);
                }
                locks.table.borrow_mut().part(key, owner, client, &mut granted);
                locks.wake(granted);
                Ok(LockReply::Done)
            }
            LockOp::Reclaim { locks: held, pid } => {
                held.iter().try_for_each(|(range, _)| check_range(*range))?;
                if held.len() > table::LOCKS_PER_CLIENT_MAX as usize {
                    return Err(Error::bare(Code::NoLocks));
                }
                let wish = wish(LockRange::WHOLE, LockMode::Shared, pid);
                let had = locks.table.borrow_mut().reclaim(key, wish, &held, &mut granted);
                locks.wake(granted);
                if had {
                    return Ok(LockReply::Done);
                }
                Err(Error::new(
                    Code::Io,
                    "the connection was lost for too long, and somebody else holds the lock now",
                ))
            }
            LockOp::Set { range, mode, pid, wait } => {
                check_range(range)?;
                // An append that has lost its turn does no harm, so it needs no grace.
                if kind != LockKind::Append {
                    self.wait_out_grace(&ctx, &request).await?;
                }
                let ticket = wait.map(|number| Ticket { client, number });
                let wish = wish(range, mode, pid);
                if coming.as_ref().is_some_and(|coming| coming.0.is_left.get()) {
                    return Err(Error::new(Code::Canceled, "nobody wants the lock any more"));
                }
                drop(coming);
                let outcome = locks.table.borrow_mut().acquire(key, wish, ticket, &mut granted);
                locks.wake(granted);
                match (outcome?, ticket) {
                    (Outcome::Granted, _) => Ok(LockReply::Done),
                    (Outcome::Refused(holder), _) => Ok(LockReply::Held(holder)),
                    (Outcome::Waiting, Some(ticket)) => {
                        let slice = WAIT_SLICE.min(patience(header) / 2);
                        let reply = self.wait_for_lock(ticket, slice, responder).await?;
                        if reply == LockReply::Done
                            && let Err(error) = self.check_is_home(&ctx, 0, &request)
                        {
                            // Others came to decide while it waited, and whoever was in the way has gone there.
                            let mut granted = Vec::new();
                            locks.table.borrow_mut().release(key, owner, range, &mut granted);
                            locks.wake(granted);
                            return Err(error);
                        }
                        Ok(reply)
                    }
                    (Outcome::Waiting, None) => Err(Error::bare(Code::WouldBlock)),
                }
            }
        }
    }

    /// Waits for a ticket to be served, as long as a slice. `Canceled` when the wait was ended.
    async fn wait_for_lock(
        self: &Rc<Self>,
        ticket: Ticket,
        slice: Duration,
        responder: &Responder,
    ) -> Result<LockReply> {
        let (waker, served) = oneshot::channel();
        let attended = {
            let mut waits = self.locks.waits.borrow_mut();
            let attended = waits.get(&ticket).map_or(0, |wait| wait.attended) + 1;
            // An earlier request of the same wait, if there still is one, has lost its client.
            waits.insert(ticket, Wait { attended, waker });
            attended
        };
        let outcome = {
            let abandoned = pin!(responder.abandoned());
            match select(pin!(self.env.timeout(slice, served)), abandoned).await {
                Either::Left((outcome, _)) => outcome,
                Either::Right(_) => None,
            }
        };
        match outcome {
            Some(Ok(true)) => return Ok(LockReply::Done),
            Some(Ok(false)) => {
                return Err(Error::new(Code::Canceled, "the wait for a lock was cancelled"));
            }
            Some(Err(_)) | None => {}
        }
        let target = self.clone();
        self.env.spawn(async move {
            // timer: a client that waits asks again within this time.
            target.env.sleep(UNATTENDED).await;
            target.forget_unattended(ticket, attended);
        });
        Ok(LockReply::Waiting)
    }

    fn forget_unattended(&self, ticket: Ticket, attended: u64) {
        let locks = &self.locks;
        if locks.waits.borrow().get(&ticket).is_some_and(|wait| wait.attended == attended) {
            locks.waits.borrow_mut().remove(&ticket);
            let mut granted = Vec::new();
            locks.table.borrow_mut().cancel(ticket, &mut granted);
            locks.wake(granted);
        }
    }

    async fn wait_out_grace(&self, ctx: &TargetPool, request: &LockRequest) -> Result<()> {
        let now = self.env.now();
        let unit = request.unit;
        // Another target may have led the group, and known of locks.
        let inherited = match ctx.is_alone(unit.object) {
            true => None,
            false => ctx.inherited.since(self.id, unit, now, GRACE),
        };
        let inherits_until = inherited.map_or(Duration::ZERO, |since| now - since + GRACE);
        let until = self.locks.grace_until.get().max(inherits_until);
        if now < until {
            // timer: locks of a lost target may be reclaimed until then.
            self.env.sleep(until - now).await;
            // Another target may have come to decide meanwhile.
            self.check_is_home(ctx, 0, request)?;
        }
        Ok(())
    }

    /// `Stale` when the caller's map is old, `Inval` when another target decides about the object.
    fn check_is_home(
        &self,
        ctx: &TargetPool,
        map_version: u32,
        request: &LockRequest,
    ) -> Result<()> {
        if map_version != 0 && map_version < ctx.map_version() {
            return Err(Error::bare(Code::Stale));
        }
        if !ctx.is_alone(request.unit.object) {
            return self.led_group(ctx, request.unit).map(|_| ());
        }
        let map = ctx.map()?;
        if placement::layout(request.unit.object, &map)?.leader(0, &map) != Some(self.id) {
            return Err(Error::inval(format!(
                "target {} does not decide about locks of object {}",
                self.id, request.unit.object
            )));
        }
        Ok(())
    }
}

fn check_range(range: LockRange) -> Result<()> {
    if range.first > range.last {
        return Err(Error::inval("a range of locks ends before it begins"));
    }
    Ok(())
}
