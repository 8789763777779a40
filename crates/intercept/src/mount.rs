//! A file system as a thread sees it: connected when first needed, with a cache of the
//! directories used last, so that a call costs what it costs below an open directory.
//!
//! A cached directory is used for a second at most. Renames and removals of directories that other
//! processes of the same user do through this library on this machine end it at once: they
//! count in a word of shared memory that is compared each time.

use crate::config::{self, Prefix};
use crate::{caller, inside, table};
use client::{Container, Pool};
use dfs::{Dfs, MountFlags, Obj, OpenFlags};
use foldhash::fast::FixedState;
use perthread::ForkLock;
use perthread::{Local, User};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use types::{Code, Durability, Result, hash};
use wire::control::{ContInfo, OpenMode, PoolInfo};

/// How long a cached directory is used without looking again.
const LIFETIME: Duration = Duration::from_secs(1);
/// Directories kept.
const DIRS_MAX: usize = 1024;

/// A directory and its path below the file system's root, without symbolic links; empty for the
/// root.
pub struct Dir {
    pub obj: Obj,
    pub path: Vec<u8>,
}

/// Directories by paths that lead to them, and until when they are used.
type Dirs = HashMap<Vec<u8>, (Rc<Dir>, Duration), FixedState>;

/// A file system in a context.
pub struct Mount {
    pub prefix: &'static Prefix,
    fs: RefCell<Dfs>,
    caller: Cell<u64>,
    dirs: RefCell<Dirs>,
    changes: Cell<u64>,
}

/// What a process knows of a file system once one of its threads has asked.
#[derive(Clone)]
struct Known {
    pool: PoolInfo,
    cont: ContInfo,
    mode: OpenMode,
    mount: Vec<u8>,
}

static KNOWN: ForkLock<Vec<Option<Known>>> = ForkLock::new(Vec::new());
static CONNECTED: AtomicBool = AtomicBool::new(false);

static USER: User = User {
    is_live: table::is_live,
    before_fork: || KNOWN.hold(),
    after_fork: || {
        // SAFETY: called on the thread, or the copy of it, that took the lock.
        unsafe { KNOWN.release() };
    },
    as_own_thread: |body| {
        let _ = inside::run(|| {
            body();
            Ok(())
        });
    },
};

