//! A simulated disk: files and names in memory, with latency, faults and crashes from a seed.
//!
//! Names follow the strict reading of POSIX: a made, moved or removed name is durable only when
//! its directory was synced; of later changes a crash keeps a random prefix. Everything done
//! through a handle opened before a crash fails after it.

use crate::AlignedBuf;
use crate::disk::{DirEntry, Disk, File, Lock, OpenOptions, Room};
use crate::rng::Rng;
use crate::sim::SimClock;
use crate::sim_file::{Decay, SECTOR_BYTES, SimContents};
use crate::timer::Sleep;
use futures_util::future::{FutureExt, LocalBoxFuture, ready};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::future::{pending, poll_fn};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::Duration;
use types::{Code, Error, Result};

/// Faults of a disk. The default has none.
#[derive(Clone, Debug)]
pub struct DiskFaults {
    /// Reads that fail, per million.
    pub read_error_ppm: u32,
    /// Writes that fail, per million; a failed write leaves a torn part behind.
    pub write_error_ppm: u32,
    /// Only writes of files with this name fail; `None`: of any file.
    pub write_errors_of: Option<&'static str>,
    /// Syncs that fail, per million.
    pub sync_error_ppm: u32,
    /// Room for file data, bytes.
    pub space_bytes: u64,
    /// Least time an operation takes.
    pub latency_min: Duration,
    /// Most time an operation takes.
    pub latency_max: Duration,
}

impl Default for DiskFaults {
    fn default() -> DiskFaults {
        DiskFaults {
            read_error_ppm: 0,
            write_error_ppm: 0,
            write_errors_of: None,
            sync_error_ppm: 0,
            space_bytes: u64::MAX,
            latency_min: Duration::from_micros(10),
            latency_max: Duration::from_micros(100),
        }
    }
}

#[derive(Clone)]
enum Node {
    Dir,
    File(Rc<RefCell<SimContents>>),
}

type Names = BTreeMap<PathBuf, Node>;

#[derive(Clone)]
enum NameChange {
    Make(PathBuf, Node),
    Remove(PathBuf),
    Rename(PathBuf, PathBuf),
}

impl NameChange {
    fn concerns(&self, dir: &Path) -> bool {
        let within = |path: &Path| parent(path) == dir;
        match self {
            NameChange::Make(path, _) | NameChange::Remove(path) => within(path),
            NameChange::Rename(from, to) => within(from) || within(to),
        }
    }

    fn apply(&self, names: &mut Names) {
        match self {
            NameChange::Make(path, node) => {
                names.insert(path.clone(), node.clone());
            }
            NameChange::Remove(path) => {
                names.remove(path);
            }
            NameChange::Rename(from, to) => {
                let moved: Vec<PathBuf> =
                    names.keys().filter(|path| path.starts_with(from)).cloned().collect();
                for path in moved {
                    let rest = path.strip_prefix(from).unwrap_or(Path::new(""));
                    let target =
                        if rest.as_os_str().is_empty() { to.clone() } else { to.join(rest) };
                    if let Some(node) = names.remove(&path) {
                        names.insert(target, node);
                    }
                }
            }
        }
    }
}

fn parent(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new(""))
}

struct SharedDisk {
    clock: Rc<SimClock>,
    rng: Rng,
    faults: RefCell<DiskFaults>,
    live: RefCell<Names>,
    durable: RefCell<Names>,
    changes: RefCell<Vec<NameChange>>,
    locks: RefCell<BTreeMap<PathBuf, String>>,
    /// Number of crashes so far; handles of an earlier life are dead.
    life: Cell<u64>,
    /// Changes made so far.
    change_count: Cell<u64>,
    /// Changes that still reach the disk; then it stops.
    changes_left: Cell<u64>,
    call_count: Cell<u64>,
    /// The number of a call that fails, and how.
    failing_call: Cell<Option<(u64, Code)>>,
    /// Syncs until the disk hangs, and whether what the last of them is of becomes durable.
    hangs_after: Cell<Option<(u64, bool)>>,
    /// Nothing waited for has an end any more.
    hung: Cell<bool>,
    /// Who waits for it to hang.
    watcher: RefCell<Option<Waker>>,
}

