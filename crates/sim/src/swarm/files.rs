//! What clients do with arrays that have an erasure code: blocks of them are registers, written and read in runs that cover whole
//! stripes or parts of them.

use super::clients::{Place, Worker};
use crate::register::{Asked, Said};
use crate::{members, parity};
use client::ArrayObj;
use std::time::Duration;
use types::{Code, Error, ObjType, Result};
use wire::obj::Recx;

/// Arrays and what they are made of.
#[derive(Clone, Debug)]
pub struct Files {
    /// Class of all of them.
    pub class: &'static str,
    /// Data and parity cells of a stripe.
    pub cells: (u64, u64),
    /// Number of them.
    pub count: u64,
    /// Stripes of a chunk.
    pub stripes: u64,
    /// Chunks of each.
    pub chunks: u64,
}

/// Of a cell, bytes.
const CELL_BYTES: u64 = 64 << 10;
/// Blocks of a cell.
const CELL_BLOCKS: u64 = 2;
const BLOCK_BYTES: u64 = CELL_BYTES / CELL_BLOCKS;
/// Object numbers of arrays begin here.
const FIRST_OBJECT: u64 = 200;
/// Folds and what they leave behind are done after so long, virtual time.
const FOLD_TIME: Duration = Duration::from_secs(100);
/// The control service has heard after so long that an engine was started again.
const NOTICE_TIME: Duration = Duration::from_secs(2);
/// A member that is lost is known to be after so long.
const LOSS_TIME: Duration = Duration::from_secs(8);

impl Files {
    /// Blocks of each array.
    pub fn blocks(&self) -> u64 {
        self.chunks * self.stripes * self.stripe_blocks()
    }

    fn stripe_blocks(&self) -> u64 {
        self.cells.0 * CELL_BLOCKS
    }

    fn chunk_bytes(&self) -> u64 {
        self.stripes * self.cells.0 * CELL_BYTES
    }
}

/// The bytes of a block that has a value: the value, and a filling that follows from it.
fn bytes_of(value: u64) -> Vec<u8> {
    let mut all = types::hash::mix(value).to_le_bytes().repeat(BLOCK_BYTES as usize / 8);
    all[..8].copy_from_slice(&value.to_le_bytes());
    all
}

/// The value that a block has: none when it was never written, or is a hole.
fn value_of(bytes: &[u8]) -> Result<Option<u64>> {
    let value = bytes.first_chunk().map_or(0, |raw| u64::from_le_bytes(*raw));
    let is_right = match value {
        0 => bytes.iter().all(|byte| *byte == 0),
        _ => bytes == bytes_of(value),
    };
    if !is_right {
        let text = format!("a block that begins as value {value} has bytes that nobody wrote");
        return Err(Error::new(Code::Csum, text));
    }
    Ok((value != 0).then_some(value))
}

impl Worker {
    pub(super) fn file(&self, files: &Files, number: u64) -> Result<ArrayObj> {
        let number = FIRST_OBJECT + number;
        let oid = self.run.oid(&self.cont, ObjType::ArrayByte, files.class, number)?;
        let chunk_records = files.chunk_bytes();
        Ok(ArrayObj { cont: self.cont.clone(), oid, record_bytes: 1, chunk_records })
    }

    /// One call on some array.
    pub(super) async fn call_file(&self, files: &Files) -> Result<()> {
        let (number, stripe) = (self.below(files.count), files.stripe_blocks());
        let blocks = files.blocks();
        let (first, count) = match self.below(4) {
            0 => (self.below(blocks), 1),
            1 => (self.below(blocks), 1 + self.below(stripe)),
            _ => (self.below(blocks / stripe) * stripe, stripe * (1 + self.below(3))),
        };
        let run = first..(first + count).min(blocks);
        let asked = match self.below(20) {
            0..11 => Asked::Put(self.run.new_value()),
            11 => Asked::Remove,
            _ => Asked::Get,
        };
        self.ask_blocks(files, number, run, asked).await
    }

