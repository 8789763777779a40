//! The names and attributes of the modelled file system, and where the data of its files are.
//!
//! The root holds one directory for each target, `t0`, `t1`, …, and nothing else; all that is
//! below such a directory belongs to its target. Data are kept in anonymous files: in memory, or
//! in a directory of the caller's choice.
//!
//! Invariant: an inode number is never used twice; a file lives as long as it has a name or is
//! open.

use fuselow::{Attr, Errno, FileKind};
use std::collections::{BTreeMap, HashMap};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::FromRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

/// Errors of names.
pub mod errno {
    use fuselow::Errno;

    /// Not in the root.
    pub const PERM: Errno = Errno(libc::EPERM);
    /// The name is taken.
    pub const EXIST: Errno = Errno(libc::EEXIST);
    /// Not to another target.
    pub const XDEV: Errno = Errno(libc::EXDEV);
    /// Only directories have names in them.
    pub const NOTDIR: Errno = Errno(libc::ENOTDIR);
    /// Directories have no data.
    pub const ISDIR: Errno = Errno(libc::EISDIR);
    /// A file cannot be that large.
    pub const FBIG: Errno = Errno(libc::EFBIG);
    /// A name cannot be that long.
    pub const NAMETOOLONG: Errno = Errno(libc::ENAMETOOLONG);
    /// Only empty directories go.
    pub const NOTEMPTY: Errno = Errno(libc::ENOTEMPTY);
}

/// Inode of the root.
const ROOT: u64 = 1;
/// Bytes of the longest name.
pub const NAME_BYTES_MAX: usize = 255;

/// All names.
pub struct Tree {
    nodes: HashMap<u64, Node>,
    next_ino: u64,
    /// Where data go; `None`: memory.
    store: Option<PathBuf>,
}

struct Node {
    attr: Attr,
    /// `None` for the root.
    target: Option<u32>,
    content: Content,
}

enum Content {
    Dir { parent: u64, entries: BTreeMap<OsString, u64> },
    File { data: Arc<File>, opens: u32 },
}

/// Attributes to change.
#[derive(Clone, Copy, Debug, Default)]
pub struct Change {
    /// Permission bits.
    pub mode: Option<u32>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub size: Option<u64>,
    /// Time of last access, seconds since 1970 and nanoseconds.
    pub atime: Option<(u64, u32)>,
    /// Time of last modification, likewise.
    pub mtime: Option<(u64, u32)>,
}

/// Who makes a file or directory, and how.
#[derive(Clone, Copy, Debug)]
pub struct Maker {
    pub uid: u32,
    pub gid: u32,
    /// Permission bits, less the umask.
    pub mode: u32,
}

impl Tree {
    /// A root with `targets` directories, owned by `maker`.
    pub fn new(targets: u32, maker: Maker, store: Option<PathBuf>) -> Tree {
        let mut entries = BTreeMap::new();
        let mut nodes = HashMap::new();
        for target in 0..targets {
            let ino = ROOT + 1 + u64::from(target);
            entries.insert(OsString::from(format!("t{target}")), ino);
            let content = Content::Dir { parent: ROOT, entries: BTreeMap::new() };
            let attr = new_attr(ino, FileKind::Directory, maker);
            nodes.insert(ino, Node { attr, target: Some(target), content });
        }
        let mut attr = new_attr(ROOT, FileKind::Directory, maker);
        attr.nlink += targets;
        let content = Content::Dir { parent: ROOT, entries };
        nodes.insert(ROOT, Node { attr, target: None, content });
        Tree { nodes, next_ino: ROOT + 1 + u64::from(targets), store }
    }

    /// Attributes of an inode. `ENOENT`.
    pub fn attr(&self, ino: u64) -> Result<Attr, Errno> {
        Ok(self.node(ino)?.attr)
    }

    /// Attributes of a name. `ENOENT`, `ENOTDIR`.
    pub fn lookup(&self, dir: u64, name: &OsStr) -> Result<Attr, Errno> {
        let ino = *self.entries(dir)?.get(name).ok_or(Errno::NOENT)?;
        self.attr(ino)
    }

