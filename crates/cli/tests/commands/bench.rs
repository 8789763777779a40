//! Every pattern of `azekura bench`, small, on a live system with real processes: over shared
//! memory, over TCP, and the suite. Figures are not looked at, only that the work was done and
//! the data were right.

use crate::harness;
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};

/// A system that is stopped when the test ends, whatever happens.
struct System {
    dir: tempfile::TempDir,
}

impl System {
    fn start() -> System {
        let system = System { dir: tempfile::tempdir().unwrap() };
        system.ok(&["up", "--engines", "1", "--targets", "2", "--durability", "memory"]);
        system.ok(&["pool", "create", "tank", "--size", "512MiB", "--scm-percent", "50"]);
        system.ok(&["cont", "create", "tank", "home"]);
        system
    }

    fn run(&self, args: &[&str]) -> Output {
        azekura().arg("--system").arg(self.path()).args(args).output().unwrap()
    }

    fn ok(&self, args: &[&str]) -> Output {
        let output = self.run(args);
        assert!(output.status.success(), "{args:?}: {}", text_of(&output));
        output
    }

    /// Runs a benchmark; returns its report.
    fn bench(&self, args: &str) -> Value {
        let words: Vec<&str> = ["bench"].into_iter().chain(args.split(' ')).collect();
        let output = self.ok(&[&words[..], &["--json"]].concat());
        serde_json::from_slice(&output.stdout).unwrap()
    }

    fn path(&self) -> std::path::PathBuf {
        self.dir.path().join("s")
    }
}

impl Drop for System {
    fn drop(&mut self) {
        let output = self.run(&["down"]);
        if !output.status.success() {
            eprintln!("azekura down: {}", text_of(&output));
        }
    }
}

fn azekura() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_azekura"));
    command.env_remove("AZEKURA_SYSTEM");
    command
}

fn text_of(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

fn phases(report: &Value) -> Vec<(String, u64, u64)> {
    let each = |phase: &Value| {
        let number = |name: &str| phase[name].as_u64().unwrap();
        (phase["phase"].as_str().unwrap().to_string(), number("ops"), number("bytes"))
    };
    report["phases"].as_array().unwrap().iter().map(each).collect()
}

#[test]
fn every_pattern_runs_on_a_live_system() {
    let system = System::start();
    let io_patterns = [
        "-t 64k -b 256k",
        "-t 1m -b 2m -F -C",
        "-t 4k -b 64k -s 3 -z -C -e",
        "-t 47008 -b 47008 -s 20 -C --oclass SX",
        "-t 64k -b 256k --oclass SX --chunk-size 64KiB -i 2",
        "-t 256k -b 1m --tcp --oclass SX",
    ];
    for pattern in io_patterns {
        let report = system.bench(&format!("io azk://tank/home/io -W -R {pattern}"));
        let phases = phases(&report);
        let first = &phases[0];
        assert_eq!(first.0, "write");
        assert!(first.1 > 0);
        assert!(phases.iter().all(|phase| (phase.1, phase.2) == (first.1, first.2)), "{pattern}");
    }
    let md_patterns =
        ["-u", "-w 3901 -e 3901 -X", "-u --dir-oclass SX -i 2", "-N 0 -w 100 -y", "-u --tcp -p 3"];
    for pattern in md_patterns {
        let report = system.bench(&format!("md azk://tank/home/md -n 50 {pattern}"));
        let processes = report["options"]["processes"].as_u64().unwrap();
        for phase in phases(&report) {
            assert_eq!(phase.1, processes * 50, "{pattern}: {}", phase.0);
        }
    }
    // A container without a directory.
    for place in ["azk://tank/home", "azk://tank/home/"] {
        system.bench(&format!("io {place} -t 64k -b 256k"));
        system.bench(&format!("md {place} -n 20"));
    }
    // Engines of this host are found, and their CPU time is part of the result.
    let report = system.bench("md azk://tank/home/md -n 500");
    let servers = report["phases"][0]["server_cpu_us_per_op"].as_f64().unwrap();
    assert!(servers > 0.0);
    // Nothing is left behind.
    for dir in ["io", "md"] {
        let output = system.ok(&["fs", "ls", &format!("azk://tank/home/{dir}")]);
        assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "");
    }
}

#[test]
fn kept_files_are_found_and_damage_is_reported() {
    let system = System::start();
    system.bench("io azk://tank/home/io -t 64k -b 256k -w -k");
    system.bench("io azk://tank/home/io -t 64k -b 256k -r -R -k");
    // Other data: as if every byte were wrong.
    let output = system.run(&[
        "bench",
        "io",
        "azk://tank/home/io",
        "-t",
        "64k",
        "-b",
        "256k",
        "-r",
        "-R",
        "-G",
        "2",
    ]);
    assert_eq!(output.status.code(), Some(1), "{}", text_of(&output));
    assert!(text_of(&output).contains("differ"), "{}", text_of(&output));
}

