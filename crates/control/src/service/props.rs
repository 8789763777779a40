//! Changing properties of pools and containers, by the names users type.
//!
//! All properties of a request change together or none does.

use super::Service;
use super::admission;
use super::cont::check_props;
use super::orders::Targets;
use crate::keys;
use crate::records::{CacheDf, PoolDf, ScrubDf};
use crate::store::{Attempts, Tx};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use types::{Code, ContProps, Error, Result, limits, size};
use wire::control::{ControlReply, Name, Subject};
use wire::obj::AdminOp;
use wire::scrub::ScrubRate;

/// What can be changed of a pool.
const POOL_PROPS: [&str; 14] = [
    "label",
    admission::MAX_WRITERS,
    admission::MAX_READERS,
    admission::WEIGHTS,
    SCRUB,
    HEAL_SHARE,
    PLACEMENT,
    BALANCE,
    BALANCE_THRESHOLD,
    BALANCE_INTERVAL,
    BALANCE_STOPPED,
    DRAIN_SLOW_AFTER,
    CACHE_MAX,
    CACHE_FILE_MAX,
];
/// Rate of the scrubber of each target: `off` or `SIZE/s`.
const SCRUB: &str = "scrub";
/// What part of its time a leader gives to moves while clients want something, percent.
const HEAL_SHARE: &str = "heal_share";
/// What its targets are weighed by, from the next placement epoch on.
const PLACEMENT: &str = "placement";
/// Whether shares of targets, and data, follow by themselves: `auto` or `manual`.
const BALANCE: &str = "balance";
/// By how much a share has to change for that, percent.
const BALANCE_THRESHOLD: &str = "balance_threshold";
/// How long it stays as it is after a change, seconds.
const BALANCE_INTERVAL: &str = "balance_interval_s";
/// Whether an administrator has stopped it: `yes` or `no`. A balance that is under way is given up with `yes`.
const BALANCE_STOPPED: &str = "balance_stopped";
/// A target whose devices have been slow for so long is drained, seconds.
const DRAIN_SLOW_AFTER: &str = "drain_slow_after_s";
/// Most that an engine keeps of the pool's data in memory: `off` or a size.
const CACHE_MAX: &str = "cache_max";
/// Most that it keeps of one file.
const CACHE_FILE_MAX: &str = "cache_file_max";
/// What is fixed when a pool is made.
const POOL_FIXED: [&str; 3] = ["durability", "bytes", "scm_percent"];
/// What can be changed of a container.
const CONT_PROPS: [&str; 5] = ["label", "oclass", "dir_oclass", "file_oclass", "chunk_size"];
/// What is fixed when a container is made.
const CONT_FIXED: [&str; 7] =
    ["layout", "rd_fac", "csum", "cksum", "srv_cksum", "cell_size", "ec_cell_sz"];

fn no_props() -> Error {
    Error::new(Code::NotSupported, "a system has attributes, no properties")
}

impl Service {
    pub(super) async fn set_props(
        &self,
        subject: &Subject,
        props: &BTreeMap<String, String>,
        orders: &dyn Targets,
    ) -> Result<ControlReply> {
        match subject {
            Subject::System => return Err(no_props()),
            Subject::Pool(pool) => {
                check_names("pool", props, &POOL_PROPS, &POOL_FIXED)?;
                self.set_pool_props(pool, props, orders).await?;
            }
            Subject::Cont(pool, cont) => {
                check_names("container", props, &CONT_PROPS, &CONT_FIXED)?;
                self.set_cont_props(pool, cont, props).await?;
            }
        }
        Ok(ControlReply::Done)
    }

    /// The properties that can be changed.
    pub(super) async fn get_props(&self, subject: &Subject) -> Result<ControlReply> {
        let props: Vec<(&str, String)> = match subject {
            Subject::System => return Err(no_props()),
            Subject::Pool(pool) => {
                let pool = self.ready_pool(pool).await?.record;
                let admission = self.admission(pool.id).await?.unwrap_or_default();
                let scrub = pool.scrub.settings().rate.to_string();
                let balance = if pool.balance.is_auto { "auto" } else { "manual" };
                let stopped = if pool.balance.is_stopped { "yes" } else { "no" };
                let mut props = vec![
                    ("label", pool.label),
                    (SCRUB, scrub),
                    (HEAL_SHARE, pool.scrub.heal_share.to_string()),
                    (PLACEMENT, pool.placement.to_string()),
                    (BALANCE, balance.to_string()),
                    (BALANCE_THRESHOLD, pool.balance.threshold_percent.to_string()),
                    (BALANCE_INTERVAL, pool.balance.interval_s.to_string()),
                    (BALANCE_STOPPED, stopped.to_string()),
                    (DRAIN_SLOW_AFTER, pool.balance.drain_slow_after_s.to_string()),
                    (CACHE_MAX, pool.cache.bytes_max.to_string()),
                    (CACHE_FILE_MAX, pool.cache.object_bytes_max.to_string()),
                ];
                props.extend(admission::as_props(&admission));
                props
            }
            Subject::Cont(pool, cont) => {
                let pool = self.ready_pool(pool).await?.record;
                let cont = self.ready_cont(&pool, cont).await?.record;
                vec![
                    ("label", cont.label),
                    ("oclass", cont.props.oclass.to_string()),
                    ("dir_oclass", cont.props.dir_oclass.to_string()),
                    ("file_oclass", cont.props.file_oclass.to_string()),
                    ("chunk_size", cont.props.chunk_bytes.to_string()),
                ]
            }
        };
        let props = props.into_iter().map(|(name, value)| (name.to_string(), value)).collect();
        Ok(ControlReply::Props(props))
    }

