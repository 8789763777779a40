//! The writer of a catalog in etcd: how it came to be, what it reads and commits, how it ends.
//!
//! | key | value |
//! |---|---|
//! | `PREFIX:leader` | which engine the writer is; bound to a lease, so it goes when the writer dies |
//! | `PREFIX:fence` | the writer's run, and the number of its last commit |
//! | `PREFIX:r:KEY` | the catalog's keys |
//!
//! A prefix holds no colon, so no key of one system begins as those of another.
//!
//! Invariants:
//! - Every commit compares the revision of the fence with what this writer knows, and writes it. A
//!   new writer writes it first. So an earlier writer's commit is refused, late or not, and no clock
//!   matters: the lease only says when somebody else may try.
//! - A commit without an answer is sent again as it was: if the first has been carried out, the
//!   second is refused, and the number in the fence tells that it was this one.

use super::EtcdConfig;
use super::answers::{Entry, Found, Lease, Outcome, text_of};
use super::gateway::{Failure, Gateway};
use super::lease::{self, LeaseKeeper, LeaseWatch};
use crate::catalog::{Change, Compare, Revision, Versioned};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use types::{Code, Error, Result};
use uuid::Uuid;
use wire::map::EngineInfo;

/// Version of the layout above.
const VERSION: u32 = 1;
/// Keys that are asked for at once.
const PAGE_KEYS: usize = 1000;
/// Changes of a transaction that are sent one behind the other; more are sent as transactions
/// within it, of so many each. etcd takes 128 for both together.
const CHANGES_FLAT_MAX: usize = 100;
const CHANGES_NESTED: usize = 60;
/// Comparisons of one transaction, beside the fence's, so that nested changes have room, too.
const COMPARES_MAX: usize = 60;
/// Listings that begin again because what they read was compacted away, at most.
const LISTINGS_MAX: usize = 8;
/// Pause before looking again whether another writer has gone.
const LEADER_PAUSE: Duration = Duration::from_millis(200);
/// How long etcd may take to hear that a writer has gone; who does not hear waits for the end of the lease.
const LEAVE_TIME_MAX: Duration = Duration::from_secs(5);

/// Which engine the writer is.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaderDf {
    pub engine: Uuid,
    /// Where it runs, for messages.
    pub host: String,
    /// How others reach it.
    #[serde(default)]
    pub at: Option<EngineInfo>,
}

#[derive(Serialize, Deserialize)]
struct FenceDf {
    version: u32,
    writer: String,
    commit: u64,
}

/// How a transaction under the fence went.
#[derive(PartialEq, Eq)]
enum Went {
    /// All comparisons held, and what there was to change is changed.
    Through,
    /// A record is not as it was compared with.
    Conflict,
    /// It had been carried out already, and its answer was lost.
    Earlier,
    /// The fence is another one: an earlier commit of this writer's was carried out only now.
    Late,
}

/// The one writer.
pub struct Session {
    config: EtcdConfig,
    gateway: Gateway,
    /// Tells this run from all others.
    writer: String,
    lease: LeaseKeeper,
    /// Revision of the fence as this writer has last seen it.
    fence: Revision,
    /// Of the last commit tried.
    commit: u64,
    /// Why nothing is done any more.
    lost: Option<Error>,
}

fn is_at(key: &str, revision: Revision) -> Value {
    json!({
        "key": text_of(key.as_bytes()), "target": "MOD", "result": "EQUAL",
        "mod_revision": revision.0.to_string(),
    })
}

fn question(key: &str) -> Value {
    json!({ "request_range": { "key": text_of(key.as_bytes()) } })
}

/// The first key behind all that begin with a prefix; a prefix is not empty, and text.
fn end_of(prefix: &str) -> String {
    let mut raw = prefix.as_bytes().to_vec();
    if let Some(last) = raw.last_mut() {
        *last += 1;
    }
    text_of(&raw)
}

fn corrupt(key: &str) -> Error {
    Error::new(Code::Io, format!("etcd: key '{key}' is not what an engine has written"))
}

impl Session {
    /// Becomes the writer, when no other engine is, or none any more.
    pub fn open(config: EtcdConfig) -> Result<Session> {
        let give_up = Instant::now() + config.wait;
        let mut session = Session::new(config)?;
        while let Some(held) = session.take_over()? {
            if Instant::now() >= give_up {
                return Err(Error::new(
                    Code::Busy,
                    format!(
                        "the catalog below '{}' in etcd is served by engine {} on {}; join \
                         that engine, stop it, or use another prefix",
                        session.config.prefix, held.engine, held.host
                    ),
                ));
            }
            std::thread::sleep(LEADER_PAUSE);
        }
        Ok(session)
    }

