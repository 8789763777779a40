//! A disk that keeps all changes in memory: reads go to the disk below, writes do not.
//!
//! Looking at a store must not change it, but opening one does (a log is trimmed, a segment
//! removed, a page written). On this disk the same code runs and the devices stay as they are.
//! Locks are real: a store that is in use is refused.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use env::{ALIGN_BYTES, AlignedBuf, DirEntry, Disk, File, Lock, OpenOptions, Room};
use futures_util::FutureExt;
use futures_util::future::{LocalBoxFuture, ready};
use types::{Code, Error, Result};

const BLOCK: u64 = ALIGN_BYTES as u64;

/// What a name means here.
#[derive(Clone)]
enum Name {
    /// A file that was opened, made or moved.
    File(Rc<Content>),
    /// A directory that was made.
    Dir,
    Gone,
}

/// A file: what is below, and what was written.
struct Content {
    below: Option<Rc<dyn File>>,
    /// Bytes of `below` that still count: less than its length once it was cut.
    below_bytes: Cell<u64>,
    bytes: Cell<u64>,
    /// By block.
    written: RefCell<BTreeMap<u64, Box<[u8]>>>,
}

impl Content {
    fn new(below: Option<Rc<dyn File>>) -> Result<Content> {
        let bytes = below.as_ref().map_or(Ok(0), |file| file.len())?;
        Ok(Content {
            below,
            below_bytes: Cell::new(bytes),
            bytes: Cell::new(bytes),
            written: RefCell::default(),
        })
    }

    /// Fills `buf` from `offset`; returns the bytes before the end of the file.
    async fn read(&self, offset: u64, buf: &mut AlignedBuf) -> Result<usize> {
        let count = self.bytes.get().saturating_sub(offset).min(buf.len() as u64) as usize;
        buf.fill(0);
        let end = offset + count as u64;
        if let Some(below) = &self.below
            && offset < end.min(self.below_bytes.get())
        {
            // Whole blocks, whatever the reader asks for: the file below may demand it.
            let from = offset / BLOCK * BLOCK;
            let want = end.next_multiple_of(BLOCK) - from;
            let (raw, result) = below.read_at(from, AlignedBuf::try_zeroed(want as usize)?).await;
            let have = (from + result? as u64).min(self.below_bytes.get()).min(end);
            let skip = (offset - from) as usize;
            let length = have.saturating_sub(offset) as usize;
            buf[..length].copy_from_slice(&raw[skip..skip + length]);
        }
        let written = self.written.borrow();
        for (&block, bytes) in written.range(offset / BLOCK..end.div_ceil(BLOCK)) {
            let start = (block * BLOCK).max(offset);
            let stop = ((block + 1) * BLOCK).min(end);
            if start < stop {
                let from = (start - block * BLOCK) as usize;
                let length = (stop - start) as usize;
                let to = (start - offset) as usize;
                buf[to..to + length].copy_from_slice(&bytes[from..from + length]);
            }
        }
        Ok(count)
    }

    async fn write(&self, offset: u64, data: &[u8]) -> Result<()> {
        let end = offset + data.len() as u64;
        let mut block = offset / BLOCK;
        while block * BLOCK < end {
            let start = (block * BLOCK).max(offset);
            let stop = ((block + 1) * BLOCK).min(end);
            let mut whole = AlignedBuf::try_zeroed(ALIGN_BYTES)?;
            if stop - start < BLOCK {
                self.read(block * BLOCK, &mut whole).await?;
            }
            let part = &data[(start - offset) as usize..(stop - offset) as usize];
            let from = (start - block * BLOCK) as usize;
            whole[from..from + part.len()].copy_from_slice(part);
            self.written.borrow_mut().insert(block, whole[..].into());
            block += 1;
        }
        self.bytes.set(self.bytes.get().max(end));
        Ok(())
    }

    fn set_len(&self, bytes: u64) {
        self.below_bytes.set(self.below_bytes.get().min(bytes));
        let mut written = self.written.borrow_mut();
        written.split_off(&bytes.div_ceil(BLOCK));
        if let Some(last) = written.get_mut(&(bytes / BLOCK)) {
            last[(bytes % BLOCK) as usize..].fill(0);
        }
        self.bytes.set(bytes);
    }
}

struct OverlayFile {
    content: Rc<Content>,
    options: OpenOptions,
}

