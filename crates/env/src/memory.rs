//! Large anonymous memory, and a thread that touches it before it is used.
//!
//! The first touch of a page costs a clearing of it by the kernel: two thirds of the time of a
//! write into memory never used. One thread of the process does that in advance, where cores
//! have nothing else to do: its weight is the least, and it looks how many threads want to run, for
//! those that look for work and yield in turn would let it go first. It changes no byte, so it may
//! meet users of the same memory.

use crate::Env;
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use std::ffi::c_void;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;
use types::{Code, Error, Result, size};

/// What is touched or given back at once, bytes: a huge page.
pub const PAGE_BYTES_MAX: u64 = 2 << 20;
/// Part of the memory of the machine that is available which one request may take: one in this many.
const ROOM_SHARE: u64 = 4;

/// Niceness of the thread that touches: the least weight that is not none, so that it does not keep
/// what the kernel locks for it while it waits for a core.
const NICE: i32 = 19;

/// Pause before a page while others want all cores: so it takes one or two hundredths of one.
const BUSY_PAUSE: Duration = Duration::from_millis(20);

/// Anonymous memory, private to the process, zero where nothing was written. Huge pages are asked
/// for; a kernel that has none gives small ones.
#[derive(Debug)]
pub struct Memory {
    mapped: NonNull<c_void>,
    mapped_bytes: usize,
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the struct only holds addresses of a mapping that lives as long as it; whoever reads or
// writes through them answers for that.
unsafe impl Send for Memory {}
// SAFETY: as above; its methods change nothing in the struct.
unsafe impl Sync for Memory {}

impl Memory {
    /// Reserves the address space; memory is taken as it is touched. `NoMem` when it is refused.
    pub fn map(bytes: u64) -> Result<Memory> {
        let refused = |why: &str| {
            let text = format!("cannot reserve {} of memory: {why}", size::format(bytes));
            Error::new(Code::NoMem, text)
        };
        // Room to begin at a huge page.
        let mapped_bytes = bytes
            .checked_add(PAGE_BYTES_MAX)
            .and_then(|bytes| usize::try_from(bytes).ok())
            .ok_or_else(|| refused("more than the address space"))?;
        // SAFETY: a new anonymous mapping at an address of the kernel's choice aliases nothing.
        let mapped = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                mapped_bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )
        }
        .map_err(|error| refused(&error.to_string()))?;
        // SAFETY: the range is the mapping just made. Advice may be refused without harm.
        let _ = unsafe { madvise(mapped, mapped_bytes, Advice::LinuxHugepage) };
        let mapped = NonNull::new(mapped).ok_or_else(|| refused("mapped at zero"))?;
        let before = mapped.cast::<u8>().align_offset(PAGE_BYTES_MAX as usize);
        // SAFETY: less than a huge page, which the mapping has more than `bytes`.
        let start = unsafe { mapped.cast::<u8>().add(before) };
        Ok(Memory { mapped, mapped_bytes, start, bytes: bytes as usize })
    }

    /// Where it begins: at the boundary of a huge page.
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    pub fn bytes(&self) -> u64 {
        self.bytes as u64
    }

    /// Gives the huge pages that lie wholly in a range back to the kernel; they read as zeros
    /// afterwards. Returns how many bytes that are.
    ///
    /// # Safety
    ///
    /// Nobody holds a reference into the range, and nobody needs what is in it.
    pub unsafe fn give_back(&self, range: Range<u64>) -> u64 {
        let from = range.start.next_multiple_of(PAGE_BYTES_MAX);
        let to = range.end.min(self.bytes()) / PAGE_BYTES_MAX * PAGE_BYTES_MAX;
        if from >= to {
            return 0;
        }
        // SAFETY: inside the mapping; the caller promises that nobody uses it.
        let advised =
            unsafe { madvise(self.at(from), (to - from) as usize, Advice::LinuxDontNeed) };
        if advised.is_ok() { to - from } else { 0 }
    }

    /// An offset inside as an address.
    fn at(&self, offset: u64) -> *mut c_void {
        debug_assert!(offset <= self.bytes());
        self.start.as_ptr().wrapping_add(offset as usize).cast()
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and whoever used it held us.
        let _ = unsafe { munmap(self.mapped.as_ptr(), self.mapped_bytes) };
    }
}

