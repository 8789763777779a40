//! Space inside files: reserving, holes, finding data, copying ranges.

use crate::file::FILE_BYTES_MAX;
use crate::flags::{AllocateFlags, OpenFlags};
use crate::fs::Dfs;
use crate::node::Obj;
use crate::tier::Returning;
use crate::transfers::all_begun;
use async_recursion::async_recursion as boxed;
use futures_util::future::try_join;
use types::{Code, Error, Result};
use wire::obj::Recx;

/// Bytes copied in one piece, and how many pieces at the same time.
const COPY_BYTES: u64 = 4 << 20;
const COPY_PARALLEL: usize = 4;

impl Dfs {
    /// `fallocate(2)`. No flags: the file reaches to the end of the range at least, and there is
    /// room for it now (else `NoSpace`); writes put data to fresh space, so that room is not set
    /// aside. `KEEP_SIZE`: only that there is room. `PUNCH_HOLE` (with `KEEP_SIZE`): the range
    /// reads as zero and its space is free. `ZERO_RANGE`: the same, and the file reaches to the end
    /// of the range unless `KEEP_SIZE`.
    ///
    /// Errors: `NotSupported` for other flags; `Inval` for no bytes; `FileTooBig`; `BadHandle`.
    #[boxed(?Send)]
    pub async fn fallocate(
        &self,
        file: &Obj,
        flags: AllocateFlags,
        offset: u64,
        bytes: u64,
    ) -> Result<()> {
        self.require_open_for_writing(file)?;
        let end = offset.checked_add(bytes).filter(|end| *end <= FILE_BYTES_MAX);
        let end = end.ok_or_else(|| Error::bare(Code::FileTooBig))?;
        if bytes == 0 {
            return Err(Error::inval("no bytes to allocate"));
        }
        let keep_size = flags.has(AllocateFlags::KEEP_SIZE);
        match flags.without(AllocateFlags::KEEP_SIZE) {
            AllocateFlags::NONE => self.require_room(file, offset, bytes).await?,
            AllocateFlags::PUNCH_HOLE if keep_size => {
                self.punch_hole(file, offset, bytes).await?;
            }
            AllocateFlags::ZERO_RANGE => self.punch_hole(file, offset, bytes).await?,
            _ => {
                return Err(Error::new(
                    Code::NotSupported,
                    "files here can be reserved, punched and zeroed, not collapsed or shifted",
                ));
            }
        }
        if keep_size {
            return Ok(());
        }
        let array = file.node.array();
        if array.size().await? < end {
            array.extend(end).await?;
            self.drop_privileges_after_change(file).await?;
        }
        Ok(())
    }

    /// `NoSpace` unless the file's targets have room for what of the range is not written yet.
    async fn require_room(&self, file: &Obj, offset: u64, bytes: u64) -> Result<()> {
        let array = file.node.array();
        let written = array.runs(Recx { index: offset, count: bytes });
        let space = self.shared.cont.space_of(file.oid());
        let ((runs, _), mut space) = try_join(written, space).await?;
        let first = file.oid().first_part_bytes();
        if first.is_some_and(|first| offset.saturating_add(bytes) <= first) {
            // All of it is to be in the first group.
            space.truncate(1);
        }
        let written: u64 = runs.iter().map(|run| run.count).sum();
        let wanted = (bytes - written.min(bytes)).div_ceil(space.len().max(1) as u64);
        if space.iter().any(|stat| stat.nvme_free_bytes < wanted) {
            return Err(Error::new(
                Code::NoSpace,
                "the targets of the file have less room than that; remove something or extend them",
            ));
        }
        Ok(())
    }

    /// `SEEK_DATA`: the first byte of data at or after `offset`. `NoData` (`ENXIO`) at or beyond the
    /// end of the file, and when only a hole follows.
    #[boxed(?Send)]
    pub async fn seek_data(&self, file: &Obj, offset: u64) -> Result<u64> {
        let array = self.readable_array(file, offset)?;
        let (size, run) = try_join(array.size(), array.next_run(offset)).await?;
        match run {
            Some(run) if run.index < size && offset < size => Ok(run.index),
            _ => Err(Error::bare(Code::NoData)),
        }
    }

