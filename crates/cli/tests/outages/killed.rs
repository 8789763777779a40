//! Engines killed under load, and a device cut off under load: whoever wrote down what was
//! acknowledged finds all of it, and nothing else.

use crate::harness::{System, noise};
use client::{Client, Code, ConnectOptions, Container, KvObj, SystemAddress, Tx};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;
use types::ObjType;
use wire::control::{Name, OpenMode};
use wire::obj::Cond;

/// Keys of one writer.
const KEYS: usize = 48;

/// What an engine without its device may answer, or no engine at all. (Linux answers "no space"
/// to a write beyond the end of a device.)
const OUTAGES: [Code; 5] = [Code::TimedOut, Code::Unreach, Code::Io, Code::Closed, Code::NoSpace];

/// What a writer knows of its keys: the last number acknowledged, the last one tried.
#[derive(Default)]
struct Known {
    acked: Vec<u64>,
    tried: Vec<u64>,
    /// The last number of all.
    number: u64,
    /// Operations acknowledged.
    count: u64,
    /// The first error that is no outage.
    wrong: Option<String>,
}

/// A writer in a thread of its own.
struct Writer {
    known: Arc<Mutex<Known>>,
    thread: JoinHandle<()>,
}

struct Crew {
    stop: Arc<AtomicBool>,
    acked: Arc<AtomicU64>,
    writers: Vec<Writer>,
}

fn open(dir: &Path, timeout: Duration) -> client::Result<Container> {
    let mut options = ConnectOptions::new(SystemAddress::from_dir(dir)?);
    options.timeout = timeout;
    let client = Client::connect(options)?;
    client.block_on(async {
        let pool = client.pool_open(&Name::Label("tank".into()), OpenMode::ReadWrite).await?;
        pool.cont_open(&Name::Label("home".into()), OpenMode::ReadWrite).await
    })
}

fn object(cont: &Container, number: u64) -> KvObj {
    let oid = cont.generate_oid(ObjType::KvHashed, "SX".parse().unwrap(), 0, number).unwrap();
    KvObj { object: cont.object(oid) }
}

/// The value of a number: small ones live in the index, larger ones in the data area.
fn value(number: u64) -> Vec<u8> {
    let bytes = match number % 7 {
        0 => 20_000 + (number % 9_000) as usize,
        1 => 4_096,
        _ => 60 + (number % 300) as usize,
    };
    [&number.to_le_bytes()[..], &noise(number, bytes)].concat()
}

fn number_of(raw: &[u8]) -> u64 {
    let number = u64::from_le_bytes(raw[..8].try_into().unwrap());
    assert!(raw == value(number), "a value that was never written, said to be number {number}");
    number
}

/// Keys come in pairs; each third step writes a pair in one transaction, so that both always
/// have the same number when the pair was last written so.
fn is_pair(number: u64) -> bool {
    number.is_multiple_of(3)
}

async fn step(cont: &Container, kv: &KvObj, key: usize, number: u64) -> client::Result<()> {
    let data = value(number);
    if !is_pair(number) {
        return kv.put(None, Cond::NONE, &key.to_le_bytes(), &data).await;
    }
    let tx = Tx::open(cont, false);
    for key in [key & !1, key | 1] {
        kv.put(Some(&tx), Cond::NONE, &key.to_le_bytes(), &data).await?;
    }
    tx.commit().await.map(|_| ())
}

impl Crew {
    /// Starts three writers; each goes on from what it knows.
    fn start(dir: &Path, known: Vec<Known>, timeout: Duration) -> Crew {
        let stop = Arc::new(AtomicBool::new(false));
        let acked = Arc::new(AtomicU64::new(0));
        let writers = (0..)
            .zip(known)
            .map(|(index, known)| {
                let known = Arc::new(Mutex::new(known));
                let thread = std::thread::spawn({
                    let (dir, known, stop, acked) =
                        (dir.to_path_buf(), known.clone(), stop.clone(), acked.clone());
                    move || write(&dir, index, &known, &stop, &acked, timeout)
                });
                Writer { known, thread }
            })
            .collect();
        Crew { stop, acked, writers }
    }

