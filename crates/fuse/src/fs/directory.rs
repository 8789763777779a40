//! Requests about listing directories.

use super::convert;
use super::fault::{Answer, Fault};
use super::files::OpenFile;
use super::listing::{ENTRIES_FROM, Item, Listing, Page};
use super::table::{ClosingMark, Inode};
use super::worker::Worker;
use dfs::Access;
use fuselow::{Attr, DirSink, Entry, Fh, FileKind, NodeId, Opened, Request};
use parking_lot::Mutex;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Attributes in a page are not given out when they are older than this.
const PAGE_TTL_MAX: Duration = Duration::from_secs(1);

impl Worker {
    /// Opens a directory. Nobody is asked where the kernel checks permissions: it has looked the
    /// directory up.
    pub async fn opendir(&self, req: &Request, node: NodeId) -> Answer<Opened> {
        let inode = self.inode(node)?;
        if !self.volume.options.kernel_checks {
            self.access(req, node, Access::READ.0).await?;
        }
        let listing = Some(futures_util::lock::Mutex::new(Listing::default()));
        inode.opened();
        let fh = self.volume.files.add(OpenFile {
            inode,
            thread: self.thread,
            append: false,
            lockers: Mutex::default(),
            closing: ClosingMark::default(),
            atime_due: AtomicBool::new(false),
            listing,
        });
        Ok(Opened { fh: Fh(fh), flags: 0 })
    }

    pub fn releasedir(&self, fh: Fh) {
        self.volume.files.remove(fh.0);
    }

    /// Entries from `offset` on, as many as fit.
    pub async fn readdir(
        &self,
        req: &Request,
        fh: Fh,
        offset: u64,
        sink: &mut DirSink<'_>,
    ) -> Answer {
        let file = self.file(fh)?;
        let listing = file.listing.as_ref().ok_or(Fault::Os(libc::ENOTDIR))?;
        let mut listing = listing.lock().await;
        if offset == 0 {
            *listing = Listing::default();
            if !push_dot(sink, file.inode.number(), 1, b".") {
                return Ok(());
            }
        }
        if offset <= 1 {
            let above = file.inode.shared().parent_oid().lo;
            if !push_dot(sink, above, ENTRIES_FROM, b"..") {
                return Ok(());
            }
        }
        let mut at = offset.saturating_sub(ENTRIES_FROM);
        let dfs = self.dfs_for(req);
        let dir = self.obj(&file.inode, dfs::OpenFlags::READ);
        // Who may only read the directory gets names.
        let may_search = || dfs.oaccess(&dir, Access::EXECUTE).is_ok();
        let plus = sink.is_plus() && (self.volume.options.kernel_checks || may_search());
        loop {
            let now = || self.volume.table.now();
            if !listing.seek(&dfs, &dir, at, plus, now).await? {
                return Ok(());
            }
            let Some((page, places)) = listing.rest(at) else { return Ok(()) };
            let ttl = self.page_ttl(page, &file.inode);
            for item in &page.items[places] {
                at += 1;
                // A place whose name vanished.
                if item.name.is_empty() {
                    continue;
                }
                if !self.push(sink, item, at + ENTRIES_FROM, page, ttl) {
                    return Ok(());
                }
            }
            // Another page would take another round trip for what may not fit.
            if sink.entries_left(32) < 16 {
                return Ok(());
            }
        }
    }

    /// How much longer the attributes in a page are good; `None` when they are not to be given.
    fn page_ttl(&self, page: &Page, dir: &Inode) -> Option<Duration> {
        if !dir.names_unchanged_since(page.as_of) {
            return None;
        }
        let age = Duration::from_nanos(self.now_ns().saturating_sub(page.asked_ns));
        (age < PAGE_TTL_MAX).then_some(age)
    }

    /// Adds an entry; false when it does not fit. `age`: of its attributes, if they are good.
    fn push(
        &self,
        sink: &mut DirSink<'_>,
        item: &Item,
        offset: u64,
        page: &Page,
        age: Option<Duration>,
    ) -> bool {
        let kind = convert::kind(item.kind);
        if !sink.is_plus() {
            return sink.push(item.ino, kind, offset, &item.name);
        }
        let known = self.volume.table.of_object(item.ino);
        // Nor is what somebody has asked about since: it may have changed elsewhere before that.
        let is_newest = known.is_none_or(|inode| {
            inode.unchanged_since(page.as_of) && !inode.is_known_since(page.asked_ns)
        });
        let (Some((shared, stat)), Some(age), true) = (&item.full, age, is_newest) else {
            return sink.push_plus(&nameless(item.ino), kind, offset, &item.name);
        };
        let found = self.volume.table.looked_up(shared, page.as_of, page.asked_ns);
        let mut entry = self.entry(found, stat, page.as_of);
        entry.attr_ttl = entry.attr_ttl.saturating_sub(age);
        entry.entry_ttl = entry.entry_ttl.saturating_sub(age);
        let taken = sink.push_plus(&entry, kind, offset, &item.name);
        if !taken {
            self.volume.table.forget(entry.node.0, 1);
        }
        taken
    }
}

/// An entry whose attributes the kernel must ask for.
fn nameless(ino: u64) -> Entry {
    Entry { attr: Attr { ino, ..Attr::default() }, ..Entry::negative(Duration::ZERO) }
}

fn push_dot(sink: &mut DirSink<'_>, ino: u64, offset: u64, name: &[u8]) -> bool {
    if sink.is_plus() {
        sink.push_plus(&nameless(ino), FileKind::Directory, offset, name)
    } else {
        sink.push(ino, FileKind::Directory, offset, name)
    }
}