/// A simulated disk. Clones are the same one.
#[derive(Clone)]
pub struct SimDisk(Rc<SharedDisk>);

impl SimDisk {
    pub(crate) fn new(clock: Rc<SimClock>, seed: u64) -> SimDisk {
        SimDisk(Rc::new(SharedDisk {
            clock,
            rng: Rng::new(seed),
            faults: RefCell::default(),
            live: RefCell::default(),
            durable: RefCell::default(),
            changes: RefCell::default(),
            locks: RefCell::default(),
            life: Cell::new(0),
            change_count: Cell::new(0),
            changes_left: Cell::new(u64::MAX),
            call_count: Cell::new(0),
            failing_call: Cell::new(None),
            hangs_after: Cell::new(None),
            hung: Cell::new(false),
            watcher: RefCell::default(),
        }))
    }

    pub fn set_faults(&self, faults: DiskFaults) {
        self.0.faults.replace(faults);
    }

    /// Number of changes (writes, syncs, changes of names and lengths) so far.
    pub fn change_count(&self) -> u64 {
        self.0.change_count.get()
    }

    /// After `count` more changes the disk stops, as in a power cut: nothing more reaches it and
    /// every operation fails, until [`SimDisk::crash`].
    pub fn stop_after(&self, count: u64) {
        self.0.changes_left.set(count);
    }

    /// Number of calls (reads, writes, syncs, opening, changes of names and lengths) so far.
    pub fn call_count(&self) -> u64 {
        self.0.call_count.get()
    }

    /// After `count` more calls one fails with `code`; those after it work again. A write that
    /// fails leaves a torn part behind.
    pub fn fail_call_after(&self, count: u64, code: Code) {
        self.0.failing_call.set(Some((self.0.call_count.get() + count, code)));
    }

    /// Ready once the disk hangs, which it does in the sync after `count` more: before it, or with
    /// `durable` just after what it is of is durable. From then on nothing of it has an end, until
    /// [`SimDisk::crash`]: who kills the node then kills it at that point.
    pub async fn hang_at_sync(&self, count: u64, durable: bool) {
        self.0.hangs_after.set(Some((count, durable)));
        poll_fn(|cx| {
            if self.0.hung.get() {
                return Poll::Ready(());
            }
            self.0.watcher.replace(Some(cx.waker().clone()));
            Poll::Pending
        })
        .await;
    }

    /// Takes back what [`SimDisk::hang_at_sync`] has said, unless it has come to that.
    pub fn hang_no_more(&self) {
        self.0.hangs_after.set(None);
    }

    /// A sync begins, or with `durable` has made durable what it is of. Returns only if the disk does not hang.
    async fn at_sync(&self, durable: bool) {
        if let Some((count, when)) = self.0.hangs_after.get().filter(|(_, when)| *when == durable) {
            self.0.hangs_after.set(count.checked_sub(1).map(|left| (left, when)));
            if count == 0 {
                self.0.hung.set(true);
                let watcher = self.0.watcher.take();
                watcher.into_iter().for_each(Waker::wake);
            }
        }
        self.unless_hung().await;
    }

    async fn unless_hung(&self) {
        if self.0.hung.get() {
            pending::<()>().await;
        }
    }

    /// Counts a call; an error when it is the one to fail.
    fn call(&self, path: &Path) -> Result<()> {
        let number = self.0.call_count.get();
        self.0.call_count.set(number + 1);
        match self.0.failing_call.get() {
            Some((failing, code)) if failing == number => {
                self.0.failing_call.set(None);
                Err(Error::new(code, format!("{}: simulated error of one call", path.display())))
            }
            _ => Ok(()),
        }
    }