    /// Waits until `count` more operations are acknowledged.
    fn go_on_for(&self, count: u64) {
        let until = self.acked.load(Ordering::Relaxed) + count;
        while self.acked.load(Ordering::Relaxed) < until {
            assert!(self.writers.iter().any(|w| !w.thread.is_finished()), "all writers have ended");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Ends the writers after the operation each is at.
    fn stop(self) -> Vec<Known> {
        self.stop.store(true, Ordering::Relaxed);
        self.writers
            .into_iter()
            .map(|writer| {
                writer.thread.join().unwrap();
                let known = std::mem::take(&mut *writer.known.lock().unwrap());
                assert_eq!(known.wrong, None);
                known
            })
            .collect()
    }
}

fn write(
    dir: &Path,
    index: u64,
    known: &Mutex<Known>,
    stop: &AtomicBool,
    acked: &AtomicU64,
    timeout: Duration,
) {
    let cont = match open(dir, timeout) {
        Ok(cont) => cont,
        Err(error) => return known.lock().unwrap().wrong = Some(error.to_string()),
    };
    let kv = object(&cont, index + 1);
    let mut number = known.lock().unwrap().number;
    while !stop.load(Ordering::Relaxed) {
        number += 1;
        let key = (number as usize * 31) % KEYS;
        known.lock().unwrap().number = number;
        let keys = if is_pair(number) { vec![key & !1, key | 1] } else { vec![key] };
        for &key in &keys {
            known.lock().unwrap().tried[key] = number;
        }
        let outcome = cont.client().block_on(async {
            loop {
                // A pair whose last writing is still being told to all of its targets.
                match step(&cont, &kv, key, number).await {
                    Err(error) if error.code == Code::TxRestart => {}
                    other => return other,
                }
                cont.client().env().sleep(Duration::from_millis(2)).await;
            }
        });
        match outcome {
            Ok(()) => {
                let mut known = known.lock().unwrap();
                known.count += 1;
                acked.fetch_add(1, Ordering::Relaxed);
                for &key in &keys {
                    known.acked[key] = number;
                }
            }
            // Nobody knows whether it took effect; nothing after it is tried.
            Err(error) => {
                if !OUTAGES.contains(&error.code) {
                    known.lock().unwrap().wrong = Some(format!("number {number}: {error}"));
                }
                return;
            }
        }
    }
}

/// Compares what is there with what the writers know, and tells them what was not known.
fn check(dir: &Path, all: &mut [Known]) {
    let cont = open(dir, Duration::from_secs(60)).unwrap();
    for (index, known) in (0..).zip(all) {
        let kv = object(&cont, index + 1);
        let mut found = Vec::new();
        for key in 0..KEYS {
            let raw = cont.client().block_on(kv.get(None, &key.to_le_bytes())).unwrap();
            let number = raw.as_deref().map_or(0, number_of);
            let (acked, tried) = (known.acked[key], known.tried[key]);
            assert!(
                number == acked || number == tried,
                "writer {index}, key {key}: found {number}, acknowledged {acked}, tried {tried}"
            );
            found.push(number);
        }
        known.acked.clone_from(&found);
        known.tried.clone_from(&found);
        for pair in found.chunks(2) {
            let newest = pair[0].max(pair[1]);
            if is_pair(newest) {
                assert_eq!(pair[0], pair[1], "writer {index}: half a transaction");
            }
        }
    }
}

/// What three writers know before they have written anything.
fn newcomers() -> Vec<Known> {
    let new = || Known { acked: vec![0; KEYS], tried: vec![0; KEYS], ..Known::default() };
    vec![new(), new(), new()]
}

#[test]
fn fifty_kills_under_load_lose_nothing_and_repeat_nothing() {
    let system = System::up(2, 2);
    system.ok(&["pool", "create", "tank", "--size", "1GiB", "--durability", "wal"]);
    system.ok(&["cont", "create", "tank", "home", "--type", "plain"]);
    let mut all = newcomers();
    for round in 0..10u64 {
        // Writers wait out the outages: at the end each operation has taken effect exactly once.
        let crew = Crew::start(&system.dir(), all, Duration::from_secs(120));
        for kill in 0..5u64 {
            crew.go_on_for(40 + (round * 5 + kill) * 7 % 60);
            let victims: &[usize] = match (round + kill) % 4 {
                0 => &[0],
                1 => &[1],
                2 => &[1, 0],
                _ => &[1],
            };
            let pids = system.pids();
            for &victim in victims {
                kill_process(Pid::from_raw(pids[victim] as i32).unwrap(), Signal::KILL).unwrap();
            }
            system.ok(&["up"]);
        }
        crew.go_on_for(20);
        all = crew.stop();
        for (index, known) in all.iter().enumerate() {
            assert_eq!(known.acked, known.tried, "writer {index} waited for all it tried");
        }
        check(&system.dir(), &mut all);
    }
}

/// A file as a block device that can be cut off.
struct Loop {
    path: String,
}

impl Loop {
    /// `None` where there are no loop devices or no right to them.
    fn over(file: &Path) -> Option<Loop> {
        let output = Command::new("losetup").args(["--find", "--show"]).arg(file).output().ok()?;
        let path = String::from_utf8(output.stdout).ok()?.trim().to_string();
        (output.status.success() && !path.is_empty()).then_some(Loop { path })
    }

    /// Leaves only the first `bytes` of the device; 0 for all of it. Everything beyond fails.
    fn limit(&self, bytes: u64) {
        let device = File::open(&self.path).unwrap();
        let mut raw = [0u64; 29];
        const LOOP_SET_STATUS64: libc::c_ulong = 0x4C04;
        const LOOP_GET_STATUS64: libc::c_ulong = 0x4C05;
        // SAFETY: the kernel fills 232 bytes, which `raw` has.
        let got = unsafe { libc::ioctl(device.as_raw_fd(), LOOP_GET_STATUS64 as _, &mut raw) };
        assert_eq!(got, 0, "{}", std::io::Error::last_os_error());
        // lo_device, lo_inode, lo_rdevice, lo_offset, lo_sizelimit.
        raw[4] = bytes;
        // SAFETY: the kernel reads the 232 bytes it has filled before.
        let set = unsafe { libc::ioctl(device.as_raw_fd(), LOOP_SET_STATUS64 as _, &raw) };
        assert_eq!(set, 0, "{}", std::io::Error::last_os_error());
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["--detach", &self.path]).status();
    }
}

#[test]
fn a_device_cut_off_under_load_loses_nothing_acknowledged() {
    let system = System::none();
    let backing = system.path("backing");
    File::create(&backing).unwrap().set_len(2 << 30).unwrap();
    let Some(device) = Loop::over(&backing) else {
        eprintln!("SKIPPED: no loop devices here (needs root and losetup)");
        return;
    };
    system.ok(&["up", "--engines", "1", "--targets", "1"]);
    system.ok(&["down"]);
    let config = system.dir().join("engine0/engine.toml");
    let text = std::fs::read_to_string(&config).unwrap();
    let mut set: toml::Table = text.parse().unwrap();
    set["target"][0]["device"] = device.path.clone().into();
    std::fs::write(&config, set.to_string()).unwrap();
    system.ok(&["up"]);
    system.ok(&["pool", "create", "tank", "--size", "1GiB", "--durability", "wal"]);
    system.ok(&["cont", "create", "tank", "home", "--type", "plain"]);
    let mut all = newcomers();
    for round in 0..12u64 {
        let crew = Crew::start(&system.dir(), all, Duration::from_secs(2));
        crew.go_on_for(60 + round * 37 % 200);
        device.limit(512);
        // All of them come to an end by themselves: nothing can be acknowledged any more.
        let mut waited = 0;
        while crew.writers.iter().any(|writer| !writer.thread.is_finished()) {
            std::thread::sleep(Duration::from_millis(10));
            waited += 1;
            assert!(waited < 6000, "writers go on without a device");
        }
        all = crew.stop();
        let pid = Pid::from_raw(system.pids()[0] as i32).unwrap();
        kill_process(pid, Signal::KILL).unwrap();
        device.limit(0);
        system.ok(&["up"]);
        check(&system.dir(), &mut all);
    }
    system.ok(&["down"]);
}
