//! How fast a target and other engines reach each other: by probes of a few MiB, and by what goes to them anyway.
//!
//! What is sent for other reasons waits for the other's devices, too, so it says how fast a link is at least: it raises what is known and
//! keeps it young, and where there is enough of it there are no probes. Only a probe, which no device has to do with, lowers it.

use crate::target::Target;
use env::Env;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Weak;
use std::time::Duration;
use types::{Code, Error, Rank, Result, TargetId};
use wire::map::EngineInfo;
use wire::measure::{Network, Speed};
use wire::obj::Request;

/// A probe sends so much, and gets as much back, bytes, ...
const PROBE_BYTES: usize = 1 << 20;
/// ... so often.
const PROBE_SLICES: usize = 5;
/// A transfer that is to say something has so much at least, bytes.
const TRANSFER_BYTES_MIN: u64 = 256 << 10;
/// A transfer that does this part of what is known confirms it, percent.
const CONFIRM_PERCENT: u64 = 90;
/// A probe that differs by no more says the same as the one before, percent.
const SAME_PERCENT: u64 = 15;
/// How long after the start, and how often, it is looked whether a link is to be probed.
const LOOK_PAUSE: Duration = Duration::from_secs(60);
/// No more links than these are looked after: of a large system each target knows some.
const LINKS_MAX: usize = 8;
/// With so many requests between two looks a target has better things to do than to look again at links that are known.
const IDLE_REQUESTS_MAX: u64 = 20;
/// Who waits for probes of all links waits no longer.
const PROBES_TIME_MAX: Duration = Duration::from_secs(1);

/// What is known of one link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Link {
    speed: Speed,
    /// When it was probed, or confirmed, nanoseconds since 1970.
    at_ns: u64,
}

/// A target's links, by the engine at the other end.
#[derive(Default)]
pub(crate) struct Links {
    known: RefCell<BTreeMap<Rank, Link>>,
}

impl Links {
    /// A transfer that took so long, its answer included.
    pub fn note(&self, rank: Rank, bytes: u64, taken: Duration, now_ns: u64) {
        if bytes < TRANSFER_BYTES_MIN {
            return;
        }
        let kb_s = kb_s(bytes, taken);
        if let Some(link) = self.known.borrow_mut().get_mut(&rank)
            && kb_s.saturating_mul(100) >= link.speed.kb_s.saturating_mul(CONFIRM_PERCENT)
        {
            link.speed.kb_s = link.speed.kb_s.max(kb_s);
            link.speed.kb_s_max = link.speed.kb_s_max.max(kb_s);
            link.at_ns = now_ns;
        }
    }

    /// Takes what was probed, slice by slice: bytes both ways together, and how long it took. The slice in the middle counts: a scheduler
    /// that was late once makes no link slow. What is about as before stays as it was, so that shares of targets do not
    /// follow noise.
    fn probed(&self, rank: Rank, slices: &[(u64, Duration)], now_ns: u64) {
        let mut each: Vec<u64> = slices.iter().map(|(bytes, taken)| kb_s(*bytes, *taken)).collect();
        each.sort_unstable();
        let (Some(&kb_s_min), Some(&kb_s_max)) = (each.first(), each.last()) else { return };
        let kb_s = each[each.len() / 2];
        let mut known = self.known.borrow_mut();
        let before = known.get(&rank).map(|link| link.speed.kb_s);
        let is_same = |before: &u64| kb_s.abs_diff(*before) * 100 <= before * SAME_PERCENT;
        let kb_s = before.filter(is_same).unwrap_or(kb_s);
        let (kb_s_min, kb_s_max) = (kb_s_min.min(kb_s), kb_s_max.max(kb_s));
        let speed = Speed { kb_s, kb_s_min, kb_s_max };
        known.insert(rank, Link { speed, at_ns: now_ns });
    }

    /// How fast the target is reached: by the link in the middle, so that one slow engine at the other end says little; of an even number the
    /// faster one of the two. `None` when no link is known.
    pub fn network(&self) -> Option<Network> {
        let known = self.known.borrow();
        let mut links: Vec<&Link> = known.values().collect();
        links.sort_by_key(|link| link.speed.kb_s);
        let middle = links.get(links.len() / 2)?;
        let speed = Speed {
            kb_s: middle.speed.kb_s,
            kb_s_min: links.iter().map(|link| link.speed.kb_s_min).min().unwrap_or_default(),
            kb_s_max: links.iter().map(|link| link.speed.kb_s_max).max().unwrap_or_default(),
        };
        let at_ns = links.iter().map(|link| link.at_ns).min().unwrap_or_default();
        Some(Network { at_ns, link_count: links.len() as u32, speed })
    }

