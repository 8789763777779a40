//! The catalog goes from an engine's files to etcd and back, with real engines before, between and after.

use crate::etcd_server::EtcdServer;
use crate::harness::System;
use std::fs;
use std::path::PathBuf;

struct Moving {
    system: System,
    config: PathBuf,
    /// The configuration as `up` has made it.
    embedded: String,
}

impl Moving {
    fn migrate(&self, to: &str) -> Vec<String> {
        let config = self.config.to_str().unwrap();
        ["system", "migrate-catalog", "--config", config, "--to", to].map(String::from).into()
    }

    fn moved(&self, to: &str) -> serde_json::Value {
        let args = self.migrate(to);
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        self.system.json(&args)
    }

    fn assert_works(&self, round: usize) {
        let name = format!("azk://tank/home/{round}");
        let file = self.system.path("file");
        fs::write(&file, format!("round {round}")).unwrap();
        self.system.ok(&["fs", "put", file.to_str().unwrap(), &name]);
        for earlier in 0..=round {
            let text = self.system.ok(&["fs", "cat", &format!("azk://tank/home/{earlier}")]);
            assert_eq!(text, format!("round {earlier}"));
        }
        self.system.ok(&["cont", "create", "tank", &format!("cont{round}")]);
    }
}

#[test]
fn a_catalog_moves_to_etcd_and_back() {
    let Some(etcd) = EtcdServer::start() else { return };
    let endpoint = etcd.endpoint();
    let place = format!("{}/mine", endpoint.replace("http://", "etcd://"));
    let system = System::up(2, 1);
    let config = system.dir().join("engine0/engine.toml");
    let embedded = fs::read_to_string(&config).unwrap();
    let moving = Moving { system, config, embedded };
    let system = &moving.system;
    system.ok(&["pool", "create", "tank", "--size", "256MiB"]);
    system.ok(&["cont", "create", "tank", "home"]);
    moving.assert_works(0);
    system.fails(7, &["runs", "stop it"], &moving.migrate(&place));
    system.ok(&["down"]);
    for (bad, word) in [("etcd://", "no host"), ("/a/b", "neither"), ("embedded", "names no etcd")]
    {
        system.fails(2, &[word], &moving.migrate(bad));
    }
    let report = moving.moved(&place);
    assert_eq!((&report["engines"], &report["pools"]), (&2.into(), &1.into()), "{report}");
    assert_eq!(report["containers"], 2, "{report}");
    system.fails(2, &["has moved to"], &moving.migrate(&place));

    // Who does not know is told.
    let output = system.run(&["up", "--wait", "600"]);
    let log = fs::read_to_string(system.dir().join("engine0/engine.log")).unwrap();
    assert!(!output.status.success() && log.contains("has moved to etcd://"), "{log}");
    system.ok(&["down"]);
    let section = format!("\n[catalog]\n{}", report["catalog"].as_str().unwrap());
    fs::write(&moving.config, moving.embedded.clone() + &section).unwrap();
    system.ok(&["up", "--wait", "600"]);
    moving.assert_works(1);
    assert_eq!(system.json(&["system", "query"])["uuid"], report["system"]);
    system.ok(&["down"]);

    // A second system finds the place taken, and is as it was.
    let other = System::up(1, 1);
    other.ok(&["pool", "create", "own", "--size", "128MiB"]);
    other.ok(&["down"]);
    let at = other.dir().join("engine0/engine.toml");
    let args = ["system", "migrate-catalog", "--config", at.to_str().unwrap(), "--to", &place];
    other.fails(4, &["holds a system already"], &args);
    other.ok(&["up"]);
    assert_eq!(other.json(&["system", "query"])["pools"], 1);

    let report = moving.moved("embedded");
    assert_eq!((&report["containers"], &report["catalog"]), (&3.into(), &"".into()), "{report}");
    // With the etcd in its configuration the engine says where the catalog has gone.
    let output = system.run(&["up", "--wait", "600"]);
    let log = fs::read_to_string(system.dir().join("engine0/engine.log")).unwrap();
    assert!(!output.status.success() && log.contains("a catalog of its own"), "{log}");
    system.ok(&["down"]);
    // So does one that has none of its own.
    let (dir, file) = (system.path("new"), system.path("new.toml"));
    let target = format!("[[target]]\ndevice = '{}'\n", dir.join("t").display());
    fs::create_dir_all(dir.join("t")).unwrap();
    fs::write(&file, format!("dir = '{}'\n{target}{section}", dir.display())).unwrap();
    let words = ["has moved to files in", "change [catalog]"];
    system.fails(2, &words, &["engine", "--config", file.to_str().unwrap()]);
    fs::write(&moving.config, &moving.embedded).unwrap();
    system.ok(&["up", "--wait", "600"]);
    moving.assert_works(2);
    assert_eq!(system.json(&["cont", "list", "tank"]).as_array().unwrap().len(), 4);
}
