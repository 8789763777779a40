//! Every pattern, small, with real worker processes on a POSIX directory; so that no pattern
//! can rot. The same patterns on a live system are tested with the `azekura` command.
//!
//! This test has a `main` of its own: workers are this very binary, started again.

use bench::{Where, io, md};
use std::path::Path;
use std::process::ExitCode;
use types::{Code, ObjClass};

/// Gets a fresh directory.
type Test = fn(&Path);

fn main() -> ExitCode {
    if bench::is_worker() {
        return bench::worker_main();
    }
    let tests: [(&str, Test); 8] = [
        ("io_patterns", io_patterns),
        ("io_hard", io_hard),
        ("io_keeps_and_rereads", io_keeps_and_rereads),
        ("io_finds_damage", io_finds_damage),
        ("md_patterns", md_patterns),
        ("a_time_limit_leaves_the_same_work_to_all_phases", time_limit),
        ("reports_survive_json", reports_survive_json),
        ("an_impossible_place_is_an_error", impossible_place),
    ];
    let wanted = std::env::args().skip(1).find(|arg| !arg.starts_with('-'));
    for (name, test) in tests {
        if wanted.as_ref().is_some_and(|wanted| !name.contains(wanted.as_str())) {
            continue;
        }
        let dir = tempfile::tempdir().expect("a temporary directory");
        test(dir.path());
        println!("test {name} ... ok");
    }
    ExitCode::SUCCESS
}

fn small_io() -> io::Options {
    io::Options {
        transfer_bytes: 4096,
        block_bytes: 16_384,
        segments: 3,
        verify_write: true,
        verify_read: true,
        ..io::Options::default()
    }
}

fn place(dir: &Path) -> Where {
    Where::Posix(dir.join("made/by/the/run"))
}

fn io_patterns(dir: &Path) {
    for bits in 0..16 {
        let options = io::Options {
            file_per_process: bits & 1 != 0,
            random: bits & 2 != 0,
            reorder: bits & 4 != 0,
            fsync: bits & 8 != 0,
            processes: 1 + bits % 3,
            ..small_io()
        };
        let mut text = Vec::new();
        let report = io::run(&options, &place(dir), &mut text).unwrap();
        let phases: Vec<&str> = report.phases.iter().map(|phase| phase.phase.name()).collect();
        assert_eq!(phases, ["write", "check-write", "read"]);
        for phase in &report.phases {
            assert_eq!(phase.bytes, options.layout().bytes_in_all());
            assert_eq!(phase.ops * 4096, phase.bytes);
            assert!(phase.server_cpu_us_per_op.is_none());
        }
        assert!(String::from_utf8(text).unwrap().contains("check-write"));
        assert_eq!(std::fs::read_dir(dir.join("made/by/the/run")).unwrap().count(), 0);
    }
}

fn io_hard(dir: &Path) {
    let options = io::Options { verify_read: true, iterations: 2, ..io::Options::hard(2, 5) };
    let report = io::run(&options, &place(dir), &mut Vec::new()).unwrap();
    assert_eq!(report.phases.len(), 4);
    assert_eq!(report.summary[0].seconds.count, 2);
}

fn io_keeps_and_rereads(dir: &Path) {
    let writer = io::Options { keep: true, read: false, verify_write: false, ..small_io() };
    io::run(&writer, &place(dir), &mut Vec::new()).unwrap();
    let bytes = std::fs::metadata(dir.join("made/by/the/run/ior")).unwrap().len();
    assert_eq!(bytes, writer.layout().bytes_in_all());
    let reader = io::Options { write: false, verify_write: false, random: true, ..small_io() };
    io::run(&reader, &place(dir), &mut Vec::new()).unwrap();
    // The reader did not say to keep it.
    let gone = io::run(&reader, &place(dir), &mut Vec::new()).unwrap_err();
    assert_eq!(gone.code, Code::NonExist);
}