    async fn set_pool_props(
        &self,
        name: &Name,
        props: &BTreeMap<String, String>,
        orders: &dyn Targets,
    ) -> Result<()> {
        let mut attempts = Attempts::new();
        loop {
            attempts.next()?;
            let mut pool = self.ready_pool(name).await?;
            let id = pool.record.id;
            let held = self.store.admission(id).await?;
            let wanted = admission::changed(held.as_ref(), props)?;
            let weighed = |pool: &PoolDf| (pool.placement, pool.balance, pool.balance_wanted);
            let before = weighed(&pool.record);
            set_balance(&mut pool.record, props)?;
            let is_weighed = before != weighed(&pool.record);
            let label = props.get("label").filter(|label| **label != pool.record.label);
            let mut tx = Tx::new();
            // Set again, it is sent again: so an operator mends a target that missed it.
            let scrubs = set_background(&mut pool.record.scrub, props)?;
            let caches = set_cache(&mut pool.record.cache, props)?;
            if let Some(label) = label {
                limits::check_label(label)?;
                let (old_key, new_key) =
                    (keys::pool_label(&pool.record.label), keys::pool_label(label));
                self.check_pool_label_free(label).await?;
                pool.record.label.clone_from(label);
                tx = tx
                    .replace(&pool)
                    .expect_absent(&new_key)
                    .put_number(&new_key, id.0.into())
                    .delete(old_key);
            } else if scrubs || caches || is_weighed {
                tx = tx.replace(&pool);
            } else {
                tx = tx.expect(&pool);
            }
            if let Some(record) = &wanted {
                tx = match &held {
                    Some(held) => tx.expect(held),
                    None => tx.expect_absent(keys::pool_admission(id)),
                };
                tx = tx.put(keys::pool_admission(id), record);
            }
            if label.is_none() && wanted.is_none() && !scrubs && !caches && !is_weighed {
                return Ok(());
            }
            if self.store.commit(tx).await? {
                // Who does not hear of one thing is not why others do not hear of the next.
                let mut told = Ok(());
                if let Some(record) = &wanted {
                    told = self.push_admission(&pool.record, &record.settings()?, orders).await;
                }
                if scrubs {
                    let (id, scrub) = (pool.record.id, pool.record.scrub.settings());
                    let order = || AdminOp::SetScrub { pool: id, scrub };
                    told = told.and(self.push_settings(&pool.record, order, orders).await);
                }
                if caches {
                    let (id, cache) = (pool.record.id, pool.record.cache.settings());
                    let order = || AdminOp::SetCache { pool: id, cache };
                    told = told.and(self.push_settings(&pool.record, order, orders).await);
                }
                return told;
            }
        }
    }

    async fn set_cont_props(
        &self,
        pool: &Name,
        cont: &Name,
        props: &BTreeMap<String, String>,
    ) -> Result<()> {
        let mut attempts = Attempts::new();
        loop {
            attempts.next()?;
            let pool = self.ready_pool(pool).await?;
            let pool_id = pool.record.id;
            let mut cont = self.ready_cont(&pool.record, cont).await?;
            // The pool is compared too: nothing may be added to one that is being destroyed.
            let mut tx = Tx::new().expect(&pool);
            if let Some(label) = props.get("label").filter(|label| **label != cont.record.label) {
                if !cont.record.label.is_empty() {
                    tx = tx.delete(keys::cont_label(pool_id, &cont.record.label));
                }
                if !label.is_empty() {
                    limits::check_label(label)?;
                    let key = keys::cont_label(pool_id, label);
                    if self.store.number(&key).await?.is_some() {
                        return Err(Error::new(
                            Code::Exist,
                            format!(
                                "pool '{}' has a container '{label}' already; choose another label",
                                pool.record.name()
                            ),
                        ));
                    }
                    tx = tx.expect_absent(&key).put_number(&key, cont.record.id.0);
                }
                cont.record.label.clone_from(label);
            }
            let mut changed = ContProps::from(&cont.record.props);
            apply(&mut changed, props)?;
            check_props(&changed, &self.map(&pool.record).await?)?;
            cont.record.props = (&changed).into();
            if self.store.commit(tx.replace(&cont)).await? {
                self.note_times(pool_id, &cont.record, false, true).await;
                return Ok(());
            }
        }
    }
}

