//! The checker: does the tree name every object, and are all names good?
//!
//! It lists all objects of the container, walks the tree, and compares. It must be alone:
//! open the container exclusively, or files that come and go meanwhile look like damage.
//!
//! | finding | how it comes about | mended by |
//! |---|---|---|
//! | leaked object | a client died between removing the entry of a moved file and freeing it | removal, or a name in `/lost+found` |
//! | dangling entry | the object of a directory, or the inode of a hard-linked file, is lost | removal of the entry |
//! | wrong link count | the same | the count of names seen |
//! | wrong parent | the same | the parent the directory is in |
//! | misplaced names | names of a directory that spreads are in a unit in which they are not looked for: a defect | moved to where they are |
//! | hidden data | a progressive file's first target lost the mark that says there are data on others | the mark |

use crate::conflict::retry;
use crate::create::insert;
use crate::dir::DirAnchor;
use crate::entry::{Found, reply_kind};
use crate::flags::OpenFlags;
use crate::fs::{Dfs, Shared, fetch_inode, inline};
use crate::inode::{Inode, S_IFDIR, S_IFREG};
use crate::layout::{INODE, MARKER, PARENT, RECORD};
use crate::node::Obj;
use async_recursion::async_recursion as boxed;
use client::ArrayObj;
use std::collections::{BTreeMap, BTreeSet};
use types::{Code, DkeyKind, Epoch, Oid, Result};
use wire::obj::{Cond, Op, OpReply, ReadCheck, ReadScope};

/// Objects asked for in one request.
const OBJECTS_PER_REQUEST: u32 = 4096;

/// Objects whose size is asked for in one request.
const STATS_PER_REQUEST: usize = 512;

/// What to do about findings.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Mend {
    /// Only tell.
    #[default]
    Nothing,
    /// Put right what can be; free leaked objects.
    Remove,
    /// Put right what can be; give leaked objects a name in `/lost+found`.
    Relink,
}

/// What is wrong.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Problem {
    /// An object that nothing names.
    Leaked,
    /// An entry whose directory object, or whose inode, is gone.
    Dangling,
    /// A file with `stored` names on record, and `seen` in the tree.
    LinkCount {
        /// On record.
        stored: u32,
        /// In the tree.
        seen: u32,
    },
    /// A directory that says it is in `stored`.
    Parent {
        /// What its marker says.
        stored: Oid,
    },
    /// A directory with `stored` names in its units, of which `seen` are where they are looked for.
    Misplaced {
        /// In all units.
        stored: u64,
        /// In listings.
        seen: u64,
    },
    /// A progressive file that says nothing of the data it has beyond its first part.
    Hidden,
}

/// One thing that is wrong, and where.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    pub problem: Problem,
    pub oid: Oid,
    /// Where; empty for leaked objects.
    pub path: Vec<u8>,
    /// It was put right.
    pub mended: bool,
}

/// What a check saw.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CheckReport {
    /// Objects in the container.
    pub object_count: u64,
    /// Directories walked, the root included.
    pub dir_count: u64,
    pub entry_count: u64,
    /// Removed objects whose space comes back when nobody holds them open any more.
    pub waiting_count: u64,
    /// Data of those, bytes.
    pub waiting_bytes: u64,
    pub findings: Vec<Finding>,
}

impl CheckReport {
    /// True when nothing was wrong, or all of it was put right.
    pub fn is_clean(&self) -> bool {
        self.findings.iter().all(|finding| finding.mended)
    }
}

/// A hard-linked file met in the tree.
struct HardFile {
    seen: u32,
    path: Vec<u8>,
    parent: Oid,
    name: types::Key,
}

/// A progressive file with units beyond the first, met in the tree.
struct Beyond {
    path: Vec<u8>,
    chunk_bytes: u64,
}

/// State of one check.
struct Checker<'a> {
    fs: &'a Dfs,
    mend: Mend,
    report: CheckReport,
    named: BTreeSet<Oid>,
    hard: BTreeMap<Oid, HardFile>,
    /// Progressive files with units beyond the first, and where they were met in the tree.
    beyond: BTreeMap<Oid, Option<Beyond>>,
    /// Directory in `/lost+found`, or empty.
    home: Vec<u8>,
}

