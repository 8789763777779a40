//! A file system that does nothing, and how fast it is: what a mount could reach at best on this
//! kernel. Files keep no data, names are not remembered; each request still makes the whole way.
//!
//!     cargo run --release -p fuselow --example null -- [dev|uring|auto] [SECONDS] [PROCESSES] [TTL] [deep]
//!     cargo run --release -p fuselow --example null -- on DIRECTORY [SECONDS] [PROCESSES]
//!
//! With `deep` the files are in a directory of the root: with a TTL of 0 the kernel asks for its
//! name, too, each time, as with a mount that keeps nothing.
//!
//! The second form measures any other directory with the same clients: a mount to hold against it.
//! Each process makes files of its own for the given time; when their names and attributes are
//! no longer kept (TTL, default one second, as a mount's) it looks at each once, then moves
//! data in one file of 64 MiB, direct, and at last makes files of 3901 bytes. Prints operations per second (for transfers MB/s) of all
//! processes together, and for the first form CPU time per operation.

use fuselow::*;
use std::fs::OpenOptions;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const OPERATIONS: [&str; 7] =
    ["create", "stat", "write 1MiB", "read 1MiB", "write 4KiB", "read 4KiB", SMALL_FILE];
/// A file is made and written, as mdtest-hard has them.
const SMALL_FILE: &str = "small file";
const SMALL_FILE_BYTES: usize = 3901;
const FILE_BYTES: u64 = 64 << 20;
const PROCESS_COUNT_MAX: usize = 16;
/// The directory for `deep`.
const DIRECTORY: &str = "d";
const DIRECTORY_NODE: NodeId = NodeId(2);

struct Null {
    next_node: Arc<AtomicU64>,
    /// Files made by each client process.
    made: Arc<[AtomicU64; PROCESS_COUNT_MAX]>,
    ttl: Duration,
}

impl Null {
    fn attr(&self, node: NodeId) -> Attr {
        let is_dir = node == NodeId::ROOT || node == DIRECTORY_NODE;
        let mode = if is_dir { 0o040777 } else { 0o100666 };
        Attr { ino: node.0, mode, nlink: 1, size: FILE_BYTES, blksize: 4096, ..Attr::default() }
    }

    fn entry(&self) -> Entry {
        let node = NodeId(self.next_node.fetch_add(1, Ordering::Relaxed));
        let mut entry = Entry::negative(self.ttl);
        // Attributes that come with a name are good for one tick of the kernel's timer at least, as
        // a mount's are that keeps nothing: asking for them again would be one request more.
        let attr_ttl = self.ttl.max(Duration::from_nanos(1));
        (entry.node, entry.attr, entry.attr_ttl) = (node, self.attr(node), attr_ttl);
        entry
    }
}

/// Whose a name is, and which of theirs: `PROCESS-NUMBER`.
fn parse(name: &[u8]) -> Option<(usize, u64)> {
    let (process, number) = std::str::from_utf8(name).ok()?.split_once('-')?;
    Some((process.parse().ok()?, number.parse().ok()?))
}

impl FileSystem for Null {
    async fn lookup(&self, _: &Request, _: NodeId, name: &[u8]) -> Result<Entry, Errno> {
        if name == DIRECTORY.as_bytes() {
            let attr = self.attr(DIRECTORY_NODE);
            return Ok(Entry { node: DIRECTORY_NODE, attr, ..self.entry() });
        }
        let (process, number) = parse(name).ok_or(Errno::NOENT)?;
        if number >= self.made[process].load(Ordering::Relaxed) {
            return Err(Errno::NOENT);
        }
        // One name is one file, or the kernel would see it replaced all the time.
        let node = NodeId((process as u64 + 1) << 32 | number);
        Ok(Entry { node, attr: self.attr(node), ..self.entry() })
    }

    fn forget(&self, _: NodeId, _: u64) {}

    async fn getattr(&self, _: &Request, node: NodeId, _: Option<Fh>) -> Result<Stat, Errno> {
        Ok(Stat { attr: self.attr(node), attr_ttl: self.ttl })
    }

