//! What must be so once the trouble is over, of the system itself.

use crate::faults::Trouble;
use crate::work::{Outcome, POOL, Role, Work, when};
use crate::{keys, mounted};
use serde_json::Value;
use sim::members;
use std::thread;
use std::time::{Duration, Instant};
use types::Oid;
use wire::control::{Name, OpenMode};

/// What is not done after so long, in peace, never will be.
const PEACE_TIME_MAX: Duration = Duration::from_secs(300);
/// Pause between two looks.
const LOOK_PAUSE: Duration = Duration::from_secs(1);
const OBJECTS_PER_REQUEST: u32 = 4096;

/// What is in use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Used {
    /// Data, bytes.
    pub bytes: u64,
    pub objects: u64,
}

/// What the pool has in use.
pub fn used(work: &Work<'_>) -> Outcome<Used> {
    let client = work.connect(Role::Administrator)?;
    let space = client.block_on(async {
        let pool = client.pool_open(&Name::Label(POOL.into()), OpenMode::ReadWrite).await?;
        pool.query().await
    });
    let space = space.map_err(when(|| "asking for space".into()))?;
    match space.targets.iter().find(|target| target.stat.is_none()) {
        Some(silent) => Err(format!("target {} does not say what it has in use", silent.target)),
        None => Ok(Used {
            bytes: space.total.nvme_bytes - space.total.nvme_free_bytes,
            objects: space.total.object_count,
        }),
    }
}

/// Judges the system, in which `used_bytes` of data were in use before there were containers.
pub fn judge(work: &Work<'_>, used_bytes: u64) -> Outcome {
    let conts = work.plan.conts.iter().map(|cont| cont.label).chain(mounted(work));
    for cont in conts.clone() {
        clean(work, cont)?;
    }
    for cont in conts.chain([keys::CONT]) {
        equal(work, cont)?;
    }
    if !work.plan.is_smoke {
        sound(work)?;
        (0..work.plan.engines()).for_each(|at| work.hosts.spawn(at));
        (0..work.plan.engines()).for_each(|at| work.hosts.until_serves(at));
        Trouble::new(work)?.until_whole()?;
    }
    empty(work, used_bytes)?;
    sound(work)
}

/// The container of programs, where they run.
fn mounted(work: &Work<'_>) -> Option<&'static str> {
    work.plan.has_programs.then_some(mounted::CONT)
}

/// Without the containers nothing is left.
fn empty(work: &Work<'_>, used_bytes: u64) -> Outcome {
    let conts = work.plan.conts.iter().map(|cont| cont.label).chain(mounted(work));
    for cont in conts.chain([keys::CONT]) {
        work.hosts.ok(&["cont", "destroy", POOL, cont, "--force"]);
    }
    let begun = Instant::now();
    loop {
        // One that does not say it is asked again.
        let used = used(work);
        if used == Ok(Used { bytes: used_bytes, objects: 0 }) {
            work.tell("nothing is left of the containers");
            return Ok(());
        }
        if begun.elapsed() > PEACE_TIME_MAX {
            let used = used?;
            return Err(format!(
                "without containers {used:?} is in use, where {used_bytes} bytes were before"
            ));
        }
        if let Err(error) = used {
            work.tell(&error);
        }
        thread::sleep(LOOK_PAUSE);
    }
}

/// Once they are stopped, the stores of all engines pass their own check.
fn sound(work: &Work<'_>) -> Outcome {
    work.hosts.stop_all();
    for at in 0..work.plan.engines() {
        let config = work.hosts.dir(at).join("engine.toml");
        let mut check = crate::harness::azekura();
        check.args(["vos", "check", "--target", "0", "--data", "--config"]).arg(config);
        let output = check.output().map_err(|error| error.to_string())?;
        if !output.status.success() {
            return Err(format!("engine {at}: {}", crate::harness::all_text(&output)));
        }
    }
    work.tell("all stores pass their own check");
    Ok(())
}

/// What the check says, whatever it says.
fn check(work: &Work<'_>, cont: &str) -> Outcome<Value> {
    let output = work.hosts.client(&["fs", "check", &format!("azk://{POOL}/{cont}"), "--json"]);
    serde_json::from_slice(&output.stdout)
        .map_err(|error| format!("{error}: {}", crate::harness::all_text(&output)))
}

/// What leaders hold of the objects that were found: which of their units.
fn held(work: &Work<'_>, cont: &str, report: &Value) -> Outcome<String> {
    let client = work.connect(Role::Administrator)?;
    let failed = || format!("asking for what is left in {cont}");
    client.block_on(async {
        let name = |text: &str| Name::Label(text.into());
        let opened = async {
            let pool = client.pool_open(&name(POOL), OpenMode::ReadWrite).await?;
            pool.cont_open(&name(cont), OpenMode::ReadWrite).await
        };
        let opened = opened.await.map_err(when(failed))?;
        let mut text = String::new();
        let found = report["findings"].as_array().into_iter().flatten();
        for oid in found.filter_map(|finding| finding["oid"].as_str()?.parse::<Oid>().ok()) {
            let stats = opened.object(oid).stat().await.map_err(when(failed))?;
            for (unit, stat) in stats.iter().filter(|(_, stat)| stat.dkey_count > 0) {
                text += &format!("unit {unit} has {stat:?}\n");
            }
        }
        Ok(text)
    })
}

/// The file system is whole, and what was removed is freed.
fn clean(work: &Work<'_>, cont: &str) -> Outcome {
    let begun = Instant::now();
    loop {
        let report = check(work, cont)?;
        if report["clean"] != true {
            let held = held(work, cont, &report)?;
            thread::sleep(LOOK_PAUSE);
            let again = check(work, cont)?;
            return Err(format!("{cont}: {report}\n{held}a second later: {again}"));
        }
        // What clients may have open is freed half a minute after an engine's restart.
        if report["waiting"] == 0 || work.plan.is_smoke {
            work.tell(&format!("{cont} is clean: {report}"));
            return Ok(());
        }
        if begun.elapsed() > PEACE_TIME_MAX {
            return Err(format!("{cont}: what was removed is not freed: {report}"));
        }
        thread::sleep(LOOK_PAUSE);
    }
}

/// Members of groups hold the same.
fn equal(work: &Work<'_>, cont: &str) -> Outcome {
    let client = work.connect(Role::Administrator)?;
    client.block_on(async {
        let name = |text: &str| Name::Label(text.into());
        let failed = || format!("comparing members of {cont}");
        let opened = async {
            let pool = client.pool_open(&name(POOL), OpenMode::ReadWrite).await?;
            pool.cont_open(&name(cont), OpenMode::ReadWrite).await
        };
        let opened = opened.await.map_err(when(failed))?;
        let (mut after, mut all) = (None, Vec::new());
        loop {
            let more = opened.list_all_objects(after, OBJECTS_PER_REQUEST).await;
            let more = more.map_err(when(failed))?;
            after = more.oids.last().copied();
            all.extend(more.oids);
            if more.complete {
                break;
            }
        }
        let begun = Instant::now();
        for oid in &all {
            // Folds of stripes tell them one after the other.
            while let Some(differs) =
                members::difference(&client, &opened, *oid).await.map_err(when(failed))?
            {
                if begun.elapsed() > PEACE_TIME_MAX {
                    return Err(format!("{cont}: {differs}"));
                }
                client.env().sleep(LOOK_PAUSE).await;
            }
        }
        work.tell(&format!("{cont}: members of {} objects hold the same", all.len()));
        Ok(())
    })
}