    /// One that is not the writer yet. Asks nobody.
    pub fn new(config: EtcdConfig) -> Result<Session> {
        let is_fit = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
        if config.prefix.is_empty() || !config.prefix.chars().all(is_fit) {
            return Err(Error::inval(format!(
                "etcd prefix '{}': it is of letters, digits and - _ . / only, and not empty",
                config.prefix
            )));
        }
        let gateway = Gateway::new(config.access.clone(), config.attempt_time)?;
        let writer = format!("{}-{:016x}", config.engine, config.run);
        let lease = LeaseKeeper::start(&config)?;
        Ok(Session {
            config,
            gateway,
            writer,
            lease,
            fence: Revision::ABSENT,
            commit: 0,
            lost: None,
        })
    }

    /// True once another has taken over.
    pub fn is_lost(&self) -> bool {
        self.lost.is_some()
    }

    /// Tells others whether it is the writer for sure.
    pub fn watch(&self) -> LeaseWatch {
        self.lease.watch()
    }

    /// Which write of the fence was the last one.
    pub fn fence(&self) -> u64 {
        self.fence.0
    }

    fn key(&self, name: &str) -> String {
        format!("{}:{name}", self.config.prefix)
    }

    fn record_key(&self, key: &str) -> String {
        self.key(&format!("r:{key}"))
    }

    fn until(&self) -> Instant {
        Instant::now() + self.config.deadline
    }

    /// When a request for the lease is given up: no sooner than an etcd answers that is slow only, and soon enough for
    /// another try before the lease ends.
    fn keep_until(&self) -> Instant {
        Instant::now() + (self.config.lease * 2 / 3).min(self.config.attempt_time)
    }

    fn leader_value(&self) -> Value {
        let EtcdConfig { engine, host, at, .. } = &self.config;
        let leader = LeaderDf { engine: *engine, host: host.clone(), at: at.clone() };
        let raw = serde_json::to_vec(&leader).unwrap_or_default();
        json!({ "request_put": {
            "key": text_of(self.key("leader").as_bytes()), "value": text_of(&raw),
            "lease": self.lease.lease().to_string(),
        } })
    }

    fn fence_value(&self) -> Value {
        let fence = FenceDf { version: VERSION, writer: self.writer.clone(), commit: self.commit };
        let raw = serde_json::to_vec(&fence).unwrap_or_default();
        let key = text_of(self.key("fence").as_bytes());
        json!({ "request_put": { "key": key, "value": text_of(&raw) } })
    }

    fn read_fence(&self, entry: &Entry) -> Result<FenceDf> {
        serde_json::from_slice(&entry.value).map_err(|_| corrupt(&self.key("fence")))
    }

    fn grant(&mut self, until: Instant) -> Result<()> {
        let body = json!({ "TTL": self.config.lease.as_secs().max(1).to_string() });
        let asked = Instant::now();
        let lease: Lease =
            self.gateway.call("/v3/lease/grant", &body, until).map_err(Failure::into_error)?;
        self.lease.hold(lease.id, asked);
        Ok(())
    }

    /// Becomes the writer, unless another engine is: then answers which. One try.
    pub fn take_over(&mut self) -> Result<Option<LeaderDf>> {
        let (leader_key, fence_key) = (self.key("leader"), self.key("fence"));
        loop {
            let look = json!({ "success": [question(&leader_key), question(&fence_key)] });
            let until = self.until();
            let found: Outcome =
                self.gateway.call("/v3/kv/txn", &look, until).map_err(Failure::into_error)?;
            let [leader, fence] = <[_; 2]>::try_from(found.entries())
                .map_err(|_| Error::new(Code::Proto, "etcd: two questions, not two answers"))?;
            if let Some(fence) = &fence {
                let version = self.read_fence(fence)?.version;
                if version != VERSION {
                    return Err(Error::new(
                        Code::Version,
                        format!(
                            "the catalog below '{}' in etcd has format {version}, this program \
                             knows {VERSION}: use the version that wrote it or a newer one",
                            self.config.prefix
                        ),
                    ));
                }
            }
            if let Some(entry) = &leader {
                let held: LeaderDf =
                    serde_json::from_slice(&entry.value).map_err(|_| corrupt(&leader_key))?;
                // An earlier run of this engine was where this one is. Elsewhere it may be one whose directory was copied.
                let tcp = |at: &Option<EngineInfo>| at.as_ref().map(|at| at.tcp.clone());
                let is_own =
                    held.engine == self.config.engine && tcp(&held.at) == tcp(&self.config.at);
                if !is_own {
                    self.lease.release();
                    return Ok(Some(held));
                }
            }
            self.grant(until)?;
            let revision = |entry: &Option<Entry>| {
                entry.as_ref().map_or(Revision::ABSENT, |entry| entry.revision())
            };
            let body = json!({
                "compare": [is_at(&leader_key, revision(&leader)), is_at(&fence_key, revision(&fence))],
                "success": [self.leader_value(), self.fence_value()],
            });
            let done: Outcome =
                self.gateway.call("/v3/kv/txn", &body, until).map_err(Failure::into_error)?;
            if done.succeeded {
                self.lease.bind(true);
                self.fence = Revision(done.header.revision);
                return Ok(None);
            }
            // Another was faster, or this one was and heard nothing of it.
        }
    }

