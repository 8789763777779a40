//! Moving files as policies say.
//!
//! A pass walks a container once, with the policies and pins of its directories in mind, and then does what is due: first what
//! rules want, then what must go because the pool is too full or a policy's files take more of it than they may; of these the least recently
//! used go first. Nothing here is relied upon for safety: copies and evictions check for themselves, so any number of
//! passes may run at the same time, and end at any moment.

use crate::copy::copy_in;
use crate::evict::evict_file;
use crate::policy::{Action, Facts, Fill, Policy};
use crate::store::Store;
use crate::sync::sync_file;
use async_recursion::async_recursion as boxed;
use dfs::sys::Sys;
use dfs::tier::{Chunk, Marks, Survey, Uses, day_of};
use dfs::{Dfs, DirAnchor, FileKind, Obj, OpenFlags, Stat};
use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use types::{Code, Error, Oid, Result};

/// Entries listed at a time.
const PAGE_ENTRIES: u32 = 512;
/// Files of which is remembered what the tier does not have of them.
const KNOWN_MAX: usize = 1 << 20;
/// What a stub may take in the pool, bytes: not worth another look at the file.
const STUB_BYTES_MAX: u64 = 64;

/// Moves files of one container, pass after pass.
pub struct Mover {
    fs: Dfs,
    sys: Sys,
    store: Store,
    tier: String,
    /// What is dirty of files, as they looked then: while they look so nobody need be asked again.
    known: HashMap<Oid, (Look, Dirty)>,
    /// Days that files were used on, where policies ask for that: as they are noted.
    uses: HashMap<Oid, Uses>,
    /// The fill level that a policy of the last pass is about; the lowest, if there are several.
    fill: Rc<Cell<Option<Fill>>>,
    /// The last pass began above a high mark and did not get to the low one: files failed. The next one goes on, although what went may
    /// be enough to be below the high one.
    is_relieving: bool,
}

/// How full a pool is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Room {
    /// What data may take, bytes.
    pub total_bytes: u64,
    pub free_bytes: u64,
}

/// What was done, or with a dry run would be.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize)]
pub struct Moved {
    /// Regular files looked at.
    pub files: u64,
    pub copied_files: u64,
    pub copied_bytes: u64,
    pub evicted_files: u64,
    pub evicted_bytes: u64,
    /// Files that rules or pins keep in the pool.
    pub kept_files: u64,
    pub failed_files: u64,
    /// What the tier does not have of all files, when the pass began. Only in passes that do something.
    pub dirty: Dirty,
    /// What is still too much, after all that may go: the pool's fill level, or a cache limit. Bytes.
    pub excess_bytes: u64,
}

/// What a tier does not have.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize)]
pub struct Dirty {
    pub files: u64,
    pub bytes: u64,
    /// When the oldest of that was written, nanoseconds since 1970.
    pub since_ns: Option<u64>,
}

impl Dirty {
    fn add(&mut self, other: Dirty) {
        self.files += other.files;
        self.bytes += other.bytes;
        self.since_ns = match (self.since_ns, other.since_ns) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
    }
}

/// Why a file is moved.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Why {
    /// A rule says so.
    Rule,
    /// The pool is too full.
    Fill,
    /// The policy's files take too much of it.
    Cache,
}

/// One file of a pass.
#[derive(Debug)]
pub struct Move<'a> {
    pub path: &'a [u8],
    pub action: Action,
    pub why: Why,
    /// Bytes copied and bytes given up, or why it failed.
    pub outcome: Result<(u64, u64)>,
}

/// What tells whether a file has changed since it was looked at.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Look {
    size: u64,
    mtime_ns: i64,
    ctime_ns: i64,
    stored_bytes: u64,
}

impl Look {
    fn of(stat: &Stat) -> Look {
        let Stat { size, mtime_ns, ctime_ns, stored_bytes, .. } = *stat;
        Look { size, mtime_ns, ctime_ns, stored_bytes }
    }
}

