//! Names under trouble: clients make, link, rename and remove files and directories in a few directories that all of them share, through
//! `dfs`. What they are told must fit one naive tree ([`model::Namespace`]) that is asked one call after the other, and in the end the file
//! system is whole by its own check.
//!
//! Who a file is, is seen in its permission bits: no two of a run are made with the same.

use super::clients::{Worker, open};
use super::run::Run;
use super::snapshots::{KEEPER, Snapshot};
use crate::history::Call;
use crate::linearizable::Spec;
use crate::local::make_placed_container;
use crate::members;
use client::Client;
use dfs::check::{Finding, Mend, Problem};
use dfs::{
    CreateOptions, Credentials, Dfs, FormatOptions, MountFlags, Obj, OpenFlags, RenameFlags,
};
use model::namespace::{Ino, Kind, Namespace, ROOT, Rename};
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;
use types::{Code, ContLayout, ContProps, Epoch, Error, ObjClass, Result, Scheme};

/// Directories that stay, whose names are under test.
const DIRS: usize = 3;
/// Names in each.
const NAMES: u64 = 4;
/// Whatever calls without an answer have left behind is gone after so long, virtual time.
const SETTLE_TIME: Duration = Duration::from_secs(60);
/// What a caller who may do everything is told of what is there, or is not.
const ANSWERS: [Code; 6] =
    [Code::Exist, Code::NonExist, Code::IsDir, Code::NotDir, Code::NotEmpty, Code::NoPerm];

/// A name: in which directory, which one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Spot {
    dir: usize,
    name: u64,
}

/// What a tree can be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameCall {
    /// To have a new file with these permission bits.
    Make(Spot, u32),
    /// The same of a directory.
    MakeDir(Spot, u32),
    Unlink(Spot),
    RemoveDir(Spot),
    /// To have a further name for a file.
    Link(Spot, Spot),
    Rename(Spot, Spot, Rename),
    /// What has a name.
    Look(Spot),
    /// To have this as its data, of the file with these permission bits, whatever its names are.
    Write(u32, u64),
    /// What data it has.
    Read(u32),
    /// All names at once, as a snapshot shows them.
    LookAll,
    /// All names are what a snapshot showed, by its hash.
    Back(u64),
}

/// What it answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameAnswer {
    Done,
    /// It is so.
    Found {
        mode: u32,
        is_dir: bool,
    },
    /// Its data; 0: none.
    Data(u64),
    /// What all names have, hashed.
    All(u64),
    Failed(Code),
}

/// What has a name: no two of a run have the same permission bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Item {
    mode: u32,
    is_dir: bool,
    /// Of a file; 0: none.
    data: u64,
}

/// Names that are taken, and by what: all there is to know of a tree whose other directories are empty. Trees that came about in different
/// orders are equal, which keeps the search for an order short.
pub(super) type Names = BTreeMap<Spot, Item>;

/// What a snapshot has shown of the tree: of each place that was looked at what had its name then.
#[derive(Clone, Default)]
pub(super) struct Shown(BTreeMap<Spot, Option<Item>>);

impl Shown {
    /// All that is in the tree, once every place was looked at.
    pub(super) fn names(&self) -> Option<Names> {
        let item = |(at, item): (&Spot, &Option<Item>)| Some((*at, (*item)?));
        let is_whole = spots().all(|at| self.0.contains_key(&at));
        is_whole.then(|| self.0.iter().filter_map(item).collect())
    }
}

/// Equal for equal trees.
pub(super) fn hash_of(names: &Names) -> u64 {
    let mut hasher = DefaultHasher::new();
    names.hash(&mut hasher);
    hasher.finish()
}

/// The naive tree, which may become again what was shown of it.
#[derive(Default)]
pub(super) struct Tree {
    /// By [`hash_of`].
    pub(super) shown: BTreeMap<u64, Names>,
}

