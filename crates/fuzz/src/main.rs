//! `cargo run -p fuzz -- [--seconds N | --iterations N] [--seed N] [--replay HEX] [TARGET…]`
//!
//! Without targets it runs all of them, sharing the time. Exit code 1: a target failed; 2: the
//! arguments make no sense.

use fuzz::driver::{self, Limit};
use fuzz::target::{self, Target};
use std::process::ExitCode;
use std::time::Duration;

const USAGE: &str = "\
usage: fuzz [OPTIONS] [TARGET...]
  --seconds N      time for all targets together (default 10)
  --iterations N   inputs for each target, instead of time
  --seed N         start of the random stream (default 1)
  --replay HEX     run the one input given in hex
  --list           show the targets (canaries are meant to fail)";

struct Options {
    seconds: f64,
    iterations: Option<u64>,
    seed: u64,
    replay: Option<Vec<u8>>,
    list: bool,
    names: Vec<String>,
}

fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Options, String> {
    let mut options = Options {
        seconds: 10.0,
        iterations: None,
        seed: 1,
        replay: None,
        list: false,
        names: Vec::new(),
    };
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or(format!("{argument} needs a value"));
        let bad = |value: &str| format!("'{value}' is no value for {argument}");
        match argument.as_str() {
            "--seconds" => {
                let text = value()?;
                options.seconds =
                    text.parse().ok().filter(|s: &f64| *s > 0.0 && *s < 1e6).ok_or(bad(&text))?;
            }
            "--iterations" => {
                let text = value()?;
                options.iterations = Some(text.parse().map_err(|_| bad(&text))?);
            }
            "--seed" => {
                let text = value()?;
                options.seed = text.parse().map_err(|_| bad(&text))?;
            }
            "--replay" => {
                let text = value()?;
                options.replay = Some(fuzz::corpus::from_hex(&text).ok_or(bad(&text))?);
            }
            "--list" => options.list = true,
            name if !name.starts_with('-') => options.names.push(name.to_string()),
            _ => return Err(format!("unknown option {argument}")),
        }
    }
    Ok(options)
}

/// The targets named; all but the canaries when none is.
fn choose(names: &[String]) -> Result<Vec<Target>, String> {
    if names.is_empty() {
        return Ok(target::all());
    }
    names
        .iter()
        .map(|name| {
            let mut known = target::all().into_iter().chain(target::canaries());
            known.find(|target| target.name == name).ok_or(format!("no target '{name}'"))
        })
        .collect()
}

fn main() -> ExitCode {
    let chosen = parse(std::env::args().skip(1))
        .and_then(|options| choose(&options.names).map(|targets| (options, targets)));
    let (options, targets) = match chosen {
        Ok(chosen) => chosen,
        Err(error) => {
            eprintln!("fuzz: {error}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    if options.list {
        for target in target::all().iter().chain(&target::canaries()) {
            println!("{}", target.name);
        }
        return ExitCode::SUCCESS;
    }
    let share = Duration::from_secs_f64(options.seconds / targets.len() as f64);
    let limit = options.iterations.map_or(Limit::Time(share), Limit::Iterations);
    let mut failed = false;
    for target in &targets {
        if let Some(input) = &options.replay {
            let outcome = driver::run_one(target, input);
            failed |= outcome.is_err();
            println!("{}: {}", target.name, outcome.err().unwrap_or_else(|| "passed".into()));
            continue;
        }
        match driver::run(target, options.seed, limit) {
            Ok(count) => println!("{}: {count} inputs, no failure", target.name),
            Err(failure) => {
                println!("{failure}");
                failed = true;
            }
        }
    }
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
