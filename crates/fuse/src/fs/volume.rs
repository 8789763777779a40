//! What all threads of a mount share.

use super::ahead::Ahead;
use super::cache::CachePolicy;
use super::files::Files;
use super::mail::{Letters, Mail};
use super::replaced::Replaced;
use super::table::Table;
use client::{Client, ConnectOptions, Container};
use dfs::{Dfs, MountFlags};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use types::{Code, Epoch, Error, Result};
use wire::control::{ContInfo, OpenMode, PoolInfo};

/// How a file system is mounted.
#[derive(Clone, Debug)]
pub struct VolumeOptions {
    /// What the kernel may keep.
    pub policy: CachePolicy,
    /// The kernel checks permissions before it asks (`default_permissions`).
    pub kernel_checks: bool,
    /// The kernel leaves the umask to us, and interprets ACLs.
    pub posix_acl: bool,
    /// Locks of this mount are this machine's alone, and the kernel's business.
    pub local_locks: bool,
    /// Reads set access times, by the rule of `relatime`.
    pub keeps_atime: bool,
    /// How long an operation may take, retries included.
    pub timeout: Duration,
    /// Threads that will serve.
    pub threads: usize,
}

/// A mounted file system, as all threads see it.
pub struct Volume {
    pub(super) options: VolumeOptions,
    pub(super) table: Table,
    pub(super) ahead: Ahead,
    pub(super) replaced: Replaced,
    pub(super) files: Files,
    pub(super) mail: Mail,
    letters: Mutex<Vec<Option<Letters>>>,
    connect: ConnectOptions,
    pool: PoolInfo,
    cont: ContInfo,
    mode: OpenMode,
    /// The snapshot that is shown; zero: the present.
    at: Epoch,
    mount: Vec<u8>,
    /// Chunks of files that come back from a tier, whichever thread has asked for them.
    returns: dfs::tier::Returns,
    /// Questions each thread has asked of the engines.
    pub(super) requests: Vec<AtomicU64>,
}

impl Volume {
    /// Prepares to serve a file system that was mounted by `dfs`, whose client must live as long
    /// as the volume: the handles of pool and container are its. Asks for the root.
    pub async fn new(dfs: &Dfs, options: VolumeOptions) -> Result<Volume> {
        let cont = dfs.container();
        let mut flags = dfs.flags();
        if options.kernel_checks {
            flags = flags | MountFlags::NO_PERM_CHECK;
        }
        let dfs = dfs.with_flags(flags);
        let root = dfs.root().await?;
        let (mail, letters) = Mail::new(options.threads);
        Ok(Volume {
            table: Table::new(root.share()),
            ahead: Ahead::default(),
            replaced: Replaced::default(),
            files: Files::default(),
            mail,
            letters: Mutex::new(letters.into_iter().map(Some).collect()),
            connect: ConnectOptions { timeout: options.timeout, ..cont.client().options().clone() },
            pool: cont.pool().info().clone(),
            cont: cont.info().clone(),
            mode: cont.mode(),
            at: cont.at(),
            mount: dfs.to_global(),
            returns: dfs::tier::Returns::default(),
            requests: (0..options.threads).map(|_| AtomicU64::new(0)).collect(),
            options,
        })
    }

    /// Connects a thread: a client of its own on the pool and container that are open already.
    pub(super) fn attach(&self, env: &env::Env) -> Result<Dfs> {
        let client = Client::new(env.clone(), env::host_identity(), self.connect.clone());
        let pool = client::Pool::attach(&client, self.pool.clone());
        let cont = Container::attach(&pool, self.cont.clone(), self.mode);
        let cont = if self.at == Epoch::ZERO { cont } else { cont.at_epoch(self.at) };
        let dfs = Dfs::from_global(&cont, &self.mount, dfs::Credentials::root())?;
        dfs.share_tier_returns(&self.returns);
        Ok(dfs)
    }

    /// The letters of a thread; each thread takes its own once.
    pub(super) fn take_letters(&self, thread: usize) -> Result<Letters> {
        let mut letters = self.letters.lock();
        letters.get_mut(thread).and_then(Option::take).ok_or_else(|| {
            Error::new(Code::Inval, format!("thread {thread} of the mount serves already"))
        })
    }

    /// Questions asked of the engines so far, by all threads.
    pub fn request_count(&self) -> u64 {
        self.requests.iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }

    /// Files and directories that programs have open, those included that are being released.
    pub fn open_count(&self) -> usize {
        self.files.len()
    }

    /// Nodes the kernel knows, the root not counted.
    pub fn node_count(&self) -> usize {
        self.table.len()
    }
}
