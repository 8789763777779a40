//! Whole clusters from seeds, with trouble; see `sim::swarm`.
//!
//! `AZEKURA_SWARM_SEEDS` is the number of seeds, `AZEKURA_SWARM_FROM` the first one (0), `AZEKURA_SWARM_SEED` a single one, of which everything
//! is told, also what engines say with `RUST_LOG`; `AZEKURA_SWARM_FAULTS` (names with commas) leaves out all other kinds of faults.

use sim::swarm::{FAULTS, FURTHER_FAULTS, Fault, Report, Settings, run};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

const SEED_COUNT: u64 = 200;
/// For so many other seeds there is one whose arrays have erasure codes: these take longer.
const CODED_SHARE: u64 = 8;
/// The same of seeds in which clients work on names in a file system.
const NAMED_SHARE: u64 = 10;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

/// What draws the settings of a seed.
type Draw = fn(u64) -> Settings;

fn settings_of(draw: Draw, seed: u64) -> Settings {
    let mut settings = draw(seed);
    if let Ok(wanted) = std::env::var("AZEKURA_SWARM_FAULTS") {
        let is_wanted = |fault: &Fault| wanted.split(',').any(|name| name == format!("{fault:?}"));
        settings.faults.retain(is_wanted);
    }
    settings
}

/// What a failing seed says.
fn told(settings: &Settings, what: &str) -> String {
    let seed = settings.seed;
    let filter = match settings {
        Settings { files: Some(_), .. } => "coded",
        Settings { has_names: true, .. } => "names",
        _ => "trouble",
    };
    format!(
        "seed {seed}: {what}\n{settings:?}\nTo repeat it: AZEKURA_SWARM_SEED={seed} cargo test -p sim \
         --test swarm {filter} -- --nocapture\n"
    )
}

/// A panic is a failure of its seed.
fn caught(settings: &Settings) -> Result<Report, String> {
    let outcome = std::panic::catch_unwind(|| run(settings, false));
    outcome.unwrap_or_else(|_| Err("it panicked; see above".into()))
}