/// A directory's policy and what was found of its files.
struct Group {
    policy: Policy,
    /// Length of the directory's path, with the slash at its end.
    base: usize,
    /// What the pool has of the files, bytes.
    stored_bytes: u64,
    candidates: Vec<Candidate>,
}

/// A file that may go.
struct Candidate {
    used_ns: i64,
    /// What the pool would gain, about.
    bytes: u64,
    path: Vec<u8>,
}

/// A file that a rule wants moved.
struct Due {
    action: Action,
    path: Vec<u8>,
    /// Not if it came back later than this, nanoseconds since 1970.
    used_until_ns: Option<i64>,
}

/// A directory to be listed.
struct Todo {
    dir: Obj,
    path: Vec<u8>,
    group: Option<usize>,
    is_pinned: bool,
}

/// Everything that a walk found.
#[derive(Default)]
struct Found {
    groups: Vec<Group>,
    due: Vec<Due>,
    moved: Moved,
}

/// What came of one file.
enum Outcome {
    /// Bytes copied and bytes given up.
    Moved(u64, u64),
    /// It came back after it was last used as far as its times tell: then, nanoseconds since 1970.
    Used(i64),
    /// It stays, whatever policies want.
    Pinned,
    /// It was removed or renamed.
    Gone,
}

impl Mover {
    /// Moves files of a mount to the store that is its tier.
    pub fn new(fs: &Dfs, store: &Store, tier: &str) -> Mover {
        let sys = Sys::new(fs.clone());
        let (fs, store, tier) = (fs.clone(), store.clone(), tier.to_string());
        Mover {
            fs,
            sys,
            store,
            tier,
            known: HashMap::new(),
            uses: HashMap::new(),
            fill: Rc::default(),
            is_relieving: false,
        }
    }

    /// The fill level that policies of the last pass are about; the lowest, if there are several. Changes with each pass.
    pub fn fill(&self) -> Rc<Cell<Option<Fill>>> {
        self.fill.clone()
    }

