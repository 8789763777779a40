//! What a seed draws: shape of the cluster, settings, kinds of faults, amount of work.

use super::files::Files;
use engine::{Bytes, Portions, StoreConfig};
use env::Rng;
use std::time::Duration;
use types::Durability;
use wire::request_id::UNANSWERED_MAX;

/// Who stands still for so long is not called down: until then nobody leads in its place.
const STILL_TIME_MAX: Duration = Duration::from_millis(2_500);

/// A kind of trouble.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// An engine dies, and is started again.
    Kill,
    /// An engine dies when its disk comes to a sync: just before, or just after.
    KillAtSync,
    /// Nothing passes between two nodes for a while.
    Cut,
    /// Nothing passes from one node to another for a while.
    OneWayCut,
    /// Connections between two nodes break.
    Break,
    /// Any write to a connection may break it, for a while.
    Flaky,
    /// A client gives connections up; what it has written arrives later, when it has asked again.
    Late,
    /// Some messages take a thousand times as long as others.
    Tail,
    /// The wall clock of an engine jumps.
    Clock,
    /// A disk takes its time.
    SlowDisk,
    /// A disk is full.
    FullDisk,
    /// The engine with the catalog is away for long.
    CatalogOutage,
    /// Some writes of a disk fail; some time later the engine is started again. Of `wal` pools only: others have
    /// promised by then what is lost.
    DiskError,
    /// An engine is away for so long that others lead in its place.
    Absence,
    /// The wall clock of an engine runs too fast or too slow for a while, and is wrong from then on.
    Drift,
    /// An engine comes back with empty disks in place of its own; of pools with copies, while nobody else lacks anything.
    Wipe,
    /// Some sectors of an engine's disks are not what was written, or cannot be read; of pools with copies, while nobody else lacks
    /// anything.
    Damage,
    /// The processes of an engine or of a client stand still for a while, as under `SIGSTOP`; then they go on with what they knew.
    Pause,
    /// An engine and a client hear nobody but each other, for so long that others lead in the engine's place; its monotonic clock is slow meanwhile.
    Split,
    /// Targets are drained, until all they have has moved or before that, and then serve again; of pools with copies.
    Drain,
    /// Targets are excluded for a while; of pools with copies.
    Exclude,
    /// A snapshot is taken, looked at, and looked at later; of `wal` pools, for others may have shown what a crash takes back.
    Snapshot,
    /// The same, and sometimes the container is rolled back to it: everything becomes what it was.
    Rollback,
    /// An engine gets a further target, which the pool takes in, and which takes over its share; of pools with copies.
    Grow,
    /// Disks have more or less room than before, the pool weighs its targets anew, and what is there moves; of pools with copies.
    Reweigh,
    /// Files in a directory get another class while clients rename, link and remove them; of seeds with names.
    Migrate,
}

/// Those that not all clusters can bear; each says which.
pub const FURTHER_FAULTS: [Fault; 12] = [
    Fault::Absence,
    Fault::Drift,
    Fault::Wipe,
    Fault::Damage,
    Fault::Pause,
    Fault::Split,
    Fault::Drain,
    Fault::Exclude,
    Fault::Snapshot,
    Fault::Rollback,
    Fault::Grow,
    Fault::Reweigh,
];

/// All kinds, in the order in which a seed asks for them.
pub const FAULTS: [Fault; 13] = [
    Fault::Kill,
    Fault::KillAtSync,
    Fault::Cut,
    Fault::OneWayCut,
    Fault::Break,
    Fault::Flaky,
    Fault::Late,
    Fault::Tail,
    Fault::Clock,
    Fault::SlowDisk,
    Fault::FullDisk,
    Fault::CatalogOutage,
    Fault::DiskError,
];

