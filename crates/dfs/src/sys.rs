//! The file system by absolute path, for tools: as DAOS's `dfs_sys`.
//!
//! A small cache keeps handles on the directories last used, so that a call costs what it
//! costs below an open directory. Invariants: a name this mount renames or removes leaves the
//! cache at once; what other clients rename or remove, after [`Sys::set_cache_lifetime`] at the
//! latest (one second if not set); a removed directory is never mistaken for one that exists.

use crate::attr::{Stat, StatFs};
use crate::dir::DirEntry;
use crate::flags::{Access, CreateOptions, NodeKind, OpenFlags, RenameFlags, SetAttr, SetTime};
use crate::fs::Dfs;
use crate::inode::FileKind;
use crate::node::Obj;
use crate::path;
use crate::xattr::XattrMode;
use async_recursion::async_recursion as boxed;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::time::Duration;
use types::{Code, Error, Key, ObjClass, Result};

/// Directories kept open.
const CACHED_MAX: usize = 128;
/// How long a cached directory is used without looking again.
const LIFETIME: Duration = Duration::from_secs(1);
/// Times that a path is looked up again because what it named was replaced before it was dealt with.
pub(crate) const TRIES_MAX: usize = 8;

/// A mount by absolute path.
pub struct Sys {
    fs: Dfs,
    lifetime: Cell<Duration>,
    dirs: RefCell<HashMap<Vec<u8>, (Obj, Duration)>>,
}

impl Sys {
    /// Paths on a mount.
    pub fn new(fs: Dfs) -> Sys {
        Sys { fs, lifetime: Cell::new(LIFETIME), dirs: RefCell::new(HashMap::new()) }
    }

    pub fn fs(&self) -> &Dfs {
        &self.fs
    }

    /// How long a directory is used without looking again whether its path still leads there.
    pub fn set_cache_lifetime(&self, lifetime: Duration) {
        self.lifetime.set(lifetime);
    }

    /// An open directory by path.
    async fn dir(&self, path: &[u8]) -> Result<Obj> {
        let now = self.fs.container().client().env().now();
        if let Some((dir, until)) = self.dirs.borrow().get(path)
            && *until > now
        {
            return Ok(dir.clone());
        }
        let flags = OpenFlags::PATH | OpenFlags::DIRECTORY;
        let dir = if path.iter().all(|&byte| byte == b'/') && !path.is_empty() {
            self.fs.root().await?
        } else {
            self.fs.lookup_absolute(path, flags).await?
        };
        let mut dirs = self.dirs.borrow_mut();
        if dirs.len() >= CACHED_MAX {
            dirs.retain(|_, (_, until)| *until > now);
            if dirs.len() >= CACHED_MAX {
                dirs.clear();
            }
        }
        dirs.insert(path.to_vec(), (dir.clone(), now + self.lifetime.get()));
        Ok(dir)
    }

    /// Forgets a directory and what is below it.
    fn forget(&self, path: &[u8]) {
        let path = path::strip_prefix(path, &self.fs.prefix()).to_vec();
        let end = path.iter().rposition(|&byte| byte != b'/').map_or(0, |at| at + 1);
        let path = &path[..end];
        self.dirs.borrow_mut().retain(|cached, _| {
            let below = cached.strip_prefix(path).map(|rest| rest.first());
            !matches!(below, Some(None | Some(b'/')))
        });
    }

    /// Forgets all directories: one of them moved, or a symbolic link did, and which of the paths
    /// lead through it only another look can tell.
    fn forget_all(&self) {
        self.dirs.borrow_mut().clear();
    }

    /// Runs `call` on the directory and the last name of a path; once more with a fresh handle
    /// when the cached directory turns out to be gone. `None` for paths without a last name
    /// (`/`, `.`, `..`), which only lookups can take.
    pub async fn at<T>(
        &self,
        path: &[u8],
        call: impl AsyncFn(&Obj, &[u8]) -> Result<T>,
    ) -> Result<Option<T>> {
        path::check(path)?;
        if path[0] != b'/' {
            return Err(Error::inval(format!("'{}' is not an absolute path", path.escape_ascii())));
        }
        let path = path::strip_prefix(path, &self.fs.prefix()).to_vec();
        let (parent, name) = path::split_last(&path);
        let Some(name) = name.filter(|name| *name != b"." && *name != b"..") else {
            return Ok(None);
        };
        path::check_component(name)?;
        let was_cached = self.dirs.borrow().contains_key(parent);
        let dir = self.dir(parent).await?;
        match call(&dir, name).await {
            Err(error) if error.code == Code::NonExist && was_cached => {
                self.dirs.borrow_mut().remove(parent);
                let fresh = self.dir(parent).await?;
                if fresh.oid() == dir.oid() {
                    return Err(error);
                }
                call(&fresh, name).await.map(Some)
            }
            other => other.map(Some),
        }
    }

