//! How long it takes to move data of a pool, from what was measured of its targets' devices and links.
//!
//! Each of those that get something writes its part, each of those that give reads its part, all at the same time: the slowest
//! tells. That is a move with nobody else there. Beside clients moves have a part of the time (`heal_share`).

use super::members::time_text;
use crate::exit::Failure;
use crate::props::{self, wrong_reply};
use crate::session::Session;
use serde::Serialize;
use types::{Durability, TargetId, size};
use wire::control::{ControlReply, ControlRequest, Name, OpenMode, PoolInfo, Subject};
use wire::store::StoreStat;

/// What would move, and how long it would take.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Estimate {
    /// `null`: somebody did not say what is there.
    pub move_bytes: Option<u64>,
    /// With nobody else there, seconds; `null`: not all targets were measured ('azekura system measure').
    pub idle_s: Option<u64>,
    /// Beside clients that are busy all the time, seconds; half of that where one copy is left.
    pub busy_s: Option<u64>,
}

/// What a target reads and writes, bytes a second.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Rates {
    read: u64,
    write: u64,
}

/// Who gives and gets data.
pub struct Move<'a> {
    pub from: &'a [TargetId],
    /// With their parts of it, in any unit.
    pub to: &'a [(TargetId, f64)],
    /// It waits for clients.
    pub gives_way: bool,
}

impl Estimate {
    /// Of moving `bytes` within a pool, `None` when they are not known. Asks all targets how fast they are.
    pub fn of(
        session: &Session,
        info: &PoolInfo,
        bytes: Option<u64>,
        of: &Move<'_>,
    ) -> Result<Estimate, Failure> {
        let pool = session.open_pool(&Name::Uuid(info.uuid), OpenMode::ReadOnly)?;
        let stats = pool.client().block_on(pool.store_stats())?;
        let rates = |id: TargetId| {
            let (_, stat) = stats.iter().find(|(of, _)| *of == id)?;
            rates_of(stat.as_ref()?, info.durability)
        };
        let from: Option<Vec<Rates>> = of.from.iter().map(|id| rates(*id)).collect();
        let to: Option<Vec<(Rates, f64)>> =
            of.to.iter().map(|(id, part)| Some((rates(*id)?, *part))).collect();
        let idle_s = match (bytes, from, to) {
            (Some(bytes), Some(from), Some(to)) => Some(seconds(bytes, &from, &to)),
            _ => None,
        };
        let share = if of.gives_way { heal_share(session, info)? } else { 100 };
        let busy_s = idle_s.map(|idle_s| idle_s.saturating_mul(100) / share);
        Ok(Estimate { move_bytes: bytes, idle_s, busy_s })
    }

    /// In a sentence.
    pub fn sentence(&self) -> String {
        let bytes = self
            .move_bytes
            .map_or("An unknown amount".into(), |bytes| format!("About {}", size::format(bytes)));
        let time = match (self.idle_s, self.busy_s) {
            (Some(idle_s), Some(busy_s)) if busy_s > idle_s => {
                let (idle, busy) = (time_text(idle_s), time_text(busy_s));
                format!("{idle} with nobody else there, up to {busy} beside clients")
            }
            (Some(idle_s), _) => time_text(idle_s),
            (None, _) => "for how long is not known: see 'azekura system measure'".into(),
        };
        format!("{bytes} would move: {time}.")
    }
}

/// `None`: not measured.
fn rates_of(stat: &StoreStat, durability: Durability) -> Option<Rates> {
    let standing = stat.standing();
    let measures = standing.measures?;
    let network = standing.network.map(|network| network.speed.kb_s).filter(|kb_s| *kb_s > 0);
    let (read, write) = match durability {
        Durability::Memory => (measures.memory.kb_s, measures.memory.kb_s),
        Durability::Wal | Durability::Relaxed => (measures.read.kb_s, measures.write.kb_s),
    };
    let limited = |kb_s: u64| kb_s.min(network.unwrap_or(u64::MAX)).saturating_mul(1000);
    let rates = Rates { read: limited(read), write: limited(write) };
    (rates.read > 0 && rates.write > 0).then_some(rates)
}

/// Of the slowest, rounded up.
fn seconds(bytes: u64, from: &[Rates], to: &[(Rates, f64)]) -> u64 {
    let parts: f64 = to.iter().map(|(_, part)| part).sum();
    let writes = to.iter().map(|(rates, part)| {
        let share = if parts > 0.0 { part / parts } else { 1.0 / to.len() as f64 };
        bytes as f64 * share / rates.write as f64
    });
    let given = bytes as f64 / from.len().max(1) as f64;
    let reads = from.iter().map(|rates| given / rates.read as f64);
    writes.chain(reads).fold(0.0, f64::max).ceil() as u64
}

/// Percent.
fn heal_share(session: &Session, info: &PoolInfo) -> Result<u64, Failure> {
    let subject = Subject::Pool(Name::Uuid(info.uuid));
    let props = match props::run(session, ControlRequest::GetProps { subject })? {
        ControlReply::Props(props) => props,
        _ => return Err(wrong_reply().into()),
    };
    let share = props.get("heal_share").and_then(|share| share.parse().ok());
    Ok(share.filter(|share| (1..=100).contains(share)).unwrap_or(100))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: u64 = 1_000_000;

    fn rates(read: u64, write: u64) -> Rates {
        Rates { read: read * MB, write: write * MB }
    }

    #[test]
    fn the_slowest_tells() {
        let (fast, slow) = (rates(1000, 500), rates(200, 50));
        // Two that get half each, one at 50 MB/s.
        assert_eq!(seconds(1000 * MB, &[fast], &[(fast, 1.0), (slow, 1.0)]), 10);
        // By their shares: 900 MB at 500 MB/s, 100 MB at 50 MB/s.
        assert_eq!(seconds(1000 * MB, &[fast], &[(fast, 9.0), (slow, 1.0)]), 2);
        // Who gives is the slowest.
        assert_eq!(seconds(1000 * MB, &[slow], &[(fast, 1.0), (fast, 1.0)]), 5);
        assert_eq!(seconds(0, &[slow], &[(fast, 1.0)]), 0);
        assert_eq!(seconds(7, &[], &[]), 0);
    }

    #[test]
    fn an_estimate_says_what_it_knows() {
        let told = |move_bytes, idle_s, busy_s| Estimate { move_bytes, idle_s, busy_s }.sentence();
        assert_eq!(
            told(Some(3 << 30), Some(65), Some(260)),
            "About 3 GiB would move: 1 min 5 s with nobody else there, up to 4 min 20 s beside clients."
        );
        assert_eq!(told(Some(1 << 20), Some(1), Some(1)), "About 1 MiB would move: 1 s.");
        let unknown = told(None, None, None);
        assert!(unknown.starts_with("An unknown amount would move: for how long"), "{unknown}");
    }
}
