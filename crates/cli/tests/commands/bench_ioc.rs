//! The experiments of the coordination paper, small, with the real coordinator, the real preload
//! library, real processes and, where the machine has FUSE, the modelled device. Data and reports
//! are looked at, never times.

use crate::harness::{self, all_text, azekura};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

/// Cargo builds the library beside the tests, because they depend on its crate.
fn library() -> PathBuf {
    let library = std::env::current_exe().unwrap().with_file_name("libazekura_ioc.so");
    assert!(library.is_file(), "{} is not there; run the tests by cargo", library.display());
    library
}

fn bench(args: &[&str]) -> Output {
    azekura().args(["bench", "ioc"]).args(args).output().unwrap()
}

/// Runs an experiment; returns its report.
fn report(args: &[&str]) -> Value {
    let library = library();
    let library = ["--json", "--library", library.to_str().unwrap()];
    let output = bench(&[args, &library].concat());
    assert!(output.status.success(), "{args:?}: {}", all_text(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Whether the modelled device can be mounted here; says so when not.
fn has_fuse() -> bool {
    match ::bench::ioc::device::check_fuse() {
        Ok(()) => true,
        Err(error) => {
            println!("SKIPPED: {error}");
            false
        }
    }
}

/// Options of a modelled device that is as fast as it can be, with small pieces.
const FAST: [&str; 13] = [
    "--model",
    "--rate",
    "8GiB",
    "--client-rate",
    "8GiB",
    "--seek-us",
    "1",
    "--piece",
    "16KiB",
    "--merge",
    "64KiB",
    "--window",
    "64KiB",
];

fn number(value: &Value, name: &str) -> u64 {
    value[name].as_u64().unwrap_or_else(|| panic!("no {name} in {value}"))
}

/// What must hold of every run, whatever the times: all bytes, all processes, and grants exactly
/// where there was a coordinator.
fn check_run(run: &Value, targets: u64, bytes_each: u64) {
    let processes = run["processes"].as_array().unwrap();
    assert_eq!(processes.len() as u64, number(run, "writers") * targets);
    assert_eq!(number(run, "bytes"), processes.len() as u64 * bytes_each, "{run}");
    assert!(run["seconds"].as_f64().unwrap() > 0.0);
    for (rank, process) in processes.iter().enumerate() {
        assert_eq!(number(process, "rank"), rank as u64);
        assert_eq!(number(process, "target"), rank as u64 % targets);
        let [end_s, output_s, wait_s] =
            ["end_s", "output_s", "wait_s"].map(|name| process[name].as_f64().unwrap());
        assert!(end_s >= output_s && output_s >= wait_s && wait_s >= 0.0, "{process}");
    }
}

#[test]
fn micro_on_a_modelled_device() {
    if !has_fuse() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let plot = dir.path().join("plot.svg");
    let options = ["micro", "--targets", "2", "--writers", "1,3", "--limits", "1,2", "--repeat"];
    let rest = ["2", "--scale", "0.0005", "--verify", "--plot", plot.to_str().unwrap()];
    let rest = [&rest[..], &["--warm-up", "1"]].concat();
    let report = report(&[&options[..], &rest, &FAST].concat());
    let file = 499_712; // 500,000 bytes in whole blocks
    let runs = report["runs"].as_array().unwrap();
    let sides: Vec<(u64, &str)> =
        runs.iter().map(|run| (number(run, "writers"), run["limit"].as_str().unwrap())).collect();
    let first = [(1, "off"), (1, "2"), (3, "off"), (3, "2")];
    let second = [(1, "2"), (1, "off"), (3, "2"), (3, "off")];
    assert_eq!(sides, [first, second].concat());
    for run in runs {
        check_run(run, 2, file);
        // One call for each file.
        let asked = if run["limit"] == "off" { 0 } else { 2 * number(run, "writers") };
        assert_eq!(number(run, "granted"), asked);
    }
    let limits = report["limits"].as_array().unwrap();
    let names: Vec<&str> = limits.iter().map(|run| run["limit"].as_str().unwrap()).collect();
    assert_eq!(names, ["1", "2", "auto", "1", "2", "auto"]);
    for run in limits {
        // Three steps count.
        check_run(run, 2, 3 * file);
        let steps = if run["limit"] == "auto" { 4 } else { 3 };
        assert_eq!(run["step_s"].as_array().unwrap().len(), steps);
        assert!(number(run, "granted") >= 6 * steps as u64);
    }
    assert_eq!(report["device"].as_array().unwrap().len(), 2);
    let verdicts = report["verdicts"].as_array().unwrap();
    assert_eq!(verdicts.len(), 5);
    assert!(verdicts.iter().all(|verdict| number(&verdict["measured"], "count") == 2));
    // What is printed can be read back by whoever uses the library.
    let again: ::bench::ioc::micro::Report = serde_json::from_value(report.clone()).unwrap();
    assert_eq!(serde_json::to_value(&again).unwrap(), report);
    for path in [plot.clone(), dir.path().join("plot-steps.svg")] {
        assert!(std::fs::read_to_string(path).unwrap().ends_with("</svg>\n"));
    }
}

#[test]
fn nicam_on_a_modelled_device() {
    if !has_fuse() {
        return;
    }
    let options = ["nicam", "--writers", "3", "--repeat", "1", "--scale", "0.002", "--pause", "0"];
    let report = report(&[&options[..], &["--verify"], &FAST].concat());
    let runs = report["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 2);
    let bytes = number(&runs[0], "bytes");
    assert!((2_200_000..2_400_000).contains(&(bytes / 3)), "{bytes}");
    for run in runs {
        check_run(run, 1, bytes / 3);
    }
    // 11 variables in three dimensions in each of five steps and 17 at the end.
    assert_eq!((number(&runs[0], "granted"), number(&runs[1], "granted")), (0, 3 * (5 * 11 + 17)));
    assert_eq!(report["verdicts"].as_array().unwrap().len(), 2);
    let again: ::bench::ioc::nicam::Report = serde_json::from_value(report.clone()).unwrap();
    assert_eq!(serde_json::to_value(&again).unwrap(), report);
}

#[test]
fn on_a_directory_nothing_is_promised_and_nothing_is_left() {
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().to_str().unwrap();
    let options = ["micro", place, "--writers", "2", "--repeat", "1", "--scale", "0.0005"];
    let micro = report(&[&options[..], &["--verify", "--call", "100MB", "--no-auto"]].concat());
    for run in micro["runs"].as_array().unwrap() {
        check_run(run, 1, 499_712);
        let calls = if run["limit"] == "off" { 0 } else { 2 * 10 };
        assert_eq!(number(run, "granted"), calls);
    }
    let nicam = report(&["nicam", place, "--writers", "2", "--repeat", "1", "--scale", "0.001"]);
    for report in [&micro, &nicam] {
        assert_eq!(report["verdicts"].as_array().unwrap().len(), 0);
        assert_eq!(report["runs"].as_array().unwrap().len(), 2);
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn a_device_of_its_own_serves_until_it_is_told_to_end() {
    if !has_fuse() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let mut device = azekura()
        .args(["bench", "ioc", "device", "--targets", "2"])
        .arg(dir.path())
        .args(&FAST[1..])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(device.stdout.take().unwrap()).lines();
    let first = lines.next().unwrap().unwrap();
    assert!(first.contains("8 GiB/s"), "{first}");
    let data = harness::noise(7, 200_000);
    let path = dir.path().join("t1/file");
    std::fs::write(&path, &data).unwrap();
    assert!(std::fs::read(&path).unwrap() == data);
    // SAFETY: a call without pointers; the process is a child that was not waited for.
    unsafe { libc::kill(device.id() as libc::pid_t, libc::SIGTERM) };
    let rest: Vec<String> = lines.map(Result::unwrap).collect();
    assert!(device.wait().unwrap().success());
    assert!(rest.iter().any(|line| line.starts_with("target 1: 390.62 KiB in ")), "{rest:?}");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "still mounted");
}

/// A killed experiment left its coordinator running for ever: told to end, it first logged that
/// it would, to a pipe without a reader; the logger complained there, which ended the thread.
#[test]
fn a_coordinator_ends_though_nobody_reads_its_log() {
    let dir = tempfile::tempdir().unwrap();
    let mut coordinator = azekura()
        .env("AZEKURA_LOG", "info")
        .args(["ioc", "serve", "--listen"])
        .arg(format!("unix:{}", dir.path().join("s").display()))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(coordinator.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.contains("unix:"), "{line}");
    drop(coordinator.stderr.take());
    // SAFETY: a call without pointers; the process is a child that was not waited for.
    unsafe { libc::kill(coordinator.id() as libc::pid_t, libc::SIGTERM) };
    assert!(coordinator.wait().unwrap().success());
}

#[test]
fn bad_input_is_refused_with_its_exit_code() {
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().to_str().unwrap();
    let none = dir.path().join("none");
    let none = none.to_str().unwrap();
    for (args, code, word) in [
        (vec!["micro"], 2, "--model"),
        (vec!["micro", place, "--model"], 2, "--model"),
        (vec!["micro", place, "--writers", "0"], 2, "writers"),
        (vec!["micro", place, "--writers", "5000"], 2, "writers"),
        (vec!["micro", place, "--max-writers", "off"], 2, "max-writers"),
        (vec!["micro", place, "--scale", "0"], 2, "scale"),
        (vec!["micro", place, "--library", none], 2, "none"),
        (vec!["micro", none], 3, "none"),
        (vec!["nicam", place, "--pause", "1e9"], 2, "pause"),
        (vec!["device", place, "--piece", "1000"], 2, "piece"),
        (vec!["device", place, "--seek-us", "1e9"], 2, "seek"),
        (vec!["device", none], 3, "no"),
    ] {
        let output = bench(&args);
        let text = all_text(&output);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {text}");
        assert!(text.contains(word), "{args:?}: {text}");
    }
    assert_eq!(std::fs::read_dir(Path::new(place)).unwrap().count(), 0);
}
