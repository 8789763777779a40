//! Several data files as one: unit after unit, in turn over the files.
//!
//! A target with several data devices uses all of them for one large stream. Within a unit a
//! transfer goes through as it is; one that crosses a border is copied into pieces. The loss of
//! one file is the loss of all: it is striping, not redundancy.

use std::rc::Rc;

use env::{AlignedBuf, File};
use futures_util::FutureExt;
use futures_util::future::{LocalBoxFuture, join_all, ready};
use types::{Code, Error, Result};

/// Unit of striping, bytes: the default chunk of a file.
pub(crate) const STRIPE_BYTES: u64 = 1 << 20;

pub(crate) struct Striped {
    files: Rc<[Rc<dyn File>]>,
}

/// A piece of a range: which file, where in it, how long.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Piece {
    file: usize,
    at: u64,
    bytes: u64,
}

/// Cuts a range at the borders of units.
fn cut(count: usize, offset: u64, bytes: u64) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let (mut at, end) = (offset, offset.saturating_add(bytes));
    while at < end {
        let unit = at / STRIPE_BYTES;
        let skip = at % STRIPE_BYTES;
        let length = (STRIPE_BYTES - skip).min(end - at);
        pieces.push(Piece {
            file: (unit % count as u64) as usize,
            at: unit / count as u64 * STRIPE_BYTES + skip,
            bytes: length,
        });
        at += length;
    }
    pieces
}

/// Bytes that each of `count` files needs for `bytes` in all.
pub(crate) fn share_bytes(count: usize, bytes: u64) -> u64 {
    bytes.div_ceil(STRIPE_BYTES).div_ceil(count as u64) * STRIPE_BYTES
}

impl Striped {
    /// One file over `files`, of which there is at least one.
    pub(crate) fn over(files: Vec<Rc<dyn File>>) -> Rc<dyn File> {
        assert!(!files.is_empty(), "a stripe needs a file");
        match <[Rc<dyn File>; 1]>::try_from(files) {
            Ok([only]) => only,
            Err(files) => Rc::new(Striped { files: files.into() }),
        }
    }

    /// Runs one operation on every piece of a range; the first error counts.
    fn each<F>(
        &self,
        offset: u64,
        bytes: u64,
        run: impl Fn(&Rc<dyn File>, Piece) -> F,
    ) -> LocalBoxFuture<'static, Result<()>>
    where
        F: Future<Output = Result<()>> + 'static,
    {
        let pieces = cut(self.files.len(), offset, bytes);
        let work: Vec<F> =
            pieces.into_iter().map(|piece| run(&self.files[piece.file], piece)).collect();
        async move { join_all(work).await.into_iter().collect() }.boxed_local()
    }

    /// Runs one operation on every file; the first error counts.
    fn all<F>(&self, run: impl Fn(&Rc<dyn File>) -> F) -> LocalBoxFuture<'static, Result<()>>
    where
        F: Future<Output = Result<()>> + 'static,
    {
        let work: Vec<F> = self.files.iter().map(run).collect();
        async move { join_all(work).await.into_iter().collect() }.boxed_local()
    }
}

