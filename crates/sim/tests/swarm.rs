//! Whole clusters from seeds, with trouble; see `sim::swarm`.
//!
//! `AZEKURA_SWARM_SEEDS` is the number of seeds, `AZEKURA_SWARM_SEED` one of them, of which everything is
//! told, also what engines say with `RUST_LOG`; `AZEKURA_SWARM_FAULTS` (names with commas) leaves out all other kinds of faults.

use sim::swarm::{Fault, Report, Settings, run};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

const SEED_COUNT: u64 = 200;
/// For so many other seeds there is one whose arrays have erasure codes: these take longer.
const CODED_SHARE: u64 = 8;

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
    let filter = if settings.files.is_some() { "coded" } else { "trouble" };
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
    let next = AtomicU64::new(0);
    let (failed, reports) = (Mutex::new(Vec::new()), Mutex::new(Vec::new()));
    let thread_count = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..thread_count {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= count {
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
    assert!(failed.is_empty(), "{} of {count} seeds failed", failed.len());
    reports.into_inner().unwrap()
}

#[test]
fn a_cluster_in_trouble_answers_as_one_copy_would() {
    run_seeds(Settings::draw, number("AZEKURA_SWARM_SEEDS").unwrap_or(SEED_COUNT));
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