#[test]
fn bad_input_is_refused_with_its_exit_code() {
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().join("x").display().to_string();
    for (args, code, word) in [
        (vec!["io", &place, "-t", "100"], 2, "multiple of 8"),
        (vec!["io", &place, "-b", "1000"], 2, "block"),
        (vec!["io", &place, "-t", "lots"], 2, "lots"),
        (vec!["io", &place, "--oclass", "S5"], 2, "S5"),
        (vec!["md", &place, "-n", "0"], 2, "files"),
        (vec!["md", &place, "-e", "1"], 2, "reading"),
        (vec!["io", &place, "-r"], 3, "ior"),
        (vec!["suite", "--processes", "1"], 2, "processes"),
    ] {
        let output = azekura().arg("bench").args(&args).output().unwrap();
        let text = text_of(&output);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {text}");
        assert!(text.contains(word), "{args:?}: {text}");
    }
}

#[test]
fn a_directory_of_this_machine_needs_no_system() {
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().join("io").display().to_string();
    let output =
        azekura().args(["bench", "io", &place, "-t", "64k", "-b", "128k", "-R"]).output().unwrap();
    assert!(output.status.success(), "{}", text_of(&output));
    assert!(text_of(&output).contains("MiB/s"));
}

/// The suite on its own systems, with next to no work: all figures come in, nothing fails, and
/// nothing is left. Whether goals are reached is not this test's business.
#[test]
fn the_suite_runs_to_its_end() {
    let dir = tempfile::tempdir().unwrap();
    let memory = dir.path().join("m");
    std::fs::create_dir(&memory).unwrap();
    let results = dir.path().join("results");
    let output = azekura()
        .args(["bench", "suite", "--rounds", "1", "--scale", "0.0001"])
        .arg("--memory")
        .arg(&memory)
        .arg("--results")
        .arg(&results)
        .arg("--plot")
        .arg(dir.path().join("goals.svg"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text_of(&output));
    let picture = std::fs::read_to_string(dir.path().join("goals.svg")).unwrap();
    assert!(picture.contains("TCP stat / bare exchange"));
    let report = only_file(&results);
    assert_eq!(report["failures"].as_array().unwrap().len(), 0);
    for verdict in report["verdicts"].as_array().unwrap() {
        assert!(verdict["measured"]["count"].as_u64().unwrap() > 0, "{}", verdict["name"]);
    }
    assert_eq!(std::fs::read_dir(&memory).unwrap().count(), 0);
}

fn only_file(dir: &Path) -> Value {
    let files: Vec<_> =
        std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(files.len(), 1, "{files:?}");
    serde_json::from_slice(&std::fs::read(&files[0]).unwrap()).unwrap()
}

#[test]
fn a_durable_store_is_held_against_its_device() {
    let system = harness::System::none();
    let dir = system.path("device");
    std::fs::create_dir(&dir).unwrap();
    let results = system.path("store.json");
    let (dir, file) = (dir.to_str().unwrap(), results.to_str().unwrap());
    let scale = ["--scale", "0.004", "--rounds", "1", "--depth", "2,16"];
    let args = [&["bench", "store", "--on", dir, "--results", file][..], &scale].concat();
    let report = system.json(&args);
    let names: Vec<&str> = report["verdicts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|v| v["name"].as_str().unwrap())
        .collect();
    assert_eq!(names.len(), 5, "{report}");
    for verdict in report["verdicts"].as_array().unwrap() {
        assert_eq!(verdict["measured"]["count"], 1, "{verdict}");
    }
    // Every update was in some batch, and none was written twice.
    let figure = |name: &str| {
        let all = report["figures"].as_array().unwrap();
        let found = all.iter().find(|figure| figure["name"] == name).unwrap();
        found["values"][0].as_f64().unwrap()
    };
    assert!(figure("updates per batch, 16 in flight") >= 1.0, "{report}");
    assert!(figure("updates bytes per batch, 2 in flight") > 150.0, "{report}");
    let kept: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(&results).unwrap()).unwrap();
    assert_eq!(kept["verdicts"], report["verdicts"]);
    system.fails(2, &["depth"], &["bench", "store", "--on", dir, "--depth", "0"]);
}

/// Classes side by side on a system of four engines: every class is measured with both patterns, and the published
/// shares stand beside it.
#[test]
fn classes_with_copies_are_held_against_those_without() {
    let system = harness::System::none();
    let memory = system.path("memory");
    std::fs::create_dir(&memory).unwrap();
    let plot = system.path("classes.svg");
    let (dir, file) = (memory.to_str().unwrap(), plot.to_str().unwrap());
    let small = ["--rounds", "1", "--bytes", "2MiB", "--segments", "8"];
    let args = ["bench", "s4", "--experiment", "5.4", "--memory", dir, "--plot", file];
    let report = system.json(&[&args[..], &small].concat());
    assert_eq!(report["failures"].as_array().unwrap().len(), 0, "{report}");
    let shares = report["shares"].as_array().unwrap();
    assert_eq!(shares.len(), 20, "{report}");
    assert!(shares.iter().all(|share| share["measured"].as_f64().unwrap() > 0.0), "{report}");
    let published = |name: &str| {
        let share = shares.iter().find(|share| share["name"] == name).unwrap();
        share["published"].as_f64().unwrap()
    };
    assert_eq!(published("RP_2GX hard write"), 0.5, "{report}");
    assert_eq!(published("RP_3GX easy read"), 1.0, "{report}");
    assert_eq!(published("EC_2P2GX easy write"), 0.5, "{report}");
    assert!(std::fs::read_to_string(&plot).unwrap().contains("RP_3GX"));
    assert!(plot.with_extension("json").is_file());
    assert_eq!(std::fs::read_dir(&memory).unwrap().count(), 0);
    system.fails(2, &["EC_4P2GX"], &["bench", "s4", "--classes", "EC_4P2GX"]);
    system.fails(2, &["5.4"], &["bench", "s4", "--experiment", "6.3"]);
}

/// The other experiments of that paper: each curve has its points, what was published stands beside them, and nothing is left.
#[test]
fn curves_over_devices_tasks_engines_and_targets_are_measured() {
    let system = harness::System::none();
    let memory = system.path("memory");
    std::fs::create_dir(&memory).unwrap();
    let plot = system.path("curve.svg");
    let (dir, file) = (memory.to_str().unwrap(), plot.to_str().unwrap());
    let small =
        ["--rounds", "1", "--counts", "1,2", "--bytes", "2MiB", "--segments", "8", "--files", "8"];
    for (experiment, curves, last) in [
        ("5.1", 4, Some(2.0)),
        ("5.2", 12, Some(4.0)),
        ("5.3", 4, Some(2.0)),
        ("6.1", 1, None),
        ("6.2", 2, None),
    ] {
        let args = ["bench", "s4", "--experiment", experiment, "--memory", dir, "--plot", file];
        let report = system.json(&[&args[..], &small].concat());
        assert_eq!(report["failures"].as_array().unwrap().len(), 0, "{report}");
        let points = report["points"].as_array().unwrap();
        assert_eq!(points.len(), 2 * curves, "{report}");
        assert!(points.iter().all(|point| point["growth"].as_f64().unwrap() > 0.0), "{report}");
        let published = points.last().unwrap()["published"].as_f64();
        assert_eq!(published, last, "{report}");
        assert!(std::fs::read_to_string(&plot).unwrap().contains("polyline"));
    }
    assert_eq!(std::fs::read_dir(&memory).unwrap().count(), 0);
    system.fails(2, &["counts"], &["bench", "s4", "--experiment", "5.1", "--counts", "2,1"]);
}

/// Placement by score beside the others: all sizes are measured with all rules, and the goals are judged. Whether they are met is a
/// question for an idle machine.
#[test]
fn placement_by_score_is_held_against_others() {
    let system = harness::System::none();
    let memory = system.path("memory");
    std::fs::create_dir(&memory).unwrap();
    let plot = system.path("weighted.svg");
    let (dir, file) = (memory.to_str().unwrap(), plot.to_str().unwrap());
    let args = [
        "bench", "weighted", "--rounds", "1", "--unit", "100KiB", "--watch", "0.2", "--fast",
        "6GiB", "--slow", "512MiB", "--memory", dir,
    ];
    let output = system.run(&[&args[..], &["--plot", file]].concat());
    let text = harness::all_text(&output);
    let report = std::fs::read_to_string(plot.with_extension("json"));
    let report: Value = serde_json::from_str(&report.expect(&text)).unwrap();
    let missed = report["missed"].as_array().unwrap().len();
    assert_eq!(output.status.code(), Some(i32::from(missed > 0)), "{text}");
    assert_eq!(report["failures"].as_array().unwrap().len(), 0, "{report}");
    let figures = report["figures"].as_array().unwrap();
    // Sizes, rules, writing and reading; first and second readings; users alone and beside two things.
    assert_eq!(figures.len(), 6 * 3 * 2 + 2 + 3, "{report}");
    assert!(figures.iter().all(|figure| figure["values"][0].as_f64().unwrap() > 0.0), "{report}");
    for ratio in ["read_ratio", "again_ratio", "measuring_ratio", "moving_ratio"] {
        assert!(report[ratio].as_f64().unwrap() > 0.0, "{report}");
    }
    assert!(std::fs::read_to_string(&plot).unwrap().contains("score, published"));
    assert_eq!(std::fs::read_dir(&memory).unwrap().count(), 0);
    system.fails(2, &["slow"], &["bench", "weighted", "--slow", "1KiB"]);
    system.fails(2, &["fast"], &["bench", "weighted", "--fast", "2MiB"]);
}