impl Dfs {
    /// Checks the whole file system. The caller must be privileged (`NoPerm` otherwise), and alone.
    #[boxed(?Send)]
    pub async fn check(&self, mend: Mend) -> Result<CheckReport> {
        self.check_into(mend, b"").await
    }

    /// [`Dfs::check`]; leaked objects get their names in `/lost+found/HOME`, or with `home` empty in
    /// `/lost+found` itself.
    #[boxed(?Send)]
    pub async fn check_into(&self, mend: Mend, home: &[u8]) -> Result<CheckReport> {
        if !home.is_empty() {
            types::limits::check_name(home)?;
        }
        if !self.is_privileged() {
            return Err(types::Error::new(Code::NoPerm, "only the superuser checks a file system"));
        }
        if mend != Mend::Nothing {
            self.require_writable()?;
        }
        let shared = &self.shared;
        let (objects, beyond) = shared.list_objects().await?;
        let mut checker = Checker {
            fs: self,
            mend,
            report: CheckReport { object_count: objects.len() as u64, ..CheckReport::default() },
            named: [shared.superblock_oid, shared.superblock.root].into(),
            hard: BTreeMap::new(),
            beyond: beyond.into_iter().map(|oid| (oid, None)).collect(),
            home: home.to_vec(),
        };
        checker.walk(shared.superblock.root).await?;
        checker.check_link_counts().await?;
        checker.check_hidden().await?;
        let waiting = shared.waiting().await?;
        checker.report.waiting_count = waiting.len() as u64;
        checker.report.waiting_bytes = shared.bytes_of(&waiting).await?;
        checker.check_leaks(objects.difference(&waiting).copied().collect()).await?;
        Ok(checker.report)
    }
}

impl Shared {
    /// All objects of the container, and those of them that are progressive files with more than a first unit.
    async fn list_objects(&self) -> Result<(BTreeSet<Oid>, BTreeSet<Oid>)> {
        let (mut objects, mut beyond) = (BTreeSet::new(), BTreeSet::new());
        for target in self.cont.listers() {
            let mut after = None;
            loop {
                let page = self.cont.list_objects(target, after, OBJECTS_PER_REQUEST).await?;
                after = page.units.last().copied();
                let of_files = page.units.iter().filter(|unit| unit.group > 0);
                let objects_beyond = of_files.map(|unit| unit.object);
                beyond.extend(objects_beyond.filter(|oid| oid.first_part_bytes().is_some()));
                objects.extend(page.units.into_iter().map(|unit| unit.object));
                if page.complete || after.is_none() {
                    break;
                }
            }
        }
        Ok((objects, beyond))
    }
}

impl Shared {
    /// Removed objects that are bound to be freed, now or with a last open handle.
    async fn waiting(&self) -> Result<BTreeSet<Oid>> {
        let mut waiting = BTreeSet::new();
        for target in self.cont.listers() {
            let mut after = None;
            loop {
                let page = self.cont.list_orphans(target, after, OBJECTS_PER_REQUEST).await?;
                after = page.units.last().copied();
                waiting.extend(page.units.into_iter().map(|unit| unit.object));
                if page.complete || after.is_none() {
                    break;
                }
            }
        }
        Ok(waiting)
    }

    /// Data of objects, bytes. What is gone meanwhile has none.
    async fn bytes_of(&self, oids: &BTreeSet<Oid>) -> Result<u64> {
        let mut units = Vec::with_capacity(oids.len());
        for &oid in oids {
            units.extend(self.cont.units(oid).await?.into_iter().map(|unit| (unit, ())));
        }
        let mut bytes = 0;
        for lot in self.cont.lots(units)? {
            for some in lot.chunks(STATS_PER_REQUEST) {
                let mut batch = self.cont.batch();
                for &(unit, ()) in some {
                    batch.op(Op::Stat { unit });
                }
                for reply in batch.run().await?.replies()? {
                    if let OpReply::Stat(stat) = reply {
                        bytes += stat.tail.bytes_used;
                    }
                }
            }
        }
        Ok(bytes)
    }

