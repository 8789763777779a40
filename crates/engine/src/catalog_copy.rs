//! The copy of the catalog that every engine keeps, and goes on with while the catalog is away: it
//! tells clients of pools and containers, and an engine that starts of what it holds.
//!
//! It is asked for now and then from whoever holds the control service, and kept in the engine's directory. It
//! may be a little old. Nothing is decided by it that others rely on: it makes nothing, removes
//! nothing, and gives no handle that excludes others.

use crate::config::EngineConfig;
use crate::control_host::{ControlHost, Orders, service_on};
use crate::given::Giver;
use crate::office::{Role, Seat};
use crate::summed_line;
use control::{Catalog, CatalogCopy, EmbeddedCatalog, Service, SessionId};
use env::{Env, Signal};
use futures_util::future::join_all;
use std::cell::Cell;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;
use types::{Code, Error, Result, TargetId};
use wire::control::{ControlReply, ControlRequest, Evict, MemberState, OpenMode, SystemInfo};
use wire::map::PoolMap;

/// How often it is asked whether the catalog has changed.
const COPY_PAUSE: Duration = Duration::from_secs(2);
/// How long a target of this engine is waited for when it is asked for its map.
const MAP_TIME_MAX: Duration = Duration::from_secs(1);
/// How long an engine may take to show that it is there.
const LOOK_TIME_MAX: Duration = Duration::from_secs(2);
/// Object numbers that are given out together without the catalog: 2 to the power of this. Beyond
/// them come this engine's count, its rank, and a bit that the catalog's own numbers do not reach.
const RUN_BITS: u32 = 20;
const COUNT_BITS: u32 = 27;

/// The copy of one engine.
pub(crate) struct Copy {
    /// Answers from it; it is not written through this.
    pub service: Rc<Service>,
    kept: CatalogCopy,
    /// What it is of; 0: not known.
    generation: Cell<u64>,
    /// How often it was found to be up to date since the engine began.
    renewals: Cell<u64>,
    renewed: Signal,
    /// The engine started with it alone.
    is_alone: Cell<bool>,
    /// Where it is counted how often object numbers were given out without the catalog; `None` in
    /// simulations.
    count_path: Option<PathBuf>,
}

impl Copy {
    /// The engine starts with it alone.
    pub fn be_alone(&self) {
        self.is_alone.set(true);
    }

    pub fn is_alone(&self) -> bool {
        self.is_alone.get()
    }

    /// Opens the one in the engine's directory; without one that can be read it is empty.
    pub fn open(env: &Env, config: &EngineConfig) -> Result<Copy> {
        let is_real = env.sim_node().is_none();
        let opened = is_real.then(|| EmbeddedCatalog::open(&config.dir.join("catalog-copy")));
        let kept = match opened {
            Some(Ok(kept)) => kept,
            Some(Err(error)) => {
                tracing::warn!("the copy of the catalog: {error}; going on without");
                EmbeddedCatalog::in_memory()?
            }
            None => EmbeddedCatalog::in_memory()?,
        };
        let kept = CatalogCopy::kept_in(kept);
        Ok(Copy {
            service: Rc::new(service_on(env, Box::new(kept.clone()))),
            kept,
            generation: Cell::new(0),
            renewals: Cell::new(0),
            renewed: Signal::default(),
            is_alone: Cell::new(false),
            count_path: is_real.then(|| config.dir.join("object-numbers")),
        })
    }

    /// `Inval` when the catalog is older than it.
    pub async fn is_not_newer_than(&self, catalog: &dyn Catalog) -> Result<()> {
        control::check_not_older(catalog, &self.kept).await
    }

    fn note_renewed(&self) {
        self.renewals.set(self.renewals.get() + 1);
        self.renewed.notify();
    }