fn spots() -> impl Iterator<Item = Spot> {
    (0..DIRS).flat_map(|dir| (0..NAMES).map(move |name| Spot { dir, name }))
}

/// The tree with these names.
fn tree_of(names: &Names) -> Namespace {
    let mut tree = Namespace::new();
    for dir in 0..DIRS {
        let made = tree.make(ROOT, &dir_name(dir), Kind::Dir(BTreeMap::new()), 0o755);
        assert_eq!(made, Ok(dir_ino(dir)), "nodes have numbers one after the other");
    }
    let mut first: BTreeMap<u32, Spot> = BTreeMap::new();
    for (at, item) in names {
        let done = match first.get(&item.mode) {
            Some(first) => tree.link(first.ino(), &first.name(), at.ino(), &at.name()),
            None => {
                first.insert(item.mode, *at);
                tree.make(at.ino(), &at.name(), kind(item.is_dir), item.mode).map(|_| ())
            }
        };
        assert_eq!(done, Ok(()), "what was a tree is one");
    }
    tree
}

/// The names of a tree, whose files have the data that they had in another one.
fn names_of(tree: &Namespace, before: &Names) -> Names {
    let data: BTreeMap<u32, u64> = before.values().map(|item| (item.mode, item.data)).collect();
    let item = |at: Spot| {
        let node = tree.node(tree.lookup(at.ino(), &at.name()).ok()?)?;
        let data = data.get(&node.mode).copied().unwrap_or(0);
        Some((at, Item { mode: node.mode, is_dir: matches!(node.kind, Kind::Dir(_)), data }))
    };
    spots().filter_map(item).collect()
}

fn kind(is_dir: bool) -> Kind {
    if is_dir { Kind::Dir(BTreeMap::new()) } else { Kind::File(Vec::new()) }
}

fn dir_name(dir: usize) -> Vec<u8> {
    format!("d{dir}").into_bytes()
}

fn dir_ino(dir: usize) -> Ino {
    ROOT + 1 + dir as Ino
}

impl Spot {
    fn ino(self) -> Ino {
        dir_ino(self.dir)
    }

    pub(super) fn name(self) -> Vec<u8> {
        format!("n{}", self.name).into_bytes()
    }
}

impl Spec for Tree {
    type State = Names;
    type Op = NameCall;
    type Ret = NameAnswer;

    fn step(&self, state: &Names, op: &NameCall, ret: Option<&NameAnswer>) -> Option<Names> {
        let mut tree = tree_of(state);
        let done = match *op {
            NameCall::Make(at, mode) => {
                tree.make(at.ino(), &at.name(), kind(false), mode).map(|_| ())
            }
            NameCall::MakeDir(at, mode) => {
                tree.make(at.ino(), &at.name(), kind(true), mode).map(|_| ())
            }
            NameCall::Unlink(at) => tree.unlink(at.ino(), &at.name()),
            NameCall::RemoveDir(at) => tree.rmdir(at.ino(), &at.name()),
            NameCall::Link(at, new) => tree.link(at.ino(), &at.name(), new.ino(), &new.name()),
            NameCall::Rename(at, new, how) => {
                tree.rename(at.ino(), &at.name(), new.ino(), &new.name(), how)
            }
            NameCall::Look(at) => {
                let told = match state.get(&at) {
                    Some(Item { mode, is_dir, .. }) => {
                        NameAnswer::Found { mode: *mode, is_dir: *is_dir }
                    }
                    None => NameAnswer::Failed(Code::NonExist),
                };
                return ret.is_none_or(|ret| *ret == told).then(|| state.clone());
            }
            // What has no name any more is nobody's matter.
            NameCall::Write(mode, data) => {
                let mut after = state.clone();
                let named = after.values_mut().filter(|item| item.mode == mode);
                named.for_each(|item| item.data = data);
                return ret.is_none_or(|ret| *ret == NameAnswer::Done).then_some(after);
            }
            NameCall::Read(mode) => {
                let named = state.values().find(|item| item.mode == mode);
                let is_so = named
                    .is_none_or(|item| ret.is_none_or(|ret| *ret == NameAnswer::Data(item.data)));
                return is_so.then(|| state.clone());
            }
            NameCall::Back(hash) => return self.shown.get(&hash).cloned(),
            NameCall::LookAll => {
                let told = NameAnswer::All(hash_of(state));
                return ret.is_none_or(|ret| *ret == told).then(|| state.clone());
            }
        };
        let told = done.map_or_else(NameAnswer::Failed, |()| NameAnswer::Done);
        // One that fails changes nothing.
        let after = if told == NameAnswer::Done { names_of(&tree, state) } else { state.clone() };
        ret.is_none_or(|ret| *ret == told).then_some(after)
    }

