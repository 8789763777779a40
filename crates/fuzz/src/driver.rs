//! Runs targets on mutated inputs and reports the first failure with its input.
//!
//! Invariant: inputs depend on seed, target and iteration only. A failing input is made smaller
//! before it is reported, as far as it still fails.

use crate::rng::Rng;
use crate::target::Target;
use crate::{allocation, corpus, mutate};
use std::cell::RefCell;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;
use std::time::{Duration, Instant};

/// When to stop a target that does not fail.
#[derive(Clone, Copy, Debug)]
pub enum Limit {
    /// After this many inputs.
    Iterations(u64),
    Time(Duration),
}

/// A target failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    pub target: &'static str,
    pub what: String,
    /// The input, made small.
    pub input: Vec<u8>,
    /// Which input of the run it was.
    pub iteration: u64,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: {} (iteration {})", self.target, self.what, self.iteration)?;
        write!(
            f,
            "repeat with: cargo run -p fuzz -- --replay {} {}",
            corpus::to_hex(&self.input),
            self.target
        )
    }
}

thread_local! {
    static LAST_PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
    static QUIET: RefCell<bool> = const { RefCell::new(false) };
}

/// Keeps panics of inputs under test off the terminal and remembers where they happened.
fn install_hook() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if QUIET.with(|quiet| *quiet.borrow()) {
                LAST_PANIC.with(|last| *last.borrow_mut() = Some(info.to_string()));
            } else {
                usual(info);
            }
        }));
    });
}

/// Runs a target on one input; the error says what went wrong.
pub fn run_one(target: &Target, input: &[u8]) -> Result<(), String> {
    install_hook();
    QUIET.with(|quiet| *quiet.borrow_mut() = true);
    let (outcome, bytes) =
        allocation::peak_bytes(|| catch_unwind(AssertUnwindSafe(|| (target.run)(input))).is_ok());
    QUIET.with(|quiet| *quiet.borrow_mut() = false);
    if !outcome {
        let said = LAST_PANIC.with(|last| last.borrow_mut().take());
        return Err(said.unwrap_or_else(|| "panicked".into()).replace('\n', " "));
    }
    let allowed = target.allowed_bytes(input.len());
    if bytes > allowed {
        let length = input.len();
        return Err(format!("held {bytes} bytes for {length} of input, {allowed} allowed"));
    }
    Ok(())
}

/// Runs a target until it fails or the limit is reached; returns the number of inputs tried.
pub fn run(target: &Target, seed: u64, limit: Limit) -> Result<u64, Box<Failure>> {
    let seeds = (target.seeds)();
    let started = Instant::now();
    let mut iteration = 0;
    // Seeds themselves come first: a target that rejects all of them tests nothing.
    let mut rng = Rng::new(seed ^ types::hash::bytes(target.name.as_bytes()));
    loop {
        let stop = match limit {
            Limit::Iterations(count) => iteration >= count,
            // The clock is asked now and then only; an input takes about a microsecond.
            Limit::Time(time) => iteration % 64 == 0 && started.elapsed() >= time,
        };
        if stop {
            return Ok(iteration);
        }
        let input = match seeds.get(iteration as usize) {
            Some(seed) => seed.clone(),
            None => mutate::input(&seeds, &mut rng),
        };
        if let Err(what) = run_one(target, &input) {
            let (input, what) = shrink(target, input, what);
            return Err(Box::new(Failure { target: target.name, what, input, iteration }));
        }
        iteration += 1;
    }
}

/// Removes pieces and clears bytes while the input still fails.
fn shrink(target: &Target, mut input: Vec<u8>, mut what: String) -> (Vec<u8>, String) {
    let mut piece = input.len() / 2;
    while piece > 0 {
        let mut at = 0;
        while at + piece <= input.len() {
            let mut shorter = input.clone();
            shorter.drain(at..at + piece);
            match run_one(target, &shorter) {
                Err(said) => (input, what) = (shorter, said),
                Ok(()) => at += piece,
            }
        }
        piece /= 2;
    }
    for at in 0..input.len() {
        let old = std::mem::take(&mut input[at]);
        match run_one(target, &input) {
            Err(said) => what = said,
            Ok(()) => input[at] = old,
        }
    }
    (input, what)
}
