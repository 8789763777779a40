//! Moves give way to clients: what nobody lacks is moved in a part of the time only while a leader has other things to do.
//!
//! That is what comes of drains, returns and balance. What lost copies are made anew from does not wait: until it is there, the next
//! loss may be one too many. A move waits for seconds at most, so nobody takes its leader for silent.
//!
//! Copies are sent by the leader of their group, who has their clients. Cells are fetched: whoever is asked for one gives way to its own
//! clients while it reads it, and who comes to have it while it writes it.

use crate::target::{Target, TargetPool};
use futures_util::lock::MutexGuard;
use std::cell::Cell;
use std::time::Duration;
use wire::map::{PoolMap, TargetState};

/// A leader of which clients wanted something so lately has other things to do.
const LATELY: Duration = Duration::from_millis(100);
/// Longest wait for others that move something, and longest pause after a move.
const TURN_WAIT_MAX: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// Pause between two looks whether something goes first.
const URGENT_PAUSE: Duration = Duration::from_millis(5);

/// What goes before all others: images of groups of which one member is left.
#[derive(Default)]
pub(crate) struct Urgent(Cell<usize>);

/// Something of that kind is being sent.
pub(crate) struct UrgentOne<'a>(&'a Urgent);

impl Urgent {
    /// Begins to send something of that kind.
    pub fn begin(&self) -> UrgentOne<'_> {
        self.0.set(self.0.get() + 1);
        UrgentOne(self)
    }
}

impl Drop for UrgentOne<'_> {
    fn drop(&mut self) {
        self.0.0.set(self.0.0.get() - 1);
    }
}

/// The right to move something beside what clients want.
pub(crate) struct Turn<'a> {
    _own: Option<MutexGuard<'a, ()>>,
    begun: Duration,
    /// Of the time, percent.
    share: u32,
}

impl Target {
    /// Lets what groups with one copy left are made whole from go first, for a second at most.
    pub(crate) async fn wait_for_urgent(&self, urgent: &Urgent) {
        let until = self.env.now() + TURN_WAIT_MAX;
        while urgent.0.get() > 0 && self.env.now() < until {
            self.env.sleep(URGENT_PAUSE).await;
        }
    }

    /// `None`: there is nobody to give way to, or no reason.
    pub(crate) async fn wait_for_turn(&self, ctx: &TargetPool) -> Option<Turn<'_>> {
        let share = u32::from(ctx.scrubber.heal_share().clamp(1, 100));
        let can_wait = ctx.map().is_ok_and(|map| lacks_nothing(&map));
        if share == 100 || !can_wait || !self.has_clients() {
            return None;
        }
        let own = self.env.timeout(TURN_WAIT_MAX, self.moving.lock()).await;
        Some(Turn { _own: own, begun: self.env.now(), share })
    }

    /// Lets clients have the rest of the time.
    pub(crate) async fn give_way(&self, turn: Option<Turn<'_>>) {
        let Some(turn) = turn else { return };
        let took = self.env.now().saturating_sub(turn.begun);
        self.let_clients_go_on(took, turn.share).await;
    }

    /// Lets clients, if there are any, have the rest of the time after something of which `share` percent of it are.
    pub(crate) async fn let_clients_go_on(&self, took: Duration, share: u32) {
        if self.has_clients() {
            self.env.sleep(pause(took, share)).await;
        }
    }

    /// Somebody wants something of this target, or others have to read from it for somebody.
    pub(crate) fn note_client(&self) {
        self.last_batch.set(Some(self.env.now()));
    }

    fn has_clients(&self) -> bool {
        let last = self.last_batch.get();
        last.is_some_and(|last| self.env.now().saturating_sub(last) < LATELY)
    }
}

/// How long others have their turn after a move.
fn pause(took: Duration, share: u32) -> Duration {
    (took * (100 - share) / share).min(PAUSE_MAX)
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

    #[test]
    fn the_rest_of_the_time_is_for_others() {
        let ms = Duration::from_millis;
        assert_eq!(pause(ms(10), 25), ms(30));
        assert_eq!(pause(ms(10), 50), ms(10));
        assert_eq!(pause(ms(10), 100), ms(0));
        assert_eq!(pause(ms(10), 1), ms(990));
        assert_eq!(pause(ms(5_000), 25), PAUSE_MAX);
    }
}