    /// The power went: what was not durable is lost, kept or torn, open handles and locks are
    /// dead, and a stopped disk runs again.
    pub fn crash(&self) {
        let state = &*self.0;
        state.life.set(state.life.get() + 1);
        state.changes_left.set(u64::MAX);
        state.hangs_after.set(None);
        state.hung.set(false);
        state.locks.borrow_mut().clear();
        let changes = state.changes.take();
        let kept = state.rng.below(changes.len() as u64 + 1) as usize;
        let mut names = state.durable.borrow_mut();
        for change in &changes[..kept] {
            change.apply(&mut names);
        }
        // A name whose directory is lost is lost with it. Parents sort before their children.
        let mut dirs = BTreeSet::from([PathBuf::from("/"), PathBuf::new()]);
        names.retain(|path, node| {
            let reachable = dirs.contains(parent(path));
            if reachable && matches!(node, Node::Dir) {
                dirs.insert(path.clone());
            }
            reachable
        });
        for node in names.values() {
            if let Node::File(contents) = node {
                contents.borrow_mut().crash(&state.rng);
            }
        }
        *state.live.borrow_mut() = names.clone();
    }

    /// The disk has been exchanged for an empty one, as far as what is below a directory is concerned; the directory itself is there.
    /// Who has files open there keeps those that are gone.
    pub fn wipe(&self, dir: &Path) {
        let is_gone = |path: &Path| path != dir && path.starts_with(dir);
        for names in [&self.0.live, &self.0.durable] {
            names.borrow_mut().retain(|path, _| !is_gone(path));
        }
        self.0.changes.borrow_mut().retain(|change| match change {
            NameChange::Make(path, _) | NameChange::Remove(path) => !is_gone(path),
            NameChange::Rename(from, to) => !is_gone(from) && !is_gone(to),
        });
        self.0.locks.borrow_mut().retain(|path, _| !is_gone(path));
    }

    /// Offsets of the pages of a file, 4096 bytes each, that have something else than zeros; none where there is no such file.
    pub fn filled_pages(&self, path: &Path) -> Vec<u64> {
        match self.find(path) {
            Ok(Node::File(contents)) => contents.borrow().filled_pages(),
            Ok(Node::Dir) | Err(_) => Vec::new(),
        }
    }

    /// The page of a file at an offset decays: who reads it next finds out, or does not. No effect where there is no such file.
    pub fn decay(&self, path: &Path, offset: u64, decay: Decay) {
        if let Ok(Node::File(contents)) = self.find(path) {
            contents.borrow_mut().decay(offset, decay);
        }
    }

    fn stopped() -> Error {
        Error::new(Code::Io, "the simulated disk has lost power")
    }

    /// Counts a change; an error when the disk has stopped.
    fn admit(&self) -> Result<()> {
        let left = self.0.changes_left.get();
        if left == 0 {
            return Err(SimDisk::stopped());
        }
        if left != u64::MAX {
            self.0.changes_left.set(left - 1);
        }
        self.0.change_count.set(self.0.change_count.get() + 1);
        Ok(())
    }

    fn is_stopped(&self) -> bool {
        self.0.changes_left.get() == 0
    }

    fn latency(&self) -> Sleep {
        let (min, max) = {
            let faults = self.0.faults.borrow();
            (faults.latency_min, faults.latency_max.max(faults.latency_min))
        };
        let span = (max - min).as_nanos() as u64 + 1;
        let taken = min + Duration::from_nanos(self.0.rng.below(span));
        Sleep::new(self.0.clock.timers.clone(), self.0.clock.now.get() + taken)
    }

    /// Bytes in use by files.
    pub fn used_bytes(&self) -> u64 {
        let names = self.0.live.borrow();
        names
            .values()
            .map(|node| match node {
                Node::File(contents) => contents.borrow().page_count() * 4096,
                Node::Dir => 0,
            })
            .sum()
    }