/// Everything about a run that is decided before it begins.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The seed of it all.
    pub seed: u64,
    /// Engines; the first has the catalog.
    pub engines: usize,
    /// Targets of each.
    pub targets: usize,
    /// Of the pool.
    pub durability: Durability,
    /// Sizes and caches, the same for every target.
    pub store: StoreConfig,
    /// Clients of the key-value objects.
    pub clients: u32,
    /// Calls of each.
    pub calls: u32,
    /// Of ten calls, those that are transactions.
    pub transactions: u64,
    /// Keys that the first client makes all at once, in the middle of its work: more than a target keeps answers.
    pub burst: u32,
    /// How long a client waits for an answer.
    pub patience: Duration,
    /// Longest pause between two calls of a client.
    pub pause_max: Duration,
    /// Most time that a piece of data travels.
    pub delay_max: Duration,
    /// Keys of the object under single calls.
    pub keys: u64,
    /// Keys that transactions share.
    pub accounts: u64,
    /// Class of the objects.
    pub class: &'static str,
    /// Class of those whose dkeys all lie in one group.
    pub class_alone: &'static str,
    /// Arrays with an erasure code, which clients use instead of all else.
    pub files: Option<Files>,
    /// Clients work on names in a file system, and on nothing else.
    pub has_names: bool,
    /// What may happen.
    pub faults: Vec<Fault>,
    /// Faults at the same time.
    pub tracks: usize,
    /// Longest pause between two faults of a track.
    pub calm_max: Duration,
    /// How long faults go on.
    pub trouble: Duration,
    /// Longest time that somebody stands still.
    pub still_max: Duration,
    /// Longest time for which nothing passes between two nodes.
    pub cut_max: Duration,
    /// Transfers that a pool has at work at a target, in either direction.
    pub bulk_limit: &'static str,
    /// Updates that a client has without an answer in a lane, at most.
    pub unanswered_max: usize,
    /// Data on its way in one direction of a connection, at most, bytes.
    pub flight_bytes_max: usize,
    /// When others stand in for a target that is down, seconds; `None`: never.
    pub rebuild_after_s: Option<u32>,
}

fn millis(rng: &Rng, choices: &[u64]) -> Duration {
    Duration::from_millis(pick(rng, choices))
}

fn pick<T: Copy>(rng: &Rng, choices: &[T]) -> T {
    choices[rng.below(choices.len() as u64) as usize]
}

impl Settings {
    /// Those of a seed.
    pub fn draw(seed: u64) -> Settings {
        let rng = Rng::new(types::hash::mix2(seed, 0x5e77_1465));
        let durabilities =
            [Durability::Wal, Durability::Wal, Durability::Relaxed, Durability::Memory];
        let store = StoreConfig {
            inline_bytes_max: Some(Bytes(pick(&rng, &[512, 1024, 4096, 65_536]))),
            aggregation: Some(rng.below(2) == 0),
            metadata_cache: Some(Bytes(pick(&rng, &[1 << 20, 64 << 20]))),
            ..StoreConfig::default()
        };
        let mut settings = Settings {
            seed,
            engines: 1 + rng.below(3) as usize,
            targets: 1 + rng.below(2) as usize,
            durability: pick(&rng, &durabilities),
            store,
            clients: 2 + rng.below(3) as u32,
            calls: 20 + rng.below(40) as u32,
            transactions: 0,
            burst: 0,
            patience: millis(&rng, &[20, 100, 500, 2_000, 10_000]),
            pause_max: millis(&rng, &[1, 10, 40]),
            delay_max: Duration::from_micros(pick(&rng, &[10, 200, 3_000])),
            keys: 1 + rng.below(6),
            accounts: 2 + rng.below(4),
            class: pick(&rng, &["SX", "S1"]),
            class_alone: "S1",
            files: None,
            has_names: false,
            faults: Vec::new(),
            tracks: 1 + rng.below(2) as usize,
            calm_max: millis(&rng, &[5, 30, 200]),
            trouble: millis(&rng, &[200, 1_000, 4_000]),
            still_max: STILL_TIME_MAX,
            cut_max: Duration::from_millis(400),
            bulk_limit: "off",
            unanswered_max: UNANSWERED_MAX,
            flight_bytes_max: 256 << 10,
            rebuild_after_s: None,
        };
        // A few kinds at a time find more than all of them always.
        let likely = 1 + rng.below(3);
        settings.faults = FAULTS.into_iter().filter(|_| rng.below(4) < likely).collect();
        if settings.durability != Durability::Wal {
            settings.faults.retain(|fault| *fault != Fault::DiskError);
        }
        settings.burst = pick(&rng, &[0, 0, 0, 400]);
        settings.transactions = pick(&rng, &[2, 8]);
        match seed % 8 {
            1 | 5 => settings.keep_copies(&rng),
            3 => settings.look_at_what_is_being_written(),
            6 => settings.come_again_and_again(),
            _ => {}
        }
        if !matches!(seed % 8, 3 | 6) {
            settings.add_faults(seed);
            settings.narrow(seed);
        }
        settings
    }

