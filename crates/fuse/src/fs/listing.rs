//! An open directory: where each offset that the kernel may name leads.
//!
//! Entries come from the engines in pages. The page in hand is kept, so that a program that
//! reads with a small buffer, or removes what it has just read, gets each entry exactly once. Of
//! older pages their start and a digest per entry remain, for `seekdir`.
//!
//! | offset | continues with |
//! |---|---|
//! | 0 | `.`, after a fresh start |
//! | 1 | `..` |
//! | 2 + n | entry n |

use dfs::{Dfs, DirAnchor, DirEntry, FileKind, Obj, SharedObj, Stat};
use types::{Key, Result, hash};

/// Entries asked for at a time.
const PAGE_ENTRIES: u32 = 2048;
/// Offset of the first entry.
pub const ENTRIES_FROM: u64 = 2;

/// An entry of a page.
pub struct Item {
    pub name: Key,
    pub kind: FileKind,
    pub ino: u64,
    /// Object and attributes, if they were asked for.
    pub full: Option<(SharedObj, Stat)>,
}

/// The page in hand.
pub struct Page {
    /// Place of the first entry in the whole listing.
    first: u64,
    pub items: Vec<Item>,
    /// The last change of the table before it was read.
    pub as_of: u64,
    /// When it was asked for, nanoseconds since 1970.
    pub asked_ns: u64,
}

/// What remains of a page.
struct Mark {
    first: u64,
    anchor: DirAnchor,
    digests: Vec<u64>,
}

/// A directory being listed.
pub struct Listing {
    marks: Vec<Mark>,
    page: Option<Page>,
    next: DirAnchor,
    next_first: u64,
}

impl Default for Listing {
    fn default() -> Listing {
        Listing { marks: Vec::new(), page: None, next: DirAnchor::start(), next_first: 0 }
    }
}

impl Listing {
    /// Makes entry `at` the first one of what [`Listing::rest`] returns; false when there is none.
    /// `plus`: attributes are wanted too.
    pub async fn seek(
        &mut self,
        dfs: &Dfs,
        dir: &Obj,
        at: u64,
        plus: bool,
        as_of: impl Fn() -> u64,
    ) -> Result<bool> {
        loop {
            if self.page.as_ref().is_some_and(|page| page.position(at).is_some()) {
                return Ok(true);
            }
            if at < self.next_first {
                self.read_again(dfs, dir, at, plus, as_of()).await?;
                continue;
            }
            if self.next.is_end() {
                return Ok(false);
            }
            let (anchor, first) = (self.next.clone(), self.next_first);
            let mut next = anchor.clone();
            let (as_of, asked_ns) = (as_of(), now_ns(dfs));
            let items = read(dfs, dir, &mut next, plus).await?;
            self.next = next;
            if items.is_empty() {
                continue;
            }
            self.next_first = first + items.len() as u64;
            let digests = items.iter().map(|item| hash::bytes(&item.name)).collect();
            self.marks.push(Mark { first, anchor, digests });
            self.page = Some(Page { first, items, as_of, asked_ns });
        }
    }

    /// Reads a page once more. Entries that vanished since leave their places to a name that
    /// nobody has, which is never given out.
    async fn read_again(
        &mut self,
        dfs: &Dfs,
        dir: &Obj,
        at: u64,
        plus: bool,
        as_of: u64,
    ) -> Result<()> {
        let index = self.marks.partition_point(|mark| mark.first <= at).saturating_sub(1);
        let Some(mark) = self.marks.get(index) else { return Ok(()) };
        let asked_ns = now_ns(dfs);
        let mut anchor = mark.anchor.clone();
        let mut found: Vec<Item> = Vec::new();
        // New names may have come in between, so that the same stretch takes more pages.
        let last = mark.digests.last().copied();
        while !anchor.is_end() {
            found.extend(read(dfs, dir, &mut anchor, plus).await?);
            let passed = found.iter().any(|item| Some(hash::bytes(&item.name)) == last);
            if passed || found.len() >= mark.digests.len() * 2 {
                break;
            }
        }
        let mut found = found.into_iter();
        let mut rest: Vec<(u64, Item)> =
            found.by_ref().map(|item| (hash::bytes(&item.name), item)).collect();
        let items = mark.digests.iter().map(|digest| {
            match rest.iter().position(|(other, _)| other == digest) {
                Some(place) => rest.remove(place).1,
                None => Item { name: Key::new(b""), kind: FileKind::Regular, ino: 0, full: None },
            }
        });
        let items = items.collect();
        self.page = Some(Page { first: mark.first, items, as_of, asked_ns });
        Ok(())
    }

    /// The page in hand, and the places in it from entry `at` on.
    pub fn rest(&self, at: u64) -> Option<(&Page, std::ops::Range<usize>)> {
        let page = self.page.as_ref()?;
        let from = page.position(at)?;
        Some((page, from..page.items.len()))
    }
}

impl Page {
    fn position(&self, at: u64) -> Option<usize> {
        let place = at.checked_sub(self.first)? as usize;
        (place < self.items.len()).then_some(place)
    }
}

async fn read(dfs: &Dfs, dir: &Obj, anchor: &mut DirAnchor, plus: bool) -> Result<Vec<Item>> {
    if plus {
        let page = dfs.readdir_objs(dir, anchor, PAGE_ENTRIES).await?;
        return Ok(page.into_iter().map(full_item).collect());
    }
    let page = dfs.readdir(dir, anchor, PAGE_ENTRIES).await?;
    Ok(page.into_iter().map(plain_item).collect())
}

fn full_item((name, shared, stat): (Key, SharedObj, Stat)) -> Item {
    Item { name, kind: stat.kind(), ino: stat.ino, full: Some((shared, stat)) }
}

fn plain_item(entry: DirEntry) -> Item {
    Item { name: entry.name, kind: entry.kind, ino: entry.ino, full: None }
}

/// See [`super::worker::Worker::now_ns`].
fn now_ns(dfs: &Dfs) -> u64 {
    dfs.container().client().env().now().as_nanos() as u64
}
