//! Settings of admission: kept in the catalog, sent to the targets.
//!
//! They are versioned like a pool map: a target keeps the newest. One that does not
//! answer gets them when its engine does again.

use super::orders::{self, Targets};
use super::pool::target_ids;
use super::{Service, engine_of};
use crate::records::{AdmissionDf, PoolDf, RECORD_VERSION, TargetDf};
use crate::store::Loaded;
use std::collections::BTreeMap;
use types::{PoolId, Result, TargetId};
use wire::admission::{Admission, Limit, Weights};
use wire::obj::AdminOp;

/// Most bulk writes at work at each target: `off`, `auto` or a number.
pub(super) const MAX_WRITERS: &str = "ioc_max_writers";
/// The same of bulk reads.
pub(super) const MAX_READERS: &str = "ioc_max_readers";
/// Shares of jobs, `JOB:WEIGHT,…`.
pub(super) const WEIGHTS: &str = "ioc_weights";

impl Service {
    /// What a pool wants, as far as it was ever set.
    pub(super) async fn admission(&self, pool: PoolId) -> Result<Option<Admission>> {
        let found = self.store.admission(pool).await?;
        found.map(|loaded| loaded.record.settings()).transpose()
    }

    /// Tells the targets of reachable engines what a pool wants of them.
    pub(super) async fn push_admission(
        &self,
        pool: &PoolDf,
        admission: &Admission,
        sink: &dyn Targets,
    ) -> Result<()> {
        let order = || AdminOp::SetAdmission { pool: pool.id, admission: admission.clone() };
        self.push_settings(pool, order, sink).await
    }

    /// Gives an order to the targets of reachable engines. Those that fail are named in the error:
    /// they go on with what they knew until they are told again, as those do that seem to be away.
    pub(super) async fn push_settings(
        &self,
        pool: &PoolDf,
        order: impl Fn() -> AdminOp,
        sink: &dyn Targets,
    ) -> Result<()> {
        let engines = self.store.engines().await?;
        let reachable: Vec<TargetId> = target_ids(pool)
            .into_iter()
            .filter(|id| engine_of(*id, &engines).is_some_and(|e| sink.reachable(e.rank)))
            .collect();
        // Who was only slow for a moment does not join again.
        let is_away = |target: &&TargetDf| !reachable.contains(&target.id);
        pool.targets.iter().filter(is_away).for_each(|target| self.note_untold(target.rank));
        let failures = orders::order_all(sink, reachable, order).await;
        if failures.is_empty() {
            return Ok(());
        }
        self.note_failed(pool, &failures);
        Err(orders::failure(
            &format!("pool '{}' has the new settings, but not all targets do yet", pool.name()),
            &failures,
            "they are told as soon as they answer",
        ))
    }
}

/// The record with changes by name. `None`: nothing changes.
pub(super) fn changed(
    now: Option<&Loaded<AdmissionDf>>,
    props: &BTreeMap<String, String>,
) -> Result<Option<AdmissionDf>> {
    let before = now.map_or_else(|| Ok(Admission::default()), |loaded| loaded.record.settings())?;
    let mut wanted = before.clone();
    for (name, value) in props {
        let applied = match name.as_str() {
            MAX_WRITERS => value.parse::<Limit>().map(|limit| wanted.max_writers = limit),
            MAX_READERS => value.parse::<Limit>().map(|limit| wanted.max_readers = limit),
            WEIGHTS => value.parse::<Weights>().map(|weights| wanted.weights = weights),
            _ => Ok(()),
        };
        applied.map_err(|error| error.context(format!("property '{name}'")))?;
    }
    // Set again, they are sent again: so an operator mends a target that missed them.
    if wanted == before && (now.is_none() || !props.keys().any(|name| is_one(name))) {
        return Ok(None);
    }
    wanted.version += 1;
    Ok(Some(AdmissionDf::of(&wanted)))
}

/// True for a property of admission.
pub(super) fn is_one(name: &str) -> bool {
    [MAX_WRITERS, MAX_READERS, WEIGHTS].contains(&name)
}

/// Properties as users read them.
pub(super) fn as_props(admission: &Admission) -> [(&'static str, String); 3] {
    [
        (MAX_WRITERS, admission.max_writers.to_string()),
        (MAX_READERS, admission.max_readers.to_string()),
        (WEIGHTS, admission.weights.to_string()),
    ]
}

impl AdmissionDf {
    pub(super) fn of(admission: &Admission) -> AdmissionDf {
        AdmissionDf {
            version: RECORD_VERSION,
            revision: admission.version,
            max_writers: admission.max_writers.to_string(),
            max_readers: admission.max_readers.to_string(),
            weights: admission.weights.to_string(),
        }
    }

    pub(super) fn settings(&self) -> Result<Admission> {
        Ok(Admission {
            version: self.revision,
            max_writers: self.max_writers.parse()?,
            max_readers: self.max_readers.parse()?,
            weights: self.weights.parse()?,
        })
    }
}
