//! Clients that share keys, each call noted, and transactions over accounts.

use crate::work::{Outcome, Progress, Work, when};
use client::{KvObj, Tx};
use env::Rng;
use sim::history::{Call, Moment};
use sim::linearizable::{self, Verdict};
use sim::register::{Asked, Register, Said};
use sim::serializable::{self, Transaction};
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use types::{Code, Error, ObjType};
use wire::obj::Cond;

/// The container of keys.
pub const CONT: &str = "keys";
/// Keys in use at a time; others take their place after a while, for a history is searched key by key.
const KEYS: u64 = 10;
/// Calls until then, over all keys.
const CALLS_PER_ROUND: u64 = 1_000;
/// Accounts of transactions in use at a time, and transactions until others take their place.
const ACCOUNTS: u64 = 5;
const TRANSACTIONS_PER_ROUND: u64 = 200;
/// Objects of accounts have numbers from here on.
const ACCOUNT_OBJECTS: u64 = 100;
/// Stands for an account without a value.
const NOTHING: u64 = 0;
/// Who asks at the end.
const JUDGE: u32 = u32::MAX;

/// All that was asked and answered.
#[derive(Default)]
pub struct Keys {
    moments: AtomicU64,
    values: AtomicU64,
    asked: AtomicU64,
    committed: AtomicU64,
    calls: Mutex<BTreeMap<u64, Vec<Call<Asked, Said>>>>,
    transactions: Mutex<BTreeMap<u64, Vec<Transaction>>>,
}

/// The bytes that stand for a value: the value, and a length and a filling that follow from it.
fn bytes_of(value: u64) -> Vec<u8> {
    let word = types::hash::mix(value);
    let bytes = match word % 8 {
        0 => 5_000 + word % 60_000,
        1 => 500 + word % 4_000,
        _ => 8 + word % 60,
    };
    let mut all = value.to_le_bytes().to_vec();
    all.resize(bytes as usize, word as u8);
    all
}

fn value_of(bytes: &[u8]) -> Outcome<u64> {
    let value = bytes.first_chunk().map(|raw| u64::from_le_bytes(*raw));
    let known = value.filter(|value| bytes_of(*value) == bytes);
    known.ok_or_else(|| format!("a key holds {} bytes that nobody wrote", bytes.len()))
}

/// Who calls, and in which container.
struct Client<'a> {
    keys: &'a Keys,
    work: &'a Work<'a>,
    number: u32,
    cont: client::Container,
}

impl Keys {
    fn moment(&self) -> Moment {
        1 + self.moments.fetch_add(1, Ordering::SeqCst)
    }

    fn new_value(&self) -> u64 {
        1 + self.values.fetch_add(1, Ordering::Relaxed)
    }

    fn note(&self, key: u64, call: Call<Asked, Said>) {
        self.calls.lock().unwrap().entry(key).or_default().push(call);
    }

    /// What one client does.
    pub fn run(&self, work: &Work<'_>, number: u32, progress: &Progress) -> Outcome {
        let client = Client { keys: self, work, number, cont: work.open(CONT)? };
        let rng = Rng::new(types::hash::mix2(work.plan.seed, 1000 + u64::from(number)));
        while !work.is_over() {
            match rng.below(6) {
                0 => client.transaction(&rng)?,
                _ => client.single(&rng)?,
            }
            progress.step();
            std::thread::sleep(Duration::from_millis(rng.below(30)));
        }
        Ok(())
    }

    /// Gets what each key has, at the end.
    pub fn ask_all(&self, work: &Work<'_>) -> Outcome {
        let client = Client { keys: self, work, number: JUDGE, cont: work.open(CONT)? };
        let known: Vec<u64> = self.calls.lock().unwrap().keys().copied().collect();
        known.into_iter().try_for_each(|key| client.ask(key, Asked::Get))
    }

    /// Is there an order that explains all answers?
    pub fn judge(&self) -> Outcome<String> {
        let (mut count, mut pending, mut undecided) = (0, 0, 0);
        for (key, calls) in self.calls.lock().unwrap().iter() {
            count += calls.len();
            pending += calls.iter().filter(|call| call.returned.is_none()).count();
            match linearizable::check(&Register, None, calls, &[]) {
                Verdict::Linearizable => {}
                Verdict::Undecided => undecided += 1,
                Verdict::Violation(order, missing) => {
                    let mut calls: Vec<_> = calls.iter().enumerate().collect();
                    calls.sort_by_key(|(_, call)| call.invoked);
                    let line = |(at, call): &(usize, &Call<Asked, Said>)| {
                        let place = order.iter().position(|other| other == at);
                        format!("{place:?} {call:?}")
                    };
                    let all: Vec<String> = calls.iter().map(line).collect();
                    return Err(format!(
                        "key {key}: no order of its calls explains the answers.\n{}\nthere is no place for\n{missing}",
                        all.join("\n")
                    ));
                }
            }
        }
        let mut transaction_count = 0;
        for (round, transactions) in self.transactions.lock().unwrap().iter() {
            transaction_count += transactions.len();
            let start = (0..ACCOUNTS).map(|at| (round * ACCOUNTS + at, NOTHING)).collect();
            serializable::check(&start, transactions)?;
        }
        Ok(format!(
            "{count} calls on keys linearizable ({pending} without an answer, {undecided} searches given up), \
             {transaction_count} transactions serializable"
        ))
    }
}

