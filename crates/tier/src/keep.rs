//! Moving for ever: passes at intervals, at once when the pool fills, and writers that are slowed down while it is too full.
//!
//! Whoever moves does so as a job in the background ([`types::job::TIER_MOVER`]): users go first, unless the pool is fuller than its policy wants it.
//!
//! Invariant: writers are slowed by what was said in the last seconds only; when nobody moves any more they are not.

use crate::mover::{Move, Moved, Mover, Room};
use crate::policy::Fill;
use async_recursion::async_recursion as boxed;
use dfs::Dfs;
use dfs::tier::Slowdown;
use futures_util::future::{Either, poll_fn, select};
use std::cell::Cell;
use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use types::Result;
use types::job::TIER_MOVER;

/// Pause between two looks at the pool.
const LOOK_PAUSE: Duration = Duration::from_secs(1);
/// For how long writers slow down without a new word, nanoseconds.
const SLOW_NS: u64 = 10_000_000_000;
/// The pause for a MiB in a pool that is full, microseconds.
const PAUSE_US_MAX: f64 = 1_000_000.0;

/// How full the pool of a mount is, as its data see it.
#[boxed(?Send)]
pub async fn room(fs: &Dfs) -> Result<Room> {
    let total = fs.container().pool().query().await?.total;
    Ok(match total.nvme_bytes {
        0 => Room { total_bytes: total.scm_bytes, free_bytes: total.scm_free_bytes },
        bytes => Room { total_bytes: bytes, free_bytes: total.nvme_free_bytes },
    })
}

/// Runs what nobody waits for: while users want something of the pool it has a small part of the time.
pub async fn in_background<F: Future>(work: F) -> F::Output {
    client::for_job(Some(TIER_MOVER.into()), work).await
}

/// The same, as long as it is not urgent.
async fn in_background_unless<F: Future>(is_urgent: &Cell<bool>, work: F) -> F::Output {
    let (mut work, mover) = (pin!(work), Rc::<str>::from(TIER_MOVER));
    poll_fn(|cx| {
        let job = (!is_urgent.get()).then(|| mover.clone());
        pin!(client::for_job(job, work.as_mut())).poll(cx)
    })
    .await
}

/// Does passes for ever, `every` so often, and at once when the pool is fuller than a policy wants it; `told` hears of each. Meanwhile
/// writers are slowed down, the more the fuller the pool is. Ends when that is said.
///
/// Errors: those of the walk over the container's names, and when the pool cannot be asked.
#[boxed(?Send)]
pub async fn keep_moving(
    mut mover: Mover,
    fs: &Dfs,
    every: Duration,
    is_ended: &AtomicBool,
    told: &mut dyn FnMut(Moved),
) -> Result<()> {
    let fill = mover.fill();
    let env = fs.container().client().env().clone();
    let is_urgent = Cell::new(false);
    let watch = async {
        let mut was_slow = false;
        while !is_ended.load(Ordering::Relaxed) {
            if let Some(fill) = fill.get() {
                let room = room(fs).await?;
                is_urgent.set(is_over(fill, room));
                let slow = slowdown(fill, room, env.wall_ns());
                if slow != Slowdown::default() || was_slow {
                    fs.set_tier_slowdown(slow).await?;
                }
                was_slow = slow != Slowdown::default();
            }
            env.sleep(LOOK_PAUSE).await;
        }
        Ok(())
    };
    let passes = async {
        loop {
            let mut warn = |one: &Move<'_>| {
                if let Err(error) = &one.outcome {
                    tracing::warn!("{}: {error}", String::from_utf8_lossy(one.path));
                }
            };
            let pass = mover.pass(room(fs).await?, false, &mut warn);
            let moved = in_background_unless(&is_urgent, pass).await?;
            told(moved);
            let until = env.now() + every;
            while env.now() < until {
                env.sleep(LOOK_PAUSE).await;
                let is_full = match fill.get() {
                    Some(fill) => is_over(fill, room(fs).await?),
                    None => false,
                };
                // Another pass would find as little.
                if is_full && moved.excess_bytes == 0 {
                    break;
                }
            }
        }
    };
    match select(pin!(watch), pin!(passes)).await {
        Either::Left((outcome, _)) | Either::Right((outcome, _)) => outcome,
    }
}

/// Percent of a pool that is in use.
fn used_percent(room: Room) -> f64 {
    let used = room.total_bytes.saturating_sub(room.free_bytes);
    used as f64 * 100.0 / room.total_bytes.max(1) as f64
}

fn is_over(fill: Fill, room: Room) -> bool {
    used_percent(room) >= fill.high as f64
}

/// Nothing up to the high mark, then more and more.
fn slowdown(fill: Fill, room: Room, now_ns: u64) -> Slowdown {
    let high = fill.high as f64;
    let over = ((used_percent(room) - high) / (100.0 - high)).clamp(0.0, 1.0);
    let pause_us_per_mib = (PAUSE_US_MAX * over * over) as u32;
    match pause_us_per_mib {
        0 => Slowdown::default(),
        _ => Slowdown { pause_us_per_mib, until_ns: now_ns.saturating_add(SLOW_NS) },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writers_wait_longer_the_fuller_the_pool_is() {
        let fill = Fill { high: 80, low: 50 };
        let pause =
            |free_bytes| slowdown(fill, Room { total_bytes: 1000, free_bytes }, 5).pause_us_per_mib;
        assert_eq!((pause(1000), pause(200)), (0, 0));
        assert_eq!(pause(100), 250_000);
        assert_eq!(pause(0), 1_000_000);
        assert!(pause(150) < pause(100) && pause(100) < pause(50));
        assert_eq!(
            slowdown(fill, Room { total_bytes: 1000, free_bytes: 0 }, 5).until_ns,
            5 + SLOW_NS
        );
        assert!(is_over(fill, Room { total_bytes: 10, free_bytes: 2 }));
        assert!(!is_over(fill, Room { total_bytes: 10, free_bytes: 3 }));
    }
}
