//! `azekura top`: what targets do, while something is done to them.

mod harness;

use harness::System;
use std::fs;
use std::net::TcpListener;
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
}
