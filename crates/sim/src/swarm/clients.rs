//! What the clients do: single calls on shared keys, transactions over shared accounts.

use super::run::{Run, client_name};
use crate::cluster::Cluster;
use crate::history::CallId;
use crate::members;
use crate::register::{Asked, Said};
use crate::serializable::Transaction;
use client::{Anchor, Client, Container, KvObj, Tx};
use env::Env;
use futures_util::future::{join, join_all};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;
use transport::SimNet;
use types::{Code, Durability, Error, ObjType, Oid, Result, TargetId};
use wire::control::{Name, OpenMode};
use wire::obj::Cond;

/// Objects of accounts have numbers from here on.
const ACCOUNT_OBJECTS: u64 = 100;
/// The object of keys that are made once.
const ONCE_OBJECT: u64 = 50;

/// Stands for an account without a value, where it may have lost it.
const NOTHING: u64 = 0;

/// A key under test: which object, which dkey.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// A key under single calls.
    Key(u64),
    /// A key of transactions.
    Account(u64),
    /// A key that is made once, of one group.
    Once(u64),
    /// A block of an array: which array, which block.
    Block(u64, u64),
}

/// Opens what a run has made.
pub(super) async fn open(client: &Client) -> Result<Container> {
    let name = |text: &str| Name::Label(text.into());
    let pool = client.pool_open(&name("p"), OpenMode::ReadWrite).await?;
    pool.cont_open(&name("c"), OpenMode::ReadWrite).await
}

/// The bytes that stand for a value: the value, and a length and a filling that follow from it.
fn bytes_of(value: u64) -> Vec<u8> {
    let word = types::hash::mix(value);
    let bytes = match word % 8 {
        0 => 5_000 + word % 90_000,
        1 => 500 + word % 4_000,
        _ => 8 + word % 60,
    };
    let mut all = value.to_le_bytes().to_vec();
    all.resize(bytes as usize, word as u8);
    all
}

/// The value that bytes stand for; an error when they are not what was written.
fn value_of(bytes: &[u8]) -> Result<u64> {
    let value = bytes.first_chunk().map(|raw| u64::from_le_bytes(*raw));
    value.filter(|value| bytes_of(*value) == bytes).ok_or_else(|| {
        let (start, count) = (&bytes[..bytes.len().min(16)], bytes.len());
        Error::new(Code::Csum, format!("{count} bytes that nobody wrote: {start:?}"))
    })
}

/// One client at work.
pub(super) struct Worker {
    pub(super) run: Rc<Run>,
    pub(super) number: u32,
    pub(super) env: Env,
    pub(super) cont: Container,
}

impl Worker {
    pub fn new(run: Rc<Run>, number: u32, cont: Container) -> Worker {
        let env = cont.client().env().clone();
        Worker { run, number, env, cont }
    }

    pub(super) fn below(&self, bound: u64) -> u64 {
        self.env.random_u64() % bound
    }

    fn kv(&self, place: Place) -> Result<(KvObj, [u8; 8])> {
        let class = self.run.settings.class;
        let (class, number, key) = match place {
            Place::Key(key) => (class, 1 + key % 2, key),
            Place::Account(at) => (class, ACCOUNT_OBJECTS + at, at),
            Place::Once(key) => (self.run.settings.class_alone, ONCE_OBJECT, key),
            Place::Block(..) => return Err(Error::inval("a block is in an array")),
        };
        let oid = self.run.oid(&self.cont, ObjType::KvHashed, class, number)?;
        Ok((KvObj { object: self.cont.object(oid) }, key.to_le_bytes()))
    }

    /// Has all objects of the run known while all targets are there.
    pub fn know_objects(&self) -> Result<()> {
        if self.run.settings.has_names {
            return Ok(());
        }
        if let Some(files) = &self.run.settings.files {
            return (0..files.count).try_for_each(|number| self.file(files, number).map(drop));
        }
        let keys = (0..self.run.settings.keys).map(Place::Key);
        keys.chain([Place::Once(0)]).try_for_each(|place| self.kv(place).map(drop))
    }

    /// Does its calls.
    pub async fn work(&self) -> Result<()> {
        if self.run.settings.has_names {
            return self.work_on_names().await;
        }
        for call in 0..self.run.settings.calls {
            if self.number == 0 && call == self.run.settings.calls / 3 {
                self.burst().await?;
            }
            if let Some(files) = &self.run.settings.files {
                self.call_file(files).await?;
            } else if self.below(10) < self.run.settings.transactions {
                self.transaction().await?;
            } else {
                match self.below(8) {
                    0..6 => self.single().await?,
                    6 => self.list().await?,
                    _ => self.balance().await?,
                }
            }
            self.rest().await;
        }
        Ok(())
    }

    /// Pauses between two calls.
    pub(super) async fn rest(&self) {
        let pause = self.run.settings.pause_max.as_nanos() as u64;
        self.env.sleep(Duration::from_nanos(self.below(pause + 1))).await;
    }