    /// Names in a directory with attributes, `.` and `..` first. `ENOENT`, `ENOTDIR`.
    pub fn list(&self, dir: u64) -> Result<Vec<(OsString, Attr)>, Errno> {
        let Content::Dir { parent, entries } = &self.node(dir)?.content else {
            return Err(errno::NOTDIR);
        };
        let mut list = vec![
            (OsString::from("."), self.attr(dir)?),
            (OsString::from(".."), self.attr(*parent)?),
        ];
        for (name, &ino) in entries {
            list.push((name.clone(), self.attr(ino)?));
        }
        Ok(list)
    }

    /// Makes a directory. `EEXIST`, `EPERM` in the root.
    pub fn make_dir(&mut self, dir: u64, name: &OsStr, maker: Maker) -> Result<Attr, Errno> {
        let content = Content::Dir { parent: dir, entries: BTreeMap::new() };
        let attr = self.make(dir, name, FileKind::Directory, maker, content)?;
        self.node_mut(dir)?.attr.nlink += 1;
        Ok(attr)
    }

    /// Makes an empty file and opens it. `EEXIST`, `EPERM` in the root.
    pub fn create(&mut self, dir: u64, name: &OsStr, maker: Maker) -> Result<Attr, Errno> {
        let data = Arc::new(new_data(self.store.as_deref())?);
        let content = Content::File { data, opens: 1 };
        self.make(dir, name, FileKind::Regular, maker, content)
    }

    /// Opens a file. `ENOENT`, `EISDIR`.
    pub fn open(&mut self, ino: u64) -> Result<(), Errno> {
        match &mut self.node_mut(ino)?.content {
            Content::File { opens, .. } => *opens += 1,
            Content::Dir { .. } => return Err(errno::ISDIR),
        }
        Ok(())
    }

    /// Closes a file; it goes when it has no name.
    pub fn close(&mut self, ino: u64) {
        if let Some(Node { content: Content::File { opens, .. }, .. }) = self.nodes.get_mut(&ino) {
            *opens = opens.saturating_sub(1);
        }
        self.forget_if_gone(ino);
    }

    /// Target and data of a file. `ENOENT`, `EISDIR`.
    pub fn data(&self, ino: u64) -> Result<(u32, Arc<File>), Errno> {
        let node = self.node(ino)?;
        match (&node.content, node.target) {
            (Content::File { data, .. }, Some(target)) => Ok((target, Arc::clone(data))),
            _ => Err(errno::ISDIR),
        }
    }

    /// Notes that bytes up to `end` were written.
    pub fn wrote(&mut self, ino: u64, end: u64) {
        if let Some(node) = self.nodes.get_mut(&ino) {
            let size = node.attr.size.max(end);
            node.set_size(size);
            let now = now();
            set_mtime(&mut node.attr, now);
            set_ctime(&mut node.attr, now);
        }
    }

    /// Changes attributes. `EISDIR` for the size of a directory.
    pub fn change(&mut self, ino: u64, change: Change) -> Result<Attr, Errno> {
        let node = self.node_mut(ino)?;
        if let Some(size) = change.size {
            let Content::File { data, .. } = &node.content else { return Err(errno::ISDIR) };
            data.set_len(size)?;
            node.set_size(size);
            set_mtime(&mut node.attr, now());
        }
        let attr = &mut node.attr;
        if let Some(mode) = change.mode {
            attr.mode = attr.mode & !0o7777 | mode & 0o7777;
        }
        attr.uid = change.uid.unwrap_or(attr.uid);
        attr.gid = change.gid.unwrap_or(attr.gid);
        if let Some(time) = change.atime {
            (attr.atime, attr.atime_ns) = time;
        }
        if let Some(time) = change.mtime {
            set_mtime(attr, time);
        }
        set_ctime(attr, now());
        Ok(*attr)
    }