impl File for Striped {
    fn read_at(
        &self,
        offset: u64,
        mut buf: AlignedBuf,
    ) -> LocalBoxFuture<'static, (AlignedBuf, Result<usize>)> {
        let pieces = cut(self.files.len(), offset, buf.len() as u64);
        if let [piece] = pieces[..] {
            return self.files[piece.file].read_at(piece.at, buf);
        }
        let files = self.files.clone();
        async move {
            let mut reads = Vec::with_capacity(pieces.len());
            for piece in &pieces {
                let part = match AlignedBuf::try_scratch(piece.bytes as usize) {
                    Ok(part) => part,
                    Err(error) => return (buf, Err(error)),
                };
                reads.push(files[piece.file].read_at(piece.at, part));
            }
            let mut done = 0;
            for (piece, (part, result)) in pieces.iter().zip(join_all(reads).await) {
                let count = match result {
                    Ok(count) => count,
                    Err(error) => return (buf, Err(error)),
                };
                buf[done..done + count].copy_from_slice(&part[..count]);
                done += count;
                if (count as u64) < piece.bytes {
                    break;
                }
            }
            (buf, Ok(done))
        }
        .boxed_local()
    }

    fn write_at(
        &self,
        offset: u64,
        buf: AlignedBuf,
    ) -> LocalBoxFuture<'static, (AlignedBuf, Result<()>)> {
        let pieces = cut(self.files.len(), offset, buf.len() as u64);
        if let [piece] = pieces[..] {
            return self.files[piece.file].write_at(piece.at, buf);
        }
        let files = self.files.clone();
        async move {
            let mut done = 0;
            let mut writes = Vec::with_capacity(pieces.len());
            for piece in &pieces {
                let part = AlignedBuf::copy_of(&buf[done..done + piece.bytes as usize]);
                writes.push(files[piece.file].write_at(piece.at, part));
                done += piece.bytes as usize;
            }
            let results = join_all(writes).await;
            (buf, results.into_iter().try_for_each(|(_, result)| result))
        }
        .boxed_local()
    }

    fn sync(&self) -> LocalBoxFuture<'static, Result<()>> {
        self.all(|file| file.sync())
    }

    fn len(&self) -> Result<u64> {
        // The shortest file limits all: up to there every unit is whole.
        let mut shortest = u64::MAX;
        for file in self.files.iter() {
            shortest = shortest.min(file.len()?);
        }
        Ok(shortest / STRIPE_BYTES * STRIPE_BYTES * self.files.len() as u64)
    }

    fn is_device(&self) -> bool {
        self.files.iter().all(|file| file.is_device())
    }

    fn set_len(&self, _bytes: u64) -> LocalBoxFuture<'static, Result<()>> {
        let refused = Error::new(Code::NotSupported, "striped data files have a fixed length");
        ready(Err(refused)).boxed_local()
    }

    fn allocate(&self, offset: u64, bytes: u64) -> LocalBoxFuture<'static, Result<()>> {
        let share = share_bytes(self.files.len(), offset.saturating_add(bytes));
        self.all(|file| file.allocate(0, share))
    }

    fn discard(&self, offset: u64, bytes: u64) -> LocalBoxFuture<'static, Result<()>> {
        self.each(offset, bytes, |file, piece| file.discard(piece.at, piece.bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use env::{OpenOptions, SimWorld};
    use std::path::PathBuf;

    #[test]
    fn a_range_is_cut_so_that_every_byte_has_one_place() {
        for count in 1..4usize {
            let mut seen = std::collections::BTreeSet::new();
            let step = STRIPE_BYTES / 4;
            for n in 0..24u64 {
                for piece in cut(count, n * step, step) {
                    assert!(seen.insert((piece.file, piece.at)), "{piece:?} twice");
                }
            }
            let whole = cut(count, step, 22 * step);
            assert_eq!(whole.iter().map(|piece| piece.bytes).sum::<u64>(), 22 * step);
            let share = share_bytes(count, 24 * step);
            assert!(seen.iter().all(|&(file, at)| file < count && at + step <= share));
        }
    }

    #[test]
    fn reads_what_was_written_across_borders() {
        let world = SimWorld::new(1);
        let env = world.node("a");
        world.block_on(async {
            let options = OpenOptions { create: true, direct: true, ..OpenOptions::default() };
            let mut files = Vec::new();
            for n in 0..3 {
                files.push(
                    env.disk().open(&PathBuf::from(format!("/f{n}")), options).await.unwrap(),
                );
            }
            let file = Striped::over(files);
            file.allocate(0, 7 << 20).await.unwrap();
            assert_eq!(file.len().unwrap(), 9 << 20);
            let data: Vec<u8> = (0..5 << 20).map(|n: usize| (n / 4096 % 251) as u8).collect();
            file.write_at(1 << 19, AlignedBuf::copy_of(&data)).await.1.unwrap();
            let (read, count) = file.read_at(1 << 19, AlignedBuf::zeroed(data.len())).await;
            assert_eq!(count.unwrap(), data.len());
            assert!(read[..] == data[..]);
            let (read, count) = file.read_at((1 << 20) - 4096, AlignedBuf::zeroed(8192)).await;
            assert_eq!(count.unwrap(), 8192);
            assert!(read[..] == data[(1 << 19) - 4096..][..8192]);
            file.discard((1 << 20) - 4096, 8192).await.unwrap();
            file.sync().await.unwrap();
        });
        world.clear();
    }
}
