//! Engines killed at random under acknowledged creates, writes, renames and unlinks: after each
//! kill every name is where its writer left it, with the bytes that it was given.
//!
//! `AZEKURA_KILL_ROUNDS` says how many kills (default 10; `make test-long`: 100).

use crate::harness::{System, noise};
use client::{Client, ConnectOptions, SystemAddress};
use dfs::{CreateOptions, Credentials, Dfs, MountFlags, Obj, OpenFlags, RenameFlags};
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use wire::control::{Name, OpenMode};

/// Names of one writer.
const NAMES: u64 = 30;

/// What a writer knows: the number that each name's file was made with.
#[derive(Clone, Default, Debug, PartialEq, Eq)]
struct Known {
    names: BTreeMap<String, u64>,
    number: u64,
}

fn content(number: u64) -> Vec<u8> {
    let bytes = if number.is_multiple_of(5) { 40_000 + number % 9_000 } else { 10 + number % 700 };
    noise(number, bytes as usize)
}

fn mount(dir: &Path) -> (Client, Dfs) {
    let mut options = ConnectOptions::new(SystemAddress::from_dir(dir).unwrap());
    options.timeout = Duration::from_secs(120);
    let client = Client::connect(options).unwrap();
    let dfs = client.block_on(async {
        let name = |text: &str| Name::Label(text.into());
        let pool = client.pool_open(&name("tank"), OpenMode::ReadWrite).await.unwrap();
        let cont = pool.cont_open(&name("home"), OpenMode::ReadWrite).await.unwrap();
        let cred = Credentials::new(
            rustix::process::geteuid().as_raw(),
            rustix::process::getegid().as_raw(),
        );
        Dfs::mount(&cont, MountFlags::NONE, cred).await.unwrap()
    });
    (client, dfs)
}

/// One step: makes a file, moves one (perhaps onto another), or removes one. Nothing fails: an
/// outage is waited out.
async fn step(dfs: &Dfs, at: &Obj, known: &mut Known) -> dfs::Result<()> {
    known.number += 1;
    let number = known.number;
    let random = u64::from_le_bytes(noise(number, 8).try_into().unwrap());
    let name = |which: u64| format!("n{}", which % NAMES);
    let held: Vec<String> = known.names.keys().cloned().collect();
    let pick = |which: u64| held[which as usize % held.len()].clone();
    match random % 8 {
        0..4 => {
            let name = name(random >> 8);
            let flags = OpenFlags::CREATE.and(OpenFlags::READ_WRITE).and(OpenFlags::TRUNC);
            let options = CreateOptions::default();
            let file = dfs.open(at, name.as_bytes(), flags, 0o644, &options).await?;
            dfs.write(&file, 0, &content(number)).await?;
            known.names.insert(name, number);
        }
        4..6 if !held.is_empty() => {
            let (old, new) = (pick(random >> 8), name(random >> 20));
            dfs.rename(at, old.as_bytes(), at, new.as_bytes(), RenameFlags::NONE).await?;
            if let Some(moved) = known.names.remove(&old) {
                known.names.insert(new, moved);
            }
        }
        6.. if !held.is_empty() => {
            let old = pick(random >> 8);
            dfs.unlink(at, old.as_bytes()).await?;
            known.names.remove(&old);
        }
        _ => {}
    }
    Ok(())
}

fn write(dir: &Path, below: &str, mut known: Known, stop: &AtomicBool, done: &AtomicU64) -> Known {
    let (client, dfs) = mount(dir);
    client.block_on(async {
        let path = format!("/{below}");
        let at = dfs.lookup(path.as_bytes(), OpenFlags::READ_WRITE).await.unwrap();
        while !stop.load(Ordering::Relaxed) {
            if let Err(error) = step(&dfs, &at, &mut known).await {
                panic!("{below}, step {}: {error}", known.number);
            }
            done.fetch_add(1, Ordering::Relaxed);
        }
    });
    known
}

fn check(dir: &Path, below: &str, known: &Known) {
    let (client, dfs) = mount(dir);
    client.block_on(async {
        let path = format!("/{below}");
        let at = dfs.lookup(path.as_bytes(), OpenFlags::READ).await.unwrap();
        let listed = dfs.list(&at).await.unwrap();
        let mut found: Vec<String> =
            listed.iter().map(|entry| String::from_utf8_lossy(&entry.name).into_owned()).collect();
        found.sort();
        let wanted: Vec<String> = known.names.keys().cloned().collect();
        assert_eq!(found, wanted, "{below} after step {}", known.number);
        for (name, number) in &known.names {
            let options = CreateOptions::default();
            let flags = OpenFlags::READ;
            let file = dfs.open(&at, name.as_bytes(), flags, 0, &options).await.unwrap();
            let wanted = content(*number);
            let mut bytes = vec![0; wanted.len() + 1];
            let count = dfs.read(&file, 0, &mut bytes).await.unwrap();
            assert!(bytes[..count] == wanted, "{below}/{name}: not what step {number} wrote");
        }
    });
}

#[test]
fn kills_at_random_undo_no_name_and_no_byte() {
    let rounds = std::env::var("AZEKURA_KILL_ROUNDS").ok().and_then(|text| text.parse().ok());
    let rounds: u64 = rounds.unwrap_or(10);
    let system = System::up(2, 2);
    system.ok(&["pool", "create", "tank", "--size", "1GiB", "--durability", "wal"]);
    system.ok(&["cont", "create", "tank", "home"]);
    let (client, dfs) = mount(&system.dir());
    let mut all: Vec<(String, Known)> =
        (0..3).map(|at| (format!("d{at}"), Known::default())).collect();
    client.block_on(async {
        let root = dfs.lookup(b"/", OpenFlags::READ_WRITE).await.unwrap();
        for (at, (below, known)) in all.iter_mut().enumerate() {
            dfs.mkdir(&root, below.as_bytes(), 0o755, None).await.unwrap();
            // No two writers do the same.
            known.number = at as u64 * 1_000_000;
        }
    });
    drop((dfs, client));
    for round in 0..rounds {
        let stop = Arc::new(AtomicBool::new(false));
        let done = Arc::new(AtomicU64::new(0));
        let writers: Vec<(String, JoinHandle<Known>)> = all
            .drain(..)
            .map(|(below, known)| {
                let (dir, stop, done): (PathBuf, _, _) = (system.dir(), stop.clone(), done.clone());
                let name = below.clone();
                let thread = std::thread::spawn(move || write(&dir, &name, known, &stop, &done));
                (below, thread)
            })
            .collect();
        let go_on_for = |count: u64| {
            let until = done.load(Ordering::Relaxed) + count;
            while done.load(Ordering::Relaxed) < until {
                assert!(writers.iter().any(|(_, thread)| !thread.is_finished()), "all have ended");
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        go_on_for(30 + round * 53 % 90);
        let pids = system.pids();
        let victims: &[usize] = [&[0][..], &[1], &[1, 0]][round as usize % 3];
        for &victim in victims {
            kill_process(Pid::from_raw(pids[victim] as i32).unwrap(), Signal::KILL).unwrap();
        }
        system.ok(&["up"]);
        go_on_for(30);
        stop.store(true, Ordering::Relaxed);
        for (below, thread) in writers {
            let known = thread.join().unwrap();
            check(&system.dir(), &below, &known);
            all.push((below, known));
        }
    }
}