    fn check(&self) -> Result<()> {
        self.lost.clone().map_or(Ok(()), Err)
    }

    /// The same, for what a late writer must not answer: one that stood still longer than its lease
    /// looks first whether it is the writer still.
    fn check_is_writer(&mut self) -> Result<()> {
        self.check()?;
        self.keep()
    }

    /// Looks at a fence that is not as this writer left it: `Ok` when an earlier commit of its own
    /// did that, with its number.
    fn look_at_fence(&mut self, entry: Option<&Entry>) -> Result<u64> {
        let found = entry.and_then(|entry| Some((entry, self.read_fence(entry).ok()?)));
        match found {
            Some((entry, fence)) if fence.writer == self.writer => {
                self.fence = entry.revision();
                Ok(fence.commit)
            }
            _ => {
                let error = Error::new(
                    Code::Busy,
                    format!(
                        "another engine has taken over the catalog below '{}' in etcd; this one \
                         serves it no more",
                        self.config.prefix
                    ),
                );
                tracing::warn!("catalog: {error}");
                self.lost = Some(error.clone());
                Err(error)
            }
        }
    }

    pub fn get(&mut self, key: &str, until: Instant) -> Result<Option<Versioned>> {
        self.check_is_writer()?;
        let body = json!({ "key": text_of(self.record_key(key).as_bytes()) });
        let found: Found =
            self.gateway.call("/v3/kv/range", &body, until).map_err(Failure::into_error)?;
        Ok(found.kvs.into_iter().next().map(Entry::into_versioned))
    }

    pub fn list(&mut self, prefix: &str, until: Instant) -> Result<Vec<(String, Versioned)>> {
        self.check_is_writer()?;
        let mut attempts = 1;
        loop {
            match self.list_once(prefix, until) {
                Err(error) if error.code == Code::Stale && attempts < LISTINGS_MAX => attempts += 1,
                Err(error) if error.code == Code::Stale => {
                    return Err(Error::new(Code::Io, error.text));
                }
                outcome => return outcome,
            }
        }
    }

    /// `Stale` when what was read was compacted away meanwhile.
    fn list_once(&mut self, prefix: &str, until: Instant) -> Result<Vec<(String, Versioned)>> {
        let (first, end) = (self.record_key(prefix), end_of(&self.record_key(prefix)));
        let cut = self.record_key("").len();
        let mut from = first.into_bytes();
        let mut revision = 0;
        let mut all = Vec::new();
        loop {
            let body = json!({
                "key": text_of(&from), "range_end": end, "limit": PAGE_KEYS.to_string(),
                "revision": revision.to_string(),
            });
            let found: Found =
                self.gateway.call("/v3/kv/range", &body, until).map_err(Failure::into_error)?;
            revision = found.header.revision;
            let last = found.kvs.last().map(|entry| entry.key.clone());
            for entry in found.kvs {
                let key = std::str::from_utf8(&entry.key).ok().and_then(|key| key.get(cut..));
                let key = key.ok_or_else(|| corrupt(&String::from_utf8_lossy(&entry.key)))?;
                all.push((key.to_string(), entry.into_versioned()));
            }
            match last.filter(|_| found.more) {
                None => return Ok(all),
                Some(last) => from = [&last[..], b"\0"].concat(),
            }
        }
    }

    fn change(&self, change: &Change) -> Value {
        let text = |key: &str| text_of(self.record_key(key).as_bytes());
        match change {
            Change::Put(key, bytes) => {
                json!({ "request_put": { "key": text(key), "value": text_of(bytes) } })
            }
            Change::Delete(key) => json!({ "request_delete_range": { "key": text(key) } }),
            Change::DeletePrefix(prefix) => json!({ "request_delete_range": {
                "key": text(prefix), "range_end": end_of(&self.record_key(prefix)),
            } }),
        }
    }

    /// The changes as parts of one transaction, the fence last.
    fn parts(&self, changes: &[Change]) -> Vec<Value> {
        let mut all: Vec<Value> = changes.iter().map(|change| self.change(change)).collect();
        if all.len() > CHANGES_FLAT_MAX {
            let parts = all.chunks(CHANGES_NESTED);
            all = parts.map(|part| json!({ "request_txn": { "success": part } })).collect();
        }
        all.push(self.fence_value());
        all
    }