/// A range to be touched, unless the memory is gone by then.
type Request = (Weak<Memory>, Range<u64>);

/// The thread's requests; nothing when it could not be started.
static REQUESTS: OnceLock<Option<Sender<Request>>> = OnceLock::new();

impl Env {
    /// Has a range of `memory` touched soon, by another thread: writes there will not wait for
    /// the kernel. It may not happen: when memory is short, when the kernel is older than 5.14, and in
    /// a simulation.
    pub fn touch_ahead(&self, memory: &Arc<Memory>, range: Range<u64>) {
        if self.sim_node().is_some() || range.is_empty() {
            return;
        }
        let requests = REQUESTS.get_or_init(|| {
            let (sender, receiver) = channel();
            let builder = std::thread::Builder::new().name("azk-pages".into());
            builder.spawn(move || serve(&receiver)).ok().map(|_| sender)
        });
        if let Some(requests) = requests {
            // The thread has ended on a kernel that cannot do it: then it is not done.
            let _ = requests.send((Arc::downgrade(memory), range));
        }
    }
}

fn serve(requests: &Receiver<Request>) {
    // Only where cores have nothing else to do: half a second of clearing when a pool is made would
    // otherwise be taken from the targets of a small machine. Refused: then it is only slower.
    let this = rustix::thread::gettid();
    let _ = rustix::process::setpriority_process(Some(this), NICE);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    while let Ok((memory, range)) = requests.recv() {
        if range.end - range.start > room_bytes() / ROOM_SHARE {
            continue;
        }
        let mut at = range.start / PAGE_BYTES_MAX * PAGE_BYTES_MAX;
        while at < range.end {
            if running_count().is_some_and(|count| count > cores) {
                std::thread::sleep(BUSY_PAUSE);
            }
            // Held for one page only: whoever drops it must not wait for long.
            let Some(memory) = memory.upgrade() else { break };
            let bytes = PAGE_BYTES_MAX.min(memory.bytes().saturating_sub(at));
            if bytes == 0 {
                break;
            }
            // SAFETY: inside the mapping that `memory` holds; populating changes no byte.
            let touched =
                unsafe { madvise(memory.at(at), bytes as usize, Advice::LinuxPopulateWrite) };
            match touched {
                Ok(()) => {}
                Err(Errno::INVAL) => return,
                Err(_) => break,
            }
            at += PAGE_BYTES_MAX;
        }
    }
}

/// Threads of the machine that run or could run, the caller among them.
fn running_count() -> Option<usize> {
    // Averages of three times, then "running/all".
    let text = std::fs::read_to_string("/proc/loadavg").ok()?;
    text.split_whitespace().nth(3)?.split_once('/')?.0.parse().ok()
}