    /// Removes a file's name. `ENOENT`, `EISDIR`.
    pub fn unlink(&mut self, dir: u64, name: &OsStr) -> Result<(), Errno> {
        let attr = self.lookup(dir, name)?;
        if is_dir(&attr) {
            return Err(errno::ISDIR);
        }
        self.entries_mut(dir)?.remove(name);
        self.node_mut(attr.ino)?.attr.nlink = 0;
        self.forget_if_gone(attr.ino);
        Ok(())
    }

    /// Removes an empty directory. `ENOENT`, `ENOTDIR`, `ENOTEMPTY`, `EPERM` in the root.
    pub fn remove_dir(&mut self, dir: u64, name: &OsStr) -> Result<(), Errno> {
        let ino = self.lookup(dir, name)?.ino;
        if dir == ROOT {
            return Err(errno::PERM);
        }
        if !self.entries(ino)?.is_empty() {
            return Err(errno::NOTEMPTY);
        }
        self.entries_mut(dir)?.remove(name);
        self.node_mut(dir)?.attr.nlink -= 1;
        self.nodes.remove(&ino);
        Ok(())
    }

    /// Gives an entry another name below the same target; what had that name goes.
    /// `EXDEV` to another target, `EPERM` in the root, else as rename(2).
    pub fn rename(
        &mut self,
        from: (u64, &OsStr),
        to: (u64, &OsStr),
        replace: bool,
    ) -> Result<(), Errno> {
        let moved = self.lookup(from.0, from.1)?;
        let (source, dest) = (self.node(from.0)?.target, self.node(to.0)?.target);
        let (Some(source), Some(dest)) = (source, dest) else { return Err(errno::PERM) };
        if source != dest {
            return Err(errno::XDEV);
        }
        check_name(to.1)?;
        let moves_dir = is_dir(&moved);
        if moves_dir && self.is_below(to.0, moved.ino) {
            return Err(Errno::INVAL);
        }
        match self.lookup(to.0, to.1) {
            Ok(there) if there.ino == moved.ino => return Ok(()),
            Ok(_) if !replace => return Err(errno::EXIST),
            Ok(there) => match (moves_dir, is_dir(&there)) {
                (true, true) => self.remove_dir(to.0, to.1)?,
                (false, false) => self.unlink(to.0, to.1)?,
                (true, false) => return Err(errno::NOTDIR),
                (false, true) => return Err(errno::ISDIR),
            },
            Err(Errno::NOENT) => {}
            Err(error) => return Err(error),
        }
        self.entries_mut(from.0)?.remove(from.1);
        self.entries_mut(to.0)?.insert(to.1.to_os_string(), moved.ino);
        if let Content::Dir { parent, .. } = &mut self.node_mut(moved.ino)?.content {
            *parent = to.0;
            self.node_mut(from.0)?.attr.nlink -= 1;
            self.node_mut(to.0)?.attr.nlink += 1;
        }
        Ok(())
    }

    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    fn make(
        &mut self,
        dir: u64,
        name: &OsStr,
        kind: FileKind,
        maker: Maker,
        content: Content,
    ) -> Result<Attr, Errno> {
        check_name(name)?;
        let target = self.node(dir)?.target;
        let ino = self.next_ino;
        let entries = self.entries_mut(dir)?;
        if entries.contains_key(name) {
            return Err(errno::EXIST);
        }
        if target.is_none() {
            return Err(errno::PERM);
        }
        entries.insert(name.to_os_string(), ino);
        self.next_ino += 1;
        let attr = new_attr(ino, kind, maker);
        self.nodes.insert(ino, Node { attr, target, content });
        Ok(attr)
    }

    fn node(&self, ino: u64) -> Result<&Node, Errno> {
        self.nodes.get(&ino).ok_or(Errno::NOENT)
    }

    fn node_mut(&mut self, ino: u64) -> Result<&mut Node, Errno> {
        self.nodes.get_mut(&ino).ok_or(Errno::NOENT)
    }

    fn entries(&self, dir: u64) -> Result<&BTreeMap<OsString, u64>, Errno> {
        match &self.node(dir)?.content {
            Content::Dir { entries, .. } => Ok(entries),
            Content::File { .. } => Err(errno::NOTDIR),
        }
    }

