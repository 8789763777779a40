//! Whole clusters from seeds, with trouble; see `sim::swarm`.
//!
//! `AZEKURA_SWARM_SEEDS` is the number of seeds, `AZEKURA_SWARM_SEED` one of them, of which everything is
//! told, also what engines say with `RUST_LOG`; `AZEKURA_SWARM_FAULTS` (names with commas) leaves out all other kinds of faults.

use sim::swarm::{Fault, Report, Settings, run};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

const SEED_COUNT: u64 = 200;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

fn settings_of(seed: u64) -> Settings {
    let mut settings = Settings::draw(seed);
    if let Ok(wanted) = std::env::var("AZEKURA_SWARM_FAULTS") {
        let is_wanted = |fault: &Fault| wanted.split(',').any(|name| name == format!("{fault:?}"));
        settings.faults.retain(is_wanted);
    }
    settings
}

/// What a failing seed says.
fn told(settings: &Settings, what: &str) -> String {
    let seed = settings.seed;
    format!(
        "seed {seed}: {what}\n{settings:?}\nTo repeat it: AZEKURA_SWARM_SEED={seed} cargo test -p sim \
         --test swarm trouble -- --nocapture\n"
    )
}

/// A panic is a failure of its seed.
fn caught(settings: &Settings) -> Result<Report, String> {
    let outcome = std::panic::catch_unwind(|| run(settings, false));
    outcome.unwrap_or_else(|_| Err("it panicked; see above".into()))
}

#[test]
fn a_cluster_in_trouble_answers_as_one_copy_would() {
    if let Some(seed) = number("AZEKURA_SWARM_SEED") {
        let filter = tracing_subscriber::EnvFilter::from_default_env();
        let said = tracing_subscriber::fmt().with_env_filter(filter).without_time();
        said.with_writer(std::io::stderr).with_ansi(false).init();
        let settings = settings_of(seed);
        let report =
            run(&settings, true).unwrap_or_else(|what| panic!("{}", told(&settings, &what)));
        println!("{settings:?}\n{report:?}");
        return;
    }
    let count = number("AZEKURA_SWARM_SEEDS").unwrap_or(SEED_COUNT);
    let next = AtomicU64::new(0);
    let failed = Mutex::new(Vec::new());
    let thread_count = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..thread_count {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= count {
                        break;
                    }
                    let settings = settings_of(seed);
                    if let Err(what) = caught(&settings) {
                        failed.lock().unwrap().push(told(&settings, &what));
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
}
