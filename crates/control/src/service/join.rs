//! Engines join the system, and come back to it.

use super::{Service, Targets, leads, orders};
use crate::keys;
use crate::records::{EngineDf, MemberDf, PoolDf, RECORD_VERSION};
use crate::store::{Attempts, Tx};
use futures_util::future::join_all;
use std::rc::Rc;
use types::{Code, Error, Rank, Result, TargetId};
use uuid::Uuid;
use wire::control::{ControlReply, JoinInfo, MemberState};
use wire::event::{EventCode, Happened};
use wire::map::PoolMap;
use wire::obj::AdminOp;

/// Most targets of one engine; more are a mistake of whoever configured it.
const TARGETS_MAX: u32 = 4096;

impl Service {
    /// Gives a new engine its rank and targets, and a known one the same again, with further targets where it has more than before. Those
    /// it had keep their numbers; no pool is on the new ones until it is extended.
    ///
    /// A new address goes into the maps of all pools the engine has targets in, and these maps to
    /// the targets of the *other* engines: this one cannot take orders before it has its
    /// answer. [`Service::resume_engine`] is for it.
    pub(super) async fn join(&self, join: JoinInfo, orders: &dyn Targets) -> Result<ControlReply> {
        check(&join)?;
        self.starts.borrow_mut().joined.insert(join.engine, join.start);
        let mut attempts = Attempts::new();
        loop {
            attempts.next()?;
            let mut system = self.system().await?;
            let uuid = system.record.uuid;
            if let Some(other) = join.system.filter(|known| *known != uuid) {
                return Err(not_of(other, uuid));
            }
            let Some(mut engine) = self.store.engine(join.engine).await? else {
                let mut fresh = new_engine(&join, &mut system.record)?;
                fresh.member.changed_ns = (self.wall_ns)();
                let key = keys::engine(join.engine);
                let tx = Tx::new().replace(&system).expect_absent(&key).put(&key, &fresh);
                if self.store.commit(tx).await? {
                    tracing::info!(engine = %join.engine, rank = %fresh.rank, "engine joined");
                    let (rank, count) = (fresh.rank, fresh.targets.len());
                    let what =
                        format!("engine {rank} at {} joined with {count} targets", fresh.tcp);
                    self.tell(Happened::new(EventCode::EngineJoined, what).of_engine(rank));
                    return Ok(joined(&fresh, uuid));
                }
                continue;
            };
            let known = engine.record.targets.len() as u32;
            let Some(added) = join.target_count.checked_sub(known) else {
                return Err(Error::inval(format!(
                    "engine {} (rank {}) joined with {known} targets before and now has {}: targets \
                     may come to an engine, but none may go; set it back or use a new directory",
                    join.engine, engine.record.rank, join.target_count
                )));
            };
            let domain = engine.record.domain.clone();
            let has_moved = engine.record.update(&join.info);
            let was_away =
                matches!(engine.record.member.state, MemberState::Stopped | MemberState::Down);
            let is_back =
                was_away && self.starts.borrow().has_left.get(&join.engine) != Some(&join.start);
            if !has_moved && !is_back && added == 0 {
                return Ok(joined(&engine.record, uuid));
            }
            let rank = engine.record.rank;
            if added > 0 {
                engine.record.targets.extend(new_targets(&mut system.record, added)?);
                system.record.members_version += 1;
            }
            if is_back {
                // Up it is when its targets have been told what they hold.
                system.record.members_version += 1;
                engine.record.member = MemberDf {
                    state: MemberState::Joining,
                    why: super::members::STARTED.into(),
                    since: system.record.members_version,
                    changed_ns: (self.wall_ns)(),
                    drains: engine.record.member.drains,
                };
            }
            // The system is written back too: a pool that is being made just now, with the old
            // address in its map, must not slip through the list below.
            let mut tx = Tx::new().replace(&engine).replace(&system);
            let (mut affected, mut losing) = (Vec::new(), Vec::new());
            let pools = if has_moved { self.pools_left().await? } else { Vec::new() };
            for mut pool in pools {
                if pool.record.targets.iter().any(|target| target.rank == rank) {
                    pool.record.map_version += 1;
                    if domain != engine.record.domain {
                        // Who stands in for whom goes by domains.
                        let (id, version) = (pool.record.id, pool.record.map_version);
                        losing.push((id, version, leads::leading(&pool.record.map(&[]))));
                    }
                    tx = tx.replace(&pool);
                    affected.push(pool.record);
                }
            }
            if self.commit_maps(tx, losing, orders).await? {
                if has_moved {
                    tracing::info!(engine = %join.engine, %rank, "engine has a new address");
                }
                if added > 0 {
                    let new = &engine.record.targets[known as usize..];
                    tracing::info!(engine = %join.engine, %rank, targets = ?new, "engine has further targets");
                    let numbers: Vec<String> = new.iter().map(TargetId::to_string).collect();
                    let what = format!(
                        "engine {rank} at {} has {added} further targets: {}",
                        engine.record.tcp,
                        numbers.join(", ")
                    );
                    self.tell(Happened::new(EventCode::EngineJoined, what).of_engine(rank));
                }
                self.push_maps(&affected, Some(rank), orders).await?;
                return Ok(joined(&engine.record, uuid));
            }
        }
    }