    /// Makes many keys at once, each of which can be made once, while connections break.
    async fn burst(&self) -> Result<()> {
        let makes = (0..self.run.settings.burst).map(async |_| {
            let value = self.run.new_value();
            self.ask(Place::Once(value), Asked::Insert(value)).await
        });
        let net = SimNet::of(self.run.cluster.world());
        let breaks = async {
            if self.run.settings.faults.is_empty() {
                return;
            }
            for _ in 0..8 {
                self.env.sleep(Duration::from_micros(self.below(6_000))).await;
                for engine in 0..self.run.settings.engines {
                    let name = Cluster::engine_name(engine);
                    net.break_connections(&client_name(self.number), &name);
                }
            }
        };
        join(join_all(makes), breaks).await.0.into_iter().collect()
    }

    async fn single(&self) -> Result<()> {
        let place = Place::Key(self.below(self.run.settings.keys));
        let asked = match self.below(10) {
            0..4 => Asked::Get,
            4 | 5 => Asked::Put(self.run.new_value()),
            6 => Asked::Insert(self.run.new_value()),
            7 => Asked::Replace(self.run.new_value()),
            8 => Asked::Remove,
            _ => Asked::RemoveExisting,
        };
        self.ask(place, asked).await
    }

    /// Asks a key, and notes it.
    pub async fn ask(&self, place: Place, asked: Asked) -> Result<()> {
        let (kv, key) = self.kv(place)?;
        let call = self.run.history(place).invoke(self.number, asked);
        let outcome = match asked {
            Asked::Get => kv.get(None, &key).await,
            Asked::Put(value) => put(&kv, Cond::NONE, &key, value).await,
            Asked::Insert(value) if matches!(place, Place::Once(_)) => {
                kv.put(None, Cond::DKEY_INSERT, &key, &value.to_le_bytes()).await.map(|()| None)
            }
            Asked::Insert(value) => put(&kv, Cond::DKEY_INSERT, &key, value).await,
            Asked::Replace(value) => put(&kv, Cond::DKEY_UPDATE, &key, value).await,
            Asked::Remove => kv.remove(None, Cond::NONE, &key).await.map(|()| None),
            Asked::RemoveExisting => kv.remove(None, Cond::PUNCH, &key).await.map(|()| None),
            Asked::Exists | Asked::Swap { .. } => unreachable!("noted by lists and transactions"),
        };
        let said = match outcome {
            Ok(found) if asked == Asked::Get => {
                Said::Found(found.map(|bytes| value_of(&bytes)).transpose()?)
            }
            Ok(_) => Said::Done,
            Err(error) if error.code == Code::Exist => Said::Exist,
            Err(error) if error.code == Code::NonExist => Said::NonExist,
            Err(error) => return self.run.bear(error),
        };
        self.run.history(place).answer(call, said);
        Ok(())
    }

    /// All places that have a history of values.
    pub fn places(&self) -> Vec<Place> {
        let settings = &self.run.settings;
        if let Some(files) = &settings.files {
            let of = |number| (0..files.blocks()).map(move |block| Place::Block(number, block));
            return (0..files.count).flat_map(of).collect();
        }
        let keys = (0..settings.keys).map(Place::Key);
        keys.chain((0..settings.accounts).map(Place::Account)).collect()
    }

    /// What a place has, noted nowhere.
    pub async fn value_of_place(&self, place: Place) -> Result<Option<u64>> {
        if let (Place::Block(number, block), Some(files)) = (place, &self.run.settings.files) {
            return self.block_value(files, number, block).await;
        }
        let (kv, key) = self.kv(place)?;
        kv.get(None, &key).await?.map(|bytes| value_of(&bytes)).transpose()
    }

    /// Lists an object's keys: each is there, or not, at some time while it is listed.
    async fn list(&self) -> Result<()> {
        let number = self.below(2);
        let keys: Vec<u64> = (0..self.run.settings.keys).filter(|key| key % 2 == number).collect();
        let Some(first) = keys.first() else { return Ok(()) };
        let (kv, _) = self.kv(Place::Key(*first))?;
        let ask = |key: &u64| self.run.history(Place::Key(*key)).invoke(self.number, Asked::Exists);
        let calls: Vec<CallId> = keys.iter().map(ask).collect();
        let mut found = Vec::new();
        let mut anchor = Anchor::start();
        let count_max = 1 + self.below(4) as u32;
        while !anchor.is_end() {
            match kv.list(&mut anchor, count_max).await {
                Ok(more) => found.extend(more),
                Err(error) => return self.run.bear(error),
            }
        }
        for (key, call) in keys.into_iter().zip(calls) {
            let is_there = found.iter().any(|found| **found == key.to_le_bytes()[..]);
            self.run.history(Place::Key(key)).answer(call, Said::Is(is_there));
        }
        Ok(())
    }

    /// Reads one account, outside of transactions.
    async fn balance(&self) -> Result<()> {
        let at = self.below(self.run.settings.accounts);
        self.read_account(at).await
    }

