//! What a run is like, drawn from its seed.

use crate::faults::Fault;
use env::Rng;
use std::time::{Duration, Instant};

/// A container with a file system.
#[derive(Clone, Debug)]
pub struct Cont {
    pub label: &'static str,
    /// Options of `cont create`.
    pub options: &'static [&'static str],
}

/// What a run is like.
#[derive(Debug)]
pub struct Plan {
    pub seed: u64,
    pub begun: Instant,
    /// How long there is trouble.
    pub length: Duration,
    /// Engines whose targets are in the pool from the start, and those that are added.
    pub engines: (usize, usize),
    /// How many engines may be lost at a time.
    pub budget: usize,
    /// Containers with file systems.
    pub conts: Vec<Cont>,
    /// `rd_fac` of the container of keys.
    pub rd_fac: u32,
    /// Classes of its objects.
    pub key_classes: &'static [&'static str],
    pub down_after_s: u64,
    pub rebuild_after_s: u64,
    /// The catalog is in an etcd.
    pub has_etcd: bool,
    /// Programs run on a mount. They take a full pool for what it is, so nobody fills it.
    pub has_programs: bool,
    /// It is to be short: little is written, and what takes long is left out.
    pub is_smoke: bool,
    /// These, one after the other, instead of what the seed would draw.
    pub script: Vec<Fault>,
}

/// Has healing under programs tested, which takes a minute.
pub const HEALING: &str = "AZEKURA_CHAOS_HEALING";

const ONE: Cont = Cont { label: "one", options: &["--rd-fac", "1"] };
const TWO: Cont = Cont { label: "two", options: &["--rd-fac", "2"] };
const CODED: Cont =
    Cont { label: "coded", options: &["--rd-fac", "1", "--file-oclass", "EC_2P1GX"] };
const CODED_TWO: Cont =
    Cont { label: "coded2", options: &["--rd-fac", "2", "--file-oclass", "EC_2P2GX"] };
const WIDE: Cont = Cont {
    label: "wide",
    options: &["--rd-fac", "1", "--dir-oclass", "RP_2GX", "--file-oclass", "RP_2GX"],
};

impl Plan {
    /// The short one of `make test`.
    pub fn smoke(seed: u64) -> Plan {
        Plan {
            seed,
            begun: Instant::now(),
            length: Duration::from_secs(12),
            engines: (5, 0),
            budget: 1,
            conts: vec![ONE, CODED],
            rd_fac: 1,
            key_classes: &["RP_2G1", "RP_2GX", "RP_3G1"],
            down_after_s: 2,
            rebuild_after_s: 4,
            has_etcd: false,
            has_programs: false,
            is_smoke: true,
            script: Vec::new(),
        }
    }

    /// All that makes copies anew, once each, beside programs on a mount: a target that is lost, two engines that die one after the other, a
    /// further engine that takes over its share, and one that is emptied.
    pub fn healing(seed: u64) -> Plan {
        Plan {
            length: Duration::ZERO,
            engines: (5, 1),
            budget: 2,
            conts: vec![TWO],
            rd_fac: 2,
            key_classes: &["RP_3G1", "RP_3GX"],
            has_programs: true,
            script: vec![Fault::Wipe, Fault::StandIn, Fault::Extend, Fault::Drain],
            ..Plan::smoke(seed)
        }
    }

    /// One of `minutes` minutes of trouble. An hour has everything.
    pub fn long(seed: u64, minutes: u64) -> Plan {
        let rng = Rng::new(seed);
        let has_all = minutes >= 60;
        let is_double = rng.below(2) == 1;
        let some = |of: &[u64]| of[rng.below(of.len() as u64) as usize];
        Plan {
            seed,
            begun: Instant::now(),
            length: Duration::from_secs(60 * minutes),
            engines: (7, 1),
            budget: if is_double { 2 } else { 1 },
            conts: if is_double { vec![TWO, CODED_TWO] } else { vec![ONE, TWO, CODED, WIDE] },
            rd_fac: if is_double { 2 } else { 1 },
            key_classes: match is_double {
                true => &["RP_3G1", "RP_3GX", "EC_2P2G1"],
                false => &["RP_2G1", "RP_2GX", "RP_3GX", "EC_2P1G1", "EC_4P1GX"],
            },
            down_after_s: some(&[2, 5]),
            rebuild_after_s: some(&[4, 15, 60]),
            has_etcd: rng.below(2) == 1 || has_all,
            has_programs: rng.below(2) == 1 || has_all,
            is_smoke: false,
            script: Vec::new(),
        }
    }

    /// How many engines there are, those that are added later among them.
    pub fn engines(&self) -> usize {
        self.engines.0 + self.engines.1
    }

    /// As `pool create` takes it.
    pub fn pool_size(&self) -> String {
        // What is overwritten or removed while leaders change is freed later.
        let of_one = if self.is_smoke { 400 } else { 1_500 };
        format!("{}MiB", of_one * self.engines.0)
    }

    /// The command that repeats the run: the same faults at the same times.
    pub fn command(&self) -> String {
        let minutes = match self.is_smoke {
            true if !self.script.is_empty() => format!("{HEALING}=1 "),
            true => String::new(),
            false => format!("AZEKURA_CHAOS_MINUTES={} ", self.length.as_secs() / 60),
        };
        let seed = self.seed;
        format!("AZEKURA_CHAOS_SEED={seed} {minutes}cargo test -p cli --test chaos -- --nocapture")
    }
}
