//! Data of regular files.
//!
//! Invariants: a read is short only at the end of the file; holes read as zeros. When a chunk
//! itself shows that the file goes beyond the range read, nobody is asked for the size.

use crate::flags::{Access, OpenFlags};
use crate::fs::Dfs;
use crate::inode::{FileKind, Inode, S_ISGID, S_ISUID};
use crate::node::{Node, Obj};
use crate::tier::Returning;
use async_recursion::async_recursion as boxed;
use client::ArrayObj;
use std::rc::Rc;
use types::{Code, DkeyKind, Error, Oid, Result};
use wire::obj::{Recx, Tail};

/// Largest file, bytes: the largest `off_t`.
pub const FILE_BYTES_MAX: u64 = i64::MAX as u64;

impl Dfs {
    /// Reads from `offset`; returns how many bytes there were. Fewer than asked for only at the
    /// end of the file.
    #[boxed(?Send)]
    pub async fn read(&self, file: &Obj, offset: u64, memory: &mut [u8]) -> Result<usize> {
        let bytes = memory.len();
        self.readv(file, &[Recx { index: offset, count: bytes as u64 }], &mut [memory]).await
    }

    /// Reads ranges of the file into pieces of memory; the two are cut independently and have
    /// equal total length. Returns how many of the bytes lie inside the file; those beyond its
    /// end are zero.
    ///
    /// Errors: `BadHandle` when not open for reading, `IsDir`, `Inval` for total lengths that
    /// differ.
    #[boxed(?Send)]
    pub async fn readv(
        &self,
        file: &Obj,
        ranges: &[Recx],
        memory: &mut [&mut [u8]],
    ) -> Result<usize> {
        self.readv_from(file, ranges, memory, Returning::Behind).await
    }

    /// As [`Dfs::read`]; chunks that are in a tier only are read there, and stay there only.
    #[boxed(?Send)]
    pub async fn read_past(&self, file: &Obj, offset: u64, memory: &mut [u8]) -> Result<usize> {
        let all = [Recx { index: offset, count: memory.len() as u64 }];
        self.readv_from(file, &all, &mut [memory], Returning::Never).await
    }

    async fn readv_from(
        &self,
        file: &Obj,
        ranges: &[Recx],
        memory: &mut [&mut [u8]],
        returning: Returning,
    ) -> Result<usize> {
        file.require_regular()?;
        if !file.flags.has(OpenFlags::READ) {
            return Err(Error::bare(Code::BadHandle));
        }
        let room: usize = memory.iter().map(|piece| piece.len()).sum();
        let end = check_ranges(ranges, room)?;
        if end == 0 {
            return Ok(0);
        }
        let array = file.node.array();
        // What is in a tier only is read in order in most cases: a request that fails each time would be one for nothing.
        let read = match file.node.meets_stubs() {
            true => None,
            false => match array.read(ranges, memory).await {
                Err(error) if error.code == Code::Inval => None,
                outcome => Some(outcome?),
            },
        };
        let size_min = match read {
            Some(size_min) => size_min,
            None => Box::pin(self.read_tiered(file, ranges, memory, returning)).await?,
        };
        if file.node.set_atime_due(false) {
            Box::pin(self.touch_atime(file)).await?;
        }
        if size_min >= end {
            return Ok(room);
        }
        let size = array.size().await?.max(size_min);
        let inside = |range: &Recx| range.count.min(size.saturating_sub(range.index));
        Ok(ranges.iter().map(inside).sum::<u64>() as usize)
    }

    /// Writes at `offset`, or with `APPEND` at the end; returns the number of bytes, always all.
    #[boxed(?Send)]
    pub async fn write(&self, file: &Obj, offset: u64, memory: &[u8]) -> Result<usize> {
        let count = memory.len() as u64;
        self.writev(file, &[Recx { index: offset, count }], &[memory]).await
    }

    /// Writes pieces of memory to ranges of the file; the two are cut independently and have
    /// equal total length. With `APPEND` all goes to the end of the file, in order.
    ///
    /// Errors: `BadHandle` when not open for writing; `FileTooBig`; `NoSpace`.
    #[boxed(?Send)]
    pub async fn writev(&self, file: &Obj, ranges: &[Recx], memory: &[&[u8]]) -> Result<usize> {
        file.require_regular()?;
        if !file.flags.has(OpenFlags::WRITE) {
            return Err(Error::bare(Code::BadHandle));
        }
        self.require_writable()?;
        let room: usize = memory.iter().map(|piece| piece.len()).sum();
        if room == 0 && ranges.iter().all(|range| range.count == 0) {
            return Ok(0);
        }
        if file.flags.has(OpenFlags::APPEND) {
            self.append(file, memory).await?;
            return Ok(room);
        }
        let end = check_ranges(ranges, room)?;
        self.slow_down(room as u64).await?;
        let array = file.node.array();
        self.with_data(file, ranges, async || array.write(ranges, memory).await).await?;
        file.node.count_written(end);
        self.drop_privileges_after_change(file).await?;
        Ok(room)
    }

