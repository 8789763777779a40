//! pjdfstest, the file system test suite by Pawel Jakub Dawidek, on a mount.
//!
//! It is not part of this project: `AZEKURA_PJDFSTEST` names a directory with a built checkout of
//! it. `AZEKURA_PJDFSTEST_OPTIONS` are options of the mount; without, the defaults. It takes some
//! minutes and must be run as root:
//!
//! ```text
//! AZEKURA_PJDFSTEST=~/pjdfstest cargo test -p fuse --test mounts pjdfstest -- --nocapture
//! ```

use crate::system::{System, can_mount};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use types::Durability;

/// What cannot pass: file, assertions, reason.
const CANNOT_PASS: [(&str, &[u32], &str); 0] = [];

/// A file of the suite that runs longer hangs.
const FILE_TIME_MAX: Duration = Duration::from_secs(600);

#[test]
fn the_whole_suite() {
    let Some(checkout) = std::env::var_os("AZEKURA_PJDFSTEST").map(PathBuf::from) else {
        eprintln!("SKIPPED: AZEKURA_PJDFSTEST names no checkout of pjdfstest");
        return;
    };
    if !can_mount() {
        return;
    }
    assert!(rustix::process::geteuid().is_root(), "pjdfstest must be run as root");
    let program = checkout.join("pjdfstest");
    assert!(program.exists(), "{} is not there: build the checkout", program.display());
    let options = std::env::var("AZEKURA_PJDFSTEST_OPTIONS").unwrap_or_default();
    let system = System::start(Durability::Memory);
    let mounted = system.mount(&options);
    let (mut passed, mut broken) = (0, Vec::new());
    for file in files_of(&checkout.join("tests")) {
        let name = file.strip_prefix(checkout.join("tests")).unwrap().display().to_string();
        let dir = mounted.path("work");
        fs::create_dir(&dir).unwrap();
        let outcome = run(&file, &dir);
        fs::remove_dir_all(&dir).unwrap();
        passed += outcome.passed;
        let known = CANNOT_PASS.iter().find(|(known, ..)| *known == name);
        let excused: BTreeSet<u32> =
            known.map(|(_, numbers, _)| numbers.iter().copied().collect()).unwrap_or_default();
        if let Some((.., reason)) = known {
            println!("{name}: {excused:?} cannot pass: {reason}");
        }
        if outcome.failed != excused {
            broken.push(format!("{name}: failed {:?}, expected {excused:?}", outcome.failed));
        }
        if outcome.ran != outcome.planned {
            broken.push(format!("{name}: ran {} of {}", outcome.ran, outcome.planned));
        }
    }
    println!("{passed} assertions passed with '{options}'");
    assert!(broken.is_empty(), "{}", broken.join("\n"));
    assert!(passed > 8000, "{passed} assertions: is the checkout whole?");
    mounted.unmount();
}

/// All `*.t` below a directory, sorted.
fn files_of(tests: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for group in fs::read_dir(tests).unwrap_or_else(|error| panic!("{}: {error}", tests.display()))
    {
        let group = group.unwrap().path();
        if group.is_dir() {
            files.extend(fs::read_dir(group).unwrap().map(|file| file.unwrap().path()));
        }
    }
    files.retain(|file| file.extension().is_some_and(|extension| extension == "t"));
    files.sort();
    files
}

/// What a file of the suite said.
#[derive(PartialEq, Eq, Debug, Default)]
struct Outcome {
    planned: u32,
    ran: u32,
    passed: u32,
    failed: BTreeSet<u32>,
}

/// Runs a file of the suite in a directory.
fn run(file: &Path, dir: &Path) -> Outcome {
    let out = tempfile::NamedTempFile::new().unwrap();
    let mut child = Command::new("sh")
        .arg(file)
        .current_dir(dir)
        .stdin(Stdio::null())
        .stdout(out.reopen().unwrap())
        .stderr(File::options().write(true).open("/dev/null").unwrap())
        .spawn()
        .unwrap();
    let deadline = Instant::now() + FILE_TIME_MAX;
    while child.try_wait().unwrap().is_none() {
        if Instant::now() > deadline {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("{} hangs", file.display());
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    outcome_of(&String::from_utf8_lossy(&fs::read(out.path()).unwrap()))
}

/// Reads the test anything protocol: a plan (`1..N`), and a line for each assertion, of which
/// those that the suite itself expects to fail say TODO.
fn outcome_of(said: &str) -> Outcome {
    let mut outcome = Outcome::default();
    for line in said.lines() {
        if let Some(count) = line.strip_prefix("1..") {
            let digits: String = count.chars().take_while(char::is_ascii_digit).collect();
            outcome.planned = digits.parse().unwrap_or_default();
            continue;
        }
        let (is_ok, rest) = match (line.strip_prefix("ok "), line.strip_prefix("not ok ")) {
            (Some(rest), _) => (true, rest),
            (_, Some(rest)) => (line.contains("# TODO"), rest),
            _ => continue,
        };
        let Some(number) = rest.split(' ').next().and_then(|word| word.parse().ok()) else {
            continue;
        };
        outcome.ran += 1;
        if is_ok {
            outcome.passed += 1;
        } else {
            outcome.failed.insert(number);
        }
    }
    outcome
}

#[test]
fn what_the_suite_says_is_understood() {
    let said = "1..5\nok 1\nnot ok 2 - tried 'x', expected 0, got ENOENT\nok 3 # skip\n\
                not ok 4 # TODO Linux says otherwise\nnoise\n";
    let failed = BTreeSet::from([2]);
    assert_eq!(outcome_of(said), Outcome { planned: 5, ran: 4, passed: 3, failed });
    let skipped = "1..0 # SKIP not supported here\n";
    assert_eq!(outcome_of(skipped), Outcome::default());
}
