//! A file system that does nothing, and how fast it is: what a mount could reach at best on this
//! kernel. Files keep no data, names are not remembered; each request still makes the whole way.
//!
//!     cargo run --release -p fuse --example null -- [dev|uring] [SECONDS] [PROCESSES] [THREADS]
//!
//! Time-outs are zero, so a `stat` is two requests and a create three. Prints operations per
//! second (for transfers MB/s) of all client processes together, and CPU time per operation.

use fuse::low::*;
use std::fs::OpenOptions;
use std::io::BufRead;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const OPERATIONS: [&str; 6] =
    ["create", "stat", "write 1MiB", "read 1MiB", "write 4KiB", "read 4KiB"];
const FILE_BYTES: u64 = 1 << 30;

struct Null {
    next_node: Arc<AtomicU64>,
}

impl Null {
    fn attr(&self, node: NodeId) -> Attr {
        let mode = if node == NodeId::ROOT { 0o040777 } else { 0o100666 };
        Attr { ino: node.0, mode, nlink: 1, size: FILE_BYTES, blksize: 4096, ..Attr::default() }
    }

    fn entry(&self) -> Entry {
        let node = NodeId(self.next_node.fetch_add(1, Ordering::Relaxed));
        let mut entry = Entry::negative(Duration::ZERO);
        (entry.node, entry.attr) = (node, self.attr(node));
        entry
    }
}

impl FileSystem for Null {
    async fn lookup(&self, _: &Request, _: NodeId, name: &[u8]) -> Result<Entry, Errno> {
        // Names of files to be made are not there before.
        if name.starts_with(b"new") {
            return Err(Errno::NOENT);
        }
        let mut entry = self.entry();
        // One name is one file, or the kernel would see it replaced all the time.
        if let Some(number) = std::str::from_utf8(name).ok().and_then(|text| text.parse().ok()) {
            entry.node = NodeId(number);
            entry.attr = self.attr(entry.node);
        }
        Ok(entry)
    }

    fn forget(&self, _: NodeId, _: u64) {}

    async fn getattr(&self, _: &Request, node: NodeId, _: Option<Fh>) -> Result<Stat, Errno> {
        Ok(Stat { attr: self.attr(node), attr_ttl: Duration::ZERO })
    }

    async fn create(
        &self,
        _: &Request,
        _: NodeId,
        _: &[u8],
        _: NewNode,
        _: OpenFlags,
    ) -> Result<(Entry, Opened), Errno> {
        Ok((self.entry(), Opened { fh: Fh(0), flags: 0 }))
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

/// Does one operation over and over; prints how often.
fn client(dir: &Path, operation: &str, number: u64, seconds: f64) {
    let until = Instant::now() + Duration::from_secs_f64(seconds);
    let file = dir.join((1000 + number).to_string());
    let bytes = if operation.ends_with("4KiB") { 4 << 10 } else { 1 << 20 };
    // Direct I/O wants aligned memory.
    let mut memory = vec![1u8; bytes + 4096];
    let at = memory.as_ptr().align_offset(4096);
    let memory = &mut memory[at..at + bytes];
    let transfer = operation.contains("iB").then(|| {
        let mut options = OpenOptions::new();
        options.read(true).write(true).custom_flags(libc::O_DIRECT).open(&file).unwrap()
    });
    let mut count = 0u64;
    while Instant::now() < until {
        let offset = count * bytes as u64 % FILE_BYTES;
        match (operation.split(' ').next(), &transfer) {
            (Some("create"), _) => {
                let name = dir.join(format!("new-{number}-{count}"));
                OpenOptions::new().write(true).create_new(true).open(name).unwrap();
            }
            (Some("stat"), _) => drop(std::fs::metadata(&file).unwrap()),
            (Some("write"), Some(file)) => file.write_all_at(memory, offset).unwrap(),
            (Some("read"), Some(file)) => file.read_exact_at(memory, offset).unwrap(),
            _ => panic!("unknown operation {operation}"),
        }
        count += 1;
    }
    println!("{count}");
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

fn measure(dir: &Path, operation: &str, seconds: f64, processes: u64) {
    let cpu = || cpu_seconds(libc::RUSAGE_SELF) + cpu_seconds(libc::RUSAGE_CHILDREN);
    let before = cpu();
    let children: Vec<_> = (0..processes)
        .map(|number| {
            Command::new(std::env::current_exe().unwrap())
                .args(["client", operation, &number.to_string(), &seconds.to_string()])
                .arg(dir)
                .stdout(Stdio::piped())
                .spawn()
                .unwrap()
        })
        .collect();
    let mut total = 0u64;
    for child in children {
        let output = child.wait_with_output().unwrap();
        let line = output.stdout.lines().next().expect("a client failed").unwrap();
        total += line.parse::<u64>().unwrap();
    }
    let cpu_us = (cpu() - before) * 1e6 / total.max(1) as f64;
    let rate = total as f64 / seconds;
    match operation.ends_with("1MiB") {
        true => println!("{operation:>12} {:>12.0} MB/s {cpu_us:>9.1} µs CPU", rate * 1.048576),
        false => println!("{operation:>12} {rate:>12.0} op/s {cpu_us:>9.1} µs CPU"),
    }
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let arg = |at: usize| args.get(at).map(String::as_str);
    if arg(0) == Some("client") {
        let dir = PathBuf::from(&args[4]);
        return client(&dir, &args[1], args[2].parse().unwrap(), args[3].parse().unwrap());
    }
    let transport = match arg(0) {
        Some("dev") => Transport::Dev,
        Some("uring") => Transport::Uring,
        _ => Transport::Auto,
    };
    let seconds: f64 = arg(1).map_or(2.0, |text| text.parse().expect("seconds"));
    let processes: u64 = arg(2).map_or(2, |text| text.parse().expect("processes"));
    let threads: usize = arg(3).map_or(0, |text| text.parse().expect("threads"));
    let only = arg(4);
    let dir = std::env::temp_dir().join(format!("fuse-null-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a directory to mount on");
    let config = Config { transport, threads, ..Config::default() };
    let next_node = Arc::new(AtomicU64::new(1 << 20));
    let made = move |_: WorkerSeat| Ok(Null { next_node: next_node.clone() });
    let session = Session::start(&dir, &config, made).expect("mounting");
    let agreed = session.negotiated();
    println!(
        "FUSE 7.{}, {}, {} threads, {processes} client processes, requests up to {} KiB",
        agreed.minor,
        if agreed.uring { "io_uring" } else { "/dev/fuse" },
        config.thread_count(),
        agreed.max_write_bytes / 1024,
    );
    for operation in OPERATIONS.iter().filter(|name| only.is_none_or(|one| name.contains(one))) {
        measure(&dir, operation, seconds, processes);
    }
    session.unmount(false).expect("unmounting");
    session.wait();
    std::fs::remove_dir(&dir).expect("removing the mount point");
}