    fn find(&self, path: &Path) -> Result<Node> {
        if path == Path::new("/") || path == Path::new("") {
            return Ok(Node::Dir);
        }
        self.0
            .live
            .borrow()
            .get(path)
            .cloned()
            .ok_or_else(|| Error::new(Code::NonExist, format!("{} does not exist", path.display())))
    }

    fn change_names(&self, change: NameChange) -> Result<()> {
        self.call(match &change {
            NameChange::Make(path, _) | NameChange::Remove(path) => path,
            NameChange::Rename(from, _) => from,
        })?;
        self.admit()?;
        change.apply(&mut self.0.live.borrow_mut());
        self.0.changes.borrow_mut().push(change);
        Ok(())
    }

    fn check_parent(&self, path: &Path) -> Result<()> {
        match self.find(parent(path)) {
            Ok(Node::Dir) => Ok(()),
            Ok(Node::File(_)) => Err(Error::bare(Code::NotDir)),
            Err(error) => Err(error),
        }
    }

    fn open_now(&self, path: &Path, options: OpenOptions) -> Result<Rc<dyn File>> {
        if self.is_stopped() {
            return Err(SimDisk::stopped());
        }
        self.call(path)?;
        let contents = match self.find(path) {
            Ok(Node::Dir) => return Err(Error::bare(Code::IsDir)),
            Ok(Node::File(_)) if options.create && options.exclusive => {
                return Err(Error::new(Code::Exist, format!("{} exists", path.display())));
            }
            Ok(Node::File(contents)) => contents,
            Err(error) if !options.create => return Err(error),
            Err(_) => {
                self.check_parent(path)?;
                let contents = Rc::<RefCell<SimContents>>::default();
                self.change_names(NameChange::Make(path.into(), Node::File(contents.clone())))?;
                contents
            }
        };
        let life = self.0.life.get();
        Ok(Rc::new(SimFile { disk: self.clone(), contents, life, options, name: path.into() }))
    }

    fn create_dir_now(&self, path: &Path) -> Result<()> {
        if self.find(path).is_ok() {
            return Err(Error::new(Code::Exist, format!("{} exists", path.display())));
        }
        self.check_parent(path)?;
        self.change_names(NameChange::Make(path.into(), Node::Dir))
    }

    fn list_now(&self, path: &Path) -> Result<Vec<DirEntry>> {
        if matches!(self.find(path)?, Node::File(_)) {
            return Err(Error::bare(Code::NotDir));
        }
        let names = self.0.live.borrow();
        let within = names.iter().filter(|(name, _)| parent(name) == path);
        Ok(within
            .filter_map(|(name, node)| {
                let name = name.file_name()?.to_str()?.to_string();
                Some(DirEntry { name, is_dir: matches!(node, Node::Dir) })
            })
            .collect())
    }

    fn rename_now(&self, from: &Path, to: &Path) -> Result<()> {
        self.find(from)?;
        self.check_parent(to)?;
        if matches!(self.find(to), Ok(Node::Dir)) {
            return Err(Error::bare(Code::IsDir));
        }
        self.change_names(NameChange::Rename(from.into(), to.into()))
    }

    fn remove_now(&self, path: &Path) -> Result<()> {
        if matches!(self.find(path)?, Node::Dir) && !self.list_now(path)?.is_empty() {
            return Err(Error::bare(Code::NotEmpty));
        }
        self.change_names(NameChange::Remove(path.into()))
    }

    fn sync_dir_now(&self, path: &Path) -> Result<()> {
        self.find(path)?;
        self.call(path)?;
        self.admit()?;
        let mut durable = self.0.durable.borrow_mut();
        self.0.changes.borrow_mut().retain(|change| {
            let synced = change.concerns(path);
            if synced {
                change.apply(&mut durable);
            }
            !synced
        });
        Ok(())
    }