    pub fn commit(
        &mut self,
        compares: &[Compare],
        changes: &[Change],
        until: Instant,
    ) -> Result<bool> {
        self.check()?;
        self.commit += 1;
        let parts = self.parts(changes);
        let records: Vec<Value> = compares
            .iter()
            .map(|compare| is_at(&self.record_key(&compare.key), compare.revision))
            .collect();
        // What is more than one transaction may compare is looked at before. Nobody writes a record without
        // the fence, so what held then holds as long as the fence is the same, and all of them compare that.
        let (before, last) = records.split_at(records.len().saturating_sub(COMPARES_MAX));
        loop {
            let looks = before.chunks(COMPARES_MAX).map(|part| (part, &[][..]));
            let mut went = Went::Through;
            for (compare, success) in looks.chain([(last, &parts[..])]) {
                went = match self.under_fence(compare, success, until) {
                    Ok(went) => went,
                    // A look has changed nothing, whatever became of it.
                    Err(failure) if success.is_empty() => return Err(failure.into_error()),
                    Err(Failure::Not(error)) => return Err(error),
                    Err(Failure::Maybe(error)) => {
                        return Err(Error::new(
                            Code::TimedOut,
                            format!(
                                "{error}; whether the change was made is not known: look before \
                                 asking again"
                            ),
                        ));
                    }
                };
                if went != Went::Through {
                    break;
                }
            }
            match went {
                Went::Through | Went::Earlier => return Ok(true),
                Went::Conflict => return Ok(false),
                // One that was given up has been carried out after all: now this one.
                Went::Late => {}
            }
        }
    }

    /// Asks for one transaction that compares the fence, too; without `success` it only compares.
    fn under_fence(
        &mut self,
        compare: &[Value],
        success: &[Value],
        until: Instant,
    ) -> Result<Went, Failure> {
        let fence_key = self.key("fence");
        let mut compare = compare.to_vec();
        compare.push(is_at(&fence_key, self.fence));
        let body = json!({
            "compare": compare, "success": success, "failure": [question(&fence_key)],
        });
        let outcome: Outcome = self.gateway.call("/v3/kv/txn", &body, until)?;
        if outcome.succeeded {
            if !success.is_empty() {
                self.fence = Revision(outcome.header.revision);
            }
            return Ok(Went::Through);
        }
        let entry = outcome.entries().into_iter().flatten().next();
        if entry.as_ref().is_some_and(|entry| entry.revision() == self.fence) {
            return Ok(Went::Conflict);
        }
        match self.look_at_fence(entry.as_ref()).map_err(Failure::Not)? == self.commit {
            true => Ok(Went::Earlier),
            false => Ok(Went::Late),
        }
    }

    /// Sees to it that the lease is kept, or gets another when it has gone and nobody has taken over. How long the
    /// store was silent makes no difference. Somebody may have removed what is in the store, and the lease is there still: reads would tell that
    /// there is nothing.
    pub fn keep(&mut self) -> Result<()> {
        self.check()?;
        if self.lease.is_sure() {
            let body = json!({ "key": text_of(self.key("fence").as_bytes()) });
            let until = self.keep_until();
            let found: Found =
                self.gateway.call("/v3/kv/range", &body, until).map_err(Failure::into_error)?;
            self.look_at_fence(found.kvs.first())?;
            return Ok(());
        }
        let (lease, asked, until) = (self.lease.lease(), Instant::now(), self.keep_until());
        if lease::ask(&mut self.gateway, lease, until)? > 0 {
            self.lease.hold(lease, asked);
            return Ok(());
        }
        // Another may have taken over: that is seen below.
        self.lease.bind(false);
        self.grant(self.keep_until())?;
        let fence_key = self.key("fence");
        let body = json!({
            "compare": [is_at(&fence_key, self.fence)], "success": [self.leader_value()],
            "failure": [question(&fence_key)],
        });
        let until = self.keep_until();
        let outcome: Outcome =
            self.gateway.call("/v3/kv/txn", &body, until).map_err(Failure::into_error)?;
        if outcome.succeeded {
            self.lease.bind(true);
            return Ok(());
        }
        let entry = outcome.entries().into_iter().flatten().next();
        self.look_at_fence(entry.as_ref())?;
        Ok(())
    }

    /// Lets others take over at once.
    pub fn end(&mut self) {
        let until = Instant::now() + self.config.attempt_time.min(LEAVE_TIME_MAX);
        self.lease.end();
        let body = json!({ "ID": self.lease.lease().to_string() });
        if let Err(failure) = self.gateway.call::<Value>("/v3/lease/revoke", &body, until) {
            let error = failure.into_error();
            tracing::debug!("catalog: leaving etcd: {error}; others wait for the lease to end");
        }
    }
}