    /// Makes windows and portions small that are usually never full: drawn apart, too.
    fn narrow(&mut self, seed: u64) {
        let rng = Rng::new(types::hash::mix2(seed, 0x5_4a11));
        // Most often as usual.
        let small = |choices: &[usize], usual: usize| match rng.below(3) {
            0 => pick(&rng, choices),
            _ => usual,
        };
        let usual = Portions::default();
        self.unanswered_max = small(&[1, 2, 5], UNANSWERED_MAX);
        self.flight_bytes_max = small(&[2_000, 20_000, 100_000], self.flight_bytes_max);
        self.store.portions = Portions {
            orders: small(&[1, 2, 5], usual.orders),
            order_bytes: small(&[1, 5_000, 100_000], usual.order_bytes),
            listed: small(&[1, 2, 5], usual.listed as usize) as u32,
            mended: small(&[1, 2], usual.mended),
            mended_bytes: small(&[1, 5_000], usual.mended_bytes as usize) as u64,
        };
        if rng.below(3) == 0 {
            self.bulk_limit = pick(&rng, &["1", "2", "auto"]);
        }
    }

    /// Faults that seeds have in addition to those of [`FAULTS`]: drawn apart, so that all else of a seed is what it was without them.
    fn add_faults(&mut self, seed: u64) {
        let rng = Rng::new(types::hash::mix2(seed, 0xadd_fa17));
        for fault in [Fault::Drift, Fault::Pause] {
            if rng.below(3) == 0 && !self.faults.contains(&fault) {
                self.faults.push(fault);
            }
        }
        let has_copies = self.class_alone != "S1";
        for fault in [Fault::Wipe, Fault::Damage] {
            // Of what is being written when an engine of another pool dies, only its own disk may have it.
            if rng.below(3) == 0 && has_copies && self.durability == Durability::Wal {
                self.faults.push(fault);
                // Somebody has to be away for a while, and back.
                self.trouble = self.trouble.max(Duration::from_secs(20));
                self.pause_max = self.pause_max.max(Duration::from_millis(300));
            }
        }
        for longest in [&mut self.still_max, &mut self.cut_max] {
            if rng.below(3) == 0 && has_copies {
                *longest = Duration::from_secs(12);
                self.trouble = self.trouble.max(Duration::from_secs(20));
                self.pause_max = self.pause_max.max(Duration::from_millis(300));
            }
        }
        if rng.below(3) == 0 && has_copies {
            self.faults.push(Fault::Split);
            self.trouble = self.trouble.max(Duration::from_secs(20));
            self.pause_max = self.pause_max.max(Duration::from_millis(300));
            // Who is alone with the engine must still read when others have written, and not wait for what nobody hears.
            self.patience = self.patience.min(Duration::from_millis(500));
            self.calls = self.calls.max(120);
        }
        let rng = Rng::new(types::hash::mix2(seed, 0x3_15e5));
        for fault in [Fault::Drain, Fault::Exclude] {
            if rng.below(4) == 0 && has_copies {
                self.faults.push(fault);
                self.trouble = self.trouble.max(Duration::from_secs(20));
                self.pause_max = self.pause_max.max(Duration::from_millis(300));
            }
        }
        let rng = Rng::new(types::hash::mix2(seed, 0x5_4a95));
        if rng.below(3) == 0 && self.durability == Durability::Wal && !self.has_names {
            self.faults.push(Fault::Snapshot);
            if rng.below(2) == 0 {
                self.faults.push(Fault::Rollback);
                // The same value is there twice: of transactions it is not known then on which of them they depend.
                (self.transactions, self.burst) = (0, 0);
            }
        }
        if rng.below(4) == 0 && has_copies {
            self.faults.push(Fault::Grow);
            self.trouble = self.trouble.max(Duration::from_secs(4));
            self.pause_max = self.pause_max.max(Duration::from_millis(300));
        }
        let rng = Rng::new(types::hash::mix2(seed, 0x3e_163d));
        if rng.below(4) == 0 && has_copies {
            self.faults.push(Fault::Reweigh);
            self.trouble = self.trouble.max(Duration::from_secs(8));
            self.pause_max = self.pause_max.max(Duration::from_millis(300));
        }
    }

