//! What moves gives way to clients: while a leader has other things to do it sends a little at a time, and rests in between.
//!
//! That holds for drains, returns and balance, and for what lost copies are made anew from as long as two are left. Groups with one copy
//! left have twice the part of the time, and do not stand in line with the others: the next loss would be one too many. With nobody else
//! there nothing waits. Nobody waits for longer than who asked for it does.
//!
//! What is small goes together: a turn is as many lots as make up [`TURN_BYTES`], by how large those of the last one were, so that the rest between two
//! turns is one of bytes and not of round trips.
//!
//! Jobs in the background ([`types::job::BACKGROUND`]) do so, too, and to the clients of all targets of the engine: what they have to do besides, they do on
//! processors and devices that these have together.
//!
//! Copies are sent by the leader of their group, who has their clients. Who writes them has clients, too: the time that it takes there counts for what that target
//! sends and for what it asks for next, so that of each target's time not more than its part goes to what moves, whichever way. Cells are fetched: whoever is asked
//! for one gives way to its own clients while it reads it, and who comes to have it while it writes it.

use crate::target::{Target, TargetPool};
use env::Signal;
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use wire::map::{PoolMap, TargetState};

/// A leader of which clients wanted something so lately has other things to do.
const LATELY: Duration = Duration::from_millis(100);
/// Others of the engine are told of clients no more often than that.
const TOLD_PAUSE: Duration = Duration::from_millis(10);
/// What is sent in a turn, bytes, about: with the key that makes it so many.
pub(crate) const TURN_BYTES: usize = 1 << 20;
/// Most lots that are sent together.
const LOTS_MAX: usize = 16;
/// Longest rest after a turn.
const REST_MAX: Duration = Duration::from_secs(1);
/// Shortest rest of who has found the line taken, or resting: turns that take microseconds would leave no more than that to others.
const REST_MIN: Duration = Duration::from_millis(2);
/// Images that are asked for at the same time beside clients: one is written while the next one is on its way.
const ASKS_MAX: usize = 2;
/// Longest wait for what goes first.
const URGENT_WAIT_MAX: Duration = Duration::from_secs(1);

/// What goes before all others: images of groups of which one member is left.
#[derive(Default)]
pub(crate) struct Urgent {
    under_way: Cell<usize>,
    over: Signal,
}

/// Something of that kind is being sent.
pub(crate) struct UrgentOne<'a>(&'a Urgent);

impl Urgent {
    /// Begins to send something of that kind.
    pub fn begin(&self) -> UrgentOne<'_> {
        self.under_way.set(self.under_way.get() + 1);
        UrgentOne(self)
    }
}

impl Drop for UrgentOne<'_> {
    fn drop(&mut self) {
        self.0.under_way.set(self.0.under_way.get() - 1);
        self.0.over.notify();
    }
}

/// Who moves something beside clients.
#[derive(Default)]
pub(crate) struct Lines {
    moves: Line,
    /// What one copy is left of has a line of its own: it does not wait while another one rests.
    last_copies: Line,
    /// So have jobs in the background: who asks for them sets their pace.
    background: Line,
    near: Near,
    /// When clients last wanted something of objects here.
    last_client: Cell<Option<Duration>>,
}

impl Lines {
    /// Of one of the targets that tell each other of clients here.
    pub fn beside(latest: Arc<AtomicU64>) -> Lines {
        Lines { near: Near { latest, ..Near::default() }, ..Lines::default() }
    }
}

/// Clients of the engine's targets, by when one of these had some last.
#[derive(Default)]
struct Near {
    /// Nanoseconds of the clock that they have in common; 0: never.
    latest: Arc<AtomicU64>,
    /// When this target said so last.
    told: Cell<Option<Duration>>,
}

impl Near {
    fn tell(&self, now: Duration) {
        if self.told.get().is_none_or(|told| now.saturating_sub(told) >= TOLD_PAUSE) {
            self.told.set(Some(now));
            self.latest.fetch_max(now.as_nanos() as u64, Ordering::Relaxed);
        }
    }

    /// Whoever asks for the first time since long is not told of clients that were there in between.
    fn has_some(&self, now: Duration) -> bool {
        let latest = self.latest.load(Ordering::Relaxed);
        latest > 0 && now.saturating_sub(Duration::from_nanos(latest)) < LATELY
    }
}