    fn lock_now(&self, path: &Path, note: &str) -> Result<Box<dyn Lock>> {
        self.open_now(path, OpenOptions { create: true, ..OpenOptions::default() })?;
        let mut locks = self.0.locks.borrow_mut();
        if let Some(holder) = locks.get(path) {
            return Err(Error::new(
                Code::Busy,
                format!("{} is locked by {holder}", path.display()),
            ));
        }
        locks.insert(path.into(), note.to_string());
        Ok(Box::new(SimLock { disk: self.clone(), path: path.into(), life: self.0.life.get() }))
    }
}

/// Without time passing, for what does not wait for its disk. Power cuts and full disks befall it, errors
/// of devices do not.
impl SimDisk {
    /// All of a file. Errors: `NonExist`, `IsDir`; `Io` after a power cut.
    pub fn read_at_once(&self, path: &Path) -> Result<Vec<u8>> {
        let file = self.file_at_once(path, false)?;
        file.check_alive()?;
        let contents = file.contents.borrow();
        let mut raw = AlignedBuf::zeroed(contents.len() as usize);
        contents.read(0, &mut raw);
        Ok(raw.to_vec())
    }

    /// Writes to a file, which is made if it is not there; durable after [`SimDisk::sync_at_once`].
    /// Errors: `NoSpace`, `IsDir`; `Io` after a power cut.
    pub fn write_at_once(&self, path: &Path, offset: u64, bytes: &[u8]) -> Result<()> {
        let file = self.file_at_once(path, true)?;
        file.check_write(offset, bytes.len() as u64)?;
        file.contents.borrow_mut().write(offset, bytes);
        Ok(())
    }

    /// Makes all that was written to a file durable. Errors: `NonExist`; `Io` after a power cut.
    pub fn sync_at_once(&self, path: &Path) -> Result<()> {
        let file = self.file_at_once(path, false)?;
        file.check_alive()?;
        self.admit()?;
        let mut contents = file.contents.borrow_mut();
        let number = contents.last_change();
        contents.make_all_durable(number);
        Ok(())
    }

    /// Replaces a file, durably; after a crash there is the old or the new one. Errors as for writing.
    pub fn replace_at_once(&self, path: &Path, bytes: &[u8]) -> Result<()> {
        let new = PathBuf::from(format!("{}.new", path.display()));
        if self.find(&new).is_ok() {
            self.remove_now(&new)?;
        }
        self.write_at_once(&new, 0, bytes)?;
        self.sync_at_once(&new)?;
        self.rename_now(&new, path)?;
        self.sync_dir_now(parent(path))
    }

    fn file_at_once(&self, path: &Path, create: bool) -> Result<SimFile> {
        let contents = match self.find(path) {
            Ok(Node::Dir) => return Err(Error::bare(Code::IsDir)),
            Ok(Node::File(contents)) => contents,
            Err(error) if !create => return Err(error),
            Err(_) => {
                self.check_parent(path)?;
                let contents = Rc::<RefCell<SimContents>>::default();
                self.change_names(NameChange::Make(path.into(), Node::File(contents.clone())))?;
                contents
            }
        };
        let (life, options) = (self.0.life.get(), OpenOptions::default());
        Ok(SimFile { disk: self.clone(), contents, life, options, name: path.into() })
    }
}

struct SimLock {
    disk: SimDisk,
    path: PathBuf,
    life: u64,
}

impl Lock for SimLock {}

impl Drop for SimLock {
    fn drop(&mut self) {
        if self.life == self.disk.0.life.get() {
            self.disk.0.locks.borrow_mut().remove(&self.path);
        }
    }
}