    /// Like [`Sys::at`], for calls that make or remove a name: paths without one are `refused`.
    async fn named<T>(
        &self,
        path: &[u8],
        refused: Code,
        call: impl AsyncFn(&Obj, &[u8]) -> Result<T>,
    ) -> Result<T> {
        self.at(path, call).await?.ok_or_else(|| Error::bare(refused))
    }

    /// Opens, or with `CREATE` makes, a file; opens anything else.
    #[boxed(?Send)]
    pub async fn open(
        &self,
        path: &[u8],
        flags: OpenFlags,
        mode: u32,
        options: &CreateOptions,
    ) -> Result<Obj> {
        path::check(path)?;
        let wants_dir = path::wants_dir(path);
        if wants_dir && flags.has(OpenFlags::CREATE) {
            return Err(Error::bare(Code::IsDir));
        }
        let flags = if wants_dir { flags | OpenFlags::DIRECTORY } else { flags };
        let opened = self
            .at(path, async |dir, name| self.fs.open(dir, name, flags, mode, options).await)
            .await?;
        match opened {
            Some(obj) => Ok(obj),
            None => self.fs.lookup(path, flags).await,
        }
    }

    /// Opens an existing object to name it in other calls. `follow` a symbolic link or open it.
    #[boxed(?Send)]
    pub async fn lookup(&self, path: &[u8], follow: bool) -> Result<Obj> {
        let nofollow = if follow { OpenFlags::NONE } else { OpenFlags::NOFOLLOW };
        let flags = OpenFlags::PATH | nofollow;
        let found = self
            .at(path, async |dir, name| {
                if path::wants_dir(path) {
                    return self.fs.lookup_rel(dir, &[name, b"/"].concat(), flags).await;
                }
                self.fs.lookup_rel(dir, name, flags).await
            })
            .await?;
        match found {
            Some(obj) => Ok(obj),
            None => self.fs.lookup(path, flags).await,
        }
    }

    #[boxed(?Send)]
    pub async fn mkdir(&self, path: &[u8], mode: u32) -> Result<()> {
        self.mkdir_of(path, mode, None).await
    }

    /// Makes a directory of a class; `None`: as [`Dfs::mkdir`].
    #[boxed(?Send)]
    pub async fn mkdir_of(&self, path: &[u8], mode: u32, class: Option<ObjClass>) -> Result<()> {
        self.named(path, Code::Exist, async |dir, name| {
            self.fs.mkdir(dir, name, mode, class).await.map(|_| ())
        })
        .await
    }

    /// Makes a directory and all that are missing above it. What is there already is fine if it
    /// is a directory.
    #[boxed(?Send)]
    pub async fn mkdir_p(&self, path: &[u8], mode: u32) -> Result<()> {
        self.mkdir_p_of(path, mode, None).await
    }

    /// [`Sys::mkdir_p`] with a class for those that are made.
    #[boxed(?Send)]
    pub async fn mkdir_p_of(&self, path: &[u8], mode: u32, class: Option<ObjClass>) -> Result<()> {
        path::check(path)?;
        let ends = (1..=path.len())
            .filter(|&end| end == path.len() || path[end] == b'/')
            .filter(|&end| path[end - 1] != b'/');
        for end in ends {
            match self.mkdir_of(&path[..end], mode, class).await {
                Err(error) if error.code == Code::Exist => {
                    if !self.stat(&path[..end]).await?.is_dir() {
                        let code = if end == path.len() { Code::Exist } else { Code::NotDir };
                        return Err(Error::bare(code));
                    }
                }
                other => other?,
            }
        }
        Ok(())
    }

    /// Makes a special or empty regular file.
    #[boxed(?Send)]
    pub async fn mknod(&self, path: &[u8], mode: u32, node: NodeKind) -> Result<()> {
        self.named(path, Code::Exist, async |dir, name| {
            self.fs.mknod(dir, name, mode, node).await.map(|_| ())
        })
        .await
    }

    /// Makes a symbolic link at `path` that leads to `target`.
    #[boxed(?Send)]
    pub async fn symlink(&self, target: &[u8], path: &[u8]) -> Result<()> {
        self.named(path, Code::Exist, async |dir, name| {
            self.fs.symlink(dir, name, target).await.map(|_| ())
        })
        .await
    }

