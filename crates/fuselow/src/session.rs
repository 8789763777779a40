//! A session: workers are made, the directory is mounted, features are agreed on, and requests
//! are served until the mount is gone.
//!
//! Order matters: file systems are made before anything is mounted, so that what cannot work
//! leaves no trace; rings are set up between the kernel's INIT and our answer, because io_uring
//! cannot be given back once it is agreed on.

use super::abi::{OutHeader, bytes_of};
use super::config::{Config, Negotiated, Transport};
use super::init::{Offer, pages_max};
use super::mount::{self, DEVICE, Mounted};
use super::notify::Notifier;
use super::uring::{Uring, queue_count};
use super::worker::{self, Core, End, Shared};
use super::{FileSystem, abi};
use env::Env;
use parking_lot::Mutex;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::IoSlice;
use rustix::thread::CpuSet;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;
use types::{Code, Error, Result};

/// How long the kernel may take for its first request.
const INIT_TIMEOUT: Duration = Duration::from_secs(30);

/// Where a file system is made: the worker it is for.
pub struct WorkerSeat {
    /// Number of the worker, from 0.
    pub index: usize,
    pub count: usize,
    /// The thread's executor. Making a file system may `block_on` it.
    pub env: Env,
    /// Tells the kernel what to forget; works once the session has started.
    pub notifier: Notifier,
}

/// What the session tells a worker.
enum Order {
    /// Set up a ring; the answer says how it went.
    PrepareUring {
        queue_ids: Vec<u16>,
        entries: u16,
        payload_bytes: usize,
        dev: OwnedFd,
    },
    Serve {
        dev: OwnedFd,
        agreed: Negotiated,
    },
}

struct Worker {
    orders: Sender<Order>,
    thread: JoinHandle<()>,
}

/// A mounted file system that is being served.
pub struct Session {
    mounted: Mutex<Mounted>,
    agreed: Negotiated,
    notifier: Notifier,
    shared: Arc<Shared>,
    workers: Vec<Worker>,
    /// Becomes readable when the session has ended.
    over: Arc<OwnedFd>,
}

impl Session {
    /// Makes the workers' file systems, mounts `path` and serves it.
    ///
    /// `make` runs once on each worker's thread. Errors: those of `make` and of
    /// [`super::check_mount_point`]; `NoPerm` when mounting is not allowed; `NotSupported` without
    /// `/dev/fuse`, and when io_uring was demanded and is not on offer; `Version` for kernels
    /// before 5.4.
    pub fn start<F: FileSystem>(
        path: &Path,
        config: &Config,
        make: impl Fn(WorkerSeat) -> Result<F> + Send + Sync + 'static,
    ) -> Result<Session> {
        let path = mount::check_mount_point(path, config.mount.nonempty)?;
        let count = config.thread_count();
        let shared = Arc::new(Shared::new(count));
        let notifier = Notifier::start().map_err(|error| Error::io("starting a thread", error))?;
        let over = eventfd(0, EventfdFlags::CLOEXEC)
            .map_err(|error| Error::io("setting up a session", error.into()))?;
        let over = Arc::new(over);
        let (answers, answered) = channel();
        let make = Arc::new(make);
        let mut workers = Vec::new();
        for index in 0..count {
            let (orders, received) = channel();
            let (make, shared, over) = (make.clone(), shared.clone(), over.clone());
            let (answers, notifier) = (answers.clone(), notifier.clone());
            let body = move || {
                let seat = move |env: Env| WorkerSeat { index, count, env, notifier };
                let make = move |env: Env| make(seat(env));
                work(index, shared, make, &received, &answers);
                // Whoever waits for the end polls this.
                let _ = rustix::io::write(&*over, &1u64.to_ne_bytes());
            };
            let thread = std::thread::Builder::new()
                .name(format!("azk-fuse-{index}"))
                .spawn(body)
                .map_err(|error| Error::io("starting a thread", error))?;
            workers.push(Worker { orders, thread });
        }
        drop(answers);
        let started = begin(&path, config, &workers, &answered, &notifier);
        match started {
            Ok((mounted, agreed)) => {
                let mounted = Mutex::new(mounted);
                Ok(Session { mounted, agreed, notifier, shared, workers, over })
            }
            Err(error) => {
                shared.end(End::Stopped);
                join(workers);
                Err(error)
            }
        }
    }