/// Moves of one kind: some lots in a turn, then a rest.
#[derive(Default)]
struct Line {
    /// Of the turn that is under way: since when it is, the lots in it, those that are not over yet, and their bytes.
    begun: Cell<Duration>,
    lots: Cell<usize>,
    under_way: Cell<usize>,
    bytes: Cell<usize>,
    /// Lots of a turn; none: one.
    lots_max: Cell<usize>,
    /// Nothing begins before.
    rests_until: Cell<Duration>,
    /// Images that this target has asked for.
    asks: Cell<usize>,
}

impl Line {
    /// True when a lot may go: it is part of a turn then, until [`Line::leave`].
    fn enter(&self, now: Duration) -> bool {
        if self.under_way.get() == 0 {
            if now < self.rests_until.get() {
                return false;
            }
            self.begun.set(now);
            self.lots.set(0);
            self.bytes.set(0);
        } else if self.lots.get() >= self.lots_max.get() {
            return false;
        }
        self.lots.set(self.lots.get() + 1);
        self.under_way.set(self.under_way.get() + 1);
        true
    }

    /// A lot of so many bytes is over. With the last one of a turn the rest begins.
    fn leave(&self, now: Duration, bytes: usize, share: u32) {
        self.under_way.set(self.under_way.get() - 1);
        self.bytes.set(self.bytes.get() + bytes);
        if self.under_way.get() == 0 {
            let of_each = (self.bytes.get() / self.lots.get().max(1)).max(1);
            self.lots_max.set((TURN_BYTES / of_each).clamp(1, LOTS_MAX));
            self.charge(now, now.saturating_sub(self.begun.get()), share);
        }
    }

    /// Others have the rest of the time after something that took so long.
    fn charge(&self, now: Duration, took: Duration, share: u32) {
        let from = self.rests_until.get().max(now);
        self.rests_until.set((from + rest(took, share)).min(now + REST_MAX));
    }

    /// True when something may be asked for.
    fn may_ask(&self, now: Duration) -> bool {
        now >= self.rests_until.get() && self.asks.get() < ASKS_MAX
    }

    /// How long others go on before it is looked again whether a turn may begin.
    fn pause(&self, now: Duration) -> Duration {
        self.rests_until.get().saturating_sub(now).max(REST_MIN)
    }
}

/// The right to move something beside what clients want, until it is dropped.
pub(crate) struct Turn<'a> {
    target: &'a Target,
    line: &'a Line,
    /// Of the time, percent.
    share: u32,
    bytes: usize,
}

impl Turn<'_> {
    /// Notes what was sent.
    pub fn note(&mut self, bytes: usize) {
        self.bytes += bytes;
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.line.leave(self.target.env.now(), self.bytes, self.share);
    }
}

/// The right to ask for something that is to be written here, until it is dropped. It is not a turn: who is asked waits for one of its own, and two that ask
/// each other would wait for one another.
pub(crate) struct Asking<'a>(&'a Line);

impl<'a> Asking<'a> {
    fn begin(line: &'a Line) -> Asking<'a> {
        line.asks.set(line.asks.get() + 1);
        Asking(line)
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        self.0.asks.set(self.0.asks.get() - 1);
    }
}

impl Target {
    /// Lets what groups with one copy left are made whole from go first, for a second at most.
    pub(crate) async fn wait_for_urgent(&self, urgent: &Urgent) {
        let none = urgent.over.until(|| urgent.under_way.get() == 0);
        let _ = self.env.timeout(URGENT_WAIT_MAX, none).await;
    }

    /// `None`: there is nobody to give way to, no reason, or no time left. `is_last`: of what is to be sent one copy is left.
    pub(crate) async fn wait_for_turn(
        &self,
        ctx: &TargetPool,
        is_last: bool,
        until: Duration,
    ) -> Option<Turn<'_>> {
        let (share, line) = self.share_and_line(ctx, is_last);
        self.wait_in_line(line, share, until, || self.has_clients()).await
    }