    /// Writes behind the end of the file, however it was opened for writing, and returns where
    /// that was. Up to 32 MiB are one piece: whoever else appends, they neither overlap nor leave
    /// gaps.
    #[boxed(?Send)]
    pub async fn append(&self, file: &Obj, memory: &[&[u8]]) -> Result<u64> {
        self.require_open_for_writing(file)?;
        self.slow_down(memory.iter().map(|piece| piece.len() as u64).sum()).await?;
        let offset = file.node.array().append(memory).await?;
        let bytes: u64 = memory.iter().map(|piece| piece.len() as u64).sum();
        file.node.count_written(offset + bytes);
        self.drop_privileges_after_change(file).await?;
        Ok(offset)
    }

    /// Size of an open file, bytes.
    #[boxed(?Send)]
    pub async fn size(&self, file: &Obj) -> Result<u64> {
        file.require_regular()?;
        file.node.array().size().await
    }

    /// Of a file with a progressive class the size of its first part, bytes, and whether it has grown beyond it;
    /// `None` for all else.
    #[boxed(?Send)]
    pub async fn reaches_beyond(&self, obj: &Obj) -> Result<Option<(u64, bool)>> {
        let first = obj.oid().first_part_bytes().filter(|_| obj.kind() == FileKind::Regular);
        let Some(bytes) = first else { return Ok(None) };
        Ok(Some((bytes, obj.node.array().is_marked().await?)))
    }

    /// Size of a regular file by its id, bytes; `chunk_bytes` of 0 is the file system's.
    ///
    /// Errors: `Inval` for an id that is no file's.
    #[boxed(?Send)]
    pub async fn size_of(&self, oid: Oid, chunk_bytes: u64) -> Result<u64> {
        let own = crate::flags::check_chunk_bytes(chunk_bytes)? as u64;
        if oid.dkey_kind() != DkeyKind::U64 || oid.class().is_err() {
            return Err(Error::inval(format!("object {oid} is no file")));
        }
        let chunk_records = if own == 0 { self.superblock().chunk_bytes as u64 } else { own };
        let cont = self.shared.cont.clone();
        ArrayObj { cont, oid, record_bytes: 1, chunk_records }.size().await
    }

    /// Cuts or extends a file; new bytes read as zero. Errors: `BadHandle` when not open for
    /// writing and not permitted to write either.
    #[boxed(?Send)]
    pub async fn truncate(&self, file: &Obj, size: u64) -> Result<()> {
        file.require_regular()?;
        self.require_writable()?;
        if !file.flags.has(OpenFlags::WRITE) {
            if !file.flags.has(OpenFlags::PATH) {
                return Err(Error::bare(Code::BadHandle));
            }
            self.check_access(&file.node.inode(), Access::WRITE)?;
        }
        let _held = match file.flags.has(OpenFlags::WRITE) && !file.flags.has(OpenFlags::PATH) {
            true => None,
            false => self.hold_named(&file.node).await?,
        };
        self.truncate_node(&file.node, size, None).await
    }

    /// DAOS's punch: a hole, but one that reaches the end of the file cuts the file at `offset`
    /// instead. `bytes` of `u64::MAX` means "truncate to `offset`, in either direction".
    #[boxed(?Send)]
    pub async fn punch(&self, file: &Obj, offset: u64, bytes: u64) -> Result<()> {
        if bytes == u64::MAX {
            return self.truncate(file, offset).await;
        }
        file.require_regular()?;
        self.require_writable()?;
        if !file.flags.has(OpenFlags::WRITE) {
            return Err(Error::bare(Code::BadHandle));
        }
        let size = self.size(file).await?;
        if offset >= size {
            return Ok(());
        }
        if offset.saturating_add(bytes) >= size {
            return self.truncate(file, offset).await;
        }
        self.punch_hole(file, offset, bytes).await
    }

    /// Makes `bytes` from `offset` a hole; the size stays as it is (Linux's
    /// `FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE`).
    ///
    /// Errors: `NoSpace`; some of it may be a hole then, and the size is as it was.
    #[boxed(?Send)]
    pub async fn punch_hole(&self, file: &Obj, offset: u64, bytes: u64) -> Result<()> {
        file.require_regular()?;
        self.require_writable()?;
        if !file.flags.has(OpenFlags::WRITE) {
            return Err(Error::bare(Code::BadHandle));
        }
        let array = file.node.array();
        let size = array.size().await?;
        let end = offset.saturating_add(bytes).min(size);
        if offset >= end {
            return Ok(());
        }
        // What goes whole need not come back for that.
        let edges = [offset, end - 1].map(|index| Recx { index, count: 1 });
        let made = async || match end == size {
            true => array.punch_to_end(offset, size).await,
            false => array.punch(&[Recx { index: offset, count: end - offset }]).await,
        };
        self.with_data(file, &edges, made).await?;
        self.drop_privileges_after_change(file).await
    }