    /// Those of a seed in which arrays have erasure codes: stripes are coded by clients and by leaders, written over, read and written
    /// while members are away.
    pub fn draw_coded(seed: u64) -> Settings {
        let mut settings = Settings::draw(8 * seed);
        let rng = Rng::new(types::hash::mix2(seed, 0xec0d_ed00));
        let (class, cells) = pick(
            &rng,
            &[
                ("EC_2P1G1", (2, 1)),
                ("EC_2P1GX", (2, 1)),
                ("EC_2P2G1", (2, 2)),
                ("EC_2P2GX", (2, 2)),
                ("EC_4P1G1", (4, 1)),
                ("EC_4P2G1", (4, 2)),
                ("EC_2P1GX+256KiB", (2, 1)),
            ],
        );
        settings.seed = seed;
        settings.files = Some(Files {
            class,
            cells,
            count: 1 + rng.below(2),
            stripes: 1 + rng.below(2),
            chunks: 1 + rng.below(3),
        });
        (settings.class, settings.class_alone) = ("RP_2G1", "RP_2G1");
        (settings.keys, settings.accounts, settings.transactions, settings.burst) = (0, 0, 0, 0);
        settings.engines = (cells.0 + cells.1 + rng.below(2)) as usize;
        settings.targets = 1;
        settings.calls = 10 + rng.below(20) as u32;
        settings.trouble = millis(&rng, &[1_000, 4_000, 30_000]);
        settings.pause_max = millis(&rng, &[10, 100, 400]);
        // Half of them with engines that are away for long; others stand in for these, or nobody does.
        if rng.below(2) > 0 {
            settings.faults.push(Fault::Absence);
        }
        if rng.below(3) > 0 {
            settings.rebuild_after_s = Some(1 + 4 * rng.below(2) as u32);
        }
        // Cells are on stable storage before anything names them, in relaxed pools, too: what these may lose is the last of what
        // keepers have. Engines of memory pools forget all, more of them than a code survives.
        settings.durability = match types::hash::mix2(seed, 10) % 3 {
            0 => Durability::Relaxed,
            _ => Durability::Wal,
        };
        settings.add_faults(types::hash::mix2(seed, 8));
        settings.narrow(types::hash::mix2(seed, 8));
        settings
    }

