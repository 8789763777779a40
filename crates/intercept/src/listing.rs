//! The entries of a directory in the order in which a stream gives them: `.`, `..`, and then as
//! the servers list them, page by page.
//!
//! A place in it (`telldir`, `d_off`) is the number of entries before. Where each page began is
//! kept, so that a place may be gone back to.

use dfs::{Dfs, DirAnchor, FileKind, Obj};
use types::{Key, Result};

/// Entries asked for in one request.
const PAGE_ENTRIES: u32 = 1024;

/// An entry as a stream of a directory gives it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    pub name: Key,
    /// `d_ino`.
    pub ino: u64,
    /// `d_type`.
    pub kind: u8,
    /// Its place in the stream.
    pub place: u64,
}

/// A stream of entries.
pub struct Listing {
    page: Vec<Entry>,
    /// Place of the page's first entry.
    base: u64,
    /// Next entry, counted from the page's first.
    at: usize,
    anchor: DirAnchor,
    /// Places where pages begin, and how to get them.
    begins: Vec<(u64, DirAnchor)>,
}

/// `d_type` of a kind of object.
pub fn type_of(kind: FileKind) -> u8 {
    match kind {
        FileKind::Regular => libc::DT_REG,
        FileKind::Directory => libc::DT_DIR,
        FileKind::Symlink => libc::DT_LNK,
        FileKind::CharDevice => libc::DT_CHR,
        FileKind::BlockDevice => libc::DT_BLK,
        FileKind::Fifo => libc::DT_FIFO,
        FileKind::Socket => libc::DT_SOCK,
    }
}

impl Listing {
    pub fn new() -> Listing {
        Listing { page: Vec::new(), base: 0, at: 0, anchor: DirAnchor::start(), begins: Vec::new() }
    }

    /// Entries given so far.
    pub fn place(&self) -> u64 {
        self.base + self.at as u64
    }

    /// The next entry; none at the end.
    pub async fn next(&mut self, fs: &Dfs, dir: &Obj) -> Result<Option<Entry>> {
        loop {
            if let Some(entry) = self.page.get(self.at) {
                self.at += 1;
                return Ok(Some(entry.clone()));
            }
            if self.anchor.is_end() && !self.begins.is_empty() {
                return Ok(None);
            }
            self.turn(fs, dir).await?;
        }
    }

    /// Gives the last entry back.
    pub fn back(&mut self) {
        self.at = self.at.saturating_sub(1);
    }

    /// Reads the next page.
    async fn turn(&mut self, fs: &Dfs, dir: &Obj) -> Result<()> {
        let base = self.base + self.page.len() as u64;
        let mut page = Vec::new();
        let mut place = base;
        let mut push = |name: Key, ino, kind| {
            page.push(Entry { name, ino, kind, place });
            place += 1;
        };
        let mut anchor = self.anchor.clone();
        if base == 0 {
            push(Key::new(b"."), dir.ino(), libc::DT_DIR);
            push(Key::new(b".."), dir.parent_oid().lo, libc::DT_DIR);
        }
        for entry in fs.readdir(dir, &mut anchor, PAGE_ENTRIES).await? {
            push(entry.name, entry.ino, type_of(entry.kind));
        }
        let begin = std::mem::replace(&mut self.anchor, anchor);
        if self.begins.last().is_none_or(|(last, _)| *last < base) {
            self.begins.push((base, begin));
        }
        (self.page, self.base, self.at) = (page, base, 0);
        Ok(())
    }

    /// Goes to a place given before.
    pub async fn seek(&mut self, fs: &Dfs, dir: &Obj, place: u64) -> Result<()> {
        if place >= self.base && place <= self.base + self.page.len() as u64 {
            self.at = (place - self.base) as usize;
            return Ok(());
        }
        let known = self.begins.iter().rev().find(|(base, _)| *base <= place).cloned();
        // After a rewind no page is known, and places given before are right all the same.
        let (base, anchor) = known.unwrap_or_else(|| (0, DirAnchor::start()));
        self.base = base;
        self.page = Vec::new();
        self.at = 0;
        self.anchor = anchor;
        self.turn(fs, dir).await?;
        while place > self.base + self.page.len() as u64 && !self.anchor.is_end() {
            self.turn(fs, dir).await?;
        }
        self.at = ((place - self.base) as usize).min(self.page.len());
        Ok(())
    }
}