    /// The same for what a job in the background wants.
    pub(crate) async fn wait_for_turn_in_background(
        &self,
        ctx: &TargetPool,
        until: Duration,
    ) -> Option<Turn<'_>> {
        let share = share_of(ctx.scrubber.heal_share().into(), false);
        let has_clients = || self.moving.near.has_some(self.env.now());
        self.wait_in_line(&self.moving.background, share, until, has_clients).await
    }

    /// True when a job in the background has somebody to give way to.
    pub(crate) fn has_users_near(&self, ctx: &TargetPool) -> bool {
        ctx.scrubber.heal_share() < 100 && self.moving.near.has_some(self.env.now())
    }

    async fn wait_in_line<'a>(
        &'a self,
        line: &'a Line,
        share: u32,
        until: Duration,
        has_clients: impl Fn() -> bool,
    ) -> Option<Turn<'a>> {
        while share < 100 && has_clients() {
            let now = self.env.now();
            if now >= until {
                return None;
            }
            if line.enter(now) {
                return Some(Turn { target: self, line, share, bytes: 0 });
            }
            // timer: others have the time until then, who waits with it, too.
            self.env.sleep(line.pause(now)).await;
        }
        None
    }

    fn share_and_line(&self, ctx: &TargetPool, is_last: bool) -> (u32, &Line) {
        let share = share_of(ctx.scrubber.heal_share().into(), is_last);
        (share, if is_last { &self.moving.last_copies } else { &self.moving.moves })
    }

    /// Before this target asks for something that it is to write: as [`Target::wait_for_turn`].
    pub(crate) async fn wait_to_ask(
        &self,
        ctx: &TargetPool,
        is_last: bool,
        until: Duration,
    ) -> Option<Asking<'_>> {
        let (share, line) = self.share_and_line(ctx, is_last);
        while share < 100 && self.has_clients() {
            let now = self.env.now();
            if now >= until {
                return None;
            }
            if line.may_ask(now) {
                return Some(Asking::begin(line));
            }
            // timer: as above.
            self.env.sleep(line.pause(now)).await;
        }
        None
    }

    /// Something that this target lacked was written, since then.
    pub(crate) fn note_written(&self, ctx: &TargetPool, is_last: bool, begun: Duration) {
        let (share, line) = self.share_and_line(ctx, is_last);
        if share < 100 && self.has_clients() {
            let now = self.env.now();
            line.charge(now, now.saturating_sub(begun), share);
        }
    }

    /// Lets clients, if there are any, have the rest of the time after something of which `share` percent of it are.
    pub(crate) async fn let_clients_go_on(&self, took: Duration, share: u32) {
        if self.has_clients() {
            // timer: that much of the time is theirs.
            self.env.sleep(rest(took, share)).await;
        }
    }

    /// Somebody wants something of this target or of a group that it follows, or others have to read from it for somebody.
    pub(crate) fn note_client(&self) {
        self.note_client_at(self.env.now());
    }

    /// The same for who knows when that was: now.
    pub(crate) fn note_client_at(&self, now: Duration) {
        self.moving.last_client.set(Some(now));
        self.moving.near.tell(now);
    }

    fn has_clients(&self) -> bool {
        let last = self.moving.last_client.get();
        last.is_some_and(|last| self.env.now().saturating_sub(last) < LATELY)
    }
}

/// What a move has of the time beside clients, percent.
fn share_of(heal_share: u32, is_last: bool) -> u32 {
    let share = heal_share.clamp(1, 100);
    if is_last { (2 * share).min(100) } else { share }
}

/// How long others have their turn after something of which `share` percent of the time are.
fn rest(took: Duration, share: u32) -> Duration {
    (took * (100 - share) / share).min(REST_MAX)
}

