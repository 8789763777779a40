//! What an agent writes down of containers at intervals: descriptions that restore them, and snapshots.
//!
//! When the last one was made is asked of the tier once, so agents that begin again, or several at a time, write no more than one; after that each
//! keeps its own time, whatever clocks do.

use super::{of_cont, snapshot};
use crate::session::Session;
use crate::url::Url;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tier::{Descriptions, Store, newest_ns, put_tree_if_changed, thin_trees};
use types::{Result, size};
use wire::control::OpenMode;

/// Pause between two looks at whether something is due.
const LOOK_PAUSE: Duration = Duration::from_secs(1);

/// How often.
#[derive(Clone, Copy, Debug)]
pub struct Intervals {
    pub describe: Duration,
    /// Descriptions that stay.
    pub describe_keep: u32,
    pub snapshot: Option<Duration>,
    /// Snapshots that stay.
    pub snapshot_keep: u32,
}

/// Writes down what is due of a container, until it is said that this is over.
///
/// Errors: what is due could not be written; whoever begins again finds it due still.
pub fn keep_described(
    session: &Session,
    url: &Url,
    intervals: Intervals,
    is_over: &AtomicBool,
) -> Result<()> {
    tier::give_way();
    let (tier, _, store) = of_cont(session, &url.pool, &url.cont)?;
    let store = store.patient();
    super::install_source(session);
    let mount = session.mount(url, OpenMode::ReadOnly)?;
    let (client, fs) = (&mount.client, &mount.dfs);
    let container = fs.container().info().uuid.to_string();
    let first = |of: Descriptions, every: Duration| {
        let now_ns = client.env().wall_ns();
        client.block_on(left(&store, &container, of, every, now_ns))
    };
    let mut describe_at = Instant::now() + first(Descriptions::Trees, intervals.describe)?;
    let mut snapshot_at = match intervals.snapshot {
        Some(every) => Some((Instant::now() + first(Descriptions::Snapshots, every)?, every)),
        None => None,
    };
    let mut known = None;
    while !is_over.load(Ordering::Relaxed) {
        if Instant::now() >= describe_at {
            let put = put_tree_if_changed(fs, &store, &tier, &mut known);
            if let Some(key) = client.block_on(tier::in_background(put))? {
                tracing::info!("container '{}': described as {key}", fs.container().info().label);
                let keep = intervals.describe_keep as usize;
                client.block_on(thin_trees(&store, &container, keep))?;
            }
            describe_at = Instant::now() + intervals.describe;
        }
        if let Some((at, every)) = &mut snapshot_at
            && Instant::now() >= *at
        {
            let made = snapshot::make(
                session,
                url,
                (&tier, &store),
                Some(intervals.snapshot_keep),
                false,
            )?;
            tracing::info!(
                "container '{}': snapshot {}, {} sent, {} older ones removed",
                fs.container().info().label,
                made.snapshot,
                size::format(made.done.sent_bytes),
                made.removed
            );
            *at = Instant::now() + *every;
        }
        std::thread::sleep(LOOK_PAUSE.min(intervals.describe));
    }
    Ok(())
}

/// How long it is until the next one is due, as the newest one in the store tells.
async fn left(
    store: &Store,
    container: &str,
    of: Descriptions,
    every: Duration,
    now_ns: u64,
) -> Result<Duration> {
    let newest_ns = newest_ns(store, container, of).await?;
    // One of a clock that was ahead tells nothing.
    let age = newest_ns.and_then(|newest_ns| now_ns.checked_sub(newest_ns));
    Ok(age.map_or(Duration::ZERO, |age_ns| every.saturating_sub(Duration::from_nanos(age_ns))))
}