    /// Targets are told this map, whole: what comes next is told them as a change of it.
    pub(super) fn note_told(&self, map: &PoolMap) {
        let mut told = self.told_last.borrow_mut();
        if told.get(&map.pool).is_none_or(|known| known.version < map.version) {
            told.insert(map.pool, Rc::new(map.clone()));
        }
    }

    /// Sends maps to the reachable targets outside `except`. Targets that miss one get it when
    /// their engine resumes.
    pub(super) async fn push_maps(
        &self,
        pools: &[PoolDf],
        except: Option<Rank>,
        sink: &dyn Targets,
    ) -> Result<()> {
        let mut sent = Vec::with_capacity(pools.len());
        for pool in pools {
            self.tell_targets(pool);
            let map = Rc::new(self.map(pool).await?);
            let others = pool
                .targets
                .iter()
                .filter(|target| target.info().holds_its_part())
                .filter(|target| Some(target.rank) != except && sink.reachable(target.rank))
                .map(|target| target.id);
            let others: Vec<TargetId> = others.collect();
            let before = self.told_last.borrow().get(&pool.id).cloned();
            self.note_told(&map);
            sent.push(async move { (pool, send_map(sink, others, before, map).await) });
        }
        for (pool, failures) in join_all(sent).await {
            for (target, error) in failures {
                tracing::warn!(%target, pool = %pool.id, %error, "target did not take a new pool map");
            }
        }
        Ok(())
    }
}

/// Sends a map to targets: what has changed since the last one, and all of it to those who did not have that.
async fn send_map(
    sink: &dyn Targets,
    targets: Vec<TargetId>,
    before: Option<Rc<PoolMap>>,
    map: Rc<PoolMap>,
) -> orders::Failures {
    let whole = || AdminOp::SetMap((*map).clone());
    let Some(change) = before.and_then(|before| before.change_to(&map)) else {
        return orders::order_all(sink, targets, whole).await;
    };
    let failures = orders::order_all(sink, targets, || AdminOp::ChangeMap(change.clone())).await;
    let is_behind = |(_, error): &(TargetId, Error)| error.code == Code::Stale;
    let (behind, mut failures): (orders::Failures, _) = failures.into_iter().partition(is_behind);
    let behind = behind.into_iter().map(|(target, _)| target);
    failures.extend(orders::order_all(sink, behind, whole).await);
    failures
}

/// The answer to an engine of another system.
pub(crate) fn not_of(engine: Uuid, here: Uuid) -> Error {
    Error::inval(format!(
        "the engine is one of system {engine}, and this is system {here}: correct 'join' or [catalog] in its \
         configuration; for it to begin anew here, erase it first ('azekura system erase --config FILE')"
    ))
}

fn check(join: &JoinInfo) -> Result<()> {
    if !(1..=TARGETS_MAX).contains(&join.target_count) {
        return Err(Error::inval(format!(
            "engine {} wants {} targets; give it 1 to {TARGETS_MAX}",
            join.engine, join.target_count
        )));
    }
    if join.engine.is_nil() {
        return Err(Error::inval("an engine must have an identity to join; its UUID is nil"));
    }
    if join.info.tcp.is_empty() && join.info.unix.is_empty() {
        return Err(Error::inval(format!(
            "engine {} gives neither a TCP address nor a Unix socket; nobody could reach it",
            join.engine
        )));
    }
    Ok(())
}

fn used_up() -> Error {
    Error::inval("the system has no target numbers left; make a new system")
}

/// Numbers that no target has had.
fn new_targets(
    system: &mut crate::SystemDf,
    count: u32,
) -> Result<impl Iterator<Item = TargetId> + use<>> {
    let first = system.target_next;
    let end = first.checked_add(count).ok_or_else(used_up)?;
    system.target_next = end;
    Ok((first..end).map(TargetId))
}

fn new_engine(join: &JoinInfo, system: &mut crate::SystemDf) -> Result<EngineDf> {
    let targets = new_targets(system, join.target_count)?;
    let rank = system.rank_next;
    system.members_version += 1;
    system.rank_next = rank.checked_add(1).ok_or_else(used_up)?;
    let mut engine = EngineDf {
        version: RECORD_VERSION,
        rank: Rank(rank),
        tcp: String::new(),
        unix: String::new(),
        host: String::new(),
        domain: Vec::new(),
        targets: targets.collect(),
        member: MemberDf {
            why: "it joined".into(),
            since: system.members_version,
            ..MemberDf::default()
        },
    };
    engine.update(&join.info);
    Ok(engine)
}

fn joined(engine: &EngineDf, system: uuid::Uuid) -> ControlReply {
    ControlReply::Joined { rank: engine.rank, targets: engine.targets.clone(), system }
}
