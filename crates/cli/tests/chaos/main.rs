//! Engines that only a network connects are killed, stopped, cut off, wiped, emptied and added, as a seed says, while clients write, read, move
//! and remove what they know, never more at a time than the classes of the containers allow. At the end all that was acknowledged is there,
//! histories are those of one copy, the file systems are clean, members of groups hold the same, and stores pass their own check.

mod blocks;
mod faults;
mod files;
#[path = "../harness/mod.rs"]
mod harness;
#[path = "../harness/hosts.rs"]
mod hosts;
mod judge;
mod keys;
mod mounted;
mod plan;
mod work;

use blocks::Blocks;
use faults::Trouble;
use files::Files;
use hosts::{Hosts, HostsSpec};
use keys::Keys;
use plan::Plan;
use std::path::Path;
use std::sync::Mutex;
use std::thread;
use work::{Outcome, POOL, Work};

/// Clients that share keys.
const KEY_CLIENTS: u32 = 3;
/// The seed of the short form.
const SMOKE_SEED: u64 = 1;
/// Stack of the thread that searches histories: the search is recursive.
const SEARCH_STACK_BYTES: usize = 1 << 30;

fn number_from_env(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

/// Makes the pool and the containers; what is in use before these.
fn set_up(work: &Work<'_>) -> Outcome<u64> {
    let (hosts, plan) = (work.hosts, work.plan);
    hosts.until_joined();
    let engines = hosts.json(&["system", "list-engines"]);
    let is_first = |engine: &serde_json::Value| {
        (0..plan.engines.0).any(|at| engine["tcp"].as_str() == Some(&hosts.reach(at)))
    };
    let first = engines.as_array().unwrap().iter().filter(|engine| is_first(engine));
    let targets: Vec<String> = first
        .flat_map(|engine| engine["targets"].as_array().unwrap())
        .map(|id| id.to_string())
        .collect();
    let size = plan.pool_size();
    hosts.ok(&["pool", "create", POOL, "--size", &size, "--targets", &targets.join(",")]);
    let used = thread::scope(|scope| scope.spawn(|| judge::used(work)).join().unwrap())?;
    for cont in &plan.conts {
        hosts.ok(&[&["cont", "create", POOL, cont.label][..], cont.options].concat());
    }
    let rd_fac = plan.rd_fac.to_string();
    hosts.ok(&["cont", "create", POOL, keys::CONT, "--type", "plain", "--rd-fac", &rd_fac]);
    if plan.has_programs {
        hosts.ok(&["cont", "create", POOL, mounted::CONT, "--rd-fac", &rd_fac]);
    }
    Ok(used.bytes)
}

fn run(plan: &Plan) -> Outcome {
    let settings = format!(
        "down_after_s = {}\nrebuild_after_s = {}\n",
        plan.down_after_s, plan.rebuild_after_s
    );
    let has_etcd = plan.has_etcd;
    let spec = HostsSpec { engines: plan.engines(), clients: 1, settings, has_etcd };
    let Some(hosts) = Hosts::start(spec) else { return Ok(()) };
    let work = &Work::new(plan, &hosts);
    work.tell(&format!("{plan:?}"));
    run_on(work).inspect_err(|_| {
        let kept = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("chaos{}", plan.seed));
        std::fs::create_dir_all(&kept).unwrap();
        for at in 0..plan.engines() {
            std::fs::write(kept.join(format!("engine{at}.log")), hosts.log(at)).unwrap();
        }
        work.tell(&format!("the engines' logs are in {}", kept.display()));
    })
}

fn run_on(work: &Work<'_>) -> Outcome {
    let plan = work.plan;
    let used_bytes = set_up(work)?;
    let keys = &Keys::default();
    let known = &Mutex::new((Vec::new(), Vec::new()));
    let mut happened = Default::default();
    let fail = &|name: &str, outcome: Outcome| {
        if let Err(error) = outcome {
            work.fail(format!("{name}: {error}"));
        }
    };
    thread::scope(|scope| {
        for number in 0..KEY_CLIENTS {
            let progress = work.progress(&format!("keys {number}"));
            scope.spawn(move || fail("keys", keys.run(work, number, &progress)));
        }
        for (at, cont) in plan.conts.iter().enumerate() {
            let progress = work.progress(&format!("files of {}", cont.label));
            scope.spawn(move || {
                let outcome =
                    Files::new(work, cont.label, Default::default()).and_then(|mut files| {
                        files.run(10 + at as u64, &progress)?;
                        known.lock().unwrap().0.push((cont.label, files.model));
                        Ok(())
                    });
                fail("files", outcome);
            });
            let progress = work.progress(&format!("blocks of {}", cont.label));
            scope.spawn(move || {
                let outcome = Blocks::new(work, cont.label, Vec::new()).and_then(|mut blocks| {
                    blocks.run(20 + at as u64, &progress)?;
                    known.lock().unwrap().1.push((cont.label, blocks.known));
                    Ok(())
                });
                fail("blocks", outcome);
            });
        }
        for program in mounted::programs(work) {
            let progress = work.progress(program.name);
            scope.spawn(move || fail(program.name, mounted::run(work, program, &progress)));
        }
        let trouble = scope.spawn(|| {
            let outcome = Trouble::new(work).and_then(|mut trouble| {
                let outcome = trouble.run();
                happened = std::mem::take(&mut trouble.happened);
                outcome
            });
            fail("trouble", outcome);
            work.stop();
        });
        if trouble.join().is_err() {
            work.fail("who makes trouble has given up".into());
        }
    });
    work.tell(&format!("faults: {happened:?}\n{}", work.report()));
    work.failure()?;
    let (files, blocks) = std::mem::take(&mut *known.lock().unwrap());
    // On threads of their own: the network of a thread is its host's.
    thread::scope(|scope| {
        let judged = scope.spawn(|| {
            for (cont, model) in files {
                Files::new(work, cont, model)?.compare()?;
            }
            for (cont, known) in blocks {
                Blocks::new(work, cont, known)?.compare()?;
            }
            keys.ask_all(work)
        });
        judged.join().unwrap()
    })?;
    let searched = thread::scope(|scope| {
        let search = thread::Builder::new().stack_size(SEARCH_STACK_BYTES);
        search.spawn_scoped(scope, || keys.judge()).unwrap().join().unwrap()
    })?;
    work.tell(&searched);
    thread::scope(|scope| scope.spawn(|| judge::judge(work, used_bytes)).join().unwrap())
}

#[test]
fn engines_in_trouble_keep_what_they_promise() {
    let seed = number_from_env("AZEKURA_CHAOS_SEED");
    let plan = match number_from_env("AZEKURA_CHAOS_MINUTES") {
        Some(minutes) => Plan::long(seed.unwrap_or(SMOKE_SEED), minutes),
        None => Plan::smoke(seed.unwrap_or(SMOKE_SEED)),
    };
    if let Err(error) = run(&plan) {
        panic!("{error}\nonce more with the same faults:\n{}", plan.command());
    }
}

/// Programs notice nothing while all that can be lost is lost and made anew.
#[test]
fn programs_go_on_while_copies_are_made_anew() {
    if std::env::var_os(plan::HEALING).is_none() {
        println!("SKIPPED: it takes a minute, and {} is not set", plan::HEALING);
        return;
    }
    let plan = Plan::healing(number_from_env("AZEKURA_CHAOS_SEED").unwrap_or(SMOKE_SEED));
    if let Err(error) = run(&plan) {
        panic!("{error}\nonce more with the same faults:\n{}", plan.command());
    }
}