/// Learns where the system is, once.
fn connect() -> Result<()> {
    if CONNECTED.load(Ordering::Acquire) && perthread::is_open() {
        return Ok(());
    }
    env::set_keeper(table::keep);
    perthread::open(config::system()?, &USER);
    if !CONNECTED.swap(true, Ordering::AcqRel) {
        // After the handlers of the contexts, so that the child may use one.
        // SAFETY: the function has the form asked for and may run in any child.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    }
    Ok(())
}

extern "C" fn in_child() {
    table::hold_inherited();
}

/// Makes the thread ready for [`perthread::Ctx::of_thread`].
pub fn prepare() -> Result<()> {
    connect()
}

impl Mount {
    /// The file system in a context; connected when the process first needs it.
    pub fn of(local: &Rc<Local>, prefix: &'static Prefix) -> Result<Rc<Mount>> {
        let mount = local.mirror(prefix.index as u64 + 1, || Mount::open(local, prefix))?;
        let version = caller::version();
        if mount.caller.get() != version {
            let fs = mount.fs().with_credentials(caller::credentials());
            mount.fs.replace(fs);
            mount.caller.set(version);
        }
        Ok(mount)
    }

    fn open(local: &Rc<Local>, prefix: &'static Prefix) -> Result<Mount> {
        let version = caller::version();
        let known = KNOWN.lock().get(prefix.index).cloned().flatten();
        let fs = match known {
            Some(known) => {
                let pool = Pool::attach(&local.client, known.pool);
                let cont = Container::attach(&pool, known.cont, known.mode);
                Dfs::from_global(&cont, &known.mount, caller::credentials())?
            }
            None => {
                let fs = local.client.block_on(first(local, prefix))?;
                let known = Known {
                    pool: fs.container().pool().info().clone(),
                    cont: fs.container().info().clone(),
                    mode: fs.container().mode(),
                    mount: fs.to_global(),
                };
                let mut all = KNOWN.lock();
                if all.len() <= prefix.index {
                    all.resize(prefix.index + 1, None);
                }
                all[prefix.index] = Some(known);
                fs
            }
        };
        Ok(Mount {
            prefix,
            fs: RefCell::new(fs),
            caller: Cell::new(version),
            dirs: RefCell::default(),
            changes: Cell::new(changes(prefix)),
        })
    }

    /// The file system, as the process's user.
    pub fn fs(&self) -> Dfs {
        self.fs.borrow().clone()
    }

    /// The directory that appears at the prefix.
    pub async fn root(&self) -> Result<Rc<Dir>> {
        if let Some(dir) = self.cached(b"") {
            return Ok(dir);
        }
        let fs = self.fs();
        let obj = if self.prefix.sub.is_empty() {
            fs.root().await?
        } else {
            fs.lookup(&self.prefix.sub, OpenFlags::PATH | OpenFlags::DIRECTORY).await?
        };
        let dir = Rc::new(Dir { obj, path: Vec::new() });
        self.cache(Vec::new(), &dir);
        Ok(dir)
    }

    /// A directory that was used at this path.
    pub fn cached(&self, path: &[u8]) -> Option<Rc<Dir>> {
        let now = changes(self.prefix);
        if self.changes.get() != now {
            self.forget();
            self.changes.set(now);
            return None;
        }
        let dirs = self.dirs.borrow();
        let (dir, until) = dirs.get(path)?;
        (*until > self.now()).then(|| dir.clone())
    }

    /// Remembers a directory by a path that leads to it.
    pub fn cache(&self, path: Vec<u8>, dir: &Rc<Dir>) {
        // A change since the look is not to be missed: `cached` has set the count before it.
        if self.changes.get() != changes(self.prefix) || !has_changes() {
            return;
        }
        let now = self.now();
        let mut dirs = self.dirs.borrow_mut();
        if dirs.len() >= DIRS_MAX {
            dirs.retain(|_, (_, until)| *until > now);
            if dirs.len() >= DIRS_MAX {
                dirs.clear();
            }
        }
        dirs.insert(path, (dir.clone(), now + LIFETIME));
    }

    /// Forgets all directories.
    pub fn forget(&self) {
        self.dirs.take();
    }

    fn now(&self) -> Duration {
        self.fs.borrow().container().client().env().now()
    }
}

/// Opens a file system for the first time in this process.
async fn first(local: &Rc<Local>, prefix: &Prefix) -> Result<Dfs> {
    let open = async |mode| local.client.open(&prefix.pool, mode, &prefix.cont, mode).await;
    let cont = match open(OpenMode::ReadWrite).await {
        Err(error) if matches!(error.code, Code::Access | Code::NoPerm | Code::ReadOnly) => {
            open(OpenMode::ReadOnly).await?
        }
        other => other?,
    };
    let who = caller::credentials();
    // A pool in memory comes back empty after a restart; its containers are made anew for
    // whoever may write. Elsewhere a missing file system is damage, and an error.
    let is_forgetful = cont.pool().info().durability == Durability::Memory;
    if is_forgetful && !cont.is_read_only() {
        let root = dfs::FormatOptions { mode: 0o755, uid: who.uid, gid: who.gid };
        Dfs::mount_or_format(&cont, MountFlags::NONE, who, &root).await
    } else {
        Dfs::mount(&cont, MountFlags::NONE, who).await
    }
}

/// Words of shared memory that count changes of directories, by container.
const WORDS: usize = 512;

struct Changes(Option<&'static [AtomicU64; WORDS]>);

static CHANGES: OnceLock<Changes> = OnceLock::new();

fn words() -> Option<&'static [AtomicU64; WORDS]> {
    CHANGES.get_or_init(|| Changes(map_changes())).0
}

/// False when processes cannot tell each other what they change: nothing is kept then.
fn has_changes() -> bool {
    words().is_some()
}

fn map_changes() -> Option<&'static [AtomicU64; WORDS]> {
    use rustix::fs::{Mode, OFlags};
    let uid = rustix::process::geteuid();
    let path = format!("/dev/shm/azekura-intercept.{}", uid.as_raw());
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR).ok()?;
    let stat = rustix::fs::fstat(&file).ok()?;
    // Somebody else's file could be cut under us.
    if stat.st_uid != uid.as_raw() || stat.st_mode & 0o077 != 0 {
        return None;
    }
    let bytes = size_of::<[AtomicU64; WORDS]>();
    if (stat.st_size as usize) < bytes {
        if !crate::size::fits(bytes as u64) {
            return None;
        }
        rustix::fs::ftruncate(&file, bytes as u64).ok()?;
    }
    let access = rustix::mm::ProtFlags::READ | rustix::mm::ProtFlags::WRITE;
    let (null, shared) = (std::ptr::null_mut(), rustix::mm::MapFlags::SHARED);
    // SAFETY: a new mapping at no particular address, never unmapped; atomics are valid whatever
    // the bytes are.
    unsafe {
        let start = rustix::mm::mmap(null, bytes, access, shared, &file, 0).ok()?;
        Some(&*start.cast())
    }
}

fn word(prefix: &Prefix) -> Option<&'static AtomicU64> {
    words().map(|words| &words[(hash::bytes(&prefix.base_url()) % WORDS as u64) as usize])
}

fn changes(prefix: &Prefix) -> u64 {
    word(prefix).map_or(0, |word| word.load(Ordering::Acquire))
}

/// Paths may lead elsewhere now: a directory or symbolic link was moved, removed or closed to
/// somebody.
pub fn changed(prefix: &Prefix) {
    if let Some(word) = word(prefix) {
        word.fetch_add(1, Ordering::AcqRel);
    }
}