    async fn create(
        &self,
        _: &Request,
        _: NodeId,
        name: &[u8],
        _: NewNode,
        _: OpenFlags,
    ) -> Result<(Entry, Opened), Errno> {
        let (process, number) = parse(name).ok_or(Errno::INVAL)?;
        self.made[process].store(number + 1, Ordering::Relaxed);
        let node = NodeId((process as u64 + 1) << 32 | number);
        let flags = open_reply::DIRECT_IO | open_reply::PARALLEL_DIRECT_WRITES;
        Ok((Entry { node, attr: self.attr(node), ..self.entry() }, Opened { fh: Fh(0), flags }))
    }

    async fn open(&self, _: &Request, _: NodeId, _: OpenFlags) -> Result<Opened, Errno> {
        let flags = open_reply::DIRECT_IO | open_reply::PARALLEL_DIRECT_WRITES;
        Ok(Opened { fh: Fh(0), flags })
    }

    async fn read(
        &self,
        _: &Request,
        _: NodeId,
        _: Fh,
        _: Transfer,
        memory: &mut [u8],
    ) -> Result<usize, Errno> {
        Ok(memory.len())
    }

    async fn write(
        &self,
        _: &Request,
        _: NodeId,
        _: Fh,
        _: Transfer,
        data: &[u8],
    ) -> Result<usize, Errno> {
        Ok(data.len())
    }
}

/// Does one operation over and over, for a time or (stat) once for each file made; prints how
/// often, and in how many seconds.
fn client(dir: &Path, operation: &str, process: u64, seconds: f64, files: u64) {
    let name = |number: u64| dir.join(format!("{process}-{number}"));
    let bytes = if operation.ends_with("4KiB") { 4 << 10 } else { 1 << 20 };
    // Direct I/O wants aligned memory.
    let mut memory = vec![1u8; bytes + 4096];
    let at = memory.as_ptr().align_offset(4096);
    let memory = &mut memory[at..at + bytes];
    let transfer = operation.contains("iB").then(|| {
        let mut options = OpenOptions::new();
        options.read(true).write(true).custom_flags(libc::O_DIRECT).open(name(0)).unwrap()
    });
    if let Some(file) = transfer.as_ref().filter(|_| operation.starts_with("read")) {
        for offset in (0..FILE_BYTES).step_by(bytes) {
            file.write_all_at(memory, offset).unwrap();
        }
    }
    let begin = Instant::now();
    let mut count = 0u64;
    loop {
        let offset = count * bytes as u64 % FILE_BYTES;
        match (operation.split(' ').next(), &transfer) {
            (Some("create"), _) => {
                OpenOptions::new().write(true).create_new(true).open(name(count)).unwrap();
            }
            (Some("small"), _) => {
                // Behind those that were made before.
                let mut options = OpenOptions::new();
                let file = options.write(true).create_new(true).open(name(files + count)).unwrap();
                file.write_all_at(&memory[..SMALL_FILE_BYTES], 0).unwrap();
            }
            (Some("stat"), _) => drop(std::fs::metadata(name(count)).unwrap()),
            (Some("write"), Some(file)) => file.write_all_at(memory, offset).unwrap(),
            (Some("read"), Some(file)) => file.read_exact_at(memory, offset).unwrap(),
            _ => panic!("unknown operation {operation}"),
        }
        count += 1;
        let over = match operation {
            "stat" => count == files,
            _ => begin.elapsed().as_secs_f64() > seconds,
        };
        if over {
            break;
        }
    }
    println!("{count} {}", begin.elapsed().as_secs_f64());
}

fn cpu_seconds(who: i32) -> f64 {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the pointer is valid, and zeros are a value of the struct.
    let usage = unsafe {
        libc::getrusage(who, usage.as_mut_ptr());
        usage.assume_init()
    };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    seconds(usage.ru_utime) + seconds(usage.ru_stime)
}