    fn entries_mut(&mut self, dir: u64) -> Result<&mut BTreeMap<OsString, u64>, Errno> {
        match &mut self.node_mut(dir)?.content {
            Content::Dir { entries, .. } => Ok(entries),
            Content::File { .. } => Err(errno::NOTDIR),
        }
    }

    /// True if `dir` is `above` or somewhere below it.
    fn is_below(&self, dir: u64, above: u64) -> bool {
        let mut at = dir;
        loop {
            if at == above {
                return true;
            }
            match self.nodes.get(&at).map(|node| &node.content) {
                Some(Content::Dir { parent, .. }) if *parent != at => at = *parent,
                _ => return false,
            }
        }
    }

    fn forget_if_gone(&mut self, ino: u64) {
        let gone = |node: &Node| {
            node.attr.nlink == 0 && matches!(node.content, Content::File { opens: 0, .. })
        };
        if self.nodes.get(&ino).is_some_and(gone) {
            self.nodes.remove(&ino);
        }
    }
}

impl Node {
    fn set_size(&mut self, size: u64) {
        self.attr.size = size;
        self.attr.blocks = size.div_ceil(512);
    }
}

fn check_name(name: &OsStr) -> Result<(), Errno> {
    if name.len() > NAME_BYTES_MAX { Err(errno::NAMETOOLONG) } else { Ok(()) }
}

fn new_attr(ino: u64, kind: FileKind, maker: Maker) -> Attr {
    let (now, ns) = now();
    Attr {
        ino,
        atime: now,
        mtime: now,
        ctime: now,
        atime_ns: ns,
        mtime_ns: ns,
        ctime_ns: ns,
        mode: kind as u32 | maker.mode & 0o7777,
        nlink: if kind == FileKind::Directory { 2 } else { 1 },
        uid: maker.uid,
        gid: maker.gid,
        blksize: 4096,
        ..Attr::default()
    }
}

/// What kind of file has these attributes.
pub fn kind_of(attr: &Attr) -> FileKind {
    FileKind::of_mode(attr.mode).unwrap_or(FileKind::Regular)
}

fn is_dir(attr: &Attr) -> bool {
    kind_of(attr) == FileKind::Directory
}

/// Seconds since 1970, and nanoseconds.
pub fn now() -> (u64, u32) {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or((0, 0), |since| (since.as_secs(), since.subsec_nanos()))
}

fn set_mtime(attr: &mut Attr, time: (u64, u32)) {
    (attr.mtime, attr.mtime_ns) = time;
}

fn set_ctime(attr: &mut Attr, time: (u64, u32)) {
    (attr.ctime, attr.ctime_ns) = time;
}