    /// Gives a file a further name.
    #[boxed(?Send)]
    pub async fn link(&self, path: &[u8], new_path: &[u8]) -> Result<()> {
        self.named(path, Code::NoPerm, async |dir, name| {
            self.named(new_path, Code::Exist, async |new_dir, new_name| {
                self.fs.link(dir, name, new_dir, new_name).await
            })
            .await
        })
        .await
    }

    /// The target of a symbolic link.
    #[boxed(?Send)]
    pub async fn readlink(&self, path: &[u8]) -> Result<Vec<u8>> {
        self.named(path, Code::Inval, async |dir, name| self.fs.readlink_at(dir, name).await).await
    }

    /// Removes a name of a file.
    #[boxed(?Send)]
    pub async fn unlink(&self, path: &[u8]) -> Result<()> {
        if path::wants_dir(path) {
            let is_dir = self.stat(path).await?.is_dir();
            return Err(Error::bare(if is_dir { Code::IsDir } else { Code::NotDir }));
        }
        let gone = self
            .named(path, Code::IsDir, async |dir, name| self.fs.unlink_inode(dir, name).await)
            .await?;
        if gone.kind == FileKind::Symlink {
            self.forget_all();
        }
        Ok(())
    }

    /// Removes an empty directory.
    #[boxed(?Send)]
    pub async fn rmdir(&self, path: &[u8]) -> Result<()> {
        let refused = match path::split_last(path).1 {
            Some(b".") => Code::Inval,
            Some(_) => Code::NotEmpty,
            None => Code::Busy,
        };
        let done =
            self.named(path, refused, async |dir, name| self.fs.rmdir(dir, name).await).await;
        self.forget(path);
        done
    }

    /// Removes a file or directory; with `force` with all below it.
    #[boxed(?Send)]
    pub async fn remove(&self, path: &[u8], force: bool) -> Result<()> {
        let done = self
            .named(path, Code::Busy, async |dir, name| self.fs.remove(dir, name, force).await)
            .await;
        self.forget_all();
        done
    }

    /// Renames; see [`Dfs::rename`].
    #[boxed(?Send)]
    pub async fn rename(&self, path: &[u8], new_path: &[u8], flags: RenameFlags) -> Result<()> {
        path::check(path)?;
        path::check(new_path)?;
        // A trailing slash on either side says that a directory moves.
        if (path::wants_dir(path) || path::wants_dir(new_path)) && !self.lstat(path).await?.is_dir()
        {
            return Err(Error::bare(Code::NotDir));
        }
        let renamed = self
            .named(path, Code::Busy, async |dir, name| {
                self.named(new_path, Code::Busy, async |new_dir, new_name| {
                    self.fs.rename_inodes(dir, name, new_dir, new_name, flags).await
                })
                .await
            })
            .await?;
        if !renamed.only_files {
            self.forget_all();
        }
        Ok(())
    }

    /// Attributes; symbolic links are followed.
    #[boxed(?Send)]
    pub async fn stat(&self, path: &[u8]) -> Result<Stat> {
        if !path::wants_dir(path)
            && let Some(stat) =
                self.at(path, async |dir, name| self.fs.stat(dir, name).await).await?
            && stat.kind() != FileKind::Symlink
        {
            return Ok(stat);
        }
        self.with_named(path, true, async |obj| self.fs.stat_named(obj).await).await
    }

    /// Looks a path up and does something to what it names; again when that loses its name in between, for another
    /// object may have it.
    async fn with_named<T>(
        &self,
        path: &[u8],
        follow: bool,
        act: impl AsyncFn(&Obj) -> Result<T>,
    ) -> Result<T> {
        let mut tries = 0;
        loop {
            let obj = self.lookup(path, follow).await?;
            match act(&obj).await {
                Err(error) if error.code == Code::NonExist && tries < TRIES_MAX => tries += 1,
                outcome => return outcome,
            }
        }
    }

    /// Attributes; a symbolic link's own.
    #[boxed(?Send)]
    pub async fn lstat(&self, path: &[u8]) -> Result<Stat> {
        if path::wants_dir(path) {
            return self.stat(path).await;
        }
        match self.at(path, async |dir, name| self.fs.stat(dir, name).await).await? {
            Some(stat) => Ok(stat),
            None => self.stat(path).await,
        }
    }

    /// Whether the caller may do all of `want`.
    #[boxed(?Send)]
    pub async fn access(&self, path: &[u8], want: Access) -> Result<()> {
        self.fs.oaccess(&self.lookup(path, true).await?, want)
    }