    fn is_kept(&self, _: &NameCall) -> bool {
        true
    }

    fn is_read(&self, op: &NameCall, ret: &NameAnswer) -> bool {
        matches!(op, NameCall::Look(_) | NameCall::Read(_) | NameCall::LookAll)
            || matches!(ret, NameAnswer::Failed(_))
    }
}

/// A file system as one client has it.
pub(super) struct Site {
    pub(super) fs: Dfs,
    pub(super) dirs: Vec<Obj>,
}

impl Site {
    /// The directory of a name.
    pub(super) fn dir(&self, at: Spot) -> &Obj {
        &self.dirs[at.dir]
    }
}

impl Run {
    /// Makes the container, the file system in it, and the directories that stay.
    pub(super) async fn make_tree(&self, client: &Client) -> Result<()> {
        let class: ObjClass = self.settings.class_alone.parse()?;
        let props = ContProps {
            layout: ContLayout::Posix,
            oclass: class,
            dir_oclass: self.settings.class.parse()?,
            file_oclass: class,
            // What the file system has of its own has as many copies.
            rd_fac: match class.scheme {
                Scheme::Replicated { copies } => copies - 1,
                _ => 0,
            },
            ..ContProps::default()
        };
        let cont = make_placed_container(client, self.settings.durability, self.placement(), props)
            .await?;
        Dfs::format(&cont, &FormatOptions::default()).await?;
        let fs = Dfs::mount(&cont, MountFlags::NONE, Credentials::root()).await?;
        let root = fs.root().await?;
        for dir in 0..DIRS {
            fs.mkdir(&root, &dir_name(dir), 0o755, None).await?;
        }
        Ok(())
    }
}

impl Worker {
    /// Mounts, as often as it takes.
    async fn mount(&self) -> Result<Site> {
        loop {
            match self.try_mount().await {
                Ok(site) => return Ok(site),
                Err(error) => self.run.bear(error)?,
            }
            self.env.sleep(Duration::from_millis(20)).await;
        }
    }

    pub(super) async fn try_mount(&self) -> Result<Site> {
        let cont = match self.cont.at() {
            Epoch::ZERO => open(self.cont.client()).await?,
            _ => self.cont.clone(),
        };
        let fs = Dfs::mount(&cont, MountFlags::NONE, Credentials::root()).await?;
        let mut dirs = Vec::new();
        for dir in 0..DIRS {
            let path = [&b"/"[..], &dir_name(dir)].concat();
            dirs.push(fs.lookup(&path, OpenFlags::READ).await?);
        }
        Ok(Site { fs, dirs })
    }

    /// Does its calls.
    pub(super) async fn work_on_names(&self) -> Result<()> {
        let site = self.mount().await?;
        for _ in 0..self.run.settings.calls {
            match self.below(4) {
                0 => self.use_data(&site, self.draw_spot()).await?,
                _ => self.ask_name(&site, self.draw_call()).await?,
            }
            self.rest().await;
        }
        Ok(())
    }

    fn draw_spot(&self) -> Spot {
        Spot { dir: self.below(DIRS as u64) as usize, name: self.below(NAMES) }
    }