    /// `SEEK_HOLE`: the first byte of a hole at or after `offset`; the end of the file counts as
    /// one. `NoData` (`ENXIO`) at or beyond the end.
    #[boxed(?Send)]
    pub async fn seek_hole(&self, file: &Obj, offset: u64) -> Result<u64> {
        let array = self.readable_array(file, offset)?;
        let (size, run) = try_join(array.size(), array.next_run(offset)).await?;
        if offset >= size {
            return Err(Error::bare(Code::NoData));
        }
        match run {
            Some(run) if run.index <= offset => Ok((run.index + run.count).min(size)),
            _ => Ok(offset),
        }
    }

    fn readable_array(&self, file: &Obj, offset: u64) -> Result<client::ArrayObj> {
        file.require_regular()?;
        if file.flags.has(OpenFlags::PATH) {
            return Err(Error::bare(Code::BadHandle));
        }
        if offset > FILE_BYTES_MAX {
            return Err(Error::bare(Code::NoData));
        }
        Ok(file.node.array())
    }

    /// `copy_file_range(2)`: copies up to `bytes` between files of this mount, as far as the source
    /// goes, and returns how many. Holes stay holes. Not one atomic change.
    ///
    /// Errors: `BadHandle`; `Inval` for ranges of one file that overlap; `FileTooBig`; `NoSpace`.
    #[boxed(?Send)]
    pub async fn copy_range(
        &self,
        from: &Obj,
        from_offset: u64,
        to: &Obj,
        to_offset: u64,
        bytes: u64,
    ) -> Result<u64> {
        from.require_regular()?;
        if !from.flags.has(OpenFlags::READ) || to.flags.has(OpenFlags::APPEND) {
            return Err(Error::bare(Code::BadHandle));
        }
        self.require_open_for_writing(to)?;
        let source = from.node.array();
        let left = source.size().await?.saturating_sub(from_offset);
        let bytes = bytes.min(left);
        if bytes == 0 {
            return Ok(0);
        }
        if to_offset.checked_add(bytes).is_none_or(|end| end > FILE_BYTES_MAX) {
            return Err(Error::bare(Code::FileTooBig));
        }
        if from.oid() == to.oid() && from_offset.abs_diff(to_offset) < bytes {
            return Err(Error::inval("the ranges overlap"));
        }
        let sink = to.node.array();
        let (from_end, shift) = (from_offset + bytes, to_offset.wrapping_sub(from_offset));
        let mut at = from_offset;
        while at < from_end {
            let (runs, upto) = source.runs(Recx { index: at, count: from_end - at }).await?;
            let mut holes = Vec::new();
            let mut pieces = Vec::new();
            for run in &runs {
                if run.index > at {
                    let index = at.wrapping_add(shift);
                    holes.push(Recx { index, count: run.index - at });
                }
                at = run.index + run.count;
                pieces.extend((0..run.count.div_ceil(COPY_BYTES)).map(|n| {
                    let index = run.index + n * COPY_BYTES;
                    Recx { index, count: COPY_BYTES.min(at - index) }
                }));
            }
            if upto > at {
                holes.push(Recx { index: at.wrapping_add(shift), count: upto - at });
                at = upto;
            }
            self.with_data(to, &holes, async || sink.punch(&holes).await).await?;
            let (source, sink) = (&source, &sink);
            let copy = |piece: Recx| async move {
                let mut room = vec![0; piece.count as usize];
                match source.read(&[piece], &mut [&mut room]).await {
                    Err(error) if error.code == Code::Inval => {
                        let room = &mut [&mut room[..]];
                        self.read_tiered(from, &[piece], room, Returning::Behind).await?;
                    }
                    outcome => drop(outcome?),
                }
                let range = [Recx { index: piece.index.wrapping_add(shift), ..piece }];
                self.with_data(to, &range, async || sink.write(&range, &[&room]).await).await
            };
            all_begun(pieces, COPY_PARALLEL, copy).await?;
        }
        if sink.size().await? < to_offset + bytes {
            sink.extend(to_offset + bytes).await?;
        }
        self.drop_privileges_after_change(to).await?;
        Ok(bytes)
    }

    pub(crate) fn require_open_for_writing(&self, file: &Obj) -> Result<()> {
        file.require_regular()?;
        self.require_writable()?;
        if !file.flags.has(OpenFlags::WRITE) {
            return Err(Error::bare(Code::BadHandle));
        }
        Ok(())
    }
}
