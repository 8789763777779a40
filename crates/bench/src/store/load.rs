//! The worker's part: operations in flight, each acknowledged when it is durable.

use crate::backend::system_address;
use crate::crew::{Phase, Step};
use crate::place::Where;
use crate::worker::{Task, Work};
use client::{ArrayObj, Client, ConnectOptions, Container, KvObj};
use futures_util::stream::{FuturesUnordered, StreamExt};
use serde::{Deserialize, Serialize};
use std::cell::RefCell;
use types::{Code, Error, ObjClass, ObjType, Result};
use wire::control::{Name, OpenMode};
use wire::obj::{Cond, Recx};

/// What each worker does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Load {
    /// What its operations are.
    pub kind: Kind,
    /// Bytes of a value, or of a transfer.
    pub bytes: u64,
    /// Operations in flight.
    pub depth: u32,
}

/// What the operations of a load are.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Kind {
    /// New keys with small values, each written once, in an object of the worker's own for each
    /// iteration.
    Updates,
    /// A new array of the worker's own in each iteration, written and read in sequence.
    Transfers,
}

/// A worker with its container open.
pub(crate) struct StoreTask {
    load: Load,
    rank: u32,
    client: Client,
    cont: Container,
}

impl StoreTask {
    pub(crate) fn connect(load: Load, rank: u32, place: &Where) -> Result<StoreTask> {
        let Where::Dfs { system, pool, cont, tcp_only, .. } = place else {
            return Err(Error::inval(format!("{place} is not in a container")));
        };
        let mut options = ConnectOptions::new(system_address(system)?);
        options.tcp_only = *tcp_only;
        let client = Client::connect(options)?;
        let cont = client.block_on(async {
            let pool = client.pool_open(&Name::parse(pool), OpenMode::ReadWrite).await?;
            pool.cont_open(&Name::parse(cont), OpenMode::ReadWrite).await
        })?;
        Ok(StoreTask { load, rank, client, cont })
    }

    fn update(&self, step: &Step) -> Result<()> {
        let number = (u64::from(step.iteration) << 32) + u64::from(self.rank) + 1;
        let oid = self.cont.generate_oid(ObjType::KvHashed, ObjClass::SX, 0, number)?;
        let kv = KvObj { object: self.cont.object(oid) };
        let value = vec![0x5a; self.load.bytes as usize];
        self.client.block_on(in_flight(self.load.depth, 0..step.item_count, async |number| {
            let key = format!("{number:032}");
            kv.put(None, Cond::NONE, key.as_bytes(), &value).await
        }))
    }

    fn transfer(&self, step: &Step) -> Result<()> {
        let count = step.item_count;
        let number = u64::from(step.iteration) << 32 | u64::from(self.rank);
        let oid = self.cont.generate_oid(ObjType::ArrayByte, ObjClass::SX, 0, number)?;
        let bytes = self.load.bytes;
        let array =
            ArrayObj { cont: self.cont.clone(), oid, record_bytes: 1, chunk_records: bytes };
        let range = |at: u64| [Recx { index: at * bytes, count: bytes }];
        let depth = self.load.depth;
        match step.phase {
            Phase::Write => {
                let data: Vec<u8> = (0..bytes).map(|at| (at * 7 + 1) as u8).collect();
                self.client.block_on(in_flight(depth, 0..count, async |at| {
                    array.write(&range(at), &[&data]).await
                }))
            }
            _ => {
                let idle = RefCell::new(vec![vec![0; bytes as usize]; depth as usize]);
                self.client.block_on(in_flight(depth, 0..count, async |at| {
                    let mut buf = idle.borrow_mut().pop().unwrap_or_default();
                    array.read(&range(at), &mut [&mut buf]).await?;
                    // Zeros come from a hole: nothing would have been read.
                    if buf.first() != Some(&1) {
                        return Err(Error::new(Code::Io, format!("nothing at transfer {at}")));
                    }
                    buf[0] = 0;
                    idle.borrow_mut().push(buf);
                    Ok(())
                }))
            }
        }
    }
}

impl Task for StoreTask {
    fn run(&mut self, step: &Step, _: &mut dyn FnMut(u64) -> Result<u64>) -> Result<Work> {
        match self.load.kind {
            Kind::Updates => self.update(step)?,
            Kind::Transfers => self.transfer(step)?,
        }
        Ok(Work { ops: step.item_count, bytes: step.item_count * self.load.bytes })
    }
}

/// Runs an operation for each number, `depth` of them at a time.
async fn in_flight(
    depth: u32,
    numbers: std::ops::Range<u64>,
    op: impl AsyncFn(u64) -> Result<()>,
) -> Result<()> {
    let mut flying = FuturesUnordered::new();
    for number in numbers {
        if flying.len() >= depth as usize {
            flying.next().await.unwrap_or(Ok(()))?;
        }
        flying.push(op(number));
    }
    while let Some(done) = flying.next().await {
        done?;
    }
    Ok(())
}