    /// What was agreed on with the kernel.
    pub fn negotiated(&self) -> &Negotiated {
        &self.agreed
    }

    /// Tells the kernel what to forget.
    pub fn notifier(&self) -> Notifier {
        self.notifier.clone()
    }

    /// Requests of the kernel that wanted an answer so far. What it sends without waiting (forgets,
    /// interrupts) does not count.
    pub fn request_count(&self) -> u64 {
        self.shared.request_count()
    }

    /// Whether and why the session has ended.
    pub fn ended(&self) -> Option<End> {
        self.shared.ended()
    }

    /// Unmounts. `Busy` when the mount is in use and `lazy` is false. The session then ends by
    /// itself: with `lazy` as soon as nobody uses the mount.
    pub fn unmount(&self, lazy: bool) -> Result<()> {
        if self.shared.ended().is_some() {
            return Ok(());
        }
        self.mounted.lock().unmount(lazy)
    }

    /// Waits until the session has ended and all workers are done.
    pub fn wait(self) -> End {
        self.wait_by(until_readable)
    }

    /// The same, where `idle` waits until one of some descriptors can be read, or less long: the thread may do something else meanwhile.
    pub fn wait_by(mut self, mut idle: impl FnMut(&[BorrowedFd<'_>])) -> End {
        while self.shared.ended().is_none() {
            idle(&[self.over.as_fd()]);
        }
        self.finish()
    }

    /// The same, and unmounts on SIGTERM, SIGINT or SIGHUP. While the mount is in use, it goes on
    /// serving; the second signal unmounts lazily and stops serving.
    pub fn wait_or_signal(self, signals: &super::Signals) -> End {
        self.wait_or_signal_by(signals, until_readable)
    }

    /// The same, where `idle` waits as in [`Session::wait_by`].
    pub fn wait_or_signal_by(
        mut self,
        signals: &super::Signals,
        mut idle: impl FnMut(&[BorrowedFd<'_>]),
    ) -> End {
        let mut asked = false;
        while self.shared.ended().is_none() {
            idle(&[signals.fd(), self.over.as_fd()]);
            let Some(signal) = signals.take() else { continue };
            match self.unmount(false) {
                Ok(()) => break,
                Err(error) if error.code == Code::Busy && !asked => {
                    asked = true;
                    tracing::warn!(
                        signal,
                        "{error}; still serving, the next signal unmounts lazily and stops"
                    );
                }
                Err(error) => {
                    tracing::warn!(signal, "{error}: unmounting lazily");
                    if let Err(error) = self.unmount(true) {
                        tracing::error!("{error}");
                    }
                    self.shared.end(End::Stopped);
                }
            }
        }
        self.finish()
    }

    fn finish(&mut self) -> End {
        join(std::mem::take(&mut self.workers));
        // As long as anybody has the device open, the kernel waits for answers.
        self.notifier.set_device(None);
        self.notifier.flush();
        let end = self.shared.ended().unwrap_or(End::Stopped);
        let mounted = self.mounted.lock();
        if end == End::Stopped || !mounted.is_there_dead() {
            return end;
        }
        // Its connection was cut, and it is still there, dead.
        if let Err(error) = mounted.unmount(true) {
            tracing::warn!("clearing the dead mount: {error}");
        }
        End::Aborted
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if self.workers.is_empty() {
            return;
        }
        if self.shared.ended().is_none() {
            if let Err(error) = self.mounted.lock().unmount(true) {
                tracing::warn!("{error}");
            }
            // Ends by itself unless somebody uses the mount.
            let mut fds = [PollFd::from_borrowed_fd(self.over.as_fd(), PollFlags::IN)];
            let _ = poll(&mut fds, Some(&Timespec { tv_sec: 1, tv_nsec: 0 }));
            self.shared.end(End::Stopped);
        }
        self.finish();
    }
}

fn until_readable(fds: &[BorrowedFd<'_>]) {
    let mut fds: Vec<_> =
        fds.iter().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
    // After an interrupt the caller looks, and comes again.
    let _ = poll(&mut fds, None);
}

fn join(workers: Vec<Worker>) {
    for Worker { orders, thread } in workers {
        // A worker that waits for orders sees that there will be none.
        drop(orders);
        if thread.join().is_err() {
            tracing::error!("a worker panicked");
        }
    }
}

/// From the mount to serving workers.
fn begin(
    path: &Path,
    config: &Config,
    workers: &[Worker],
    answered: &Receiver<Result<()>>,
    notifier: &Notifier,
) -> Result<(Mounted, Negotiated)> {
    // The file systems are there.
    collect(workers.len(), answered)?;
    let (mounted, device) = mount::mount(path, &config.mount)?;
    match agree(&mounted, &device, config, workers, answered, notifier) {
        Ok(agreed) => Ok((mounted, agreed)),
        Err(error) => {
            let _ = mounted.unmount(true);
            Err(error)
        }
    }
}

/// One answer of each worker.
fn collect(count: usize, answered: &Receiver<Result<()>>) -> Result<()> {
    let mut first = Ok(());
    for _ in 0..count {
        let answer = answered.recv().unwrap_or_else(|_| {
            Err(Error::new(Code::Closed, "a worker ended while the session started"))
        });
        if first.is_ok() {
            first = answer;
        }
    }
    first
}

fn agree(
    mounted: &Mounted,
    device: &OwnedFd,
    config: &Config,
    workers: &[Worker],
    answered: &Receiver<Result<()>>,
    notifier: &Notifier,
) -> Result<Negotiated> {
    let offer = first_request(device)?;
    let gone = |_| Error::new(Code::Closed, "a worker ended while the session started");
    let devices: Vec<OwnedFd> =
        workers.iter().map(|_| clone_device(device)).collect::<Result<_>>()?;

    let mut uring = config.transport != Transport::Dev && offer.has_uring();
    if config.transport == Transport::Uring && !uring {
        let text = "the kernel offers no FUSE over io_uring: it needs Linux 6.14 and \
                    `echo Y > /sys/module/fuse/parameters/enable_uring`";
        return Err(Error::new(Code::NotSupported, text));
    }
    if uring {
        let payload_bytes = offer.accept(config, pages_max(), true).1.payload_bytes_max();
        let queue_count = queue_count()?;
        for (index, worker) in workers.iter().enumerate() {
            let queue_ids = (index as u16..queue_count).step_by(workers.len()).collect();
            let order = Order::PrepareUring {
                queue_ids,
                entries: config.uring_entries,
                payload_bytes,
                dev: dup(&devices[index])?,
            };
            worker.orders.send(order).map_err(gone)?;
        }
        if let Err(error) = collect(workers.len(), answered) {
            if config.transport == Transport::Uring {
                return Err(error);
            }
            tracing::warn!("{error}: using {DEVICE}");
            uring = false;
        }
    }

    let (reply, agreed) = offer.accept(config, pages_max(), uring);
    let header = OutHeader {
        len: (size_of::<OutHeader>() + size_of::<abi::InitOut>()) as u32,
        error: 0,
        unique: offer.unique,
    };
    rustix::io::writev(device, &[IoSlice::new(bytes_of(&header)), IoSlice::new(bytes_of(&reply))])
        .map_err(|error| Error::io("answering the kernel's first FUSE request", error.into()))?;
    let device = Arc::new(dup(device)?);
    notifier.set_device(Some(device));
    for (worker, dev) in workers.iter().zip(devices) {
        worker.orders.send(Order::Serve { dev, agreed }).map_err(gone)?;
    }
    if let Some(bytes) = config.readahead_bytes {
        set_readahead(&mounted.path, bytes);
    }
    Ok(agreed)
}

fn dup(fd: &OwnedFd) -> Result<OwnedFd> {
    fd.try_clone().map_err(|error| Error::io("one more descriptor", error))
}

/// Waits for the kernel's INIT.
fn first_request(device: &OwnedFd) -> Result<Offer> {
    let failed = |error: rustix::io::Errno| {
        Error::io("waiting for the kernel's first FUSE request", error.into())
    };
    let mut raw = vec![0u8; abi::READ_BUFFER_MIN * 2];
    loop {
        let mut fds = [PollFd::new(device, PollFlags::IN)];
        let timeout = Timespec { tv_sec: INIT_TIMEOUT.as_secs() as i64, tv_nsec: 0 };
        match poll(&mut fds, Some(&timeout)) {
            Ok(0) => {
                let text = "the kernel sent no FUSE request after mounting";
                return Err(Error::new(Code::TimedOut, text));
            }
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => return Err(failed(error)),
        }
        match rustix::io::read(device, &mut raw[..]) {
            Ok(count) => return Offer::parse(&raw[..count]),
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
            Err(error) => return Err(failed(error)),
        }
    }
}

/// One more descriptor of the same session, with a queue of answers of its own.
fn clone_device(device: &OwnedFd) -> Result<OwnedFd> {
    let fresh = mount::open_device().or_else(|_| dup(device))?;
    let number = device.as_raw_fd() as u32;
    // SAFETY: the command reads one word, which outlives the call.
    let cloned = unsafe { libc::ioctl(fresh.as_raw_fd(), abi::DEV_IOC_CLONE, &raw const number) };
    // Where the device may not be opened once more, the descriptor is shared instead.
    if cloned < 0 { dup(device) } else { Ok(fresh) }
}

/// Read-ahead beyond the default is set per device, by root.
fn set_readahead(path: &Path, bytes: u32) {
    let Some(number) = mount::device_number(path) else { return };
    let file = format!("/sys/class/bdi/{number}/read_ahead_kb");
    if let Err(error) = std::fs::write(&file, (bytes / 1024).to_string()) {
        tracing::info!("read-ahead stays as it is: {file}: {error}");
    }
}

/// A worker's thread.
fn work<F: FileSystem>(
    index: usize,
    shared: Arc<Shared>,
    make: impl FnOnce(Env) -> Result<F>,
    orders: &Receiver<Order>,
    answers: &Sender<Result<()>>,
) {
    let env = match Env::real() {
        Ok(env) => env,
        Err(error) => {
            let _ = answers.send(Err(error));
            return;
        }
    };
    let fs = match make(env.clone()) {
        Ok(fs) => Rc::new(fs),
        Err(error) => {
            env.clear();
            let _ = answers.send(Err(error));
            return;
        }
    };
    let _ = answers.send(Ok(()));
    let mut uring: Option<(Rc<Uring>, Vec<u16>, OwnedFd)> = None;
    while let Ok(order) = orders.recv() {
        match order {
            Order::PrepareUring { queue_ids, entries, payload_bytes, dev } => {
                let made = Uring::new(&dev, &queue_ids, entries, payload_bytes);
                let answer = made.map(|made| uring = Some((made, queue_ids, dev)));
                let _ = answers.send(answer);
            }
            Order::Serve { dev, agreed } => {
                let uring = uring.take().filter(|_| agreed.uring);
                if let Some((_, queue_ids, _)) = &uring {
                    pin(queue_ids);
                }
                let core = Rc::new(Core::new(env.clone(), dev, index, shared.clone(), &agreed));
                // The descriptor that the ring's commands name stays open beside it.
                let (ring, _dev) = uring.map(|(ring, _, dev)| (ring, dev)).unzip();
                worker::run(&core, &fs, ring);
                return;
            }
        }
    }
    env.block_on(fs.shutdown());
    env.clear();
}

/// Keeps this thread on the CPUs whose queues it serves: the caller of a request and the worker
/// then share a cache and need not wake another CPU.
fn pin(queue_ids: &[u16]) {
    let Ok(allowed) = rustix::thread::sched_getaffinity(None) else { return };
    let mut cpus = CpuSet::new();
    for &id in queue_ids {
        if usize::from(id) < CpuSet::MAX_CPU && allowed.is_set(id.into()) {
            cpus.set(id.into());
        }
    }
    if cpus.count() > 0
        && let Err(error) = rustix::thread::sched_setaffinity(None, &cpus)
    {
        tracing::debug!("not pinned: {error}");
    }
}