/// True when all that moves is still where it was.
pub(crate) fn lacks_nothing(map: &PoolMap) -> bool {
    let stays = |target| map.outs.iter().any(|out| out.target == target && out.is_drained);
    map.next.is_some()
        && map.targets.iter().all(|target| target.state == TargetState::Up || stays(target.id))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    #[test]
    fn the_rest_of_the_time_is_for_others() {
        assert_eq!(rest(MS(10), 25), MS(30));
        assert_eq!(rest(MS(10), 50), MS(10));
        assert_eq!(rest(MS(10), 100), MS(0));
        assert_eq!(rest(MS(10), 1), MS(990));
        assert_eq!(rest(MS(5_000), 25), REST_MAX);
    }

    #[test]
    fn targets_of_an_engine_hear_of_each_others_clients() {
        let latest = Arc::default();
        let near = || Near { latest: Arc::clone(&latest), ..Near::default() };
        let (one, other) = (near(), near());
        assert!(!one.has_some(MS(0)) && !other.has_some(MS(0)));
        one.tell(MS(1));
        assert!(one.has_some(MS(1)) && other.has_some(MS(1)));
        assert!(other.has_some(MS(100)) && !other.has_some(MS(101)));
        // Not with each request: all threads look at it.
        one.tell(MS(5));
        assert!(!other.has_some(MS(101)));
        one.tell(MS(11));
        assert!(other.has_some(MS(110)) && !other.has_some(MS(111)));
        // Theirs may be a moment behind.
        other.tell(MS(9));
        assert!(one.has_some(MS(110)));
    }

    /// A number was counted up for each sign, and who had not looked for long took a change for something that was now: a mover in a pool that nobody used was
    /// told of users with its first request, and rested.
    #[test]
    fn clients_of_before_are_not_there() {
        let latest = Arc::default();
        let near = || Near { latest: Arc::clone(&latest), ..Near::default() };
        let (one, other) = (near(), near());
        one.tell(MS(1));
        assert!(!other.has_some(MS(60_000)));
        one.tell(MS(60_100));
        assert!(!other.has_some(MS(120_000)) && !other.has_some(MS(120_001)));
    }

    #[test]
    fn what_one_copy_is_left_of_has_twice_the_time() {
        assert_eq!((share_of(25, false), share_of(25, true)), (25, 50));
        assert_eq!((share_of(60, false), share_of(60, true)), (60, 100));
        assert_eq!((share_of(0, false), share_of(200, true)), (1, 100));
    }

    #[test]
    fn what_is_large_goes_one_by_one_and_rests() {
        let line = Line::default();
        assert!(line.enter(MS(1)));
        assert!(!line.enter(MS(1)), "nobody knows yet how large they are");
        line.leave(MS(11), TURN_BYTES, 25);
        assert!(!line.enter(MS(40)));
        assert_eq!(line.pause(MS(21)), MS(20));
        assert!(line.enter(MS(41)));
        assert!(!line.enter(MS(41)));
    }

    #[test]
    fn what_is_written_here_counts_for_what_is_sent_and_asked_for() {
        let line = Line::default();
        assert!(line.may_ask(MS(0)));
        let asking = [Asking::begin(&line), Asking::begin(&line)];
        assert!(!line.may_ask(MS(0)), "two are on their way");
        line.charge(MS(10), MS(10), 25);
        line.charge(MS(12), MS(2), 25);
        drop(asking);
        assert!(!line.may_ask(MS(45)) && !line.enter(MS(45)));
        assert!(line.may_ask(MS(46)) && line.enter(MS(46)));
        // A turn that is under way adds its own rest to what was written meanwhile.
        line.charge(MS(50), MS(2), 25);
        line.leave(MS(56), 0, 25);
        assert_eq!(line.pause(MS(56)), MS(30));
        line.charge(MS(60), MS(5_000), 25);
        assert_eq!(line.pause(MS(60)), REST_MAX);
    }

    #[test]
    fn what_is_small_goes_together_as_long_as_it_is() {
        let line = Line::default();
        assert!(line.enter(MS(0)));
        line.leave(MS(1), TURN_BYTES / 4, 50);
        assert!((0..4).all(|_| line.enter(MS(2))));
        assert!(!line.enter(MS(2)), "they make up a turn");
        for at in 3..7 {
            assert!(!line.enter(MS(at)));
            line.leave(MS(at), TURN_BYTES / 2, 50);
        }
        // It took from 2 to 6.
        assert!(!line.enter(MS(9)) && line.enter(MS(10)));
        assert!(line.enter(MS(10)), "two halves");
        assert!(!line.enter(MS(10)));
        line.leave(MS(11), 0, 50);
        line.leave(MS(11), 0, 50);
        assert!((0..LOTS_MAX).all(|_| line.enter(MS(20))));
        assert!(!line.enter(MS(20)));
    }
}
