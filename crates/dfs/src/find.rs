//! Searching a tree, many directories at a time.
//!
//! Each part of each directory (its shards) is a unit of work, so that one huge directory is
//! listed by several requests at once as well. Entries come in no order. What appears or
//! vanishes during the walk may or may not be seen.

use crate::attr::Stat;
use crate::dir::DirAnchor;
use crate::entry::Found;
use crate::flags::OpenFlags;
use crate::fs::Dfs;
use crate::glob;
pub use crate::glob::matches as name_matches;
use crate::inode::FileKind;
use crate::node::{Location, Obj};
use futures_util::stream::{FuturesUnordered, StreamExt};
use types::{Code, Key, Result};

/// Entries listed at a time.
const PAGE_ENTRIES: u32 = 1024;

/// What to look for; everything set must hold.
#[derive(Clone, Debug)]
pub struct Query {
    /// Shell pattern for the name.
    pub name: Option<Vec<u8>>,
    pub kind: Option<FileKind>,
    /// Modified after this time, nanoseconds since 1970.
    pub newer_than_ns: Option<i64>,
    /// Exactly this size, bytes; of anything but files and symbolic links 0.
    pub size: Option<u64>,
    /// Directories below the start to go down; 1: the start's own entries only.
    pub depth_max: usize,
    /// Requests at the same time.
    pub parallel: usize,
    /// Attributes are wanted with each match.
    pub with_stat: bool,
}

impl Default for Query {
    fn default() -> Query {
        Query {
            name: None,
            kind: None,
            newer_than_ns: None,
            size: None,
            depth_max: usize::MAX,
            parallel: 16,
            with_stat: false,
        }
    }
}

/// An entry that a search has found.
#[derive(Clone, Debug)]
pub struct Match {
    /// Its path, seen from the start of the search, without a leading slash.
    pub path: Vec<u8>,
    pub kind: FileKind,
    /// Number of its object.
    pub ino: u64,
    /// Its attributes, where the query needed or wanted them.
    pub stat: Option<Stat>,
}

/// What a search saw.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Totals {
    /// Entries looked at, the start not counted.
    pub seen: u64,
    /// Of these, found.
    pub matched: u64,
    /// Directories that could not be listed for lack of permission.
    pub denied: u64,
}

/// A part of a directory to list.
struct Part {
    dir: Obj,
    path: Vec<u8>,
    depth: usize,
    anchor: DirAnchor,
}

/// What one request brought.
struct Page {
    part: Part,
    seen: u64,
    denied: bool,
    matches: Vec<Match>,
    dirs: Vec<(Obj, Vec<u8>)>,
}

impl Dfs {
    /// Walks the tree below `start` and hands what matches to `on_match`, whose error ends the
    /// search.
    pub async fn find(
        &self,
        start: &Obj,
        query: &Query,
        mut on_match: impl FnMut(Match) -> Result<()>,
    ) -> Result<Totals> {
        let mut totals = Totals::default();
        let mut waiting = self.parts(start.clone(), Vec::new(), 1, query).await?;
        let mut running = FuturesUnordered::new();
        loop {
            while running.len() < query.parallel.max(1)
                && let Some(part) = waiting.pop()
            {
                running.push(self.find_page(part, query));
            }
            let Some(page) = running.next().await else {
                return Ok(totals);
            };
            let page: Page = page?;
            totals.seen += page.seen;
            totals.matched += page.matches.len() as u64;
            totals.denied += page.denied as u64;
            for found in page.matches {
                on_match(found)?;
            }
            let depth = page.part.depth;
            for (dir, path) in page.dirs {
                waiting.extend(self.parts(dir, path, depth + 1, query).await?);
            }
            if !page.part.anchor.is_end() {
                waiting.push(page.part);
            }
        }
    }

    async fn parts(
        &self,
        dir: Obj,
        path: Vec<u8>,
        depth: usize,
        query: &Query,
    ) -> Result<Vec<Part>> {
        if depth > query.depth_max {
            return Ok(Vec::new());
        }
        let shards = self.shared.cont.units_in_use(dir.oid()).await?.len();
        let anchors = self.split(&dir, shards.min(query.parallel.max(1)) as u32).await?;
        let part = |anchor| Part { dir: dir.clone(), path: path.clone(), depth, anchor };
        Ok(anchors.into_iter().map(part).collect())
    }

    async fn find_page(&self, part: Part, query: &Query) -> Result<Page> {
        let needs_stat = query.with_stat || query.newer_than_ns.is_some() || query.size.is_some();
        let mut page = Page { part, seen: 0, denied: false, matches: Vec::new(), dirs: Vec::new() };
        let part = &mut page.part;
        let listed = self.read_page(&part.dir, &mut part.anchor, PAGE_ENTRIES, needs_stat).await;
        let entries = match listed {
            Ok(entries) => entries,
            Err(error) if error.code == Code::Access => {
                page.denied = true;
                part.anchor = DirAnchor::ended();
                return Ok(page);
            }
            Err(error) => return Err(error),
        };
        page.seen = entries.len() as u64;
        let mut candidates = Vec::new();
        for (name, found) in entries {
            let path = join(&page.part.path, &name);
            let plausible = query.name.as_ref().is_none_or(|glob| glob::matches(glob, &name))
                && query.kind.is_none_or(|kind| kind == found.inode.kind());
            if found.inode.is_dir() {
                let location = Location { parent: page.part.dir.oid(), name: name.clone() };
                let node = self.shared.node(location, found.inode);
                page.dirs.push((Obj::new(node, OpenFlags::READ), path.clone()));
            }
            if plausible {
                candidates.push((path, (name, found)));
            }
        }
        let (paths, entries): (Vec<Vec<u8>>, Vec<(Key, Found)>) = candidates.into_iter().unzip();
        let known: Vec<_> = entries.iter().map(|(_, f)| (f.inode.kind(), f.inode.oid.lo)).collect();
        let stats = if needs_stat {
            let told = self.shared.stat_page(page.part.dir.oid(), entries).await?;
            told.into_iter().map(|told| Some(told?.1)).collect()
        } else {
            vec![None; entries.len()]
        };
        for ((path, (kind, ino)), stat) in paths.into_iter().zip(known).zip(stats) {
            // Without attributes though they are needed: it vanished meanwhile.
            let fits = |stat: &Stat| {
                query.newer_than_ns.is_none_or(|limit| stat.mtime_ns > limit)
                    && query.size.is_none_or(|size| stat.size == size)
            };
            if !needs_stat || stat.as_ref().is_some_and(fits) {
                page.matches.push(Match { path, kind, ino, stat });
            }
        }
        Ok(page)
    }
}

fn join(dir: &[u8], name: &Key) -> Vec<u8> {
    if dir.is_empty() { name.to_vec() } else { [dir, b"/", name].concat() }
}
