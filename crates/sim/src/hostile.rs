//! A client that sends whatever it likes to a simulated engine, which serves a good client, too.
//!
//! Each message costs its sender an answer or its connection, and nobody else anything. Requests that engines refuse from
//! clients are not sent: here everybody may speak for an engine.

use crate::{Cluster, ClusterSpec};
use client::{Client, Container, KvObj};
use env::Rng;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::time::Duration;
use transport::{Address, Call, Conn, Dial};
use types::map::HashMap;
use types::{ClientId, ContLayout, ContProps, Durability, Epoch, ObjType, Result, TargetId, Unit};
use uuid::Uuid;
use wire::Kind;
use wire::control::{ControlRequest, Name, OpenMode};
use wire::hello::Service;
use wire::obj::{Batch, Cond, Request};

/// What waits for something is given up.
const PATIENCE: Duration = Duration::from_millis(200);
const TARGETS: usize = 2;
/// Room for an answer's bulk, bytes.
const ROOM: usize = 1 << 17;

/// An engine with a pool, a container for everybody's mischief, and one for good work.
pub struct Prey {
    cluster: Cluster,
    bad: Client,
    bait: Container,
    good: KvObj,
    conns: RefCell<HashMap<Service, Conn>>,
    number: Cell<u64>,
    done: Cell<u64>,
}

impl Prey {
    /// Starts an engine.
    pub fn start(seed: u64, durability: Durability) -> Result<Prey> {
        let cluster = Cluster::start(ClusterSpec { seed, engines: 1, targets: TARGETS })?;
        let (good, bad) = (cluster.client("good"), cluster.client("bad"));
        let (kv, bait) = cluster.block_on(async {
            let home = cluster.container(&good, durability, ContLayout::Plain).await?;
            let pool = bad.pool_open(&Name::Label("p".into()), OpenMode::ReadWrite).await?;
            let made = pool.cont_create("bait", Uuid::nil(), ContProps::default(), BTreeMap::new());
            made.await?;
            let bait = pool.cont_open(&Name::Label("bait".into()), OpenMode::ReadWrite).await?;
            let oid = home.generate_oid(ObjType::KvHashed, "SX".parse()?, 0, 1)?;
            Ok::<_, types::Error>((KvObj { object: home.object(oid) }, bait))
        })?;
        let (conns, number, done) = (RefCell::default(), Cell::new(0), Cell::new(0));
        Ok(Prey { cluster, bad, bait, good: kv, conns, number, done })
    }

    /// How many messages have had another answer than an error.
    pub fn done(&self) -> u64 {
        self.done.get()
    }

    /// Some unit of the bait.
    fn unit(&self, rng: &Rng) -> Result<Unit> {
        let kinds = [ObjType::KvHashed, ObjType::ArrayByte, ObjType::MultiHashed];
        let kind = kinds[rng.below(3) as usize];
        Ok(self.bait.generate_oid(kind, "S1".parse()?, 0, rng.below(4))?.first_unit())
    }

    fn aim_batch(&self, batch: &mut Batch<'_>, unit: Unit, rng: &Rng) {
        (batch.pool, batch.cont) = (self.bait.pool().info().id, self.bait.id());
        if rng.below(4) > 0 {
            batch.at = Epoch::ZERO;
        }
        for op in &mut batch.ops {
            if rng.below(4) > 0 {
                op.set_unit(unit);
            }
        }
    }

