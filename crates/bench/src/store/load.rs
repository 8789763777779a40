//! The worker's part: many small updates in flight, each acknowledged when it is durable.

use crate::backend::system_address;
use crate::crew::Step;
use crate::place::Where;
use crate::worker::{Task, Work};
use client::{Client, ConnectOptions, Container, KvObj};
use futures_util::stream::{FuturesUnordered, StreamExt};
use serde::{Deserialize, Serialize};
use types::{Error, ObjClass, ObjType, Result};
use wire::control::{Name, OpenMode};
use wire::obj::Cond;

/// What each worker does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Load {
    /// Bytes of a value.
    pub value_bytes: u64,
    /// Updates in flight.
    pub depth: u32,
}

/// A worker with its container open.
pub(crate) struct UpdateTask {
    load: Load,
    rank: u32,
    client: Client,
    cont: Container,
    /// Keys written so far; each is written once.
    next: u64,
}

impl UpdateTask {
    pub(crate) fn connect(load: Load, rank: u32, place: &Where) -> Result<UpdateTask> {
        let Where::Dfs { system, pool, cont, .. } = place else {
            return Err(Error::inval(format!("{place} is not in a container")));
        };
        let client = Client::connect(ConnectOptions::new(system_address(system)?))?;
        let cont = client.block_on(async {
            let pool = client.pool_open(&Name::parse(pool), OpenMode::ReadWrite).await?;
            pool.cont_open(&Name::parse(cont), OpenMode::ReadWrite).await
        })?;
        Ok(UpdateTask { load, rank, client, cont, next: 0 })
    }
}

impl Task for UpdateTask {
    fn run(&mut self, step: &Step, _: &mut dyn FnMut(u64) -> Result<u64>) -> Result<Work> {
        let oid =
            self.cont.generate_oid(ObjType::KvHashed, ObjClass::SX, 0, u64::from(self.rank) + 1)?;
        let kv = KvObj { object: self.cont.object(oid) };
        let value = vec![0x5a; self.load.value_bytes as usize];
        let (first, end) = (self.next, self.next + step.item_count);
        self.next = end;
        self.client.block_on(async {
            let put = |number: u64| {
                let (kv, value) = (kv.clone(), &value);
                async move {
                    let key = format!("{number:032}");
                    kv.put(None, Cond::NONE, key.as_bytes(), value).await
                }
            };
            let mut flying = FuturesUnordered::new();
            for number in first..end {
                if flying.len() >= self.load.depth as usize {
                    flying.next().await.unwrap_or(Ok(()))?;
                }
                flying.push(put(number));
            }
            while let Some(done) = flying.next().await {
                done?;
            }
            Ok::<_, Error>(())
        })?;
        Ok(Work { ops: step.item_count, bytes: step.item_count * self.load.value_bytes })
    }
}