fn io_finds_damage(dir: &Path) {
    let writer = io::Options { keep: true, file_per_process: true, ..small_io() };
    io::run(&writer, &place(dir), &mut Vec::new()).unwrap();
    let path = dir.join("made/by/the/run/ior.00000001");
    let mut data = std::fs::read(&path).unwrap();
    data[9_001] ^= 2;
    std::fs::write(&path, data).unwrap();
    let reader = io::Options { write: false, verify_write: false, ..writer };
    let error = io::run(&reader, &place(dir), &mut Vec::new()).unwrap_err();
    assert_eq!(error.code, Code::Csum);
    // Reads are reordered: process 0 looks at what process 1 wrote.
    assert!(error.to_string().contains("process 0"), "{error}");
    assert!(error.to_string().contains("first at 9000"), "{error}");
}

fn md_patterns(dir: &Path) {
    for bits in 0..8 {
        let bytes = if bits & 2 != 0 { 3901 } else { 0 };
        let options = md::Options {
            unique_dir: bits & 1 != 0,
            write_bytes: bytes,
            read_bytes: bytes,
            verify: true,
            fsync: bits & 4 != 0,
            dir_class: Some(ObjClass::S1),
            iterations: 2,
            ..md::Options::easy(1 + bits % 3, 25)
        };
        let report = md::run(&options, &place(dir), &mut Vec::new()).unwrap();
        let phases: Vec<&str> = report.summary.iter().map(|phase| phase.phase.name()).collect();
        assert_eq!(phases, ["create", "stat", "read", "remove"]);
        for phase in &report.phases {
            assert_eq!(phase.ops, u64::from(options.processes) * 25);
        }
        assert_eq!(std::fs::read_dir(dir.join("made/by/the/run")).unwrap().count(), 0);
    }
}

fn time_limit(dir: &Path) {
    // Far more than can be done in the time; were the limit ignored, the disk would fill up.
    let options = io::Options {
        transfer_bytes: 8,
        block_bytes: 8,
        segments: 1 << 40,
        stonewall_s: Some(0.05),
        verify_write: false,
        ..small_io()
    };
    let report = io::run(&options, &place(dir), &mut Vec::new()).unwrap();
    let [write, read] = &report.phases[..] else { panic!("two phases") };
    assert!(write.ops > 0 && write.ops.is_multiple_of(2));
    assert_eq!((write.ops, write.bytes), (read.ops, read.bytes));

    let options = md::Options { stonewall_s: Some(0.05), ..md::Options::easy(2, 1 << 40) };
    let report = md::run(&options, &place(dir), &mut Vec::new()).unwrap();
    assert!(report.phases[0].ops > 0);
    assert!(report.phases.iter().all(|phase| phase.ops == report.phases[0].ops));
    assert_eq!(std::fs::read_dir(dir.join("made/by/the/run")).unwrap().count(), 0);
}

fn reports_survive_json(dir: &Path) {
    let report = io::run(&small_io(), &place(dir), &mut Vec::new()).unwrap();
    let text = serde_json::to_string(&report).unwrap();
    let again: io::Report = serde_json::from_str(&text).unwrap();
    assert_eq!(again.options, report.options);
    assert_eq!(again.phases.len(), report.phases.len());
    assert_eq!(again.place, report.place);
    assert!(again.machine.cpu_count > 0 && again.machine.memory_bytes > 0);
}

fn impossible_place(dir: &Path) {
    std::fs::write(dir.join("file"), "in the way").unwrap();
    let error =
        md::run(&md::Options::easy(2, 3), &Where::Posix(dir.join("file/below")), &mut Vec::new())
            .unwrap_err();
    assert!(error.to_string().contains("process 0"), "{error}");
    let lost = Where::Dfs {
        system: dir.join("none").display().to_string(),
        pool: "p".into(),
        cont: "c".into(),
        dir: "/".into(),
        tcp_only: false,
    };
    let error = io::run(&small_io(), &lost, &mut Vec::new()).unwrap_err();
    assert_eq!(error.code, Code::NonExist);
}