    /// An encoded request to a target, changed so that it is about what is there; `None` for requests of engines.
    pub fn aimed(&self, sample: &[u8], rng: &Rng) -> Result<Option<Vec<u8>>> {
        let (here, bait, there) = (self.bait.pool().info().id, self.bait.id(), self.unit(rng)?);
        let mut request: Request<'_> = wire::decode(sample)?;
        match &mut request {
            Request::Batch(batch) | Request::Verify(batch) => self.aim_batch(batch, there, rng),
            Request::Commit { tx, parts } => {
                let mut aimed: Vec<(Unit, Vec<u8>, u32)> = Vec::new();
                for (_, raw, bytes) in parts.iter() {
                    let mut batch: Batch<'_> = wire::decode(raw)?;
                    self.aim_batch(&mut batch, there, rng);
                    aimed.push((there, wire::encode(&batch), *bytes));
                }
                let parts = aimed
                    .iter()
                    .map(|(unit, raw, bytes)| (*unit, serde_bytes::Bytes::new(raw), *bytes))
                    .collect();
                return Ok(Some(wire::encode(&Request::Commit { tx: *tx, parts })));
            }
            Request::ListObjects { pool, cont, at, .. } => {
                (*pool, *cont, *at) = (here, bait, Epoch::ZERO);
            }
            Request::ListOrphans { pool, cont, .. } => (*pool, *cont) = (here, bait),
            Request::PutInPlace { pool, cont, unit } => {
                (*pool, *cont, *unit) = (here, bait, there);
            }
            Request::Lock(lock) => (lock.pool, lock.cont, lock.unit) = (here, bait, there),
            Request::PoolShardStat { pool }
            | Request::AdmissionStat { pool }
            | Request::CacheStat { pool }
            | Request::StoreStat { pool }
            | Request::PageWait { pool }
            | Request::ScrubStat { pool }
            | Request::Scrub { pool }
            | Request::PoolMap { pool } => *pool = here,
            Request::Prepare { .. }
            | Request::Decide { .. }
            | Request::AskOutcome { .. }
            | Request::Admin { .. }
            | Request::Orders(_)
            | Request::Member(_)
            | Request::Cell(_) => return Ok(None),
            // Of no pool.
            Request::Probe { .. } => {}
        }
        Ok(Some(wire::encode(&request)))
    }

    /// Sends a message with bulk to a target, whichever of them the number is about.
    pub fn send_to_target(&self, number: u8, body: &[u8], bulk: &[u8]) -> Result<()> {
        if wire::decode::<Request<'_>>(body).is_ok_and(|request| request.is_for_engines()) {
            return Ok(());
        }
        let target = TargetId(u32::from(number) % TARGETS as u32);
        self.send(Service::Target(target), Kind::Request, body, bulk)
    }

    /// Sends a message to the control service.
    pub fn send_to_control(&self, body: &[u8]) -> Result<()> {
        if wire::decode::<ControlRequest>(body).is_ok_and(|request| request.is_for_admins()) {
            return Ok(());
        }
        self.send(Service::Control, Kind::Control, body, b"")
    }

    /// Errors: only when there is no connection to be had.
    fn send(&self, service: Service, kind: Kind, body: &[u8], bulk: &[u8]) -> Result<()> {
        let env = self.bad.env();
        let request_id = self.number.get() + 1;
        self.number.set(request_id);
        self.cluster.block_on(async {
            let kept = self.conns.borrow_mut().remove(&service);
            let conn = match kept {
                Some(conn) => conn,
                None => {
                    let client = ClientId(env.random_u64());
                    let dial = Dial { client, service, token: b"", job: "", timeout: PATIENCE };
                    let engine = Address::Sim(Cluster::engine_name(0));
                    transport::connect(env, &engine, &dial).await?
                }
            };
            let call = Call {
                kind,
                request_id,
                flags: 0,
                map_version: 0,
                deadline: PATIENCE,
                body,
                bulk_out: &[bulk],
                bulk_in: &mut [&mut vec![0; ROOM]],
            };
            // Whoever has sent nonsense has lost its connection.
            if let Ok(answer) = conn.call(call).await {
                self.conns.borrow_mut().insert(service, conn);
                self.done.set(self.done.get() + u64::from(answer.body.first() == Some(&0)));
            }
            Ok(())
        })
    }

    /// The good client writes and reads.
    ///
    /// # Panics
    ///
    /// When it does not find what it has written.
    pub fn work(&self, round: u64) -> Result<()> {
        let (key, value) = (round.to_le_bytes(), vec![round as u8; round as usize % 6000]);
        self.cluster.block_on(async {
            self.good.put(None, Cond::NONE, &key, &value).await?;
            assert_eq!(self.good.get(None, &key).await?, Some(value));
            Ok(())
        })
    }
}