impl Client<'_> {
    fn kv(&self, first: u64, key: u64) -> Outcome<(KvObj, [u8; 8])> {
        let classes = self.work.plan.key_classes;
        let at = key as usize % classes.len();
        let class = classes[at].parse().map_err(|error| format!("{}: {error:?}", classes[at]))?;
        let oid = self.cont.generate_oid(ObjType::KvHashed, class, 0, first + at as u64);
        let oid = oid.map_err(when(|| classes[at].into()))?;
        Ok((KvObj { object: self.cont.object(oid) }, key.to_le_bytes()))
    }

    fn single(&self, rng: &Rng) -> Outcome {
        let round = self.keys.asked.fetch_add(1, Ordering::Relaxed) / CALLS_PER_ROUND;
        if round > 0 && rng.below(4) == 0 {
            // What nobody changes any more is still there, whatever has happened since.
            return self.ask(rng.below(round * KEYS), Asked::Get);
        }
        let key = round * KEYS + rng.below(KEYS);
        let asked = match rng.below(10) {
            0..4 => Asked::Get,
            4 | 5 => Asked::Put(self.keys.new_value()),
            6 => Asked::Insert(self.keys.new_value()),
            7 => Asked::Replace(self.keys.new_value()),
            8 => Asked::Remove,
            _ => Asked::RemoveExisting,
        };
        self.ask(key, asked)
    }

    fn ask(&self, key: u64, asked: Asked) -> Outcome {
        let (kv, name) = self.kv(1, key)?;
        let put =
            async |cond, value| kv.put(None, cond, &name, &bytes_of(value)).await.map(|()| None);
        let invoked = self.keys.moment();
        let outcome = self.cont.client().block_on(async {
            match asked {
                Asked::Get => kv.get(None, &name).await,
                Asked::Put(value) => put(Cond::NONE, value).await,
                Asked::Insert(value) => put(Cond::DKEY_INSERT, value).await,
                Asked::Replace(value) => put(Cond::DKEY_UPDATE, value).await,
                Asked::Remove => kv.remove(None, Cond::NONE, &name).await.map(|()| None),
                Asked::RemoveExisting => kv.remove(None, Cond::PUNCH, &name).await.map(|()| None),
                Asked::Exists | Asked::Swap { .. } => unreachable!("not asked here"),
            }
        });
        let said = match outcome {
            Ok(found) if asked == Asked::Get => {
                Some(Said::Found(found.map(|bytes| value_of(&bytes)).transpose()?))
            }
            Ok(_) => Some(Said::Done),
            Err(error) if error.code == Code::Exist => Some(Said::Exist),
            Err(error) if error.code == Code::NonExist => Some(Said::NonExist),
            Err(error) => {
                bear(self.work, error).map_err(when(|| format!("{asked:?} of key {key}")))?
            }
        };
        let returned = said.map(|said| (self.keys.moment(), said));
        self.keys.note(key, Call { client: self.number, op: asked, invoked, returned });
        Ok(())
    }

    /// Reads some accounts and writes some of them.
    fn transaction(&self, rng: &Rng) -> Outcome {
        let round = self.keys.committed.fetch_add(1, Ordering::Relaxed) / TRANSACTIONS_PER_ROUND;
        let (count, first) = (2 + rng.below(3), rng.below(ACCOUNTS));
        let begun = self.keys.moment();
        let tx = Tx::open(&self.cont, false);
        let client = self.cont.client();
        let (mut reads, mut writes) = (BTreeMap::new(), BTreeMap::new());
        for at in (first..first + count).map(|at| at % ACCOUNTS) {
            let account = round * ACCOUNTS + at;
            let (kv, name) = self.kv(ACCOUNT_OBJECTS, account)?;
            let found = client.block_on(kv.get(Some(&tx), &name));
            let found = found.map_err(when(|| format!("reading account {account}")))?;
            let seen = found.map(|bytes| value_of(&bytes)).transpose()?;
            reads.insert(account, seen.unwrap_or(NOTHING));
            if rng.below(3) > 0 {
                let value = self.keys.new_value();
                let bytes = bytes_of(value);
                let put = kv.put(Some(&tx), Cond::NONE, &name, &bytes);
                client.block_on(put).map_err(when(|| format!("writing account {account}")))?;
                writes.insert(account, value);
            }
        }
        let committed = match client.block_on(tx.commit()) {
            Ok(_) => Some(self.keys.moment()),
            Err(error) if error.code == Code::TxRestart => return Ok(()),
            Err(error) => bear(self.work, error).map_err(when(|| "a commit".into()))?,
        };
        let transaction = Transaction { begun, committed, reads, writes };
        self.keys.transactions.lock().unwrap().entry(round).or_default().push(transaction);
        Ok(())
    }
}

/// No answer: it may have been done, or not. What is full has done nothing, which is one of both.
fn bear<T>(work: &Work<'_>, error: Error) -> Result<Option<T>, Error> {
    match error.code {
        Code::NoSpace if work.was_full() => Ok(None),
        _ => Err(error),
    }
}