    /// Those of a seed in which clients make, rename, link and remove names, in half of them with copies.
    pub fn draw_named(seed: u64) -> Settings {
        let mut settings = Settings::draw(8 * seed);
        let rng = Rng::new(types::hash::mix2(seed, 0x4a_3e5));
        settings.seed = seed;
        settings.has_names = true;
        (settings.keys, settings.accounts, settings.transactions, settings.burst) = (0, 0, 0, 0);
        // Updates of other pools that a crash takes back need not be the last ones of all targets.
        settings.durability = Durability::Wal;
        if seed % 2 == 1 {
            settings.keep_copies(&rng);
            settings.add_faults(types::hash::mix2(seed, 9));
            settings.narrow(types::hash::mix2(seed, 9));
        }
        // Drawn apart, for those that have none of keys, too.
        settings.faults.retain(|fault| !matches!(fault, Fault::Snapshot | Fault::Rollback));
        let apart = Rng::new(types::hash::mix2(seed, 0x5_4a95));
        for (fault, one_of) in [(Fault::Snapshot, 3), (Fault::Rollback, 3), (Fault::Migrate, 2)] {
            if apart.below(one_of) == 0 {
                settings.faults.push(fault);
                settings.trouble = settings.trouble.max(Duration::from_secs(4));
                settings.pause_max = settings.pause_max.max(Duration::from_millis(100));
            }
        }
        settings.clients = 2 + rng.below(2) as u32;
        settings.calls = 15 + rng.below(25) as u32;
        // What is not answered fits almost anything.
        settings.patience = millis(&rng, &[500, 2_000, 10_000]);
        // In half of them directories spread as soon as they have two names.
        if rng.below(2) > 0 {
            settings.class = match settings.class_alone {
                "S1" => "SX@1",
                "RP_2G1" => "RP_2GX@1",
                "RP_3G1" => "RP_3GX@1",
                other => other,
            };
        }
        settings
    }

    /// Objects with copies: engines that are away for long, too, and whatever else there is.
    fn keep_copies(&mut self, rng: &Rng) {
        self.engines = 2 + rng.below(3) as usize;
        let width = 2 + rng.below(self.engines as u64 - 1);
        (self.class_alone, self.class) = match width {
            2 => ("RP_2G1", pick(rng, &["RP_2G1", "RP_2GX"])),
            3 => ("RP_3G1", pick(rng, &["RP_3G1", "RP_3GX"])),
            _ => ("RP_4G1", "RP_4G1"),
        };
        if rng.below(3) > 0 {
            self.faults.push(Fault::Absence);
            self.trouble = millis(rng, &[4_000, 20_000, 60_000]);
            self.pause_max = millis(rng, &[40, 300]);
        }
        // Others stand in, where there are any; what was away comes back while they do, or when they did.
        if rng.below(3) > 0 {
            self.engines += rng.below(2) as usize;
            self.rebuild_after_s = Some(1 + 4 * rng.below(2) as u32);
        }
        // More answers than a target keeps, given while earlier requests look for a new leader: see the decision on orders.
        self.burst = 0;
        // What a whole engine has forgotten is another story: see `crates/sim/tests/cluster/replicas.rs`.
        if self.durability == Durability::Memory {
            self.durability = Durability::Wal;
        }
    }

    /// Many reads of few keys whose updates wait for a slow disk when the engine dies: whether somebody was
    /// shown what a crash has taken back.
    fn look_at_what_is_being_written(&mut self) {
        self.durability = Durability::Wal;
        self.faults = vec![Fault::KillAtSync, Fault::Kill, Fault::SlowDisk];
        (self.engines, self.targets, self.tracks) = (1, 1, 2);
        self.be_busy_with_few_keys();
    }

    /// Clients that give up connections again and again while they wait, and never give up asking: whether
    /// a first try takes effect after what came later.
    fn come_again_and_again(&mut self) {
        self.faults = vec![Fault::Late];
        (self.engines, self.targets, self.tracks) = (1, 1, 3);
        self.be_busy_with_few_keys();
    }

    fn be_busy_with_few_keys(&mut self) {
        (self.clients, self.calls, self.keys, self.transactions) = (4, 150, 2, 0);
        self.burst = 0;
        self.pause_max = Duration::from_micros(500);
        self.calm_max = Duration::from_millis(5);
        self.trouble = Duration::from_secs(4);
        self.patience = Duration::from_secs(10);
    }

    /// Stores are looked at in the end: where something befell disks, and of other seeds of every fourth, because each look reads whole logs.
    pub fn checks_stores(&self) -> bool {
        let of_disks = [Fault::Wipe, Fault::Damage, Fault::DiskError];
        types::hash::mix(self.seed).is_multiple_of(4)
            || self.faults.iter().any(|fault| of_disks.contains(fault))
    }

    /// Number of all targets.
    pub fn target_count(&self) -> usize {
        self.engines * self.targets
    }
}
