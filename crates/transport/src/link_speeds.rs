//! How fast the other ends of links are reached: by probes of a few MiB, and by what goes there anyway.
//!
//! What is sent for other reasons waits for the other's devices, too, so it says how fast a link is at least: it raises what is known and
//! keeps it young. Only a probe, which no device has to do with, lowers it.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;
use wire::measure::{Network, SeenSpeed, Speed};

/// A probe sends so much, and gets as much back, bytes, ...
pub const PROBE_BYTES: usize = 1 << 20;
/// ... so often, after once that does not count: it opens the connection, and its window.
pub const PROBE_SLICES: usize = 5;
/// A transfer that is to say something has so much at least, bytes.
pub const TRANSFER_BYTES_MIN: u64 = 256 << 10;
/// A transfer that does this part of what is known confirms it, percent.
const CONFIRM_PERCENT: u64 = 90;
/// A probe that differs by no more says the same as the one before, percent.
const SAME_PERCENT: u64 = 15;

/// What is known of one link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Link {
    seen: SeenSpeed,
    /// When it was probed, or confirmed, nanoseconds since 1970.
    at_ns: u64,
}

/// What is known of links, by what is at their other ends.
#[derive(Debug)]
pub struct LinkSpeeds<K> {
    known: RefCell<BTreeMap<K, Link>>,
}

impl<K> Default for LinkSpeeds<K> {
    fn default() -> Self {
        LinkSpeeds { known: RefCell::default() }
    }
}

/// The speed of a transfer, its answer included; `None`: it is too small to say anything.
pub fn transfer_kb_s(bytes: u64, taken: Duration) -> Option<u64> {
    (bytes >= TRANSFER_BYTES_MIN).then(|| kb_s(bytes, taken))
}

/// The speed that slices of a probe show, if there are any: bytes both ways together, and how long it took. The slice in the middle counts: a
/// scheduler that was late once makes no link slow.
pub fn probed_speed(slices: &[(u64, Duration)]) -> Option<Speed> {
    let mut each: Vec<u64> = slices.iter().map(|(bytes, taken)| kb_s(*bytes, *taken)).collect();
    each.sort_unstable();
    let (kb_s_min, kb_s_max) = (*each.first()?, *each.last()?);
    Some(Speed { kb_s: each[each.len() / 2], kb_s_min, kb_s_max })
}

impl<K: Ord + Copy> LinkSpeeds<K> {
    /// A transfer that took so long, its answer included. Says nothing of links that are not known.
    pub fn note(&self, end: K, bytes: u64, taken: Duration, now_ns: u64) {
        let Some(kb_s) = transfer_kb_s(bytes, taken) else { return };
        if let Some(link) = self.known.borrow_mut().get_mut(&end) {
            link.confirm(kb_s, now_ns);
        }
    }

    /// Takes what was probed. What is about as before stays as it was, so that shares of targets do not follow noise.
    pub fn probed(&self, end: K, probed: Speed, now_ns: u64) {
        let mut known = self.known.borrow_mut();
        let before = known.get(&end).map(|link| link.seen.speed.kb_s);
        let is_same = |before: &u64| probed.kb_s.abs_diff(*before) * 100 <= before * SAME_PERCENT;
        let kb_s = before.filter(is_same).unwrap_or(probed.kb_s);
        let (kb_s_min, kb_s_max) = (probed.kb_s_min.min(kb_s), probed.kb_s_max.max(kb_s));
        let seen = SeenSpeed { speed: Speed { kb_s, kb_s_min, kb_s_max }, is_probed: true };
        known.insert(end, Link { seen, at_ns: now_ns });
    }

    /// Takes what the other end has seen. What it saw of other transfers does not lower what it probed.
    pub fn told(&self, end: K, seen: SeenSpeed, now_ns: u64) {
        if seen.is_probed {
            return self.probed(end, seen.speed, now_ns);
        }
        let mut known = self.known.borrow_mut();
        match known.get_mut(&end).filter(|link| link.seen.is_probed) {
            Some(link) => link.confirm(seen.speed.kb_s, now_ns),
            None => drop(known.insert(end, Link { seen, at_ns: now_ns })),
        }
    }

    /// How fast all are reached: by the link in the middle, so that one slow other end says little; of an even number the
    /// faster one of the two. `None` when no link is known.
    pub fn network(&self) -> Option<Network> {
        let known = self.known.borrow();
        let mut links: Vec<&Link> = known.values().collect();
        links.sort_by_key(|link| link.seen.speed.kb_s);
        let middle = links.get(links.len() / 2)?;
        let speeds = || links.iter().map(|link| link.seen.speed);
        let speed = Speed {
            kb_s: middle.seen.speed.kb_s,
            kb_s_min: speeds().map(|speed| speed.kb_s_min).min().unwrap_or_default(),
            kb_s_max: speeds().map(|speed| speed.kb_s_max).max().unwrap_or_default(),
        };
        let at_ns = links.iter().map(|link| link.at_ns).min().unwrap_or_default();
        Some(Network { at_ns, link_count: links.len() as u32, speed })
    }

    /// Forgets what was not looked at for so long, and of the rest all but those that were looked at last.
    pub fn forget(&self, now_ns: u64, age_max: Duration, count_max: usize) {
        let mut known = self.known.borrow_mut();
        known.retain(|_, link| link.age(now_ns) <= age_max);
        while known.len() > count_max {
            let oldest = known.iter().max_by_key(|(_, link)| link.age(now_ns)).map(|(end, _)| *end);
            let Some(oldest) = oldest else { return };
            known.remove(&oldest);
        }
    }

