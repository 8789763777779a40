//! `azekura system erase`: what refuses it, what it leaves, and that another engine can begin where it was.

use crate::harness::{System, azekura};
use serde_json::json;
use std::path::PathBuf;

fn config(system: &System, engine: u32) -> PathBuf {
    system.dir().join(format!("engine{engine}/engine.toml"))
}

/// The status as somebody sees it who knows an address only.
fn elsewhere(system: &System, address: &str) -> serde_json::Value {
    let mut command = azekura();
    command.args(["status", "--json", "--system", &format!("tcp://{address}")]);
    command.env("AZEKURA_TOKEN_FILE", system.dir().join("token"));
    let output = command.output().unwrap();
    serde_json::from_slice(&output.stdout).unwrap()
}

/// A new engine had the address of one that was erased: the status had the former one twice, up, and 'stop' told of it that it had stopped.
#[test]
fn an_engine_goes_when_nobody_needs_it_any_more() {
    let system = System::up(2, 2);
    system.ok(&["pool", "create", "tank", "--size", "512MiB", "--durability", "memory"]);
    let (first, second) = (config(&system, 0), config(&system, 1));
    let erase = |config: &PathBuf| {
        ["system", "erase", "--config", config.to_str().unwrap()].map(String::from)
    };
    system.fails(7, &["runs", "stop it"], &erase(&second));
    let forced = [&erase(&second)[..], &["--force".to_string()]].concat();
    system.fails(7, &["runs", "stop it"], &forced);

    system.ok(&["system", "stop", "--engine", "1"]);
    system.fails(7, &["still knows", "tank"], &erase(&second));
    system.ok(&["up"]);
    system.ok(&["pool", "destroy", "tank", "--force"]);
    system.ok(&["system", "stop", "--engine", "1"]);
    // The system is asked, not what the engine knew when it stopped.
    let dir = second.parent().unwrap();
    let told = system.ok(&erase(&second));
    assert!(told.contains("listing it as engine 1"), "{told}");
    assert!(second.exists(), "the configuration stays");
    for name in ["engine.id", "catalog-copy.0", "target0/superblock", "target1/superblock"] {
        assert!(!dir.join(name).exists(), "{name}");
    }
    assert!(system.ok(&erase(&second)).contains("no engine"));

    // What starts there is another engine.
    system.ok(&["up"]);
    let engines = system.json(&["system", "list-engines"]);
    assert_eq!(engines.as_array().unwrap().len(), 3, "{engines}");
    // It has the address of the one that was erased, and is told apart from it.
    let status = system.json(&["status"]);
    assert_eq!(status["engines"][1]["rank"], 2, "{status}");
    assert_eq!(status["engines"][1]["state"], "up", "{status}");
    let address = std::fs::read_to_string(system.dir().join("engine0/engine.toml")).unwrap();
    let address = address.lines().find_map(|line| line.strip_prefix("listen = ")).unwrap();
    let status = elsewhere(&system, address.trim_matches('"'));
    let states = status["engines"].as_array().unwrap().iter();
    let states: Vec<_> = states.map(|engine| json!([engine["rank"], engine["state"]])).collect();
    assert_eq!(json!(states), json!([[0, "up"], [1, "down"], [2, "up"]]), "{status}");
    let told = system.json(&["system", "stop", "--engine", "1"]);
    assert_eq!(told["silent"], json!([1]), "{told}");
    let told = system.json(&["system", "stop", "--all"]);
    assert_eq!(told["stopped"], json!([2, 0]), "{told}");
    system.ok(&["up"]);
    system.ok(&["pool", "create", "new", "--size", "512MiB", "--targets", "0,1,4,5"]);
    system.ok(&["down"]);
    system.fails(7, &["holds the catalog", "new"], &erase(&first));
    system.fails(7, &["no other engine answers"], &erase(&second));
    assert!(dir.join("target0/superblock").exists(), "nothing was erased");
    for config in [&second, &first] {
        let told = system
            .json(&[&erase(config).each_ref().map(String::as_str)[..], &["--force"]].concat());
        assert_eq!(told["devices"].as_array().unwrap().len(), 2, "{told}");
        assert_eq!(told["devices"][0]["pools"].as_array().unwrap().len(), 1, "{told}");
    }
    system.ok(&["up"]);
    assert_eq!(system.json(&["system", "query"])["pools"], 0);
}

#[test]
fn devices_of_others_are_not_erased() {
    let system = System::up(2, 1);
    system.ok(&["down"]);
    // Engine 1 with the device of engine 0 in its file.
    let text = std::fs::read_to_string(config(&system, 1)).unwrap();
    let wrong = system.path("wrong.toml");
    std::fs::write(&wrong, text.replace("engine1/target0", "engine0/target0")).unwrap();
    let mut command = azekura();
    command.args(["system", "erase", "--config"]).arg(&wrong);
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(7), "{said}");
    assert!(said.contains("no other engine answers"), "{said}");
    // Where no system is known the devices themselves refuse.
    for name in ["catalog-copy.0", "catalog-copy.1"] {
        std::fs::remove_file(system.dir().join("engine1").join(name)).unwrap();
    }
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("another engine"), "{said}");
    assert!(system.dir().join("engine0/target0/superblock").exists());
}