impl Disk for SimDisk {
    fn open(
        &self,
        path: &Path,
        options: OpenOptions,
    ) -> LocalBoxFuture<'static, Result<Rc<dyn File>>> {
        ready(self.open_now(path, options)).boxed_local()
    }
    fn create_dir(&self, path: &Path) -> LocalBoxFuture<'static, Result<()>> {
        ready(self.create_dir_now(path)).boxed_local()
    }
    fn list(&self, path: &Path) -> LocalBoxFuture<'static, Result<Vec<DirEntry>>> {
        ready(self.list_now(path)).boxed_local()
    }
    fn rename(&self, from: &Path, to: &Path) -> LocalBoxFuture<'static, Result<()>> {
        ready(self.rename_now(from, to)).boxed_local()
    }
    fn remove(&self, path: &Path) -> LocalBoxFuture<'static, Result<()>> {
        ready(self.remove_now(path)).boxed_local()
    }
    fn sync_dir(&self, path: &Path) -> LocalBoxFuture<'static, Result<()>> {
        ready(self.sync_dir_now(path)).boxed_local()
    }
    fn room(&self, path: &Path) -> LocalBoxFuture<'static, Result<Room>> {
        let total_bytes = self.0.faults.borrow().space_bytes;
        let room = Room { total_bytes, free_bytes: total_bytes.saturating_sub(self.used_bytes()) };
        ready(self.find(path).map(|_| room)).boxed_local()
    }
    fn lock(&self, path: &Path, note: &str) -> LocalBoxFuture<'static, Result<Box<dyn Lock>>> {
        ready(self.lock_now(path, note)).boxed_local()
    }
}

#[derive(Clone)]
struct SimFile {
    disk: SimDisk,
    contents: Rc<RefCell<SimContents>>,
    life: u64,
    options: OpenOptions,
    name: Rc<Path>,
}

impl SimFile {
    fn check_alive(&self) -> Result<()> {
        if self.disk.is_stopped() || self.life != self.disk.0.life.get() {
            return Err(SimDisk::stopped());
        }
        Ok(())
    }

    fn check_write(&self, offset: u64, bytes: u64) -> Result<()> {
        self.check_alive()?;
        if self.options.read_only {
            return Err(Error::bare(Code::ReadOnly));
        }
        let space = self.disk.0.faults.borrow().space_bytes;
        let added = self.contents.borrow().new_page_count(offset, bytes) * 4096;
        if space != u64::MAX && added > 0 && self.disk.used_bytes() + added > space {
            return Err(Error::new(
                Code::NoSpace,
                format!("writing {}: no space left", self.name.display()),
            ));
        }
        self.disk.admit()
    }

    fn check_aligned(&self, offset: u64, bytes: usize) -> Result<()> {
        let align = crate::buf::ALIGN_BYTES as u64;
        if self.options.direct
            && !(offset.is_multiple_of(align) && (bytes as u64).is_multiple_of(align))
        {
            return Err(Error::inval(format!(
                "direct I/O on {} needs multiples of {align}, not {bytes} bytes at {offset}",
                self.name.display()
            )));
        }
        Ok(())
    }

    fn write_error_ppm(&self) -> u32 {
        let faults = self.disk.0.faults.borrow();
        let is_meant =
            faults.write_errors_of.is_none_or(|name| self.name.file_name() == Some(name.as_ref()));
        if is_meant { faults.write_error_ppm } else { 0 }
    }

    fn fault(&self, ppm: u32, doing: &str) -> Result<()> {
        if self.disk.0.rng.chance_ppm(ppm) {
            return Err(Error::new(
                Code::Io,
                format!("{doing} {}: simulated device error", self.name.display()),
            ));
        }
        Ok(())
    }

    async fn read(&self, offset: u64, buf: &mut AlignedBuf) -> Result<usize> {
        self.check_alive()?;
        self.check_aligned(offset, buf.len())?;
        self.disk.latency().await;
        self.disk.unless_hung().await;
        self.check_alive()?;
        self.disk.call(&self.name)?;
        self.fault(self.disk.0.faults.borrow().read_error_ppm, "reading")?;
        if self.contents.borrow().is_unreadable(offset, buf.len() as u64) {
            let text = format!("reading {} at {offset}: unreadable sector", self.name.display());
            return Err(Error::new(Code::Io, text));
        }
        Ok(self.contents.borrow().read(offset, buf))
    }