    /// Whether anything of an object is left.
    async fn exists(&self, oid: Oid) -> Result<bool> {
        let stats = self.cont.object(oid).stat().await?;
        Ok(stats.iter().any(|(_, stat)| stat.dkey_count > 0))
    }
}

impl Checker<'_> {
    fn found(&mut self, problem: Problem, oid: Oid, path: &[u8], mended: bool) {
        self.report.findings.push(Finding { problem, oid, path: path.to_vec(), mended });
    }

    /// Walks a directory and all below it. Every directory is entered once, even if a broken
    /// tree names it twice.
    async fn walk(&mut self, top: Oid) -> Result<()> {
        let mut waiting = vec![(top, Vec::new())];
        while let Some((dir, path)) = waiting.pop() {
            self.report.dir_count += 1;
            let mut anchor = DirAnchor::start();
            // Before entries that lead nowhere are removed.
            let stored = self.count_stored(dir).await?;
            let (place, mut seen) = (path.clone(), 0);
            while !anchor.is_end() {
                let shared = &self.fs.shared;
                let page = shared.read_page(dir, &mut anchor, 1024, false).await?;
                seen += page.len() as u64;
                for (name, found) in page {
                    self.report.entry_count += 1;
                    let path = [&path[..], b"/", &name].concat();
                    let oid = found.inode.oid;
                    if found.inode.is_dir() {
                        if self.check_dir(dir, &name, &found, &path).await?
                            && self.named.insert(oid)
                        {
                            waiting.push((oid, path));
                        }
                        continue;
                    }
                    self.named.insert(oid);
                    if let Some(place) = self.beyond.get_mut(&oid) {
                        let chunk_bytes = shared.chunk_bytes_of(&found.inode);
                        place.get_or_insert_with(|| Beyond { path: path.clone(), chunk_bytes });
                    }
                    if found.inode.hard {
                        let file = self.hard.entry(oid).or_insert(HardFile {
                            seen: 0,
                            path,
                            parent: dir,
                            name: name.clone(),
                        });
                        file.seen += 1;
                    }
                }
            }
            if let Some(stored) = stored.filter(|stored| *stored != seen) {
                let mended = self.mend != Mend::Nothing && self.put_in_place(dir).await?;
                self.found(Problem::Misplaced { stored, seen }, dir, &place, mended);
            }
        }
        Ok(())
    }

    /// Names of a directory that spreads in all its units: one that is not where it is looked for is in no listing. `None` for others.
    async fn count_stored(&self, dir: Oid) -> Result<Option<u64>> {
        let shared = &self.fs.shared;
        // Units of the past are not looked at together.
        if !dir.spreads() || shared.cont.at() != Epoch::ZERO {
            return Ok(None);
        }
        let units = shared.cont.units(dir).await?;
        let stored = retry(shared, async || {
            // All at one epoch: they may be moving.
            let mut batch = shared.cont.batch();
            for &unit in &units {
                batch.op(Op::Stat { unit });
            }
            let mut stored = 0;
            for reply in batch.run().await?.replies()? {
                let OpReply::Stat(stat) = reply else { return Err(reply_kind()) };
                // What has anything has a marker.
                stored += stat.dkey_count.saturating_sub(1);
            }
            Ok(stored)
        });
        stored.await.map(Some)
    }

    /// Has names that are in the wrong unit put where they are looked for. What they lead to is looked at by the next check.
    async fn put_in_place(&self, dir: Oid) -> Result<bool> {
        let cont = &self.fs.shared.cont;
        let mut count = 0;
        for unit in cont.units(dir).await? {
            count += retry(&self.fs.shared, async || cont.put_in_place(unit).await).await?;
        }
        Ok(count > 0)
    }

    /// False when the directory's object is gone.
    async fn check_dir(
        &mut self,
        parent: Oid,
        name: &[u8],
        found: &Found,
        path: &[u8],
    ) -> Result<bool> {
        let oid = found.inode.oid;
        let shared = &self.fs.shared;
        match self.fs.parent_of(oid).await {
            Ok((stored, epoch)) => {
                if stored != parent {
                    let mended = self.mend != Mend::Nothing;
                    if mended {
                        let raw = parent.to_bytes();
                        let mut batch = shared.cont.batch();
                        let of = ReadScope::Akey(MARKER, PARENT);
                        batch.check(ReadCheck { unit: oid.first_unit(), of, seen: epoch });
                        let iods = vec![inline(PARENT, &raw)];
                        batch.op(Op::Update {
                            unit: oid.first_unit(),
                            dkey: MARKER,
                            cond: Cond::OBJ_EXISTS,
                            iods,
                        });
                        batch.run().await?;
                    }
                    self.found(Problem::Parent { stored }, oid, path, mended);
                }
                Ok(true)
            }
            Err(error) if error.code == Code::NonExist => {
                let mended = self.mend != Mend::Nothing;
                if mended {
                    self.remove_entry(parent, name, found.entry_epoch).await?;
                }
                self.found(Problem::Dangling, oid, path, mended);
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    async fn remove_entry(&self, dir: Oid, name: &[u8], seen: Epoch) -> Result<()> {
        let mut batch = self.fs.shared.cont.batch();
        batch.check(ReadCheck { unit: dir.first_unit(), of: ReadScope::Akey(name, INODE), seen });
        batch.op(Op::PunchDkeys {
            unit: dir.first_unit(),
            cond: Cond::PUNCH,
            dkeys: vec![name.into()],
        });
        batch.run().await.map(|_| ())
    }

    async fn check_link_counts(&mut self) -> Result<()> {
        for (oid, file) in std::mem::take(&mut self.hard) {
            let shared = &self.fs.shared;
            let mend = self.mend != Mend::Nothing;
            let Some(found) = self.record(oid).await? else {
                if mend && let Some(entry) = shared.entry_value(file.parent, &file.name).await? {
                    self.remove_entry(file.parent, &file.name, entry.entry_epoch).await?;
                }
                // Other names of the same file show up in the next check.
                self.found(Problem::Dangling, oid, &file.path, mend && file.seen == 1);
                continue;
            };
            if found.inode.nlink != file.seen {
                if mend {
                    let raw = Inode { nlink: file.seen, ..found.inode }.encode(&found.target);
                    let mut batch = shared.cont.batch();
                    let of = ReadScope::Akey(RECORD, INODE);
                    batch.check(ReadCheck { unit: oid.first_unit(), of, seen: found.epoch });
                    let iods = vec![inline(INODE, &raw)];
                    batch.op(Op::Update {
                        unit: oid.first_unit(),
                        dkey: RECORD,
                        cond: Cond::NONE,
                        iods,
                    });
                    batch.run().await?;
                }
                let problem = Problem::LinkCount { stored: found.inode.nlink, seen: file.seen };
                self.found(problem, oid, &file.path, mend);
            }
        }
        Ok(())
    }

    async fn check_hidden(&mut self) -> Result<()> {
        for (oid, place) in std::mem::take(&mut self.beyond) {
            let Some(Beyond { path, chunk_bytes: chunk_records }) = place else { continue };
            let cont = self.fs.shared.cont.clone();
            let array = ArrayObj { cont, oid, record_bytes: 1, chunk_records };
            if array.is_marked().await? {
                continue;
            }
            let mended = self.mend != Mend::Nothing;
            if mended {
                array.mark().await?;
            }
            self.found(Problem::Hidden, oid, &path, mended);
        }
        Ok(())
    }

    /// The inode in a file's object, if it has one there.
    async fn record(&self, oid: Oid) -> Result<Option<Found>> {
        let mut batch = self.fs.shared.cont.batch();
        batch.op(fetch_inode(oid, RECORD));
        let result = batch.run().await?;
        Found::from_fetch(result.replies()?.first())
    }

    async fn check_leaks(&mut self, objects: BTreeSet<Oid>) -> Result<()> {
        let mut leaked = BTreeSet::new();
        for &oid in objects.difference(&self.named) {
            // What was being freed when the objects were listed may be gone by now.
            if self.fs.shared.exists(oid).await? {
                leaked.insert(oid);
            }
        }
        let mut tops = leaked.clone();
        if self.mend == Mend::Relink {
            // What a leaked directory names gets its name back with the directory.
            for &oid in &leaked {
                if !is_dir(oid) {
                    continue;
                }
                let mut anchor = DirAnchor::start();
                while !anchor.is_end() {
                    let shared = &self.fs.shared;
                    for (_, found) in shared.read_page(oid, &mut anchor, 1024, false).await? {
                        if found.inode.oid != oid {
                            tops.remove(&found.inode.oid);
                        }
                    }
                }
            }
        }
        let home = match self.mend {
            Mend::Relink if !tops.is_empty() => Some(self.lost_and_found().await?),
            _ => None,
        };
        while let Some(oid) = leaked.pop_first() {
            let mended = match self.mend {
                Mend::Nothing => false,
                Mend::Remove => {
                    self.remove_object(oid).await?;
                    true
                }
                Mend::Relink => {
                    if tops.contains(&oid)
                        && let Some(home) = &home
                    {
                        self.relink(home, oid).await?;
                    }
                    true
                }
            };
            self.found(Problem::Leaked, oid, b"", mended);
        }
        Ok(())
    }

    async fn remove_object(&self, oid: Oid) -> Result<()> {
        let shared = &self.fs.shared;
        for unit in shared.cont.units(oid).await? {
            let mut batch = shared.cont.batch();
            batch.op(Op::PunchObj { unit, cond: Cond::NONE, besides: b"" });
            batch.run().await?;
        }
        Ok(())
    }

    async fn lost_and_found(&self) -> Result<Obj> {
        let root = self.fs.root().await?;
        let home = self.dir_in(&root, b"lost+found").await?;
        if self.home.is_empty() { Ok(home) } else { self.dir_in(&home, &self.home).await }
    }

    async fn dir_in(&self, dir: &Obj, name: &[u8]) -> Result<Obj> {
        match self.fs.mkdir(dir, name, 0o700, None).await {
            Err(error) if error.code == Code::Exist => {
                self.fs.lookup_rel(dir, name, OpenFlags::PATH).await
            }
            other => other,
        }
    }

    /// Gives a leaked object a name: its id.
    async fn relink(&self, home: &Obj, oid: Oid) -> Result<()> {
        let shared = &self.fs.shared;
        let now = shared.now_ns();
        let record = if is_dir(oid) { None } else { self.record(oid).await? };
        let (inode, target) = match &record {
            Some(found) => (Inode { hard: true, ..found.inode }, &found.target[..]),
            None => {
                let mode = if is_dir(oid) { S_IFDIR | 0o700 } else { S_IFREG | 0o600 };
                let inode = Inode {
                    oid,
                    hard: false,
                    has_xattrs: true,
                    quiet: false,
                    mode,
                    uid: 0,
                    gid: 0,
                    nlink: 1,
                    // The chunk size went with the entry; most files have the default.
                    chunk_bytes: if is_dir(oid) { 0 } else { shared.superblock.chunk_bytes },
                    atime_ns: now,
                    mtime_ns: now,
                    ctime_ns: now,
                    mtime_epoch: Epoch::ZERO,
                    rdev: 0,
                    file_class: None,
                    dir_class: None,
                };
                (inode, &b""[..])
            }
        };
        let name = oid.to_string();
        let raw = inode.encode(if inode.hard { b"" } else { target });
        let (count, parent) =
            (Inode { hard: false, nlink: 1, ..inode }.encode(target), home.oid().to_bytes());
        // The one before may still be on its way in the same directory.
        retry(shared, async || {
            let mut batch = shared.cont.batch();
            batch.op(insert(home.oid(), name.as_bytes(), &raw));
            if inode.hard {
                let (unit, iods) = (oid.first_unit(), vec![inline(INODE, &count)]);
                batch.op(Op::Update { unit, dkey: RECORD, cond: Cond::NONE, iods });
            }
            if is_dir(oid) {
                for unit in shared.cont.units_in_use(oid).await? {
                    let (cond, iods) = (Cond::NONE, vec![inline(PARENT, &parent)]);
                    batch.op_of_unit(Op::Update { unit, dkey: MARKER, cond, iods });
                }
            }
            batch.run().await.map(|_| ())
        })
        .await
    }
}

/// Directories have hashed dkeys, files have integers.
fn is_dir(oid: Oid) -> bool {
    oid.dkey_kind() == DkeyKind::Hashed
}