    /// Forgets ends that are not there any more; of the others, as far as there is room, those that were never probed, and the one that was looked
    /// at longest ago, if that is as long as `every`.
    pub fn due(
        &self,
        others: &[K],
        now_ns: u64,
        every: Option<Duration>,
        count_max: usize,
    ) -> (Vec<K>, Option<K>) {
        let mut known = self.known.borrow_mut();
        known.retain(|end, _| others.contains(end));
        let room = count_max.saturating_sub(known.len());
        let new = others.iter().filter(|end| !known.contains_key(*end)).take(room).copied();
        let new: Vec<K> = new.collect();
        let old = known.iter().max_by_key(|(_, link)| link.age(now_ns));
        let old = old.filter(|(_, link)| every.is_some_and(|every| link.age(now_ns) >= every));
        (new, old.map(|(end, _)| *end))
    }
}

impl Link {
    /// Something went over it so fast.
    fn confirm(&mut self, kb_s: u64, now_ns: u64) {
        let speed = &mut self.seen.speed;
        if kb_s.saturating_mul(100) >= speed.kb_s.saturating_mul(CONFIRM_PERCENT) {
            speed.kb_s = speed.kb_s.max(kb_s);
            speed.kb_s_max = speed.kb_s_max.max(kb_s);
            self.at_ns = now_ns;
        }
    }

    fn age(&self, now_ns: u64) -> Duration {
        Duration::from_nanos(now_ns.saturating_sub(self.at_ns))
    }
}

fn kb_s(bytes: u64, taken: Duration) -> u64 {
    let micros = (taken.as_micros() as u64).max(1);
    bytes.saturating_mul(1000) / micros
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::Rank;

    const LINKS_MAX: usize = 8;
    const MS: Duration = Duration::from_millis(1);

    fn probe(links: &LinkSpeeds<Rank>, rank: u32, slices: &[(u64, Duration)], now_ns: u64) {
        links.probed(Rank(rank), probed_speed(slices).unwrap(), now_ns);
    }

    fn links(of: &[(u32, u64)]) -> LinkSpeeds<Rank> {
        let links = LinkSpeeds::default();
        for &(rank, kb_s) in of {
            probe(&links, rank, &[(kb_s * 10, 10 * MS), (kb_s * 10, 10 * MS)], 1_000);
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
        let kb_s = |links: &LinkSpeeds<Rank>| {
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
        probe(&links, 1, &[(1_000_000, 6 * MS)], 9_300);
        assert_eq!(kb_s(&links), (166_666, 9_300), "slower than it was");
        probe(&links, 1, &[(1_000_000, 7 * MS), (1, MS), (1_000_000, 5 * MS)], 9_400);
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
        probe(&links, 2, &[(1, MS)], 90_000_000_000);
        let all: Vec<Rank> = (1..50).map(Rank).collect();
        let hour = Some(Duration::from_secs(3600));
        let (new, old) = links.due(&all, 100_000_000_000, hour, LINKS_MAX);
        assert_eq!((new.len(), old), (LINKS_MAX - 2, None));
        let (_, old) = links.due(&all, 100_000_000_000, Some(Duration::from_secs(50)), LINKS_MAX);
        assert_eq!(old, Some(Rank(1)));
        assert_eq!(links.due(&all, u64::MAX, None, LINKS_MAX).1, None);
        // One that is gone is forgotten.
        links.due(&[Rank(2)], 0, None, LINKS_MAX);
        assert_eq!(links.network().unwrap().link_count, 1);
    }

    #[test]
    fn what_others_saw_does_not_lower_what_they_probed() {
        let links = LinkSpeeds::<Rank>::default();
        let told = |kb_s, is_probed, now_ns| {
            let speed = Speed { kb_s, kb_s_min: kb_s, kb_s_max: kb_s };
            links.told(Rank(1), SeenSpeed { speed, is_probed }, now_ns);
            let network = links.network().unwrap();
            (network.speed.kb_s, network.at_ns)
        };
        assert_eq!(told(500, false, 1), (500, 1));
        assert_eq!(told(300, false, 2), (300, 2), "there is no probe");
        assert_eq!(told(1_000, true, 3), (1_000, 3));
        assert_eq!(told(300, false, 4), (1_000, 3), "a device had to do with it");
        assert_eq!(told(950, false, 5), (1_000, 5));
        assert_eq!(told(1_200, false, 6), (1_200, 6));
        assert_eq!(told(400, true, 7), (400, 7));
    }

    #[test]
    fn the_oldest_are_forgotten() {
        let links = links(&[]);
        for rank in 0..10 {
            probe(&links, rank, &[(1_000_000, MS)], u64::from(rank) * 1_000_000_000);
        }
        let count = || links.network().map_or(0, |network| network.link_count);
        links.forget(9_000_000_000, Duration::from_secs(100), 10);
        assert_eq!(count(), 10);
        links.forget(9_000_000_000, Duration::from_secs(7), 10);
        assert_eq!(count(), 8);
        links.forget(9_000_000_000, Duration::from_secs(100), 3);
        assert_eq!((count(), links.network().unwrap().at_ns), (3, 7_000_000_000));
    }
}