    async fn write(&self, offset: u64, buf: &AlignedBuf) -> Result<()> {
        self.check_aligned(offset, buf.len())?;
        self.check_write(offset, buf.len() as u64)?;
        let failed =
            self.disk.call(&self.name).and_then(|()| self.fault(self.write_error_ppm(), "writing"));
        let data: &[u8] = if failed.is_err() {
            // Whole sectors, as a device writes them.
            let end = offset + self.disk.0.rng.below(buf.len() as u64 + 1);
            let over = if end == offset + buf.len() as u64 { 0 } else { end % SECTOR_BYTES as u64 };
            &buf[..(end - over).saturating_sub(offset) as usize]
        } else {
            buf
        };
        let number = self.contents.borrow_mut().write(offset, data);
        self.disk.latency().await;
        self.disk.unless_hung().await;
        self.check_alive()?;
        failed?;
        if self.options.dsync {
            self.disk.at_sync(false).await;
            self.contents.borrow_mut().make_durable(number);
            self.disk.at_sync(true).await;
        }
        Ok(())
    }

    async fn sync_now(&self) -> Result<()> {
        self.check_alive()?;
        self.disk.call(&self.name)?;
        self.disk.admit()?;
        let number = self.contents.borrow().last_change();
        self.disk.latency().await;
        self.check_alive()?;
        self.disk.at_sync(false).await;
        self.fault(self.disk.0.faults.borrow().sync_error_ppm, "syncing")?;
        self.contents.borrow_mut().make_all_durable(number);
        self.disk.at_sync(true).await;
        Ok(())
    }
}

impl File for SimFile {
    fn read_at(
        &self,
        offset: u64,
        mut buf: AlignedBuf,
    ) -> LocalBoxFuture<'static, (AlignedBuf, Result<usize>)> {
        let file = self.clone();
        async move {
            let outcome = file.read(offset, &mut buf).await;
            (buf, outcome)
        }
        .boxed_local()
    }

    fn write_at(
        &self,
        offset: u64,
        buf: AlignedBuf,
    ) -> LocalBoxFuture<'static, (AlignedBuf, Result<()>)> {
        let file = self.clone();
        async move {
            let outcome = file.write(offset, &buf).await;
            (buf, outcome)
        }
        .boxed_local()
    }

    fn sync(&self) -> LocalBoxFuture<'static, Result<()>> {
        let file = self.clone();
        async move { file.sync_now().await }.boxed_local()
    }

    fn len(&self) -> Result<u64> {
        self.check_alive()?;
        Ok(self.contents.borrow().len())
    }

    fn set_len(&self, bytes: u64) -> LocalBoxFuture<'static, Result<()>> {
        let outcome = self.check_write(0, 0).and_then(|()| self.disk.call(&self.name));
        if outcome.is_ok() {
            self.contents.borrow_mut().set_len(bytes);
        }
        ready(outcome).boxed_local()
    }

    fn allocate(&self, offset: u64, bytes: u64) -> LocalBoxFuture<'static, Result<()>> {
        let outcome = self.check_write(offset, bytes).and_then(|()| self.disk.call(&self.name));
        if outcome.is_ok() {
            self.contents.borrow_mut().extend_to(offset + bytes);
        }
        ready(outcome).boxed_local()
    }

    fn discard(&self, offset: u64, bytes: u64) -> LocalBoxFuture<'static, Result<()>> {
        let outcome = self.check_write(0, 0);
        if outcome.is_ok() {
            // What a discarded range reads as is for the device to choose; these bytes are
            // nobody's data.
            let bytes = bytes.min(self.contents.borrow().len().saturating_sub(offset));
            self.contents.borrow_mut().write(offset, &vec![0xd1; bytes as usize]);
        }
        ready(outcome).boxed_local()
    }
}