    /// Forgets engines that are not there any more; of the others, those that were never probed, and the one that was looked at
    /// longest ago, if that is as long as `every`.
    fn due(
        &self,
        others: &[Rank],
        now_ns: u64,
        every: Option<Duration>,
    ) -> (Vec<Rank>, Option<Rank>) {
        let mut known = self.known.borrow_mut();
        known.retain(|rank, _| others.contains(rank));
        let room = LINKS_MAX.saturating_sub(known.len());
        let new = others.iter().filter(|rank| !known.contains_key(*rank)).take(room).copied();
        let new: Vec<Rank> = new.collect();
        let age = |link: &Link| Duration::from_nanos(now_ns.saturating_sub(link.at_ns));
        let old = known.iter().max_by_key(|(_, link)| age(link));
        let old = old.filter(|(_, link)| every.is_some_and(|every| age(link) >= every));
        (new, old.map(|(rank, _)| *rank))
    }
}

fn kb_s(bytes: u64, taken: Duration) -> u64 {
    let micros = (taken.as_micros() as u64).max(1);
    bytes.saturating_mul(1000) / micros
}

impl Target {
    /// The engines of all pools beside this target's own, with one target of each.
    fn others(&self) -> BTreeMap<Rank, (EngineInfo, TargetId)> {
        let mut others = BTreeMap::new();
        for ctx in self.shards.borrow().values() {
            let Ok(map) = ctx.map() else { continue };
            let own = map.target(self.id).map(|target| target.rank);
            for target in map.targets.iter().filter(|target| Some(target.rank) != own) {
                if let Some(engine) = map.engine_of(target.id)
                    && placement::is_live(target.id, &map)
                {
                    others.entry(target.rank).or_insert_with(|| (engine.clone(), target.id));
                }
            }
        }
        others
    }

    /// Keeps up to date how fast links are; until the target is gone.
    pub(crate) async fn watch_links(env: Env, target: Weak<Target>, every: Option<Duration>) {
        let mut requests = 0;
        loop {
            env.sleep(LOOK_PAUSE).await;
            let Some(target) = target.upgrade() else { return };
            if target.draining.get() {
                return;
            }
            let before = std::mem::replace(&mut requests, target.request_count.get());
            let is_idle = requests.saturating_sub(before) <= IDLE_REQUESTS_MAX;
            let others = target.others();
            let ranks = target.nearest(&others);
            let (new, old) = target.links.due(&ranks, env.wall_ns(), every);
            for rank in new.into_iter().chain(old.filter(|_| is_idle)) {
                if let Some((engine, other)) = others.get(&rank)
                    && let Err(error) = target.probe(engine, *other).await
                {
                    tracing::debug!("target {}: link to engine {rank}: {error}", target.id);
                }
            }
        }
    }

    /// Probes the links that the target keeps, for a second at most. Engines that give no answer are passed over.
    pub(crate) async fn probe_links(&self) {
        let until = self.env.now() + PROBES_TIME_MAX;
        let others = self.others();
        for rank in self.nearest(&others).iter().take(LINKS_MAX) {
            if let Some((engine, other)) = others.get(rank)
                && self.env.now() < until
                && let Err(error) = self.probe(engine, *other).await
            {
                tracing::debug!("target {}: link to engine {rank}: {error}", self.id);
            }
        }
    }

    /// Other engines, in an order that differs from target to target: those of a large system know different ones.
    fn nearest(&self, others: &BTreeMap<Rank, (EngineInfo, TargetId)>) -> Vec<Rank> {
        let mut ranks: Vec<Rank> = others.keys().copied().collect();
        let first = self.id.0 as usize % ranks.len().max(1);
        ranks.rotate_left(first);
        ranks
    }

    async fn probe(&self, engine: &EngineInfo, other: TargetId) -> Result<()> {
        let body = wire::encode(&Request::Probe);
        let (data, mut room) = (vec![0x5a; PROBE_BYTES], vec![0; PROBE_BYTES]);
        let mut slices = Vec::new();
        for nth in 0..=PROBE_SLICES {
            let begun = self.env.now();
            let mut room_of_it = [&mut room[..]];
            let answer = self
                .peers
                .ask_with_bulk(engine, other, &body, &[&data[..]], &mut room_of_it)
                .await?;
            wire::decode::<Result<()>>(&answer.body)??;
            if answer.bulk_bytes != PROBE_BYTES {
                return Err(Error::new(Code::Proto, "an engine answered a probe with less"));
            }
            // The first opens the connection, and its window.
            if nth > 0 {
                slices.push((2 * PROBE_BYTES as u64, self.env.now().saturating_sub(begun)));
            }
        }
        self.links.probed(engine.rank, &slices, self.env.wall_ns());
        Ok(())
    }