impl File for OverlayFile {
    fn read_at(
        &self,
        offset: u64,
        mut buf: AlignedBuf,
    ) -> LocalBoxFuture<'static, (AlignedBuf, Result<usize>)> {
        let content = self.content.clone();
        async move {
            let outcome = content.read(offset, &mut buf).await;
            (buf, outcome)
        }
        .boxed_local()
    }

    fn write_at(
        &self,
        offset: u64,
        buf: AlignedBuf,
    ) -> LocalBoxFuture<'static, (AlignedBuf, Result<()>)> {
        let (content, read_only) = (self.content.clone(), self.options.read_only);
        async move {
            let outcome = match read_only {
                true => Err(Error::bare(Code::ReadOnly)),
                false => content.write(offset, &buf).await,
            };
            (buf, outcome)
        }
        .boxed_local()
    }

    fn sync(&self) -> LocalBoxFuture<'static, Result<()>> {
        ready(Ok(())).boxed_local()
    }

    fn len(&self) -> Result<u64> {
        Ok(self.content.bytes.get())
    }

    fn set_len(&self, bytes: u64) -> LocalBoxFuture<'static, Result<()>> {
        self.content.set_len(bytes);
        ready(Ok(())).boxed_local()
    }

    fn allocate(&self, offset: u64, bytes: u64) -> LocalBoxFuture<'static, Result<()>> {
        let content = &self.content;
        content.bytes.set(content.bytes.get().max(offset.saturating_add(bytes)));
        ready(Ok(())).boxed_local()
    }

    fn discard(&self, _offset: u64, _bytes: u64) -> LocalBoxFuture<'static, Result<()>> {
        ready(Ok(())).boxed_local()
    }
}

struct Layer {
    below: Rc<dyn Disk>,
    names: RefCell<BTreeMap<PathBuf, Name>>,
}

/// See the module. Clones are the same one.
#[derive(Clone)]
pub(crate) struct Overlay(Rc<Layer>);

fn missing(path: &Path) -> Error {
    Error::new(Code::NonExist, format!("{} does not exist", path.display()))
}

impl Overlay {
    pub(crate) fn new(below: Rc<dyn Disk>) -> Overlay {
        Overlay(Rc::new(Layer { below, names: RefCell::default() }))
    }

    fn known(&self, path: &Path) -> Option<Name> {
        self.0.names.borrow().get(path).cloned()
    }

    fn set(&self, path: &Path, name: Name) {
        self.0.names.borrow_mut().insert(path.to_path_buf(), name);
    }

    /// The content of a file that is there.
    async fn content(&self, path: &Path) -> Result<Rc<Content>> {
        match self.known(path) {
            Some(Name::File(content)) => return Ok(content),
            Some(Name::Dir) => return Err(Error::bare(Code::IsDir)),
            Some(Name::Gone) => return Err(missing(path)),
            None => {}
        }
        let options = OpenOptions { read_only: true, direct: true, ..OpenOptions::default() };
        let file = self.0.below.open(path, options).await?;
        // Some systems open a directory for reading: listing tells.
        if self.0.below.list(path).await.is_ok() {
            return Err(Error::bare(Code::IsDir));
        }
        let content = Rc::new(Content::new(Some(file))?);
        self.set(path, Name::File(content.clone()));
        Ok(content)
    }

    /// Fails when the directory that `path` is in is not there.
    async fn check_parent(&self, path: &Path) -> Result<()> {
        match path.parent() {
            Some(parent) if parent != Path::new("") => self.names(parent).await.map(drop),
            _ => Ok(()),
        }
    }

    async fn names(&self, path: &Path) -> Result<Vec<DirEntry>> {
        let mut entries: BTreeMap<String, bool> = BTreeMap::new();
        match self.known(path) {
            Some(Name::Gone) => return Err(missing(path)),
            Some(Name::File(_)) => return Err(Error::bare(Code::NotDir)),
            Some(Name::Dir) => {}
            None => {
                let below = self.0.below.list(path).await?;
                entries.extend(below.into_iter().map(|entry| (entry.name, entry.is_dir)));
            }
        }
        for (name, what) in self.0.names.borrow().iter() {
            if name.parent() != Some(path) {
                continue;
            }
            let Some(last) = name.file_name().and_then(|last| last.to_str()) else { continue };
            match what {
                Name::Gone => entries.remove(last),
                Name::Dir => entries.insert(last.to_string(), true),
                Name::File(_) => entries.insert(last.to_string(), false),
            };
        }
        let entry = |(name, is_dir)| DirEntry { name, is_dir };
        Ok(entries.into_iter().map(entry).collect())
    }
}

