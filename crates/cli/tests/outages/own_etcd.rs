//! `azekura up --etcd`: a system with an etcd of its own comes, goes and comes back.

use crate::harness::System;
use serde_json::Value;

#[test]
fn a_system_with_its_own_etcd_comes_back() {
    let system = System::in_memory();
    let up = ["up", "--engines", "2", "--targets", "1", "--etcd", "--wait", "600"];
    let found = std::process::Command::new("etcd").arg("--version").output();
    if !found.is_ok_and(|output| output.status.success()) {
        println!("SKIPPED: no etcd here (Debian: etcd-server)");
        system.fails(3, &["etcd-server"], &up);
        return;
    }
    system.ok(&up);
    system.ok(&["pool", "create", "tank", "--size", "128MiB", "--durability", "memory"]);
    let engines = |system: &System| system.json(&["system", "list-engines"]);
    let list = engines(&system);
    let leads = |engine: &&Value| engine["leads"] == true;
    assert_eq!(list.as_array().unwrap().len(), 2, "{list}");
    assert_eq!(list.as_array().unwrap().iter().filter(leads).count(), 1, "{list}");
    assert!(system.ok(&["system", "query"]).contains("leads"));
    assert!(system.ok(&["system", "list-engines"]).contains("leads"));
    let again = system.json(&["up"]);
    assert_eq!(again["already_running"], 2);
    // One more engine joins the system that this etcd keeps.
    let grown = system.json(&["up", "--engines", "3"]);
    assert_eq!(grown["already_running"], 2, "{grown}");
    let list = engines(&system);
    assert_eq!(list.as_array().unwrap().len(), 3, "{list}");
    assert_eq!(list.as_array().unwrap().iter().filter(leads).count(), 1, "{list}");
    system.ok(&["down"]);
    let endpoint = std::fs::read_to_string(system.dir().join("engine0/engine.toml")).unwrap();
    let port = endpoint.split("http://127.0.0.1:").nth(1).unwrap();
    let port: u16 = port.split('"').next().unwrap().parse().unwrap();
    assert!(std::net::TcpStream::connect(("127.0.0.1", port)).is_err(), "etcd is stopped, too");
    system.ok(&["up", "--wait", "600"]);
    assert_eq!(system.json(&["system", "query"])["pools"], 1);
    assert_eq!(engines(&system).as_array().unwrap().len(), 3);
}