    /// Object numbers that nobody else gets. The count is on the disk before it is used.
    fn numbers(&self, rank: u32, count: u64) -> Result<u64> {
        let path = self.count_path.as_ref().ok_or_else(|| Error::bare(Code::Unreach))?;
        let failed = |error| Error::io(format!("counting in {}", path.display()), error);
        let used = match std::fs::read(path) {
            Ok(raw) => {
                decode_count(&raw).map_err(|error| error.context(path.display().to_string()))?
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => 0,
            Err(error) => return Err(failed(error)),
        };
        let next = used + count.div_ceil(1 << RUN_BITS).max(1);
        if rank >> (63 - RUN_BITS - COUNT_BITS) != 0 || next >= 1 << COUNT_BITS {
            return Err(Error::new(
                Code::NoSpace,
                "no object numbers are left beside the catalog's",
            ));
        }
        let fresh = path.with_extension("new");
        std::fs::write(&fresh, summed_line::line(&next.to_string()))
            .and_then(|()| std::fs::File::open(&fresh)?.sync_all())
            .and_then(|()| std::fs::rename(&fresh, path))
            .and_then(|()| match path.parent() {
                Some(dir) => std::fs::File::open(dir)?.sync_all(),
                None => Ok(()),
            })
            .map_err(failed)?;
        Ok(1 << 63 | u64::from(rank) << (RUN_BITS + COUNT_BITS) | used << RUN_BITS)
    }
}

/// The count in a file. A smaller one would give out numbers that others have.
fn decode_count(raw: &[u8]) -> Result<u64> {
    let bad = || Error::new(Code::Csum, "it holds no count; numbers would be given out again");
    let line = std::str::from_utf8(raw).map_err(|_| bad())?;
    summed_line::text(line)?.parse().map_err(|_| bad())
}

/// True for what the copy may answer as well.
fn is_answered(request: &ControlRequest) -> bool {
    match request {
        ControlRequest::PoolList
        | ControlRequest::PoolQuery(_)
        | ControlRequest::PoolMap(_)
        | ControlRequest::ContList(_)
        | ControlRequest::ContQuery(..)
        | ControlRequest::GetAttrs { .. }
        | ControlRequest::GetProps { .. }
        | ControlRequest::SnapList(..)
        | ControlRequest::SystemQuery => true,
        ControlRequest::PoolOpen { mode, .. } => *mode != OpenMode::Exclusive,
        ControlRequest::ContOpen { ask, .. } => {
            ask.mode != OpenMode::Exclusive && ask.evict == Evict::Nobody
        }
        _ => false,
    }
}

impl ControlHost {
    /// Keeps the copy up to date.
    pub(crate) async fn keep_copy(self: Rc<Self>) {
        self.env.spawn(self.clone().watch_for_silence());
        loop {
            if let Err(error) = self.renew_copy().await {
                tracing::debug!("renewing the copy of the catalog: {error}");
            }
            // timer: the copy is renewed at intervals.
            self.env.sleep(COPY_PAUSE).await;
        }
    }

    async fn renew_copy(self: &Rc<Self>) -> Result<()> {
        let known = self.copy.generation.get();
        let mut all = Vec::new();
        let mut of = None;
        loop {
            let after = all.last().map_or_else(String::new, |(key, _): &(String, _)| key.clone());
            let request = ControlRequest::CatalogCopy { generation: known, after };
            let reply = self.ask_holder(&request).await?;
            let ControlReply::CatalogCopy { generation, entries, is_complete } = reply else {
                return Err(Error::new(Code::Proto, "not a copy of the catalog"));
            };
            if of.is_none() && generation == known {
                self.copy.note_renewed();
                return Ok(());
            }
            if of.is_some_and(|of| of != generation) {
                // It has changed meanwhile: from the beginning.
                all.clear();
                of = None;
                continue;
            }
            of = Some(generation);
            let is_stuck = entries.is_empty() && !is_complete;
            all.extend(entries);
            if is_stuck {
                return Err(Error::new(Code::Proto, "an empty page of a copy"));
            }
            if is_complete {
                self.copy.kept.replace(all).await?;
                self.copy.generation.set(generation);
                self.copy.note_renewed();
                return Ok(());
            }
        }
    }

    async fn watch_for_silence(self: Rc<Self>) {
        loop {
            self.look_for_silence();
            // timer: nobody tells that there is no answer.
            self.env.sleep(COPY_PAUSE).await;
        }
    }

    /// An etcd whose members all stand still refuses nobody: who holds the control service knows by its lease, which is not kept then, that it is away.
    fn look_for_silence(&self) {
        let Role::Holder(service) = self.role() else { return };
        if !self.standing.is_elected() {
            return;
        }
        match service.holds_catalog() {
            true => self.note_back(),
            false => self.note_away(Error::new(
                Code::Unreach,
                "etcd has not kept the lease of the control service in time: it does not answer",
            )),
        }
    }

