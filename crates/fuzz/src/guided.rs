//! The same targets under libFuzzer, which keeps the inputs that reach new code.
//!
//! `AZEKURA_FUZZ_TARGET` names the target; arguments are libFuzzer's. `scripts/fuzz-guided.sh` builds
//! it with the instrumentation that libFuzzer needs and runs target after target.
//! `AZEKURA_FUZZ_SEEDS=DIR` writes the target's seeds there as a first corpus, and ends. Without a
//! target named it lists the targets.

#![no_main]

use fuzz::{driver, target};
use std::path::Path;
use std::sync::OnceLock;

/// The target the environment names. Ends the process when there is none: libFuzzer cannot be told of
/// an error.
fn chosen() -> &'static target::Target {
    static CHOSEN: OnceLock<target::Target> = OnceLock::new();
    CHOSEN.get_or_init(|| {
        let name = std::env::var("AZEKURA_FUZZ_TARGET").unwrap_or_default();
        let mut known = target::all().into_iter().chain(target::canaries());
        known.find(|target| target.name == name).unwrap_or_else(|| {
            eprintln!("fuzz-guided: no target '{name}' in AZEKURA_FUZZ_TARGET");
            std::process::exit(2);
        })
    })
}

/// Writes the seeds of the target as files; ends the process.
fn write_seeds(dir: &str) -> ! {
    for (number, seed) in (chosen().seeds)().iter().enumerate() {
        if let Err(error) = std::fs::write(Path::new(dir).join(format!("seed-{number}")), seed) {
            eprintln!("fuzz-guided: {dir}: {error}");
            std::process::exit(2);
        }
    }
    std::process::exit(0)
}

libfuzzer_sys::fuzz_target!(init: {
    if std::env::var_os("AZEKURA_FUZZ_TARGET").is_none() {
        target::all().iter().for_each(|target| println!("{}", target.name));
        std::process::exit(0);
    }
    if let Ok(dir) = std::env::var("AZEKURA_FUZZ_SEEDS") {
        write_seeds(&dir);
    }
    chosen();
}, |input: &[u8]| {
    if let Err(what) = driver::run_one(chosen(), input) {
        eprintln!("fuzz-guided: {}: {what}", chosen().name);
        std::process::abort();
    }
});
