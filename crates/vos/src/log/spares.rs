//! Segments kept ahead: emptied ones, and files that have their space already.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use env::{Disk, File, OpenOptions};
use types::{Code, Error, Result};

use crate::log::wal::{SEGMENT_BYTES, fill_segment, segment_options, segment_path};

/// Segments kept for the next checkpoint.
pub(crate) const SPARES_KEPT: usize = 1;
/// Emptied segments kept at most.
const EMPTIED_COUNT_MAX: usize = 4;

/// Segments that the log can begin at any time.
pub(crate) struct Spares {
    disk: Rc<dyn Disk>,
    dir: PathBuf,
    /// Numbers of segments that a checkpoint has emptied.
    emptied: RefCell<VecDeque<u64>>,
    /// Numbers of files that have their space and no zeros yet.
    set_aside: RefCell<VecDeque<u64>>,
    next: Cell<u64>,
}

fn spare_path(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("spare.{number}"))
}

impl Spares {
    /// What is ready in the directory of a log that begins with segment `first`. `strays` are
    /// segments that are not part of it.
    pub(crate) async fn open(
        disk: &Rc<dyn Disk>,
        dir: &Path,
        strays: &[u64],
        first: u64,
    ) -> Result<Spares> {
        let spares = Spares {
            disk: disk.clone(),
            dir: dir.to_path_buf(),
            emptied: RefCell::default(),
            set_aside: RefCell::default(),
            next: Cell::new(0),
        };
        for entry in disk.list(dir).await? {
            let number = entry.name.strip_prefix("spare.").and_then(|n| n.parse::<u64>().ok());
            let Some(number) = number else { continue };
            spares.next.set(spares.next.get().max(number.saturating_add(1)));
            spares.keep_or_remove(number).await?;
        }
        for &number in strays {
            if number < first {
                spares.put_back(number).await?;
                continue;
            }
            // Later ones are in the way of the log.
            let spare = spares.next.replace(spares.next.get() + 1);
            disk.rename(&segment_path(dir, number), &spare_path(dir, spare)).await?;
            spares.keep_or_remove(spare).await?;
        }
        Ok(spares)
    }

    /// A crash may have left less than was to be set aside.
    async fn keep_or_remove(&self, number: u64) -> Result<()> {
        let path = spare_path(&self.dir, number);
        let bytes = self.disk.open(&path, OpenOptions::default()).await?.len()?;
        if bytes != SEGMENT_BYTES || self.count() >= EMPTIED_COUNT_MAX {
            return self.disk.remove(&path).await;
        }
        self.set_aside.borrow_mut().push_back(number);
        Ok(())
    }

    /// Segments ready.
    pub(crate) fn count(&self) -> usize {
        self.emptied.borrow().len() + self.set_aside.borrow().len()
    }

    /// Sets segments aside until `count` are ready. `NoSpace` when there is no room for that.
    pub(crate) async fn set_aside(&self, count: usize) -> Result<()> {
        while self.count() < count {
            let number = self.next.replace(self.next.get() + 1);
            let path = spare_path(&self.dir, number);
            let made = async {
                let options = OpenOptions { create: true, ..OpenOptions::default() };
                let file = self.disk.open(&path, options).await?;
                file.allocate(0, SEGMENT_BYTES).await?;
                file.sync().await?;
                self.disk.sync_dir(&self.dir).await
            };
            if let Err(error) = made.await {
                // It may not be there at all.
                let _ = self.disk.remove(&path).await;
                return Err(error.context("setting room aside for the log"));
            }
            self.set_aside.borrow_mut().push_back(number);
        }
        Ok(())
    }

    /// Makes one that is ready the segment at `path`, which is durable when the directory is synced.
    /// `NoSpace` when none is.
    pub(crate) async fn take(&self, path: &Path) -> Result<Rc<dyn File>> {
        let emptied = self.emptied.borrow_mut().pop_front();
        if let Some(number) = emptied {
            self.disk.rename(&segment_path(&self.dir, number), path).await?;
            return self.disk.open(path, segment_options()).await;
        }
        let spare = self.set_aside.borrow_mut().pop_front();
        let number = spare.ok_or_else(|| Error::bare(Code::NoSpace))?;
        let from = spare_path(&self.dir, number);
        let filled = fill_segment(&self.disk, &from, path, SEGMENT_BYTES).await;
        if filled.as_ref().is_err_and(|error| error.code == Code::NoSpace) {
            self.set_aside.borrow_mut().push_back(number);
        }
        filled
    }

    /// Keeps a segment that a checkpoint has emptied, or removes it.
    pub(crate) async fn put_back(&self, number: u64) -> Result<()> {
        let path = segment_path(&self.dir, number);
        let bytes = self.disk.open(&path, OpenOptions::default()).await?.len()?;
        if bytes == SEGMENT_BYTES && self.emptied.borrow().len() < EMPTIED_COUNT_MAX {
            self.emptied.borrow_mut().push_back(number);
            return Ok(());
        }
        self.disk.remove(&path).await
    }
}