    fn draw_call(&self) -> NameCall {
        let spot = || self.draw_spot();
        // Nine bits, of which some is set.
        let mode = || (self.run.new_value() % 0o1000) as u32;
        match self.below(16) {
            0..4 => NameCall::Make(spot(), mode()),
            4 | 5 => NameCall::MakeDir(spot(), mode()),
            6 | 7 => NameCall::Unlink(spot()),
            8 => NameCall::RemoveDir(spot()),
            9 | 10 => NameCall::Link(spot(), spot()),
            11 => NameCall::Rename(spot(), spot(), Rename::NoReplace),
            12 => NameCall::Rename(spot(), spot(), Rename::Exchange),
            13 | 14 => NameCall::Rename(spot(), spot(), Rename::Replace),
            _ => NameCall::Look(spot()),
        }
    }

    /// Asks something of the tree, and notes it.
    async fn ask_name(&self, site: &Site, asked: NameCall) -> Result<()> {
        let history = self.run.names();
        let call = history.invoke(self.number, asked);
        let (fs, dir) = (&site.fs, |at: Spot| site.dir(at));
        let done = match asked {
            NameCall::Make(at, mode) => {
                let flags = OpenFlags::READ_WRITE | OpenFlags::CREATE | OpenFlags::EXCL;
                let options = CreateOptions::default();
                fs.open(dir(at), &at.name(), flags, mode, &options).await.map(|_| ())
            }
            NameCall::MakeDir(at, mode) => {
                fs.mkdir(dir(at), &at.name(), mode, None).await.map(|_| ())
            }
            NameCall::Unlink(at) => fs.unlink(dir(at), &at.name()).await,
            NameCall::RemoveDir(at) => fs.rmdir(dir(at), &at.name()).await,
            NameCall::Link(at, new) => fs.link(dir(at), &at.name(), dir(new), &new.name()).await,
            NameCall::Rename(at, new, how) => {
                let flags = match how {
                    Rename::Replace => RenameFlags::NONE,
                    Rename::NoReplace => RenameFlags::NOREPLACE,
                    Rename::Exchange => RenameFlags::EXCHANGE,
                };
                fs.rename(dir(at), &at.name(), dir(new), &new.name(), flags).await
            }
            NameCall::Look(at) => match fs.stat(dir(at), &at.name()).await {
                Ok(stat) => {
                    let (mode, is_dir) = (stat.mode & 0o7777, stat.is_dir());
                    history.answer(call, NameAnswer::Found { mode, is_dir });
                    return Ok(());
                }
                Err(error) => Err(error),
            },
            NameCall::Write(..) | NameCall::Read(_) => {
                return Err(Error::inval("that is asked of what is open"));
            }
            NameCall::LookAll | NameCall::Back(_) => {
                return Err(Error::inval("that is no matter of a client"));
            }
        };
        match done {
            Ok(()) => history.answer(call, NameAnswer::Done),
            Err(error) if ANSWERS.contains(&error.code) => {
                history.answer(call, NameAnswer::Failed(error.code));
            }
            Err(error) => {
                if matches!(asked, NameCall::Unlink(_)) {
                    self.run.lost_unlinks.set(self.run.lost_unlinks.get() + 1);
                }
                let text = format!("{asked:?}: {error}");
                self.run.bear(Error::new(error.code, text))?;
            }
        }
        Ok(())
    }

