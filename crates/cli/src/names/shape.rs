//! The JSON that scripts written for DAOS read: our reports, in its envelope and under its names.
//!
//! `{"response": …, "error": null, "status": 0}`, as `daos --json` and `dmg --json` print.

use serde_json::{Value, json};

/// What a command's JSON looks like.
#[derive(clap::ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Shape {
    /// Our own, without an envelope.
    #[default]
    Own,
    /// Our own in the envelope.
    Plain,
    /// `daos container create`
    DaosContCreate,
    /// `daos container query`
    DaosCont,
    /// `daos filesystem get-attr`
    DaosFsAttr,
    /// `daos container list`
    DaosContList,
    /// `daos pool query`, `dmg pool query`
    DaosPool,
    /// `daos pool list`
    DaosPoolList,
    /// `daos system query`
    DaosSystem,
    /// `dmg pool create`
    DmgPoolCreate,
    /// `dmg pool list`
    DmgPoolList,
    /// `dmg system query`
    DmgSystem,
}

impl Shape {
    /// A report that our own command would print, in this shape.
    pub fn report(self, ours: Value) -> Value {
        let response = match self {
            Shape::Own => return ours,
            Shape::Plain => ours,
            Shape::DaosContCreate | Shape::DaosCont => container(&ours),
            Shape::DaosFsAttr => fs_attr(&ours),
            Shape::DaosContList => {
                each(&ours, |cont| json!({ "uuid": cont["uuid"], "label": cont["label"] }))
            }
            Shape::DaosPool | Shape::DmgPoolCreate => pool(&ours),
            Shape::DaosPoolList | Shape::DmgPoolList => json!({ "pools": each(&ours, pool) }),
            Shape::DaosSystem => system(&ours),
            Shape::DmgSystem => json!({ "members": each(&ours["engines"], member) }),
        };
        json!({ "response": response, "error": null, "status": 0 })
    }

    /// A failure, in this shape; `ours` is what our own command would print.
    pub fn failure(self, ours: Value) -> Value {
        match self {
            Shape::Own => ours,
            _ => json!({
                "response": null,
                "error": ours["error"]["message"],
                // Not 0 is all that scripts may rely on.
                "status": -1,
            }),
        }
    }
}

fn each(list: &Value, one: impl Fn(&Value) -> Value) -> Value {
    list.as_array().into_iter().flatten().map(one).collect()
}

fn container(ours: &Value) -> Value {
    let layout = match ours["type"].as_str() {
        Some("posix") => "POSIX",
        _ => "unknown",
    };
    json!({
        "container_uuid": ours["uuid"],
        "container_label": ours["label"],
        "container_type": layout,
        "redundancy_factor": ours["rd_fac"],
        "num_handles": ours["handles"],
        "num_snapshots": ours["snapshots"],
        "object_class": ours["oclass"],
        "dir_object_class": ours["dir_oclass"],
        "file_object_class": ours["file_oclass"],
        "chunk_size": ours["chunk_bytes"],
    })
}

/// From the line that tells the layout.
fn fs_attr(ours: &Value) -> Value {
    let line = ours[dfs::layout_attr::LAYOUT].as_str().unwrap_or_default();
    let of = |name: &str| {
        let mut pairs = line.split(' ').filter_map(|pair| pair.split_once('='));
        pairs.find(|(found, _)| *found == name).map(|(_, value)| value)
    };
    let chunk_size = of("chunk_size").and_then(|text| text.parse::<u64>().ok());
    let object = json!({ "oid": of("oid"), "oclass": of("oclass") });
    match of("file_oclass") {
        Some(files) => json!({
            "object": object,
            "directory": {
                "dir_oclass": of("dir_oclass"), "file_oclass": files, "chunk_size": chunk_size,
            },
        }),
        None => json!({ "oid": of("oid"), "oclass": of("oclass"), "chunk_size": chunk_size }),
    }
}

fn pool(ours: &Value) -> Value {
    let targets = ours["targets"].as_array().map_or(&[][..], Vec::as_slice);
    let active = targets.iter().filter(|target| target["state"] == "up").count();
    let mut ranks: Vec<u64> = targets.iter().filter_map(|target| target["rank"].as_u64()).collect();
    ranks.sort_unstable();
    ranks.dedup();
    let rebuild = ours["rebuild"]["state"].as_str().unwrap_or("idle");
    // Free space is known to those who asked for it only.
    let tier = |medium: &str, total: &str, free: &str| json!({ "media_type": medium, "total": ours[total], "free": ours["space"][free] });
    json!({
        "uuid": ours["uuid"],
        "label": ours["label"],
        "state": "Ready",
        "total_targets": targets.len(),
        "active_targets": active,
        "disabled_targets": targets.len() - active,
        "total_engines": ranks.len(),
        "version": ours["map_version"],
        "enabled_ranks": ranks,
        "rebuild": { "status": 0, "state": rebuild, "objects": 0, "records": 0 },
        "tier_stats": [
            tier("scm", "scm_bytes", "scm_free_bytes"),
            tier("nvme", "nvme_bytes", "nvme_free_bytes"),
        ],
    })
}

fn system(ours: &Value) -> Value {
    let of = |name: &str| each(&ours["engines"], |engine| engine[name].clone());
    json!({ "system_name": "azekura", "fabric_provider": "tcp", "ranks": of("rank"), "addresses": of("tcp") })
}

fn member(engine: &Value) -> Value {
    let state = match engine["state"].as_str() {
        Some("up") => "joined",
        Some("starting") => "starting",
        _ => "stopped",
    };
    json!({ "rank": engine["rank"], "addr": engine["tcp"], "state": state })
}