    /// Answers a probe with what came with it.
    pub(crate) async fn serve_probe(&self, incoming: transport::Incoming) {
        let transport::Incoming { mut bulk, responder, .. } = incoming;
        let outcome = match bulk.remaining() {
            bytes @ 0..=PROBE_BYTES if responder.room_for_answer(bytes).await => {
                bulk.read_to_vec().await
            }
            0..=PROBE_BYTES => Err(Error::bare(Code::Canceled)),
            _ => Err(Error::new(Code::Proto, "too large a probe")),
        };
        let answer = wire::encode(&outcome.as_ref().map(|_| ()));
        let data = outcome.unwrap_or_default();
        self.send(responder, 0, &answer, &[data.as_slice()]).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn links(of: &[(u32, u64)]) -> Links {
        let links = Links::default();
        for &(rank, kb_s) in of {
            links.probed(Rank(rank), &[(kb_s * 10, 10 * MS), (kb_s * 10, 10 * MS)], 1_000);
        }
        links
    }

    #[test]
    fn one_slow_engine_makes_no_other_slow() {
        let of = |all: &[(u32, u64)]| links(all).network().map(|of| of.speed.kb_s);
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[(1, 500)]), Some(500));
        assert_eq!(of(&[(1, 900_000), (2, 100)]), Some(900_000));
        assert_eq!(of(&[(1, 900_000), (2, 100), (3, 800_000)]), Some(800_000));
        // The slow one itself finds all slow.
        assert_eq!(of(&[(0, 100), (1, 110), (3, 90)]), Some(100));
    }

    #[test]
    fn what_goes_there_anyway_says_how_fast_it_is_at_least() {
        let links = links(&[(1, 100_000)]);
        let kb_s = |links: &Links| {
            let network = links.network().unwrap();
            (network.speed.kb_s, network.at_ns)
        };
        // A device at the other end that is slow says nothing of the link.
        links.note(Rank(1), 1_000_000, 100 * MS, 7_000);
        assert_eq!(kb_s(&links), (100_000, 1_000));
        links.note(Rank(1), 1_000_000, 11 * MS, 8_000);
        assert_eq!(kb_s(&links), (100_000, 8_000), "as good as known: it is young again");
        links.note(Rank(1), 1_000_000, 5 * MS, 9_000);
        assert_eq!(kb_s(&links), (200_000, 9_000));
        links.probed(Rank(1), &[(1_000_000, 6 * MS)], 9_300);
        assert_eq!(kb_s(&links), (166_666, 9_300), "slower than it was");
        links.probed(Rank(1), &[(1_000_000, 7 * MS), (1, MS), (1_000_000, 5 * MS)], 9_400);
        assert_eq!(kb_s(&links), (166_666, 9_400), "noise");
        links.note(Rank(1), 1_000, Duration::ZERO, 9_500);
        links.note(Rank(2), 1_000_000, MS, 9_600);
        assert_eq!(kb_s(&links), (166_666, 9_400), "little, or never probed");
        let spread = links.network().unwrap().speed;
        assert_eq!((spread.kb_s_min, spread.kb_s_max), (1, 200_000));
    }

    #[test]
    fn what_is_new_or_old_is_probed_and_no_more_than_some() {
        let links = links(&[(1, 100), (2, 100)]);
        links.probed(Rank(2), &[(1, MS)], 90_000_000_000);
        let all: Vec<Rank> = (1..50).map(Rank).collect();
        let hour = Some(Duration::from_secs(3600));
        let (new, old) = links.due(&all, 100_000_000_000, hour);
        assert_eq!((new.len(), old), (LINKS_MAX - 2, None));
        let (_, old) = links.due(&all, 100_000_000_000, Some(Duration::from_secs(50)));
        assert_eq!(old, Some(Rank(1)));
        assert_eq!(links.due(&all, u64::MAX, None).1, None);
        // One that is gone is forgotten.
        links.due(&[Rank(2)], 0, None);
        assert_eq!(links.network().unwrap().link_count, 1);
    }
}