    /// What all names have in a snapshot, which the container shows. Together they are what the tree was at one
    /// moment; what was shown before is shown again.
    pub(super) async fn look_back_at_names(
        &self,
        snapshot: &mut Snapshot,
        in_peace: bool,
    ) -> Result<()> {
        let Snapshot { made, tree: shown, .. } = snapshot;
        // What is damaged is no answer, and not another one than before.
        let unanswered = |error| if in_peace { Err(error) } else { self.run.bear(error) };
        let site = match self.try_mount().await {
            Ok(site) => site,
            Err(error) => return unanswered(error),
        };
        let was_whole = shown.names().is_some();
        for at in spots() {
            let item = match site.fs.stat(&site.dirs[at.dir], &at.name()).await {
                Ok(stat) => {
                    let (mode, is_dir) = (stat.mode & 0o7777, stat.is_dir());
                    let data = match is_dir {
                        true => Ok(0),
                        false => self.data_at(&site, at).await,
                    };
                    match data {
                        Ok(data) => Some(Item { mode, is_dir, data }),
                        Err(error) => return unanswered(error),
                    }
                }
                Err(error) if error.code == Code::NonExist => None,
                Err(error) => return unanswered(error),
            };
            self.run.shown.set(self.run.shown.get() + 1);
            match shown.0.insert(at, item) {
                Some(before) if before != item => {
                    let epoch = self.cont.at();
                    let text = format!(
                        "snapshot {epoch} showed {at:?} as {before:?}, and now as {item:?}"
                    );
                    return Err(Error::new(Code::Csum, text));
                }
                _ => {}
            }
        }
        if let Some(names) = shown.names().filter(|_| !was_whole) {
            self.run.note(|| format!("a snapshot shows {:x}: {names:?}", hash_of(&names)));
            self.run.shown_trees.borrow_mut().insert(hash_of(&names), names.clone());
            self.run.names().note(Call {
                client: KEEPER,
                op: NameCall::LookAll,
                invoked: made.0,
                returned: Some((made.1, NameAnswer::All(hash_of(&names)))),
            });
        }
        Ok(())
    }

    /// In peace: looks at all names, and changes some.
    pub(super) async fn look_at_names(&self) -> Result<()> {
        let site = self.mount().await?;
        for _ in 0..2 {
            for at in spots() {
                self.ask_name(&site, NameCall::Look(at)).await?;
                self.use_data(&site, at).await?;
            }
            for _ in 0..5 {
                self.ask_name(&site, self.draw_call()).await?;
            }
        }
        Ok(())
    }