    /// Reads an account: a transaction that only reads one key.
    pub async fn read_account(&self, at: u64) -> Result<()> {
        let begun = self.run.moments.next();
        let Some(seen) = self.look(at, None).await? else { return Ok(()) };
        let committed = Some(self.run.moments.next());
        let (reads, writes) = (BTreeMap::from([(at, seen.unwrap_or(NOTHING))]), BTreeMap::new());
        self.run.note_tx(Transaction { begun, committed, reads, writes });
        Ok(())
    }

    /// What an account has; `None` without an answer.
    async fn look(&self, at: u64, tx: Option<&Tx>) -> Result<Option<Option<u64>>> {
        let (kv, key) = self.kv(Place::Account(at))?;
        let history = self.run.history(Place::Account(at));
        let call = history.invoke(self.number, Asked::Get);
        match kv.get(tx, &key).await {
            Ok(found) => {
                let found = found.map(|bytes| value_of(&bytes)).transpose()?;
                history.answer(call, Said::Found(found));
                Ok(Some(found))
            }
            Err(error) => self.run.bear(error).map(|()| None),
        }
    }

    /// Reads some accounts and writes some of them.
    async fn transaction(&self) -> Result<()> {
        let accounts = self.run.settings.accounts;
        let count = 2 + self.below(accounts - 1);
        let first = self.below(accounts);
        let begun = self.run.moments.next();
        let tx = Tx::open(&self.cont, false);
        let mut seen = BTreeMap::new();
        for at in (first..first + count).map(|at| at % accounts) {
            match self.look(at, Some(&tx)).await? {
                Some(found) => seen.insert(at, found),
                None => return Ok(()),
            };
        }
        let is_reader = self.below(4) == 0;
        let mut writes = BTreeMap::new();
        for at in seen.keys() {
            if !is_reader && self.below(3) > 0 {
                let value = self.run.new_value();
                let (kv, key) = self.kv(Place::Account(*at))?;
                kv.put(Some(&tx), Cond::NONE, &key, &bytes_of(value)).await?;
                writes.insert(*at, value);
            }
        }
        let parts: Vec<_> = seen.iter().map(|(at, from)| (*at, *from, writes.get(at))).collect();
        let history = |at| self.run.history(Place::Account(at));
        // Those over several targets are written through.
        let homes = seen.keys().map(|at| self.home(*at)).collect::<Result<BTreeSet<_>>>()?;
        let is_kept = homes.len() > 1 && self.run.settings.durability == Durability::Relaxed;
        let swap = |(at, from, to): &(u64, Option<u64>, Option<&u64>)| {
            let asked = Asked::Swap { from: *from, to: to.copied(), is_kept };
            history(*at).invoke(self.number, asked)
        };
        let calls: Vec<CallId> = parts.iter().map(swap).collect();
        let committed = match tx.commit().await {
            Ok(_) => {
                for ((at, ..), call) in parts.iter().zip(calls) {
                    history(*at).answer(call, Said::Done);
                }
                Some(self.run.moments.next())
            }
            Err(error) if error.code == Code::TxRestart => {
                for ((at, ..), call) in parts.iter().zip(calls) {
                    history(*at).answer(call, Said::Lost);
                }
                return Ok(());
            }
            Err(error) => {
                self.run.bear(error)?;
                None
            }
        };
        let reads = seen.into_iter().map(|(at, found)| (at, found.unwrap_or(NOTHING))).collect();
        self.run.note_tx(Transaction { begun, committed, reads, writes });
        Ok(())
    }

    /// The target of an account.
    fn home(&self, at: u64) -> Result<Option<TargetId>> {
        let (kv, key) = self.kv(Place::Account(at))?;
        let layout = self.cont.layout(kv.object.oid())?;
        let group = layout.group_of(kv.object.oid(), &key);
        Ok(layout.leader(group, &self.cont.pool().map()))
    }

    /// Waits until all members are whole, and compares them; says what differs.
    pub async fn compare_members(&self) -> Result<Option<String>> {
        let places = (0..self.run.settings.keys).map(Place::Key);
        let places = places.chain((0..self.run.settings.accounts).map(Place::Account));
        let objects =
            places.chain([Place::Once(0)]).map(|place| Ok(self.kv(place)?.0.object.oid()));
        let objects = objects.collect::<Result<BTreeSet<Oid>>>()?;
        if objects.iter().all(|oid| oid.is_alone()) {
            return Ok(None);
        }
        let client = self.cont.client();
        if let Some(lacking) = members::await_whole(client).await? {
            return Ok(Some(lacking));
        }
        for oid in objects {
            if let Some(differs) = members::difference(client, &self.cont, oid).await? {
                return Ok(Some(differs));
            }
        }
        Ok(None)
    }

    /// Gives an account its first value.
    pub async fn open_account(&self, at: u64) -> Result<()> {
        let value = self.run.new_value();
        self.run.accounts.borrow_mut().insert(at, value);
        self.ask(Place::Account(at), Asked::Put(value)).await
    }
}

async fn put(kv: &KvObj, cond: Cond, key: &[u8], value: u64) -> Result<Option<Vec<u8>>> {
    kv.put(None, cond, key, &bytes_of(value)).await.map(|()| None)
}