    /// Does what is due; with `dry_run` only says what that is. `told` hears of every file that is moved or cannot be.
    ///
    /// Errors: those of the walk; a file that fails is counted and does not end the pass.
    #[boxed(?Send)]
    pub async fn pass(
        &mut self,
        room: Room,
        dry_run: bool,
        told: &mut dyn FnMut(&Move<'_>),
    ) -> Result<Moved> {
        let Found { groups, due, mut moved } = self.walk(!dry_run).await?;
        let fills = groups.iter().filter_map(|group| group.policy.fill);
        self.fill.set(fills.min_by_key(|fill| fill.high));
        let mut gone: HashSet<Vec<u8>> = HashSet::new();
        for due in due {
            let outcome = self.move_file(&due.path, due.action, due.used_until_ns, dry_run).await;
            match count(&mut moved, &due.path, due.action, Why::Rule, outcome, told) {
                Some(Outcome::Moved(..)) if due.action == Action::Evict => {
                    gone.insert(due.path);
                }
                _ => {}
            }
        }
        let mut free_bytes = room.free_bytes.saturating_add(moved.evicted_bytes);
        let goes_on = self.is_relieving;
        let mut is_relieving = false;
        for Group { policy, stored_bytes, candidates, .. } in groups {
            let before = moved.evicted_bytes;
            let by_rules = candidates.iter().filter(|one| gone.contains(&one.path));
            let stored_bytes = stored_bytes.saturating_sub(by_rules.map(|one| one.bytes).sum());
            let mut left: Vec<_> =
                candidates.into_iter().filter(|one| !gone.contains(&one.path)).collect();
            if let Some(fill) = policy.fill {
                let excess = excess(fill, room.total_bytes, free_bytes, goes_on);
                let failed_before = moved.failed_files;
                left = self.relieve(left, excess, Why::Fill, dry_run, &mut moved, told).await;
                let remaining = excess.saturating_sub(moved.evicted_bytes - before);
                moved.excess_bytes += remaining;
                // Where nothing else may go the next pass would find nothing, either.
                is_relieving |= remaining > 0 && moved.failed_files > failed_before;
            }
            if let Some(max) = policy.cache {
                let stored_bytes = stored_bytes.saturating_sub(moved.evicted_bytes - before);
                let excess = stored_bytes.saturating_sub(max.bytes(room.total_bytes));
                let before = moved.evicted_bytes;
                self.relieve(left, excess, Why::Cache, dry_run, &mut moved, told).await;
                moved.excess_bytes += excess.saturating_sub(moved.evicted_bytes - before);
            }
            free_bytes = free_bytes.saturating_add(moved.evicted_bytes - before);
        }
        if !dry_run {
            self.is_relieving = is_relieving;
        }
        Ok(moved)
    }

    /// Gives up the least recently used of some files until `excess` bytes are gone; returns those that may still go.
    async fn relieve(
        &mut self,
        mut candidates: Vec<Candidate>,
        excess: u64,
        why: Why,
        dry_run: bool,
        moved: &mut Moved,
        told: &mut dyn FnMut(&Move<'_>),
    ) -> Vec<Candidate> {
        let until = moved.evicted_bytes.saturating_add(excess);
        // The next to go is the last.
        candidates.sort_by_key(|one| std::cmp::Reverse(one.used_ns));
        let mut later: Vec<Candidate> = Vec::new();
        let mut is_second = false;
        while moved.evicted_bytes < until {
            let Some(one) = candidates.pop() else {
                if is_second || later.is_empty() {
                    break;
                }
                // Then those that somebody has brought back, for there is nothing else.
                is_second = true;
                later.sort_by_key(|one| std::cmp::Reverse(one.used_ns));
                std::mem::swap(&mut candidates, &mut later);
                continue;
            };
            let used_until_ns = (!is_second).then_some(one.used_ns);
            let outcome = self.move_file(&one.path, Action::Evict, used_until_ns, dry_run).await;
            if let Some(Outcome::Used(used_ns)) =
                count(moved, &one.path, Action::Evict, why, outcome, told)
            {
                later.push(Candidate { used_ns, ..one });
            }
        }
        candidates.append(&mut later);
        candidates
    }

    async fn move_file(
        &self,
        path: &[u8],
        action: Action,
        used_until_ns: Option<i64>,
        dry_run: bool,
    ) -> Result<Outcome> {
        let moved: Result<Outcome> = async {
            let file = self.sys.open(path, OpenFlags::READ, 0, &Default::default()).await?;
            let survey = self.fs.tier_survey(&file).await?;
            if action == Action::Evict {
                if self.fs.tier_marks(&file).await?.is_pinned {
                    return Ok(Outcome::Pinned);
                }
                let back_ns = i64::try_from(survey.back_ns()).unwrap_or(i64::MAX);
                if used_until_ns.is_some_and(|until_ns| back_ns > until_ns) {
                    return Ok(Outcome::Used(back_ns));
                }
            }
            let record = copy_in(&self.tier, self.fs.tier_record(&file).await?);
            let (mut copied, mut evicted) = (survey.dirty(record.as_ref()).0, 0);
            if !dry_run {
                let synced = sync_file(&self.fs, &file, &self.store, &self.tier, &|_| {}).await?;
                copied = synced.sent_bytes;
            }
            if action == Action::Evict {
                evicted = match dry_run {
                    true => in_pool(&survey),
                    false => {
                        let done = evict_file(&self.fs, &file, &self.store, &self.tier, &|_| {});
                        done.await?.evicted_bytes
                    }
                };
            }
            Ok(Outcome::Moved(copied, evicted))
        }
        .await;
        match moved {
            Err(error) if error.code == Code::NonExist && error.text.is_empty() => {
                Ok(Outcome::Gone)
            }
            outcome => outcome,
        }
    }

    /// What is dirty of a file, which is asked only if it looks otherwise than when it was asked before. One that cannot be asked
    /// counts as all dirty.
    async fn dirty(&mut self, path: &[u8], stat: &Stat) -> Dirty {
        let look = Look::of(stat);
        if let Some((_, dirty)) = self.known.get(&stat.oid).filter(|(known, _)| *known == look) {
            return *dirty;
        }
        let asked = async {
            let file = self.sys.lookup(path, false).await?;
            let record = copy_in(&self.tier, self.fs.tier_record(&file).await?);
            let (bytes, since_ns) = self.fs.tier_survey(&file).await?.dirty(record.as_ref());
            let files = u64::from(since_ns.is_some());
            Ok(Dirty { files, bytes, since_ns })
        };
        let outcome: Result<Dirty> = asked.await;
        let since_ns = Some(stat.mtime_ns.max(0) as u64);
        match outcome {
            Ok(dirty) => {
                if self.known.len() >= KNOWN_MAX {
                    self.known.clear();
                }
                self.known.insert(stat.oid, (look, dirty));
                dirty
            }
            Err(error) if error.code == Code::NonExist => Dirty::default(),
            Err(_) => Dirty { files: 1, bytes: stat.size, since_ns },
        }
    }

    /// Looks at all names of the container.
    async fn walk(&mut self, asks_dirty: bool) -> Result<Found> {
        let now_ns = self.fs.container().client().env().wall_ns() as i64;
        let notes_uses = asks_dirty;
        let root = self.fs.root().await?;
        let mut todo = vec![Todo { dir: root, path: b"/".to_vec(), group: None, is_pinned: false }];
        let (mut found, mut seen) = (Found::default(), HashSet::new());
        while let Some(mut here) = todo.pop() {
            let marks = match self.fs.tier_marks(&here.dir).await {
                Err(error) if error.code == Code::NonExist => continue,
                marks => marks.map_err(|error| named(error, &here.path))?,
            };
            enter(&mut here, marks, &mut found)?;
            let mut anchor = DirAnchor::start();
            while !anchor.is_end() {
                let page = self.fs.readdirplus(&here.dir, &mut anchor, PAGE_ENTRIES).await;
                for (entry, stat) in page.map_err(|error| named(error, &here.path))? {
                    let path = [&here.path[..], &entry.name[..]].concat();
                    match stat.kind() {
                        FileKind::Directory => {
                            let dir = match self.sys.lookup(&path, false).await {
                                Err(error) if error.code == Code::NonExist => continue,
                                dir => dir.map_err(|error| named(error, &path))?,
                            };
                            let path = [&path[..], b"/"].concat();
                            let (group, is_pinned) = (here.group, here.is_pinned);
                            todo.push(Todo { dir, path, group, is_pinned });
                        }
                        FileKind::Regular => {
                            let is_first = stat.nlink < 2 || seen.insert(stat.oid);
                            if is_first {
                                if asks_dirty {
                                    let dirty = self.dirty(&path, &stat).await;
                                    found.moved.dirty.add(dirty);
                                }
                                let group = here.group.and_then(|group| found.groups.get(group));
                                let uses = match group.is_some_and(|group| group.policy.asks_uses())
                                {
                                    true => self.uses(&path, &stat, now_ns, notes_uses).await,
                                    false => Uses::default(),
                                };
                                self.judge(&here, path, &stat, uses, now_ns, &mut found);
                            }
                        }
                        FileKind::Symlink
                        | FileKind::Fifo
                        | FileKind::Socket
                        | FileKind::CharDevice
                        | FileKind::BlockDevice => {}
                    }
                }
            }
        }
        Ok(found)
    }

    /// Days that a file was used on: those noted before, and those of its times now, which are noted, too, if `notes` says so. Who
    /// passes at least once a day misses none.
    async fn uses(&mut self, path: &[u8], stat: &Stat, now_ns: i64, notes: bool) -> Uses {
        let today = day_of(now_ns);
        let noted = self.uses.get(&stat.oid).copied();
        let days = [stat.atime_ns, stat.mtime_ns].map(day_of);
        // A time that is ahead of the clock says nothing.
        let with_days = |mut uses: Uses| {
            days.into_iter().filter(|day| *day <= today).for_each(|day| uses.add(day));
            uses
        };
        if let Some(noted) = noted.filter(|noted| with_days(*noted) == *noted) {
            return noted;
        }
        let asked = async {
            let file = self.sys.lookup(path, false).await?;
            let noted = match noted {
                Some(noted) => noted,
                None => self.fs.tier_uses(&file).await?,
            };
            let uses = with_days(noted);
            if notes && uses != noted {
                self.fs.set_tier_uses(&file, uses).await?;
            }
            Ok::<Uses, Error>(uses)
        };
        match asked.await {
            Ok(uses) => {
                if notes {
                    if self.uses.len() >= KNOWN_MAX {
                        self.uses.clear();
                    }
                    self.uses.insert(stat.oid, uses);
                }
                uses
            }
            Err(error) => {
                tracing::debug!("uses of {}: {error}", String::from_utf8_lossy(path));
                with_days(noted.unwrap_or_default())
            }
        }
    }

    /// True when it is known that the tier has all of a file.
    fn is_clean(&self, stat: &Stat) -> bool {
        let known = self.known.get(&stat.oid);
        known.is_some_and(|(look, dirty)| *look == Look::of(stat) && dirty.files == 0)
    }

    /// Decides what becomes of a file.
    fn judge(
        &self,
        here: &Todo,
        path: Vec<u8>,
        stat: &Stat,
        uses: Uses,
        now_ns: i64,
        found: &mut Found,
    ) {
        found.moved.files += 1;
        let Some(group) = here.group.and_then(|group| found.groups.get_mut(group)) else { return };
        group.stored_bytes += stat.stored_bytes;
        let is_pinned = here.is_pinned;
        let facts = Facts {
            path: path.get(group.base..).unwrap_or_default(),
            size: stat.size,
            used_ns: stat.atime_ns.max(stat.mtime_ns),
            changed_ns: stat.mtime_ns,
            uses,
        };
        let rule = group.policy.decide(&facts, now_ns);
        // A copy takes nothing away.
        let rule = rule.filter(|rule| !is_pinned || rule.action == Action::Copy);
        let action = rule.map(|rule| rule.action);
        found.moved.kept_files += u64::from(is_pinned || action == Some(Action::Keep));
        let gain = gain(stat);
        match action {
            Some(Action::Keep) => return,
            Some(action @ Action::Copy) if !self.is_clean(stat) => {
                let path = path.clone();
                found.due.push(Due { action, path, used_until_ns: None });
            }
            Some(action @ Action::Evict) if gain > 0 => {
                let unused_s = rule.and_then(|rule| rule.unused_s);
                // No age is longer than a century.
                let used_until_ns =
                    unused_s.map(|age_s| now_ns.saturating_sub(age_s as i64 * 1_000_000_000));
                let path = path.clone();
                found.due.push(Due { action, path, used_until_ns });
            }
            Some(Action::Copy | Action::Evict) | None => {}
        }
        let may_go = group.policy.fill.is_some() || group.policy.cache.is_some();
        if may_go && !is_pinned && gain > 0 {
            group.candidates.push(Candidate { used_ns: facts.used_ns, bytes: gain, path });
        }
    }
}

/// Takes the marks of a directory into account.
fn enter(here: &mut Todo, marks: Marks, found: &mut Found) -> Result<()> {
    here.is_pinned |= marks.is_pinned;
    let Some(text) = marks.policy else { return Ok(()) };
    let policy: Policy = String::from_utf8_lossy(&text)
        .parse()
        .map_err(|error: Error| named(error.context("its policy"), &here.path))?;
    here.group = Some(found.groups.len());
    let base = here.path.len();
    found.groups.push(Group { policy, base, stored_bytes: 0, candidates: Vec::new() });
    Ok(())
}

/// What the pool would gain if a file went, about: the chunk with its end stays, and a stub in place of each other.
fn gain(stat: &Stat) -> u64 {
    let chunk_bytes = stat.chunk_bytes.max(1);
    let chunks = stat.size.div_ceil(chunk_bytes);
    if chunks < 2 {
        return 0;
    }
    let end = stat.size - (chunks - 1) * chunk_bytes;
    stat.stored_bytes.saturating_sub(end + chunks * STUB_BYTES_MAX)
}

/// Bytes of a file that could be given up if the copy had all.
fn in_pool(survey: &Survey) -> u64 {
    let there = (0..survey.chunks.len())
        .filter(|&at| survey.may_go(at) && matches!(survey.chunks[at], Chunk::Data { .. }));
    there.count() as u64 * survey.chunk_bytes
}

/// Bytes that have to go from a pool: none below the high mark, unless an earlier pass `goes_on`; else those above the low one.
fn excess(fill: Fill, total_bytes: u64, free_bytes: u64, goes_on: bool) -> u64 {
    let used = total_bytes.saturating_sub(free_bytes) as u128 * 100;
    if !goes_on && used < total_bytes as u128 * fill.high as u128 {
        return 0;
    }
    (used.saturating_sub(total_bytes as u128 * fill.low as u128) / 100) as u64
}

/// Counts what came of a file, and tells it; returns it unless it is an error.
fn count(
    moved: &mut Moved,
    path: &[u8],
    action: Action,
    why: Why,
    outcome: Result<Outcome>,
    told: &mut dyn FnMut(&Move<'_>),
) -> Option<Outcome> {
    let (outcome, shown) = match outcome {
        Ok(Outcome::Moved(copied, evicted)) => {
            moved.copied_files += u64::from(copied > 0);
            moved.copied_bytes += copied;
            moved.evicted_files += u64::from(evicted > 0);
            moved.evicted_bytes += evicted;
            let shown = (copied + evicted > 0).then_some(Ok((copied, evicted)));
            (Some(Outcome::Moved(copied, evicted)), shown)
        }
        Ok(other) => {
            moved.kept_files += u64::from(matches!(other, Outcome::Pinned));
            (Some(other), None)
        }
        Err(error) => {
            moved.failed_files += 1;
            (None, Some(Err(error)))
        }
    };
    if let Some(outcome) = shown {
        told(&Move { path, action, why, outcome });
    }
    outcome
}

fn named(error: Error, path: &[u8]) -> Error {
    error.context(String::from_utf8_lossy(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_to_go_is_what_is_above_the_low_mark() {
        let fill = Fill { high: 80, low: 50 };
        let first = |total, free| excess(fill, total, free, false);
        assert_eq!(first(1000, 201), 0);
        assert_eq!(first(1000, 200), 300);
        assert_eq!(first(1000, 0), 500);
        assert_eq!(first(1000, 2000), 0);
        assert_eq!(first(u64::MAX, 0), u64::MAX / 2);
        // A pool of nothing is full, and nothing helps.
        assert_eq!(first(0, 0), 0);
    }

    /// A store that failed for most files of a pass left the pool just below the high mark, and there it stayed.
    #[test]
    fn a_pass_that_failed_is_gone_on_with_down_to_the_low_mark() {
        let fill = Fill { high: 80, low: 50 };
        assert_eq!(excess(fill, 1000, 201, true), 299);
        assert_eq!(excess(fill, 1000, 500, true), 0);
        assert_eq!(excess(fill, 1000, 501, true), 0);
    }
}