    /// Waits until all members are whole, and compares what is in the directories; then the file system looks at itself. Says what is wrong.
    pub(super) async fn compare_names(&self) -> Result<Option<String>> {
        let client = self.cont.client();
        if let Some(lacking) = members::await_whole(client).await? {
            return Ok(Some(lacking));
        }
        self.env.sleep(SETTLE_TIME).await;
        let site = self.mount().await?;
        for dir in &site.dirs {
            if dir.oid().is_alone() {
                continue;
            }
            if let Some(differs) = members::difference(client, &self.cont, dir.oid()).await? {
                return Ok(Some(differs));
            }
        }
        let mut report = site.fs.check(Mend::Nothing).await?;
        // What had no name when a snapshot was taken has none when all is as it was then; the check is what finds it. And what was freed comes to be again
        // where a client that counted as dead goes on writing, or a write that was given up arrives.
        let is_nameless = |finding: &Finding| finding.problem == Problem::Leaked;
        let may_leak = self.run.rollbacks.get() > 0 || self.run.late_writes.get() > 0;
        // A file that is not where its name was is freed by its client when that has its answer.
        let is_few = report.findings.len() as u64 <= self.run.lost_unlinks.get();
        if (may_leak || is_few) && report.findings.iter().all(is_nameless) {
            site.fs.check(Mend::Remove).await?;
            report = site.fs.check(Mend::Nothing).await?;
        }
        let wrong = report.findings.first();
        Ok(wrong.map(|wrong| format!("the file system by its own check: {wrong:?}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linearizable::{Verdict, check};

    const HERE: Spot = Spot { dir: 0, name: 0 };
    const THERE: Spot = Spot { dir: 1, name: 0 };

    /// A call, when it began, and when it ended with what.
    type Known = (NameCall, u64, Option<(u64, NameAnswer)>);

    fn is_good(calls: &[Known]) -> bool {
        let empty = Names::new();
        let tree = Tree { shown: BTreeMap::from([(hash_of(&empty), empty)]) };
        let call = |(op, invoked, returned): &Known| Call {
            client: 0,
            op: *op,
            invoked: *invoked,
            returned: *returned,
        };
        let calls: Vec<_> = calls.iter().map(call).collect();
        check(&tree, Names::new(), &calls, &[]) == Verdict::Linearizable
    }

    fn file(mode: u32) -> NameAnswer {
        NameAnswer::Found { mode, is_dir: false }
    }

    /// A rename shows in both places at once; one without an answer later, or never.
    #[test]
    fn known_good_and_bad_histories() {
        use NameAnswer::{Done, Failed};
        use NameCall::{Link, Look, Make, Rename as Move, Unlink};
        let gone = Failed(Code::NonExist);
        let made = (Make(HERE, 7), 1, Some((2, Done)));
        let moved = Move(HERE, THERE, Rename::Replace);
        let answered = (moved, 3, Some((9, Done)));
        let look = |at, from, to, told| (Look(at), from, Some((to, told)));
        assert!(is_good(&[made, answered, look(HERE, 4, 5, file(7)), look(THERE, 6, 7, file(7))]));
        assert!(!is_good(&[made, answered, look(HERE, 4, 5, gone), look(THERE, 6, 7, gone)]));
        assert!(!is_good(&[made, answered, look(HERE, 10, 11, file(7))]));
        let pending = (moved, 3, None);
        assert!(is_good(&[made, pending, look(HERE, 40, 41, file(7))]));
        assert!(is_good(&[made, pending, look(HERE, 40, 41, gone), look(THERE, 42, 43, file(7))]));
        assert!(!is_good(&[made, pending, look(HERE, 40, 41, gone), look(HERE, 42, 43, file(7))]));
        // A further name outlives the first one.
        let linked = (Link(HERE, THERE), 3, Some((4, Done)));
        let unlinked = (Unlink(HERE), 5, Some((6, Done)));
        assert!(is_good(&[made, linked, unlinked, look(THERE, 7, 8, file(7))]));
        assert!(!is_good(&[made, linked, unlinked, look(THERE, 7, 8, gone)]));
        // A snapshot shows both places at one moment.
        let names = |at| Names::from([(at, Item { mode: 7, is_dir: false, data: 0 })]);
        let all =
            |names: &Names| (NameCall::LookAll, 4, Some((8, NameAnswer::All(hash_of(names)))));
        assert!(is_good(&[made, answered, all(&names(HERE))]));
        assert!(is_good(&[made, answered, all(&names(THERE))]));
        let both: Names = names(HERE).into_iter().chain(names(THERE)).collect();
        assert!(!is_good(&[made, answered, all(&both)]));
        assert!(!is_good(&[made, answered, all(&Names::new())]));
        // What is rolled back to a tree without names has none from then on.
        let back = (NameCall::Back(hash_of(&Names::new())), 3, Some((4, Done)));
        assert!(is_good(&[made, back, look(HERE, 5, 6, gone)]));
        assert!(!is_good(&[made, back, look(HERE, 5, 6, file(7))]));
        // Data are those of the file, by whatever name.
        let (written, read) = (|data| NameCall::Write(7, data), NameCall::Read(7));
        let write = (written(5), 5, Some((6, Done)));
        let shown = |data, from| (read, from, Some((from + 1, NameAnswer::Data(data))));
        let moved = (moved, 3, Some((4, Done)));
        assert!(is_good(&[made, moved, write, shown(5, 7)]));
        assert!(!is_good(&[made, moved, write, shown(0, 7)]));
        assert!(is_good(&[made, write, (written(6), 7, None), shown(5, 8), shown(6, 10)]));
        assert!(!is_good(&[made, write, (written(6), 7, None), shown(6, 8), shown(5, 10)]));
        assert!(!is_good(&[made, (Make(HERE, 8), 3, Some((4, Done)))]));
        assert!(is_good(&[made, (Make(HERE, 8), 3, Some((4, Failed(Code::Exist))))]));
    }
}