    /// Ends when the catalog, which was away, is not so any more.
    pub(crate) async fn until_catalog_back(&self) {
        let before = self.copy.renewals.get();
        self.copy.renewed.until(|| self.copy.renewals.get() != before).await;
    }

    /// Closes a handle that was given from the copy; the encoded answer, `None` when it was not.
    pub(crate) async fn close_in_copy(
        self: &Rc<Self>,
        session: SessionId,
        request: &ControlRequest,
    ) -> Option<Vec<u8>> {
        let is_close =
            matches!(request, ControlRequest::PoolClose { .. } | ControlRequest::ContClose { .. });
        let service = is_close.then(|| self.copy.service.clone())?;
        let orders = Orders { host: self.clone(), service: service.clone() };
        let reply = service.handle(session, request.clone(), &orders).await;
        reply.is_ok().then(|| wire::encode(&reply))
    }

    /// The map of the copy may be older than what this engine's targets were told: the holder may have changed it for
    /// its own stop.
    async fn take_newer_map(&self, map: &mut PoolMap) {
        let (_, own) = self.membership();
        let here = |target: &TargetId| map.target(*target).is_some();
        let Some(target) = own.into_iter().find(here) else { return };
        if let Some(Ok(newer)) =
            self.env.timeout(MAP_TIME_MAX, self.peers.map_of(map, target)).await
            && newer.version > map.version
        {
            *map = newer;
        }
    }

    /// Nobody watches the engines while no engine leads. Who asks how they do is told who answers now.
    async fn look_at_all(&self, info: &mut SystemInfo) {
        let own = self.rank();
        let looks = info.engines.iter_mut().zip(&info.members).map(
            |((engine, _, answers), member)| async move {
                if engine.rank != own && member.state == MemberState::Up {
                    *answers = self.peers.ping(engine, LOOK_TIME_MAX).await.is_some();
                }
            },
        );
        join_all(looks).await;
    }

    /// The encoded answer to a request for which the catalog is away; `None` when the copy does not
    /// tell.
    pub(crate) async fn answer_from_copy(
        self: &Rc<Self>,
        session: SessionId,
        seat: &Seat,
        request: &ControlRequest,
        error: &Error,
    ) -> Option<Vec<u8>> {
        if !matches!(error.code, Code::Unreach | Code::Closed | Code::TimedOut) {
            return None;
        }
        let service = self.copy.service.clone();
        if let ControlRequest::AllocOids { pool, cont, count } = request {
            let is_known = *count > 0 && service.has_cont(*pool, *cont).await == Ok(true);
            let numbers = is_known.then(|| self.copy.numbers(self.rank().0, *count))?;
            if let Err(error) = &numbers {
                tracing::warn!("object numbers without the catalog: {error}");
            }
            return numbers
                .ok()
                .map(|first| wire::encode(&Ok::<_, Error>(ControlReply::Oids(first))));
        }
        if !is_answered(request) {
            return None;
        }
        let orders = Orders { host: self.clone(), service: service.clone() };
        let mut reply = service.handle(session, request.clone(), &orders).await.ok()?;
        seat.given().note(request, || Giver::Copy);
        match &mut reply {
            ControlReply::System(info) => {
                info.leader = None;
                self.look_at_all(info).await;
            }
            ControlReply::Map(map) => self.take_newer_map(map).await,
            ControlReply::Pool(pool) => self.take_newer_map(&mut pool.map).await,
            _ => {}
        }
        Some(wire::encode(&Ok::<_, Error>(reply)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A flipped bit once made 16 out of 17: objects got numbers that others had.
    #[test]
    fn any_flipped_bit_of_a_count_is_noticed_or_harmless() {
        for count in [1, 17, 40_000_000] {
            let raw = summed_line::line(&count.to_string()).into_bytes();
            assert_eq!(decode_count(&raw), Ok(count));
            for bit in 0..raw.len() * 8 {
                let mut raw = raw.clone();
                raw[bit / 8] ^= 1 << (bit % 8);
                match decode_count(&raw) {
                    Ok(found) => assert_eq!(found, count, "bit {bit}"),
                    Err(error) => assert_eq!(error.code, Code::Csum, "bit {bit}"),
                }
            }
        }
        assert_eq!(decode_count(b"17\n"), Ok(17));
        assert_eq!(decode_count(b"").unwrap_err().code, Code::Csum);
    }
}
