//! `azekura top`: what targets do, while something is done to them.

use crate::harness::{self, System};
use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::fd::{AsRawFd, FromRawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

#[test]
fn targets_at_work_are_seen() {
    let system = System::up(2, 1);
    system.fails(2, &["[metrics]"], &["top", "--once"]);
    system.ok(&["down"]);
    let mut addresses = Vec::new();
    for index in 0..2 {
        // Below the ports that the kernel gives to connections; engines of the system may have some of them.
        let port = (32_000..32_700).find(|port| {
            let address = format!("127.0.0.1:{port}");
            !addresses.contains(&address) && TcpListener::bind(&address).is_ok()
        });
        let address = format!("127.0.0.1:{}", port.unwrap());
        let path = system.dir().join(format!("engine{index}/engine.toml"));
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, format!("{text}\n[metrics]\nlisten = '{address}'\n")).unwrap();
        addresses.push(address);
    }
    system.ok(&["up"]);
    system.ok(&["pool", "create", "tank", "--size", "512MiB", "--durability", "memory"]);
    system.ok(&["cont", "create", "tank", "home"]);
    let file = system.path("file");
    fs::write(&file, vec![7; 1 << 20]).unwrap();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut round = 0;
            while !is_over.load(Ordering::Relaxed) {
                let url = format!("azk://tank/home/{}", round % 20);
                let put = ["fs", "put", file.to_str().unwrap(), &url];
                let output = system.command(&put).env("AZEKURA_JOB", "nightly").output().unwrap();
                assert!(output.status.success(), "{}", harness::all_text(&output));
                round += 1;
            }
        });
        loop {
            let report = system.json(&["top", "--interval", "1"]);
            let engines = report["engines"].as_array().unwrap();
            assert_eq!(engines.len(), 2, "{report}");
            let targets = engines.iter().flat_map(|engine| engine["targets"].as_array().unwrap());
            let targets: Vec<_> = targets.collect();
            let sum = |name: &str| targets.iter().filter_map(|t| t[name].as_f64()).sum::<f64>();
            if sum("ops_per_s") > 0.0 && sum("received_bytes_per_s") > 0.0 {
                assert!(
                    targets.iter().any(|target| target["latency_mean_s"].is_number()),
                    "{report}"
                );
                break;
            }
        }
        // The same work by engine, pool, job and client.
        let views = [
            ("engines", "engines", ""),
            ("pools", "pools", ""),
            ("jobs", "jobs", "nightly"),
            ("clients", "clients", "nightly"),
        ];
        for (view, part, job) in views {
            loop {
                let filter = ["--filter", job];
                let filter: &[&str] = if job.is_empty() { &[] } else { &filter[..] };
                let args = ["top", "--view", view, "--interval", "1", "--sort", "ops"];
                let report = system.json(&[&args[..], filter].concat());
                let rows = report[part].as_array().cloned().unwrap_or_default();
                if rows.iter().any(|row| row["ops_per_s"].as_f64().unwrap() > 0.0) {
                    assert!(job.is_empty() || rows.iter().all(|row| row["job"] == job), "{report}");
                    break;
                }
                // Clients are short commands here: one may have come and gone between two looks.
                if view == "clients" && !rows.is_empty() {
                    break;
                }
            }
        }
        is_over.store(true, Ordering::Relaxed);
    });
    let text = system.ok(&["top", "--once", "--sort", "latency", &addresses[0], "127.0.0.1:1"]);
    assert!(text.contains("OPS/S") && text.contains("127.0.0.1:1: no figures"), "{text}");
    let text = system.ok(&["top", "--once", "--view", "jobs", "--interval", "1"]);
    assert!(text.contains("P99 WAIT") && text.contains("nightly"), "{text}");
    system.fails(6, &["127.0.0.1:1"], &["top", "127.0.0.1:1"]);
    keys_sort_filter_and_quit(&system);
}

/// A terminal of its own: what programs see, and what a person has.
fn terminal() -> (fs::File, fs::File) {
    let (mut person, mut program) = (0, 0);
    let (none, size) = (
        std::ptr::null_mut(),
        libc::winsize { ws_row: 20, ws_col: 100, ws_xpixel: 0, ws_ypixel: 0 },
    );
    // SAFETY: two descriptors are written; name and settings are not given, and `size` is a window's size.
    let failed = unsafe { libc::openpty(&mut person, &mut program, none, std::ptr::null(), &size) };
    assert_eq!(failed, 0, "{}", std::io::Error::last_os_error());
    // SAFETY: both were just opened, and nobody else has them.
    unsafe { (fs::File::from_raw_fd(person), fs::File::from_raw_fd(program)) }
}

fn settings(terminal: &fs::File) -> (libc::tcflag_t, libc::tcflag_t) {
    // SAFETY: all zeros is a value of this type of plain numbers.
    let mut found: libc::termios = unsafe { std::mem::zeroed() };
    // SAFETY: the call writes one `termios`, and `found` is one.
    assert_eq!(unsafe { libc::tcgetattr(terminal.as_raw_fd(), &mut found) }, 0);
    (found.c_lflag, found.c_iflag)
}

/// Somebody sits at a terminal: keys act at once, and the terminal is afterwards as it was.
fn keys_sort_filter_and_quit(system: &System) {
    let (mut person, program) = terminal();
    let before = settings(&program);
    let mut top = system.command(&["top", "--view", "jobs", "--interval", "3600"]);
    let end = || program.try_clone().unwrap();
    let mut child = top.stdin(end()).stdout(end()).stderr(end()).spawn().unwrap();
    let mut shown = String::new();
    // What is shown until this text is, from here on.
    let mut until = |person: &mut fs::File, text: &str| {
        while !shown.contains(text) {
            let mut bytes = [0; 4096];
            let count = person.read(&mut bytes).unwrap();
            assert!(count > 0, "it ended: {shown}");
            shown += &String::from_utf8_lossy(&bytes[..count]);
        }
        shown.clear();
    };
    // Before the first interval is over there is nothing to show, but what is pressed counts.
    while settings(&program) == before {
        assert!(child.try_wait().unwrap().is_none(), "it ended");
        thread::sleep(std::time::Duration::from_millis(10));
    }
    for (keys, text) in [
        ("s", "jobs by ops"),
        ("/", "only rows with:"),
        ("nig", "nig_"),
        ("\r", "with 'nig'"),
        ("v", "targets by ops"),
        ("vvv", "clients by ops"),
    ] {
        person.write_all(keys.as_bytes()).unwrap();
        until(&mut person, text);
    }
    person.write_all(b"q").unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(settings(&program), before);
}