/// Runs so many seeds, or the one that is asked for; all that was reported.
fn run_seeds(draw: Draw, count: u64) -> Vec<Report> {
    if let Some(seed) = number("AZEKURA_SWARM_SEED") {
        let filter = tracing_subscriber::EnvFilter::from_default_env();
        let said = tracing_subscriber::fmt().with_env_filter(filter).without_time();
        // Another test of the program may have done it.
        let _ = said.with_writer(std::io::stderr).with_ansi(false).try_init();
        let settings = settings_of(draw, seed);
        let report =
            run(&settings, true).unwrap_or_else(|what| panic!("{}", told(&settings, &what)));
        println!("{settings:?}\n{report:?}");
        return vec![report];
    }
    let first = number("AZEKURA_SWARM_FROM").unwrap_or(0);
    let (next, end) = (AtomicU64::new(first), first + count);
    let (failed, reports) = (Mutex::new(Vec::new()), Mutex::new(Vec::new()));
    let thread_count = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..thread_count {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= end {
                        break;
                    }
                    let settings = settings_of(draw, seed);
                    match caught(&settings) {
                        Ok(report) => reports.lock().unwrap().push(report),
                        Err(what) => failed.lock().unwrap().push(told(&settings, &what)),
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap();
    for what in failed.iter().take(3) {
        eprintln!("{what}");
    }
    let seeds: Vec<&str> = failed.iter().filter_map(|what| what.split(':').next()).collect();
    assert!(failed.is_empty(), "{} of {count} seeds failed: {}", seeds.len(), seeds.join(", "));
    reports.into_inner().unwrap()
}

/// A kind of trouble that no seed has shows nothing. Asked only of all seeds, with all kinds.
fn demand_all_kinds(reports: &[Report]) {
    if reports.len() < SEED_COUNT as usize || std::env::var_os("AZEKURA_SWARM_FAULTS").is_some() {
        return;
    }
    let sum = |of: &dyn Fn(&Report) -> u64| reports.iter().map(of).sum::<u64>();
    for fault in FAULTS.into_iter().chain(FURTHER_FAULTS) {
        let times = sum(&|report| u64::from(report.faults.get(&fault).copied().unwrap_or(0)));
        assert!(times > 0, "{fault:?} never happened");
    }
    let rare = [
        ("cuts between engines", sum(&|report| report.engine_cuts.into())),
        ("engines that stood still", sum(&|report| report.still.0.into())),
        ("clients that stood still", sum(&|report| report.still.1.into())),
        ("reads by members", sum(&|report| report.member_reads.0)),
        ("reads that members refused", sum(&|report| report.member_reads.1)),
        ("exchanged disks", sum(&|report| report.wiped)),
        ("targets that were drained or excluded", sum(&|report| report.wishes)),
        ("snapshots", sum(&|report| report.snapshots.0)),
        ("values that snapshots showed", sum(&|report| report.snapshots.1)),
        ("rollbacks", sum(&|report| report.rollbacks)),
        ("targets that came to be there", sum(&|report| report.grown)),
        ("changes of shares", sum(&|report| report.weighed)),
        ("blocks with flipped bits", sum(&|report| report.decayed[0])),
        ("blocks that got what was for another", sum(&|report| report.decayed[1])),
        ("blocks that cannot be read", sum(&|report| report.decayed[2])),
    ];
    for (what, times) in rare {
        assert!(times > 0, "{what}: none in {} seeds", reports.len());
    }
}

#[test]
fn a_cluster_in_trouble_answers_as_one_copy_would() {
    let reports = run_seeds(Settings::draw, number("AZEKURA_SWARM_SEEDS").unwrap_or(SEED_COUNT));
    demand_all_kinds(&reports);
}

/// Arrays with erasure codes: whatever dies between cells, parity and the name of a stripe, blocks are what they were told to be, also
/// with as many engines lost as the class survives, and in the end parity is that of the data.
#[test]
fn coded_arrays_answer_as_one_copy_would() {
    let count = number("AZEKURA_SWARM_SEEDS").map(|all| all / CODED_SHARE);
    let reports = run_seeds(Settings::draw_coded, count.unwrap_or(SEED_COUNT / CODED_SHARE));
    let stripes: u64 = reports.iter().map(|report| report.stripes).sum();
    assert!(stripes >= reports.len() as u64, "of {} seeds {stripes} stripes", reports.len());
}

/// Names of files and directories, through the file system: what every client is told fits one tree, also when engines die in the midst of a
/// rename from one target to another.
#[test]
fn names_are_those_of_one_tree() {
    let count = number("AZEKURA_SWARM_SEEDS").map(|all| all / NAMED_SHARE);
    let reports = run_seeds(Settings::draw_named, count.unwrap_or(SEED_COUNT / NAMED_SHARE));
    let undecided: usize = reports.iter().map(|report| report.undecided).sum();
    assert!(undecided * 10 <= reports.len(), "of {} seeds {undecided} undecided", reports.len());
    if reports.len() < (SEED_COUNT / NAMED_SHARE) as usize {
        return;
    }
    let sum = |of: &dyn Fn(&Report) -> u64| reports.iter().map(of).sum::<u64>();
    for (what, times) in [
        ("names that snapshots showed", sum(&|report| report.snapshots.1)),
        ("rollbacks", sum(&|report| report.rollbacks)),
        ("files that got another class", sum(&|report| report.migrated)),
    ] {
        assert!(times > 0, "{what}: none in {} seeds", reports.len());
    }
}

/// What a seed does it does again, whoever stands still or loses what.
#[test]
fn runs_repeat() {
    if number("AZEKURA_SWARM_SEED").is_some() {
        return;
    }
    let draws: [(Draw, u64); 3] =
        [(Settings::draw, 5), (Settings::draw_coded, 1), (Settings::draw_named, 1)];
    for (draw, seed) in draws {
        let mut settings = settings_of(draw, seed);
        for fault in [Fault::Pause, Fault::Drift, Fault::Damage, Fault::Wipe, Fault::Grow] {
            settings.faults.push(fault);
        }
        settings.calls = 15;
        let once = || caught(&settings).unwrap_or_else(|what| panic!("{}", told(&settings, &what)));
        assert_eq!(once(), once(), "seed {seed}");
    }
}