    /// Asks a run of blocks the same, and notes it of each.
    async fn ask_blocks(
        &self,
        files: &Files,
        number: u64,
        run: std::ops::Range<u64>,
        asked: Asked,
    ) -> Result<()> {
        let file = self.file(files, number)?;
        let places: Vec<Place> = run.clone().map(|block| Place::Block(number, block)).collect();
        let history = |place: &Place| self.run.history(*place);
        let calls: Vec<_> =
            places.iter().map(|place| history(place).invoke(self.number, asked)).collect();
        let bytes = (run.end - run.start) * BLOCK_BYTES;
        let ranges = [Recx { index: run.start * BLOCK_BYTES, count: bytes }];
        let mut room = Vec::new();
        let outcome = match asked {
            Asked::Get => {
                // What is not filled is seen.
                room.resize(bytes as usize, 0xee);
                file.read(&ranges, &mut [&mut room]).await.map(|_| ())
            }
            Asked::Put(value) => {
                let block = bytes_of(value);
                let memory: Vec<&[u8]> = places.iter().map(|_| &block[..]).collect();
                file.write(&ranges, &memory).await
            }
            _ => file.punch(&ranges).await,
        };
        match outcome {
            Ok(()) if asked == Asked::Get => {
                let found = places.iter().zip(calls).zip(room.chunks(BLOCK_BYTES as usize));
                for ((place, call), bytes) in found {
                    let wrong =
                        |error: Error| Error::new(error.code, format!("{place:?}: {error}"));
                    history(place).answer(call, Said::Found(value_of(bytes).map_err(wrong)?));
                }
                Ok(())
            }
            Ok(()) => {
                places.iter().zip(calls).for_each(|(place, call)| {
                    history(place).answer(call, Said::Done);
                });
                Ok(())
            }
            Err(error) => {
                let text = format!("{asked:?} of blocks {run:?} of array {number}: {error}");
                self.run.bear(Error::new(error.code, text))
            }
        }
    }

    /// What a block has, noted nowhere.
    pub(super) async fn block_value(
        &self,
        files: &Files,
        number: u64,
        block: u64,
    ) -> Result<Option<u64>> {
        let mut room = vec![0xee; BLOCK_BYTES as usize];
        let range = [Recx { index: block * BLOCK_BYTES, count: BLOCK_BYTES }];
        self.file(files, number)?.read(&range, &mut [&mut room]).await?;
        value_of(&room)
    }

    async fn read_all(&self, files: &Files) -> Result<()> {
        for number in 0..files.count {
            self.ask_blocks(files, number, 0..files.blocks(), Asked::Get).await?;
        }
        Ok(())
    }

    /// Loses as many engines as the class survives, all at once, and reads and writes without them; then they come back.
    pub(super) async fn lose_members(&self, files: &Files) -> Result<()> {
        // Who is still catching up counts as lost. By the newest map one that was opened again a moment ago may be whole still.
        self.env.sleep(NOTICE_TIME).await;
        if let Some(lacking) = members::await_whole(self.cont.client()).await? {
            return Err(Error::new(Code::TimedOut, lacking));
        }
        self.read_all(files).await?;
        // The first engine holds the catalog.
        let others = self.run.settings.engines as u64 - 1;
        let first = self.below(others);
        let lost: Vec<usize> =
            (0..files.cells.1).map(|at| 1 + ((first + at) % others) as usize).collect();
        lost.iter().for_each(|engine| self.run.kill(*engine));
        self.env.sleep(LOSS_TIME).await;
        self.read_all(files).await?;
        for _ in 0..6 {
            self.call_file(files).await?;
        }
        self.read_all(files).await?;
        for engine in lost {
            self.run.start(&self.env, engine).await;
        }
        Ok(())
    }

    /// Waits until all is folded that is to be, and compares parity with data; says what differs.
    pub(super) async fn compare_cells(&self, files: &Files) -> Result<Option<String>> {
        let client = self.cont.client();
        if let Some(lacking) = members::await_whole(client).await? {
            return Ok(Some(lacking));
        }
        self.env.sleep(FOLD_TIME).await;
        self.read_all(files).await?;
        for number in 0..files.count {
            let oid = self.file(files, number)?.oid;
            if let Some(differs) = members::difference(client, &self.cont, oid).await? {
                return Ok(Some(differs));
            }
            match parity::compare(client, &self.cont, oid).await? {
                Ok(count) => self.run.note_stripes(count),
                Err(wrong) => return Ok(Some(wrong)),
            }
        }
        Ok(None)
    }
}