/// A file without a name, in memory or in a directory.
fn new_data(store: Option<&Path>) -> io::Result<File> {
    if let Some(dir) = store {
        let mut options = File::options();
        options.read(true).write(true).mode(0o600).custom_flags(libc::O_TMPFILE);
        return options.open(dir);
    }
    // SAFETY: the name is a string with its end; the result is checked.
    let fd = unsafe { libc::memfd_create(c"storage-model".as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is open and nobody else's.
    Ok(unsafe { File::from_raw_fd(fd) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    const MAKER: Maker = Maker { uid: 3, gid: 4, mode: 0o644 };

    fn name(text: &str) -> &OsStr {
        OsStr::new(text)
    }

    fn code<T>(result: Result<T, Errno>) -> i32 {
        result.err().map_or(0, |errno| errno.0)
    }

    #[test]
    fn the_root_holds_targets_and_nothing_else() {
        let mut tree = Tree::new(2, MAKER, None);
        let t0 = tree.lookup(1, name("t0")).unwrap().ino;
        let t1 = tree.lookup(1, name("t1")).unwrap().ino;
        assert_eq!(code(tree.create(1, name("x"), MAKER)), libc::EPERM);
        assert_eq!(code(tree.make_dir(1, name("t0"), MAKER)), libc::EEXIST);
        assert_eq!(code(tree.remove_dir(1, name("t0"))), libc::EPERM);
        let file = tree.create(t1, name("x"), MAKER).unwrap().ino;
        assert_eq!(tree.data(file).unwrap().0, 1);
        assert_eq!(code(tree.rename((t1, name("x")), (t0, name("x")), true)), libc::EXDEV);
        assert_eq!(code(tree.rename((t1, name("x")), (1, name("x")), true)), libc::EPERM);
        let names: Vec<OsString> = tree.list(1).unwrap().into_iter().map(|entry| entry.0).collect();
        assert_eq!(names, [".", "..", "t0", "t1"]);
    }

    #[test]
    fn a_file_lives_while_it_is_named_or_open() {
        for store in [None, Some(std::env::temp_dir())] {
            let mut tree = Tree::new(1, MAKER, store);
            let empty = tree.len();
            let file = tree.create(2, name("f"), MAKER).unwrap().ino;
            let (_, data) = tree.data(file).unwrap();
            data.write_all_at(b"data", 6).unwrap();
            tree.wrote(file, 10);
            assert_eq!(tree.attr(file).unwrap().size, 10);
            tree.open(file).unwrap();
            tree.close(file);
            tree.unlink(2, name("f")).unwrap();
            assert!(tree.attr(file).is_ok());
            tree.close(file);
            assert_eq!(code(tree.attr(file)), libc::ENOENT);
            assert_eq!(tree.len(), empty);
        }
    }

    #[test]
    fn renames_follow_the_rules() {
        let mut tree = Tree::new(1, MAKER, None);
        let a = tree.make_dir(2, name("a"), MAKER).unwrap().ino;
        let b = tree.make_dir(a, name("b"), MAKER).unwrap().ino;
        let file = tree.create(a, name("f"), MAKER).unwrap().ino;
        tree.close(file);
        assert_eq!(code(tree.rename((2, name("a")), (b, name("a")), true)), libc::EINVAL);
        assert_eq!(code(tree.remove_dir(2, name("a"))), libc::ENOTEMPTY);
        assert_eq!(code(tree.rename((a, name("f")), (a, name("b")), true)), libc::EISDIR);
        assert_eq!(code(tree.rename((a, name("b")), (a, name("f")), true)), libc::ENOTDIR);
        let other = tree.create(b, name("g"), MAKER).unwrap().ino;
        tree.close(other);
        assert_eq!(code(tree.rename((a, name("f")), (b, name("g")), false)), libc::EEXIST);
        tree.rename((a, name("f")), (b, name("g")), true).unwrap();
        assert_eq!(tree.lookup(b, name("g")).unwrap().ino, file);
        assert_eq!(code(tree.attr(other)), libc::ENOENT);
        tree.rename((a, name("b")), (2, name("b")), true).unwrap();
        assert_eq!(tree.attr(a).unwrap().nlink, 2);
        assert_eq!(tree.attr(2).unwrap().nlink, 4);
        assert_eq!(tree.list(b).unwrap()[1].1.ino, 2);
        tree.remove_dir(2, name("a")).unwrap();
        assert_eq!(tree.attr(2).unwrap().nlink, 3);
        let long = "n".repeat(256);
        assert_eq!(code(tree.create(2, name(&long), MAKER)), libc::ENAMETOOLONG);
    }

    #[test]
    fn attributes_change() {
        let mut tree = Tree::new(1, MAKER, None);
        let file = tree.create(2, name("f"), MAKER).unwrap().ino;
        let change = Change { mode: Some(0o100_600), size: Some(5000), ..Change::default() };
        let attr = tree.change(file, change).unwrap();
        let bits = attr.mode & 0o7777;
        assert_eq!((bits, attr.size, attr.blocks, attr.uid), (0o600, 5000, 10, 3));
        assert_eq!(tree.data(file).unwrap().1.metadata().unwrap().len(), 5000);
        assert_eq!(code(tree.change(2, change)), libc::EISDIR);
    }
}