    /// After a change of the data by somebody without privileges the file is set-user-id (and
    /// set-group-id, where executable by the group) no more, as far as this mount knows of it.
    pub(crate) async fn drop_privileges_after_change(&self, file: &Obj) -> Result<()> {
        let mode = file.node.inode().mode;
        if self.is_privileged() || mode_without_privileges(mode) == mode {
            return Ok(());
        }
        Box::pin(self.drop_privileges(file)).await
    }

    /// Takes the set-user-id bit, and the set-group-id bit of a file that its group may execute,
    /// from a file, whoever asks: for mounts whose kernel tells when.
    #[boxed(?Send)]
    pub async fn drop_privileges(&self, file: &Obj) -> Result<()> {
        let shared = &self.shared;
        let without = |inode: &Inode| {
            let mode = mode_without_privileges(inode.mode);
            Inode { mode, ctime_ns: shared.now_ns(), ..*inode }
        };
        let Some((location, found)) = shared.fetch_node(&file.node).await? else {
            file.node.set_inode(without(&file.node.inode()));
            return Ok(());
        };
        if mode_without_privileges(found.inode.mode) == found.inode.mode {
            file.node.set_inode(found.inode);
            return Ok(());
        }
        let change = |found: &crate::entry::Found| Ok(without(&found.inode));
        match shared.update_inode(location.parent, &location.name, found, change).await {
            // It lost its name meanwhile.
            Err(error) if error.code == Code::NonExist => Ok(()),
            other => other.map(|_| ()),
        }
    }

    /// Changes a file's size. `tail` is what is known of the file, if it is known.
    pub(crate) async fn truncate_node(
        &self,
        node: &Rc<Node>,
        size: u64,
        tail: Option<Tail>,
    ) -> Result<()> {
        if size > FILE_BYTES_MAX {
            return Err(Error::bare(Code::FileTooBig));
        }
        let array = node.array();
        let before = match tail {
            Some(tail) => tail,
            None => array.stat().await?,
        };
        if size != before.end {
            let file = Obj::new(node.clone(), OpenFlags::READ_WRITE);
            let edge = [Recx { index: size.saturating_sub(1), count: 1 }];
            self.with_data(&file, &edge, async || array.set_size(size).await).await?;
        }
        // While data remain their epoch tells that the file changed. Otherwise the inode must.
        let told_by_data = size > 0 && size != before.end;
        if told_by_data && node.inode().mode & (S_ISUID | S_ISGID) == 0 {
            return Ok(());
        }
        let shared = &self.shared;
        let Some((location, found)) = shared.fetch_node(node).await? else {
            return Ok(());
        };
        let data =
            if size == 0 { found.tail.map_or(before.epoch, |t| t.epoch) } else { before.epoch };
        let keep_bits = self.is_privileged();
        let updated = shared
            .update_inode(location.parent, &location.name, found, |found| {
                let now = shared.now_ns();
                let mut inode = Inode { ctime_ns: now, mtime_ns: now, ..found.inode };
                inode.mtime_epoch = inode.mtime_epoch.max(data);
                if !keep_bits {
                    inode.mode = mode_without_privileges(inode.mode);
                }
                Ok(inode)
            })
            .await;
        match updated {
            // It lost its name meanwhile; the handle's data are cut all the same.
            Err(error) if error.code == Code::NonExist => Ok(()),
            other => other.map(|_| ()),
        }
    }
}

/// A mode without the bits that lend the owner's or the group's rights to who executes the file.
/// Set-group-id without group execution means something else.
pub(crate) fn mode_without_privileges(mode: u32) -> u32 {
    let mode = mode & !S_ISUID;
    if mode & 0o010 != 0 { mode & !S_ISGID } else { mode }
}

/// Checks that ranges fit the memory and the largest file; returns the greatest end of a range
/// that is not empty, 0 if all are.
fn check_ranges(ranges: &[Recx], room: usize) -> Result<u64> {
    let mut total = 0u64;
    let mut end_max = 0;
    for range in ranges {
        let end = range.end().filter(|end| *end <= FILE_BYTES_MAX);
        let end = end.ok_or_else(|| Error::bare(Code::FileTooBig))?;
        total = total.saturating_add(range.count);
        if range.count > 0 {
            end_max = end_max.max(end);
        }
    }
    if total != room as u64 {
        return Err(Error::inval(format!("ranges of {total} bytes for memory of {room}")));
    }
    Ok(end_max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_must_fit_memory_and_the_largest_offset() {
        let range = |index, count| Recx { index, count };
        assert_eq!(check_ranges(&[range(5, 3), range(0, 2)], 5).unwrap(), 8);
        assert_eq!(check_ranges(&[range(5, 0)], 0).unwrap(), 0);
        assert_eq!(check_ranges(&[range(5, 3)], 4).unwrap_err().code, Code::Inval);
        assert_eq!(check_ranges(&[range(u64::MAX, 3)], 3).unwrap_err().code, Code::FileTooBig);
        assert_eq!(
            check_ranges(&[range(FILE_BYTES_MAX, 1)], 1).unwrap_err().code,
            Code::FileTooBig
        );
        assert!(check_ranges(&[range(FILE_BYTES_MAX - 1, 1)], 1).is_ok());
    }
}