/// Memory that is available to this process, bytes: of the machine, and of its control group.
fn room_bytes() -> u64 {
    let number =
        |path: &str| -> Option<u64> { std::fs::read_to_string(path).ok()?.trim().parse().ok() };
    let machine = std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| {
        let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
        line.trim().trim_end_matches("kB").trim().parse::<u64>().ok()
    });
    let mut room = machine.unwrap_or(0).saturating_mul(1024);
    let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let group = groups.lines().find_map(|line| line.strip_prefix("0::"));
    // A limit of any group around the process's own holds, too.
    let mut group = group.map(|group| format!("/sys/fs/cgroup{}", group.trim_end_matches('/')));
    while let Some(dir) = group.filter(|dir| dir.starts_with("/sys/fs/cgroup")) {
        if let (Some(most), Some(used)) =
            (number(&format!("{dir}/memory.max")), number(&format!("{dir}/memory.current")))
        {
            room = room.min(most.saturating_sub(used));
        }
        group = dir.rsplit_once('/').map(|(above, _)| above.to_string());
    }
    room
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes of a range that are in memory.
    fn resident_bytes(memory: &Memory, range: Range<u64>) -> u64 {
        let page = rustix::param::page_size();
        let count = ((range.end - range.start) as usize).div_ceil(page);
        let mut present = vec![0u8; count];
        // SAFETY: the range is inside the mapping, and there is a byte for each page of it.
        let asked = unsafe {
            libc::mincore(
                memory.at(range.start),
                (range.end - range.start) as usize,
                present.as_mut_ptr(),
            )
        };
        assert_eq!(asked, 0);
        (present.iter().filter(|byte| **byte & 1 != 0).count() * page) as u64
    }

    #[test]
    fn memory_is_zero_until_written_and_after_it_was_given_back() {
        let memory = Memory::map(5 * PAGE_BYTES_MAX + 4096).unwrap();
        assert_eq!(memory.start().as_ptr() as u64 % PAGE_BYTES_MAX, 0);
        let read = |at: u64| {
            // SAFETY: inside the mapping; nobody writes meanwhile.
            unsafe { memory.start().add(at as usize).read() }
        };
        let last = memory.bytes() - 1;
        for at in [0, PAGE_BYTES_MAX, 3 * PAGE_BYTES_MAX, last] {
            assert_eq!(read(at), 0);
            // SAFETY: as above.
            unsafe { memory.start().add(at as usize).write(7) };
        }
        // Only whole huge pages go: the first and the last are used in part.
        // SAFETY: nobody holds a reference.
        let gone = unsafe { memory.give_back(1..last) };
        assert_eq!(gone, 4 * PAGE_BYTES_MAX);
        assert_eq!((read(0), read(PAGE_BYTES_MAX), read(last)), (7, 0, 7));
        assert_eq!(resident_bytes(&memory, 2 * PAGE_BYTES_MAX..3 * PAGE_BYTES_MAX), 0);
    }

    #[test]
    fn what_is_asked_for_ahead_gets_touched_and_nothing_changes() {
        let env = Env::real().unwrap();
        let memory = Arc::new(Memory::map(4 * PAGE_BYTES_MAX).unwrap());
        // SAFETY: inside the mapping.
        unsafe { memory.start().add(PAGE_BYTES_MAX as usize).write(9) };
        let range = 0..2 * PAGE_BYTES_MAX;
        if release() < (5, 14) || room_bytes() < ROOM_SHARE * 2 * PAGE_BYTES_MAX {
            eprintln!("SKIPPED: this kernel cannot populate memory, or has none");
            return;
        }
        env.touch_ahead(&memory, range.clone());
        // Another thread does it: the test ends when it has.
        while resident_bytes(&memory, range.clone()) < 2 * PAGE_BYTES_MAX {
            std::thread::yield_now();
        }
        // SAFETY: as above.
        assert_eq!(unsafe { memory.start().add(PAGE_BYTES_MAX as usize).read() }, 9);
    }

    #[test]
    fn who_runs_is_counted() {
        let busy = std::sync::atomic::AtomicBool::new(true);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    while busy.load(std::sync::atomic::Ordering::Relaxed) {
                        std::hint::spin_loop();
                    }
                });
            }
            // They may not have begun; with the caller they are four then.
            while running_count().expect("Linux tells") < 4 {
                std::thread::yield_now();
            }
            busy.store(false, std::sync::atomic::Ordering::Relaxed);
        });
    }

    fn release() -> (u32, u32) {
        let text = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
        let mut parts = text.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse().unwrap());
        (parts.next().unwrap(), parts.next().unwrap())
    }

    /// A pool can be removed while its memory is being touched.
    #[test]
    fn memory_that_is_gone_is_not_touched() {
        let env = Env::real().unwrap();
        for _ in 0..50 {
            let memory = Arc::new(Memory::map(64 * PAGE_BYTES_MAX).unwrap());
            env.touch_ahead(&memory, 0..memory.bytes());
        }
    }
}
