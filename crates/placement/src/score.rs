//! What a target is worth by what was measured of it, and weights made of that.
//!
//! The score is that of Higa, Ichikawa and Yamaguchi ("A distributed file system for NVMe SSDs and IEEE 802.3an/bz",
//! 2022, formula 1): `x * min((a * 1.02 + b) / 2.01, c)`. Theirs is of a *worker*, a disk with the link to its node; ours of a
//! target. Unlike there a link that nobody measured does not count, instead of counting as zero.
//!
//! Whole numbers only: weights are stored in the catalog, and whoever makes them anew from the same figures must
//! get the same.

use types::TargetId;

/// What was measured of a target.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Measured {
    /// Free capacity, KB (1,000 bytes).
    pub free_kb: u64,
    /// Speed of reading, KB/s.
    pub read_kb_s: u64,
    /// Speed of writing, KB/s.
    pub write_kb_s: u64,
    /// Speed of the network to it, KB/s; `None`: not known, and no limit.
    pub network_kb_s: Option<u64>,
}

/// The score of a target, KB²/s, rounded down; [`u64::MAX`] when it is more than that.
pub fn score(of: Measured) -> u64 {
    // (a * 1.02 + b) / 2.01 in hundredths; 128 bits, so that the fraction is cut once, at the end.
    const PARTS: u128 = 201;
    let device = of.read_kb_s as u128 * 102 + of.write_kb_s as u128 * 100;
    let network = of.network_kb_s.map_or(u128::MAX, |rate| rate as u128 * PARTS);
    let scaled = (of.free_kb as u128).saturating_mul(device.min(network));
    u64::try_from(scaled / PARTS).unwrap_or(u64::MAX)
}

/// Weight of a target of average worth, and of all targets where they count alike.
pub const WEIGHT_NORM: u32 = 65_536;
/// Most and least weight: a target is drawn, however little it is worth, and no target is drawn always.
const WEIGHT_MAX: u128 = (WEIGHT_NORM as u128) << 12;

/// Weights in proportion to what targets are worth, [`WEIGHT_NORM`] on average. Where nothing is worth anything all get the
/// same.
pub fn weights(worth: &[(TargetId, u64)]) -> Vec<(TargetId, u32)> {
    let total: u128 = worth.iter().map(|(_, worth)| *worth as u128).sum();
    if total == 0 {
        return worth.iter().map(|(target, _)| (*target, WEIGHT_NORM)).collect();
    }
    let whole = WEIGHT_NORM as u128 * worth.len() as u128;
    let weight = |worth: u64| (worth as u128 * whole / total).clamp(1, WEIGHT_MAX) as u32;
    worth.iter().map(|&(target, worth)| (target, weight(worth))).collect()
}

/// The same where no target may have more than a part of all, in 65,536ths: what is over goes to the others. All get
/// the same when that is too little for all together.
pub fn weights_up_to(worth: &[(TargetId, u64)], share_max: u64) -> Vec<(TargetId, u32)> {
    let count = worth.len() as u128;
    let (whole, most) = (WEIGHT_NORM as u128 * count, share_max as u128 * count);
    let total = |of: &[(TargetId, u64)]| of.iter().map(|(_, worth)| *worth as u128).sum::<u128>();
    if most * count <= whole || total(worth) == 0 {
        return worth.iter().map(|(target, _)| (*target, WEIGHT_NORM)).collect();
    }
    let mut open = worth.to_vec();
    // What those that are below the limit share.
    let mut rest = whole;
    loop {
        let all = total(&open).max(1);
        let is_over = |(_, worth): &(TargetId, u64)| *worth as u128 * rest > most * all;
        let over = open.iter().filter(|one| is_over(one)).count() as u128;
        if over == 0 {
            break;
        }
        open.retain(|one| !is_over(one));
        rest = rest.saturating_sub(most * over);
    }
    let all = total(&open).max(1);
    let weight = |(target, worth): &(TargetId, u64)| {
        let weight = match open.iter().any(|(below, _)| below == target) {
            true => *worth as u128 * rest / all,
            false => most,
        };
        (*target, weight.clamp(1, WEIGHT_MAX) as u32)
    };
    worth.iter().map(weight).collect()
}

/// What is left of the share of the target that loses most, in hundredths of what it was.
pub fn least_left_percent(now: &[(TargetId, u32)], then: &[(TargetId, u32)]) -> u64 {
    let sum = |of: &[(TargetId, u32)]| of.iter().map(|(_, weight)| *weight as u128).sum::<u128>();
    let (whole_now, whole_then) = (sum(now).max(1), sum(then).max(1));
    let left = now.iter().filter(|(_, weight)| *weight > 0).map(|(target, weight)| {
        let after = then.iter().find(|(id, _)| id == target).map_or(0, |(_, after)| *after as u128);
        let percent = after * whole_now * 100 / (*weight as u128 * whole_then);
        u64::try_from(percent).unwrap_or(u64::MAX)
    });
    left.min().unwrap_or(100)
}