impl Disk for Overlay {
    fn open(
        &self,
        path: &Path,
        options: OpenOptions,
    ) -> LocalBoxFuture<'static, Result<Rc<dyn File>>> {
        let (this, path) = (self.clone(), path.to_path_buf());
        async move {
            let content = match this.content(&path).await {
                Ok(_) if options.create && options.exclusive => {
                    return Err(Error::new(Code::Exist, format!("{} exists", path.display())));
                }
                Ok(content) => content,
                Err(error) if error.code == Code::NonExist && options.create => {
                    this.check_parent(&path).await?;
                    let content = Rc::new(Content::new(None)?);
                    this.set(&path, Name::File(content.clone()));
                    content
                }
                Err(error) => return Err(error),
            };
            Ok(Rc::new(OverlayFile { content, options }) as Rc<dyn File>)
        }
        .boxed_local()
    }

    fn create_dir(&self, path: &Path) -> LocalBoxFuture<'static, Result<()>> {
        let (this, path) = (self.clone(), path.to_path_buf());
        async move {
            if this.names(&path).await.is_ok() || this.content(&path).await.is_ok() {
                return Err(Error::new(Code::Exist, format!("{} exists", path.display())));
            }
            this.check_parent(&path).await?;
            this.set(&path, Name::Dir);
            Ok(())
        }
        .boxed_local()
    }

    fn list(&self, path: &Path) -> LocalBoxFuture<'static, Result<Vec<DirEntry>>> {
        let (this, path) = (self.clone(), path.to_path_buf());
        async move { this.names(&path).await }.boxed_local()
    }

    fn rename(&self, from: &Path, to: &Path) -> LocalBoxFuture<'static, Result<()>> {
        let (this, from, to) = (self.clone(), from.to_path_buf(), to.to_path_buf());
        async move {
            // Directories are not moved in a store.
            let content = this.content(&from).await?;
            this.check_parent(&to).await?;
            if this.names(&to).await.is_ok() {
                return Err(Error::bare(Code::IsDir));
            }
            this.set(&to, Name::File(content));
            this.set(&from, Name::Gone);
            Ok(())
        }
        .boxed_local()
    }

    fn remove(&self, path: &Path) -> LocalBoxFuture<'static, Result<()>> {
        let (this, path) = (self.clone(), path.to_path_buf());
        async move {
            match this.names(&path).await {
                Ok(inside) if !inside.is_empty() => return Err(Error::bare(Code::NotEmpty)),
                Ok(_) => {}
                Err(_) => drop(this.content(&path).await?),
            }
            this.set(&path, Name::Gone);
            Ok(())
        }
        .boxed_local()
    }

    fn sync_dir(&self, _path: &Path) -> LocalBoxFuture<'static, Result<()>> {
        ready(Ok(())).boxed_local()
    }

    fn room(&self, path: &Path) -> LocalBoxFuture<'static, Result<Room>> {
        self.0.below.room(path)
    }

    fn lock(&self, path: &Path, note: &str) -> LocalBoxFuture<'static, Result<Box<dyn Lock>>> {
        self.0.below.lock(path, note)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use env::{Rng, SimWorld};

    /// Random calls on an overlay and on a disk that really changes: they answer the same, and
    /// the disk below the overlay stays as it was.
    #[test]
    fn behaves_as_a_disk_and_leaves_the_one_below_alone() {
        for seed in 0..20 {
            let world = SimWorld::new(seed);
            let (env_a, env_b) = (world.node("a"), world.node("b"));
            let (below, real) = (env_a.disk(), env_b.disk());
            world.block_on(async {
                let rng = Rng::new(seed);
                let make = OpenOptions { create: true, ..OpenOptions::default() };
                for disk in [&below, &real] {
                    for name in ["/x", "/y"] {
                        let file = disk.open(Path::new(name), make).await.unwrap();
                        file.write_at(0, AlignedBuf::copy_of(&[7; 9000])).await.1.unwrap();
                    }
                }
                let count = world.disk("a").change_count();
                let over: Rc<dyn Disk> = Rc::new(Overlay::new(below.clone()));
                let names = ["/x", "/y", "/z", "/d/x", "/d"];
                for _ in 0..60 {
                    let name = Path::new(names[rng.below(4) as usize]);
                    let other = Path::new(names[rng.below(4) as usize]);
                    let (kind, at, fill) = (rng.below(8), rng.below(12_000), rng.below(200) as u8);
                    let bytes = rng.below(9000) as usize + 1;
                    // Moving a file onto itself is not something a store does.
                    if kind == 1 && name == other {
                        continue;
                    }
                    let mut answers = Vec::new();
                    for disk in [&over, &real] {
                        let done = async {
                            match kind {
                                0 => disk.remove(name).await?,
                                1 => disk.rename(name, other).await?,
                                2 => disk.create_dir(Path::new("/d")).await?,
                                3 => disk.open(name, make).await?.set_len(at).await?,
                                4 | 5 => {
                                    let file = disk.open(name, make).await?;
                                    file.write_at(at, AlignedBuf::copy_of(&vec![fill; bytes]))
                                        .await
                                        .1?;
                                }
                                6 => {
                                    let listed = disk.list(Path::new("/")).await?;
                                    return Ok((listed.len() as u64, Vec::new()));
                                }
                                _ => {
                                    let file = disk.open(name, OpenOptions::default()).await?;
                                    let (buf, count) =
                                        file.read_at(at, AlignedBuf::zeroed(bytes)).await;
                                    let count = count?;
                                    return Ok((file.len()?, buf[..count].to_vec()));
                                }
                            }
                            Ok::<_, Error>((0, Vec::new()))
                        };
                        answers.push(done.await.map_err(|error| error.code));
                    }
                    assert_eq!(answers[0], answers[1], "kind {kind}, {name:?}, {other:?}");
                }
                assert_eq!(world.disk("a").change_count(), count, "the disk below was changed");
            });
            world.clear();
        }
    }
}
