//! Requests about the data of open files.
//!
//! Bytes are moved once: a write goes from the kernel's request to the engine's buffer, a read
//! from there into the reply.

use super::fault::Answer;
use super::worker::Worker;
use crate::low::{Fh, Transfer};
use dfs::OpenFlags;

impl Worker {
    /// Reads; fewer bytes than asked for mean the end of the file.
    pub async fn read(&self, fh: Fh, at: Transfer, memory: &mut [u8]) -> Answer<usize> {
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
        Ok(read?)
    }

    /// Writes, at the end if the program appends; returns how many bytes, always all.
    pub async fn write(&self, fh: Fh, at: Transfer, data: &[u8]) -> Answer<usize> {
        let file = self.file(fh)?;
        // The end is where the engines say, not where this kernel believes: others append too.
        // Pages that the kernel writes back have their place already.
        let appends = at.flags.has(libc::O_APPEND)
            && !at.from_page_cache
            && !self.volume.options.policy.writes_back();
        let how = if appends { OpenFlags::APPEND } else { OpenFlags::NONE };
        let obj = self.data_obj(fh, &file, how);
        file.inode.touch(&self.volume.table);
        let written = self.dfs.write(&obj, at.offset, data).await;
        file.inode.touch(&self.volume.table);
        let written = written?;
        if !appends {
            file.inode.reaches(at.offset + written as u64);
        }
        if at.kill_suidgid {
            self.drop_privileges(&file.inode).await?;
        }
        Ok(written)
    }
}