    /// Changes attributes; symbolic links are followed if `follow`.
    #[boxed(?Send)]
    pub async fn setattr(&self, path: &[u8], set: &SetAttr, follow: bool) -> Result<Stat> {
        self.with_named(path, follow, async |obj| self.fs.setattr(obj, set).await).await
    }

    #[boxed(?Send)]
    pub async fn chmod(&self, path: &[u8], mode: u32) -> Result<()> {
        let set = SetAttr { mode: Some(mode), ..SetAttr::default() };
        self.setattr(path, &set, true).await.map(|_| ())
    }

    /// Changes owner and group; `None` leaves one alone.
    #[boxed(?Send)]
    pub async fn chown(
        &self,
        path: &[u8],
        uid: Option<u32>,
        gid: Option<u32>,
        follow: bool,
    ) -> Result<()> {
        let set = SetAttr { uid, gid, ..SetAttr::default() };
        self.setattr(path, &set, follow).await.map(|_| ())
    }

    /// Changes times; `None` leaves one alone.
    #[boxed(?Send)]
    pub async fn utimens(
        &self,
        path: &[u8],
        atime: Option<SetTime>,
        mtime: Option<SetTime>,
        follow: bool,
    ) -> Result<()> {
        let set = SetAttr { atime, mtime, ..SetAttr::default() };
        self.setattr(path, &set, follow).await.map(|_| ())
    }

    /// Cuts or extends a file.
    #[boxed(?Send)]
    pub async fn truncate(&self, path: &[u8], size: u64) -> Result<()> {
        let set = SetAttr { size: Some(size), ..SetAttr::default() };
        self.setattr(path, &set, true).await.map(|_| ())
    }

    /// All entries of a directory.
    #[boxed(?Send)]
    pub async fn list(&self, path: &[u8]) -> Result<Vec<DirEntry>> {
        self.fs.list(&self.lookup(path, true).await?).await
    }

    /// Sets an extended attribute.
    #[boxed(?Send)]
    pub async fn setxattr(
        &self,
        path: &[u8],
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
        follow: bool,
    ) -> Result<()> {
        let set = async |obj: &Obj| self.fs.setxattr(obj, name, value, mode).await;
        self.with_named(path, follow, set).await
    }

    /// The value of an extended attribute.
    #[boxed(?Send)]
    pub async fn getxattr(&self, path: &[u8], name: &[u8], follow: bool) -> Result<Vec<u8>> {
        self.with_named(path, follow, async |obj| self.fs.getxattr(obj, name).await).await
    }

    /// The names of all extended attributes.
    #[boxed(?Send)]
    pub async fn listxattr(&self, path: &[u8], follow: bool) -> Result<Vec<Vec<u8>>> {
        self.with_named(path, follow, async |obj| self.fs.listxattr(obj).await).await
    }

    /// Removes an extended attribute.
    #[boxed(?Send)]
    pub async fn removexattr(&self, path: &[u8], name: &[u8], follow: bool) -> Result<()> {
        self.with_named(path, follow, async |obj| self.fs.removexattr(obj, name).await).await
    }

    /// The whole content of a file.
    #[boxed(?Send)]
    pub async fn read_file(&self, path: &[u8]) -> Result<Vec<u8>> {
        let file = self.open(path, OpenFlags::READ, 0, &CreateOptions::default()).await?;
        let size = self.fs.size(&file).await?;
        let size = usize::try_from(size).map_err(|_| Error::bare(Code::FileTooBig))?;
        let mut data = vec![0; size];
        let read = self.fs.read(&file, 0, &mut data).await?;
        data.truncate(read);
        Ok(data)
    }

    /// Makes a file, or replaces its content.
    #[boxed(?Send)]
    pub async fn write_file(&self, path: &[u8], data: &[u8], mode: u32) -> Result<()> {
        let flags = OpenFlags::WRITE | OpenFlags::CREATE | OpenFlags::TRUNC;
        let file = self.open(path, flags, mode, &CreateOptions::default()).await?;
        self.fs.write(&file, 0, data).await.map(|_| ())
    }

    #[boxed(?Send)]
    pub async fn statfs(&self) -> Result<StatFs> {
        self.fs.statfs().await
    }

    /// The directory and last name of a path, for calls on [`Sys::fs`].
    #[boxed(?Send)]
    pub async fn split(&self, path: &[u8]) -> Result<(Obj, Key)> {
        self.named(path, Code::Inval, async |dir, name| Ok((dir.clone(), Key::new(name)))).await
    }
}