fn wrong(name: &str, value: &str, valid: &str) -> Error {
    Error::inval(format!("property '{name}': '{value}' is not {valid}"))
}

/// A number among the properties, if it is there.
fn number(
    props: &BTreeMap<String, String>,
    name: &str,
    range: RangeInclusive<u32>,
) -> Result<Option<u32>> {
    let Some(text) = props.get(name) else { return Ok(None) };
    let valid = format!("a number from {} to {}", range.start(), range.end());
    let value = text.trim_end_matches('%').parse().ok().filter(|value| range.contains(value));
    value.map(Some).ok_or_else(|| wrong(name, text, &valid))
}

/// What targets do in the background; true when something of it was named.
fn set_background(scrub: &mut ScrubDf, props: &BTreeMap<String, String>) -> Result<bool> {
    if let Some(rate) = props.get(SCRUB) {
        let parsed: Result<ScrubRate> = rate.parse();
        scrub.rate = parsed.map_err(|error| error.context(format!("property '{SCRUB}'")))?.0;
    }
    if let Some(percent) = number(props, HEAL_SHARE, 1..=100)? {
        scrub.heal_share = percent as u8;
    }
    let is_named = props.contains_key(SCRUB) || props.contains_key(HEAL_SHARE);
    scrub.revision += u64::from(is_named);
    Ok(is_named)
}

/// What engines keep in memory; true when something of it was named.
fn set_cache(cache: &mut CacheDf, props: &BTreeMap<String, String>) -> Result<bool> {
    let mut is_named = false;
    for (name, field) in
        [(CACHE_MAX, &mut cache.bytes_max), (CACHE_FILE_MAX, &mut cache.object_bytes_max)]
    {
        let Some(text) = props.get(name) else { continue };
        let bytes = if text == "off" { Ok(0) } else { size::parse(text) };
        *field = bytes.map_err(|_| wrong(name, text, "'off' or a size, such as 4GiB"))?;
        is_named = true;
    }
    cache.revision += u64::from(is_named);
    Ok(is_named)
}

/// How shares are made, and whether they follow.
fn set_balance(pool: &mut PoolDf, props: &BTreeMap<String, String>) -> Result<()> {
    if let Some(rule) = props.get(PLACEMENT) {
        let parsed = rule.parse();
        pool.placement =
            parsed.map_err(|error: Error| error.context(format!("property '{PLACEMENT}'")))?;
    }
    if let Some(text) = props.get(BALANCE) {
        pool.balance.is_auto = match text.as_str() {
            "auto" => true,
            "manual" => false,
            _ => return Err(wrong(BALANCE, text, "'auto' or 'manual'")),
        };
    }
    if let Some(percent) = number(props, BALANCE_THRESHOLD, 1..=1000)? {
        pool.balance.threshold_percent = percent;
    }
    if let Some(seconds) = number(props, BALANCE_INTERVAL, 0..=31_536_000)? {
        pool.balance.interval_s = seconds;
    }
    if let Some(seconds) = number(props, DRAIN_SLOW_AFTER, 0..=31_536_000)? {
        pool.balance.drain_slow_after_s = seconds;
    }
    if let Some(text) = props.get(BALANCE_STOPPED) {
        pool.balance.is_stopped = match text.as_str() {
            "yes" => true,
            "no" => false,
            _ => return Err(wrong(BALANCE_STOPPED, text, "'yes' or 'no'")),
        };
    }
    if pool.balance.is_stopped {
        // Only what comes to its share is given up by this: who stands in for others, or comes back, does so whatever is wanted here.
        pool.balance_wanted = pool.balanced;
    }
    Ok(())
}

fn apply(changed: &mut ContProps, props: &BTreeMap<String, String>) -> Result<()> {
    for (name, value) in props {
        let applied = match name.as_str() {
            "oclass" => value.parse().map(|class| changed.oclass = class),
            "dir_oclass" => value.parse().map(|class| changed.dir_oclass = class),
            "file_oclass" => value.parse().map(|class| changed.file_oclass = class),
            "chunk_size" => size::parse(value).map(|bytes| changed.chunk_bytes = bytes),
            _ => Ok(()),
        };
        applied.map_err(|error| error.context(format!("property '{name}'")))?;
    }
    Ok(())
}

fn check_names(
    noun: &str,
    props: &BTreeMap<String, String>,
    valid: &[&str],
    fixed: &[&str],
) -> Result<()> {
    for name in props.keys().map(String::as_str) {
        if valid.contains(&name) {
            continue;
        }
        let why = if fixed.contains(&name) {
            format!("is fixed when the {noun} is made")
        } else {
            format!("is not a property of a {noun}")
        };
        return Err(Error::inval(format!(
            "'{name}' {why}; properties that can be changed: {}",
            valid.join(", ")
        )));
    }
    Ok(())
}