/// By how much the share of a target changes most, in hundredths of what it was; [`u64::MAX`] for those
/// that had none.
pub fn change_percent(now: &[(TargetId, u32)], then: &[(TargetId, u32)]) -> u64 {
    let sum = |of: &[(TargetId, u32)]| of.iter().map(|(_, weight)| *weight as u128).sum::<u128>();
    let (whole_now, whole_then) = (sum(now).max(1), sum(then).max(1));
    let of = |set: &[(TargetId, u32)], target: TargetId| {
        set.iter().find(|(id, _)| *id == target).map_or(0, |(_, weight)| *weight as u128)
    };
    let all = now.iter().chain(then).map(|(target, _)| {
        let (before, after) = (of(now, *target) * whole_then, of(then, *target) * whole_now);
        match (before, after) {
            (0, 0) => 0,
            (0, _) => u64::MAX,
            _ => u64::try_from(before.abs_diff(after) * 100 / before).unwrap_or(u64::MAX),
        }
    });
    all.max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FREE_KB: u64 = 200_000_000;

    fn of(read: u64, write: u64, network: Option<u64>) -> Measured {
        Measured { free_kb: FREE_KB, read_kb_s: read, write_kb_s: write, network_kb_s: network }
    }

    /// The devices and the link of the paper's experiment: 200 GB each of an NVMe SSD of 2,400 MB/s and a disk of
    /// 200 MB/s, 10 Gbit/s between.
    #[test]
    fn the_devices_of_the_paper_get_the_scores_of_its_formula() {
        let (nvme, disk, link) = (2_400_000, 200_000, 1_250_000);
        // 200e6 * min(2,400,000 * 2.02 / 2.01, c) = 200e6 * 2,411,940.298...
        assert_eq!(score(of(nvme, nvme, None)), 482_388_059_701_492);
        // The link is slower than the SSD, and faster than the disk.
        assert_eq!(score(of(nvme, nvme, Some(link))), FREE_KB * link);
        assert_eq!(score(of(disk, disk, None)), 40_199_004_975_124);
        assert_eq!(score(of(disk, disk, Some(link))), 40_199_004_975_124);
    }

    #[test]
    fn reading_counts_a_little_more_than_writing() {
        let one = |read, write| score(Measured { free_kb: 1, ..of(read, write, None) });
        assert_eq!(one(201, 0), 102);
        assert_eq!(one(0, 201), 100);
        assert_eq!(one(201, 201), 202);
        // Cut once: 1.02 / 2.01 of a KB²/s is none, of a thousand it is 507.
        assert_eq!(one(1, 0), 0);
        assert_eq!(score(Measured { free_kb: 1000, ..of(1, 0, None) }), 507);
    }

    #[test]
    fn what_is_full_dead_or_cut_off_is_worth_nothing_and_nothing_overflows() {
        assert_eq!(score(Measured { free_kb: 0, ..of(1000, 1000, None) }), 0);
        assert_eq!(score(of(0, 0, None)), 0);
        assert_eq!(score(of(1000, 1000, Some(0))), 0);
        let most = Measured { free_kb: u64::MAX, ..of(u64::MAX, u64::MAX, Some(u64::MAX)) };
        assert_eq!(score(most), u64::MAX);
    }

    #[test]
    fn weights_are_in_proportion_and_the_norm_on_average() {
        let of = |worth: &[u64]| -> Vec<u32> {
            let all: Vec<_> = (0..).map(TargetId).zip(worth.iter().copied()).collect();
            weights(&all).into_iter().map(|(_, weight)| weight).collect()
        };
        assert_eq!(of(&[7, 7, 7]), [WEIGHT_NORM; 3]);
        assert_eq!(of(&[3, 1]), [98_304, 32_768]);
        assert_eq!(of(&[12, 1]), [120_989, 10_082]);
        assert_eq!(of(&[0, 0]), [WEIGHT_NORM; 2], "nothing is known: all alike");
        assert_eq!(of(&[0, 5]), [1, 2 * WEIGHT_NORM], "never drawn would be never used");
        assert_eq!(of(&[u64::MAX; 1000]), [WEIGHT_NORM; 1000]);
        assert!(of(&[]).is_empty());
    }

    #[test]
    fn no_share_is_more_than_it_may_be() {
        let of = |worth: &[u64], share_max: u64| -> Vec<u32> {
            let all: Vec<_> = (0..).map(TargetId).zip(worth.iter().copied()).collect();
            weights_up_to(&all, share_max).into_iter().map(|(_, weight)| weight).collect()
        };
        assert_eq!(of(&[1, 2, 3], 65_536), [32_768, 65_536, 98_304], "no limit");
        // 40 % at most: the others share 60 % by their worth, and one of them comes to its limit then.
        assert_eq!(of(&[8, 1, 1], 26_214), [78_642, 58_983, 58_983]);
        assert_eq!(of(&[80, 30, 1, 1], 26_214), [104_856, 104_856, 26_216, 26_216]);
        assert_eq!(of(&[8, 1, 1], 20_000), [WEIGHT_NORM; 3], "too little for all");
        assert_eq!(of(&[0, 0], 40_000), [WEIGHT_NORM; 2]);
        assert_eq!(of(&[5, 0, 0], 40_000), [120_000, 1, 1], "drawn, but by chance only");
    }

    #[test]
    fn the_greatest_change_counts() {
        let set = |of: &[u32]| (0..).map(TargetId).zip(of.iter().copied()).collect::<Vec<_>>();
        assert_eq!(change_percent(&set(&[1, 2]), &set(&[10, 20])), 0);
        assert_eq!(change_percent(&set(&[1, 1]), &set(&[3, 1])), 50);
        assert_eq!(change_percent(&set(&[100, 100, 100]), &set(&[115, 100, 85])), 15);
        assert_eq!(change_percent(&set(&[1]), &set(&[1, 1])), u64::MAX, "one is new");
        assert_eq!(least_left_percent(&set(&[1, 1]), &set(&[7, 7])), 100);
        assert_eq!(least_left_percent(&set(&[1, 1]), &set(&[3, 1])), 50);
        assert_eq!(least_left_percent(&set(&[1, 1]), &set(&[3, 0])), 0);
    }
}