/// Files that each process made, for `stat`.
fn measure(dir: &Path, operation: &str, seconds: f64, made: &mut [u64]) {
    let cpu = || cpu_seconds(libc::RUSAGE_SELF) + cpu_seconds(libc::RUSAGE_CHILDREN);
    let before = cpu();
    let children: Vec<_> = made
        .iter()
        .enumerate()
        .map(|(process, files)| {
            Command::new(std::env::current_exe().unwrap())
                .args(["client", operation, &process.to_string(), &seconds.to_string()])
                .arg(files.to_string())
                .arg(dir)
                .stdout(Stdio::piped())
                .spawn()
                .unwrap()
        })
        .collect();
    let (mut total, mut rate) = (0, 0.0);
    for (child, made) in children.into_iter().zip(made) {
        let output = child.wait_with_output().unwrap();
        let line = String::from_utf8(output.stdout).unwrap();
        let (count, took) = line.trim().split_once(' ').expect("a client failed");
        let (count, took): (u64, f64) = (count.parse().unwrap(), took.parse().unwrap());
        if operation == "create" {
            *made = count;
        }
        total += count;
        rate += count as f64 / took;
    }
    let cpu_us = (cpu() - before) * 1e6 / total.max(1) as f64;
    match operation.ends_with("1MiB") {
        true => println!("{operation:>12} {:>12.0} MB/s {cpu_us:>9.1} µs CPU", rate * 1.048576),
        false => println!("{operation:>12} {rate:>12.0} op/s {cpu_us:>9.1} µs CPU"),
    }
}

fn measure_all(dir: &Path, seconds: f64, processes: usize, ttl: Duration) {
    let mut made = vec![0; processes.min(PROCESS_COUNT_MAX)];
    for operation in OPERATIONS {
        if operation == "stat" {
            std::thread::sleep(ttl + Duration::from_millis(100));
        }
        measure(dir, operation, seconds, &mut made);
    }
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let arg = |at: usize| args.get(at).map(String::as_str);
    let number = |at: usize, default: f64| {
        arg(at).map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("number: {text}")))
    };
    if arg(0) == Some("client") {
        let dir = PathBuf::from(&args[5]);
        return client(
            &dir,
            &args[1],
            number(2, 0.0) as u64,
            number(3, 0.0),
            number(4, 0.0) as u64,
        );
    }
    if arg(0) == Some("on") {
        let dir = PathBuf::from(arg(1).expect("a directory"));
        return measure_all(&dir, number(2, 2.0), number(3, 2.0) as usize, Duration::from_secs(1));
    }
    let transport = match arg(0) {
        Some("dev") => Transport::Dev,
        Some("uring") => Transport::Uring,
        _ => Transport::Auto,
    };
    let (seconds, processes) = (number(1, 2.0), number(2, 2.0) as usize);
    let ttl = Duration::from_secs_f64(number(3, 1.0));
    let dir = std::env::temp_dir().join(format!("fuse-null-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a directory to mount on");
    let mut config = Config { transport, ..Config::default() };
    config.mount.default_permissions = true;
    let (next_node, made) = (Arc::new(AtomicU64::new(1 << 20)), Arc::default());
    let start = move |_: WorkerSeat| {
        let made: Arc<[AtomicU64; PROCESS_COUNT_MAX]> = Arc::clone(&made);
        Ok(Null { next_node: next_node.clone(), made, ttl })
    };
    let session = Session::start(&dir, &config, start).expect("mounting");
    let agreed = session.negotiated();
    println!(
        "FUSE 7.{}, {}, {} threads, {processes} client processes, requests up to {} KiB",
        agreed.minor,
        if agreed.uring { "io_uring" } else { "/dev/fuse" },
        config.thread_count(),
        agreed.max_write_bytes / 1024,
    );
    let files = if arg(4) == Some("deep") { dir.join(DIRECTORY) } else { dir.clone() };
    measure_all(&files, seconds, processes, ttl);
    session.unmount(false).expect("unmounting");
    session.wait();
    std::fs::remove_dir(&dir).expect("removing the mount point");
}
