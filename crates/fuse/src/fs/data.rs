//! Requests about the data of open files.
//!
//! Bytes are moved once: a write goes from the kernel's request to the engine's buffer, a read
//! from there into the reply.

use super::fault::{Answer, Fault};
use super::worker::Worker;
use dfs::{AllocateFlags, Obj, OpenFlags};
use fuselow::{CopyRange, Fallocate, Fh, Request, Transfer};
use std::rc::Rc;
use std::sync::atomic::Ordering;

impl Worker {
    /// Reads; fewer bytes than asked for mean the end of the file.
    pub async fn read(self: &Rc<Self>, fh: Fh, at: Transfer, memory: &mut [u8]) -> Answer<usize> {
        let file = self.file(fh)?;
        let obj = self.data_obj(fh, &file, OpenFlags::NONE);
        let end = at.offset.saturating_add(memory.len() as u64);
        // Where the end is near, it is asked for along with the data.
        let inside = file.inode.size_told().is_some_and(|size| end <= size);
        let read = if inside {
            self.dfs.read(&obj, at.offset, memory).await
        } else {
            self.dfs.read_to_end(&obj, at.offset, memory).await
        };
        let read = read?;
        if file.atime_due.load(Ordering::Relaxed) && file.atime_due.swap(false, Ordering::Relaxed) {
            self.touch_atime(obj);
        }
        Ok(read)
    }

    /// Sets the access time of a file that was read. Nobody waits for it.
    fn touch_atime(self: &Rc<Self>, obj: Obj) {
        let worker = self.clone();
        self.env().spawn(async move {
            if let Err(error) = worker.dfs.touch_atime(&obj).await {
                tracing::debug!("the access time stays as it was: {error}");
            }
        });
    }

    /// Writes, at the end if the program appends; returns how many bytes, always all.
    pub async fn write(&self, fh: Fh, at: Transfer, data: &[u8]) -> Answer<usize> {
        let file = self.file(fh)?;
        // The end is where the engines say, not where this kernel believes: others append too.
        // Pages that the kernel writes back have their place already, and so has what goes through
        // a file that was made to append after it was opened.
        let appends = file.append && at.flags.has(libc::O_APPEND) && !at.from_page_cache;
        let how = if appends { OpenFlags::APPEND } else { OpenFlags::NONE };
        let obj = self.data_obj(fh, &file, how);
        file.inode.touch(&self.volume.table);
        let written = self.dfs.write(&obj, at.offset, data).await;
        file.inode.touch(&self.volume.table);
        let written = written?;
        // Where it keeps the size itself it takes what was appended for written where it believed the end to be.
        if !appends || self.volume.options.policy.writes_back() {
            file.inode.reaches(at.offset + written as u64);
        }
        if at.kill_suidgid {
            self.drop_privileges(&file.inode).await?;
        }
        Ok(written)
    }

    /// Returns when the data are as safe as the file's directories want it.
    pub async fn fsync(&self, fh: Fh) -> Answer {
        let file = self.file(fh)?;
        let obj = self.data_obj(fh, &file, OpenFlags::NONE);
        Ok(self.dfs.fsync(&obj).await?)
    }

    /// Allocates, punches, zeroes.
    pub async fn fallocate(&self, req: &Request, fh: Fh, range: Fallocate) -> Answer {
        let file = self.file(fh)?;
        let obj = self.data_obj(fh, &file, OpenFlags::NONE);
        let flags = AllocateFlags(range.mode);
        file.inode.touch(&self.volume.table);
        let done = self.dfs.fallocate(&obj, flags, range.offset, range.len).await;
        file.inode.touch(&self.volume.table);
        done?;
        if !flags.has(AllocateFlags::KEEP_SIZE) {
            file.inode.reaches(range.offset + range.len);
        }
        self.drop_privileges_of_others(req, &file.inode).await
    }

    /// Finds data or a hole.
    pub async fn lseek(&self, fh: Fh, offset: u64, whence: u32) -> Answer<u64> {
        // With write-back there may be data that only the kernel has: it shall take all for data.
        if self.volume.options.policy.writes_back() {
            return Err(Fault::Os(libc::ENOSYS));
        }
        let file = self.file(fh)?;
        let obj = self.data_obj(fh, &file, OpenFlags::NONE);
        match whence as i32 {
            libc::SEEK_DATA => Ok(self.dfs.seek_data(&obj, offset).await?),
            libc::SEEK_HOLE => Ok(self.dfs.seek_hole(&obj, offset).await?),
            _ => Err(Fault::Os(libc::EINVAL)),
        }
    }

    /// Copies within the file system; returns how many bytes.
    pub async fn copy_range(&self, req: &Request, copy: CopyRange) -> Answer<u64> {
        if copy.flags != 0 {
            return Err(Fault::Os(libc::EINVAL));
        }
        let (from, to) = (self.file(copy.fh_in)?, self.file(copy.fh_out)?);
        let source = self.data_obj(copy.fh_in, &from, OpenFlags::NONE);
        let target = self.data_obj(copy.fh_out, &to, OpenFlags::NONE);
        to.inode.touch(&self.volume.table);
        let copied =
            self.dfs.copy_range(&source, copy.offset_in, &target, copy.offset_out, copy.len).await;
        to.inode.touch(&self.volume.table);
        let copied = copied?;
        to.inode.reaches(copy.offset_out + copied);
        self.drop_privileges_of_others(req, &to.inode).await?;
        Ok(copied)
    }
}
