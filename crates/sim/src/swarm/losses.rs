//! Disks that lose what they had, of pools in which others have it, too: exchanged for empty ones, or with sectors that decay. One loss at
//! a time: the next one comes when the last is put right.

use super::clients::open;
use super::run::Run;
use crate::Cluster;
use crate::members::newest_map;
use client::{Client, Pool};
use env::{Decay, Env};
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;
use types::{Code, Error, Result, TargetId};
use wire::control::{ControlRequest, Name};
use wire::map::{PoolMap, TargetState};

const BLOCK: u64 = 4096;
/// Blocks of a target that decay at a time.
const DECAYED_BLOCKS: u64 = 12;
/// Pause between two looks at something that is to become so.
const LOOK_PAUSE: Duration = Duration::from_millis(200);
/// Who lost something has it again after so long, also when others come and go meanwhile: virtual time.
const REPAIR_TIME_MAX: Duration = Duration::from_secs(300);
/// What is damaged is put right within so long, once nobody is away: virtual time.
const MEND_TIME_MAX: Duration = Duration::from_secs(200);

/// Whether the targets of other engines have all that was acknowledged.
fn are_others_whole(map: &PoolMap, lost: &[TargetId]) -> bool {
    let others = map.targets.iter().filter(|target| !lost.contains(&target.id));
    map.outs.is_empty()
        && map.next.is_none()
        && others.clone().count() > 0
        && others.into_iter().all(|target| target.state == TargetState::Up)
}

impl Run {
    /// The targets of an engine.
    pub(super) fn targets_of(&self, map: &PoolMap, engine: usize) -> Vec<TargetId> {
        let address = format!("sim:{}", Cluster::engine_name(engine));
        let is_its =
            |target: &TargetId| map.engine_of(*target).is_some_and(|engine| engine.tcp == address);
        map.targets.iter().map(|target| target.id).filter(is_its).collect()
    }

    /// The map when somebody may lose something now: nobody else is away, and nothing that was lost is still missing.
    async fn map_to_lose(&self, admin: &Client, engine: usize) -> Option<Rc<PoolMap>> {
        let map = newest_map(admin).await.ok()?;
        let lost = self.targets_of(&map, engine);
        let is_alone = self.down.borrow().iter().all(|other| *other == engine);
        (is_alone && !lost.is_empty() && are_others_whole(&map, &lost)).then_some(map)
    }

    /// An engine's disks are exchanged while it is down; what was on them is given up, and copied from others.
    pub(super) async fn wipe(&self, env: &Env, engine: usize) {
        // The first engine holds the catalog, of which there is no other here.
        if engine == 0 || self.is_losing.get() || !self.down.borrow().is_empty() {
            return;
        }
        self.is_losing.set(true);
        self.down.borrow_mut().insert(engine);
        let admin = self.cluster.client_within("admin", Duration::from_secs(20));
        self.kill(engine);
        let before = self.map_to_lose(&admin, engine).await;
        if before.is_some() {
            self.note(|| format!("disks of e{engine} are exchanged"));
            let disk = self.cluster.world().disk(&Cluster::engine_name(engine));
            for number in 0..self.cluster.target_count(engine) {
                disk.wipe(Path::new(&format!("/target{number}")));
            }
        }
        self.pause(env, Duration::from_secs(2)).await;
        self.start(env, engine).await;
        self.down.borrow_mut().remove(&engine);
        if let Some(before) = before {
            self.wiped.set(self.wiped.get() + 1);
            let whole = self.give_up(env, &admin, engine, &before);
            if env.timeout(REPAIR_TIME_MAX, whole).await.is_none() {
                // Then nothing more is lost; in peace it is asked whether all is whole.
                self.note(|| format!("e{engine} does not become whole"));
                return;
            }
        }
        self.is_losing.set(false);
    }

    /// Gives up what was on an engine's targets, until it is whole again.
    async fn give_up(&self, env: &Env, admin: &Client, engine: usize, before: &PoolMap) {
        let lost = self.targets_of(before, engine);
        let incarnation = |map: &PoolMap, id: &TargetId| {
            map.targets.iter().find(|target| target.id == *id).map(|target| target.incarnation)
        };
        loop {
            if let Ok(map) = newest_map(admin).await {
                let is_new = |id: &&TargetId| incarnation(&map, id) != incarnation(before, id);
                let old: Vec<TargetId> = lost.iter().filter(|id| !is_new(id)).copied().collect();
                if old.is_empty() && are_others_whole(&map, &[]) {
                    return;
                }
                for target in old {
                    let pool = Name::Label("p".into());
                    let reset = ControlRequest::PoolResetTarget { pool, target };
                    match admin.control(&reset).await {
                        Ok(_) => self.note(|| format!("target {target} begins anew")),
                        // It is not known to be lost yet; or to be back.
                        Err(error) => self.note(|| format!("target {target}: {error}")),
                    }
                }
            }
            env.sleep(LOOK_PAUSE).await;
        }
    }

    /// Some sectors of an engine decay, among those that were written, each in one of three ways.
    pub(super) async fn damage(&self, env: &Env, engine: usize) {
        if self.is_losing.replace(true) {
            return;
        }
        let admin = self.cluster.client_within("admin", Duration::from_secs(20));
        let is_first = self.down.borrow().is_empty();
        if is_first && self.map_to_lose(&admin, engine).await.is_some() {
            let targets = 0..self.cluster.target_count(engine);
            let count: u64 = targets.map(|target| self.let_decay(env, engine, target)).sum();
            self.note(|| format!("{count} blocks of e{engine} decay"));
            let mended = self.until_mended(env, &admin);
            if count > 0 && env.timeout(REPAIR_TIME_MAX, mended).await.is_none() {
                self.note(|| format!("e{engine} stays damaged"));
                return;
            }
        }
        self.is_losing.set(false);
    }

    /// Has blocks of a target's data decay; how many.
    fn let_decay(&self, env: &Env, engine: usize, target: usize) -> u64 {
        let disk = self.cluster.world().disk(&Cluster::engine_name(engine));
        let area = format!("/target{target}/pool.1/data");
        let used = disk.filled_pages(Path::new(&area));
        let any = || used[(env.random_u64() % used.len() as u64) as usize];
        let count = DECAYED_BLOCKS.min(used.len() as u64);
        for _ in 0..count {
            let word = env.random_u64();
            let (way, decay) = match word % 3 {
                0 => {
                    let (byte, mask) = ((word >> 8) % BLOCK, 1 << ((word >> 32) % 8));
                    (0, Decay::Flipped { byte: byte as usize, mask })
                }
                1 => (1, Decay::Misdirected { other: any() }),
                _ => (2, Decay::Unreadable),
            };
            disk.decay(Path::new(&area), any(), decay);
            self.decayed.borrow_mut()[way] += 1;
        }
        count
    }

    /// Has everything looked at until nothing is damaged.
    async fn until_mended(&self, env: &Env, admin: &Client) {
        loop {
            match open(admin).await {
                Ok(cont) => match bad_bytes(env, cont.pool()).await {
                    Ok(0) => return,
                    Ok(bytes) => self.note(|| format!("{bytes} bytes are damaged")),
                    Err(error) => self.note(|| format!("looking for damage: {error}")),
                },
                Err(error) => self.note(|| format!("looking for damage: {error}")),
            }
            env.sleep(LOOK_PAUSE).await;
        }
    }

    /// In peace, nothing stays damaged.
    pub(super) async fn demand_mended(&self, env: &Env, admin: &Client) -> Result<()> {
        if *self.decayed.borrow() == [0; 3] {
            return Ok(());
        }
        let mended = env.timeout(MEND_TIME_MAX, self.until_mended(env, admin)).await;
        mended.ok_or_else(|| Error::new(Code::Csum, "damage that others could mend stays"))
    }
}

/// What is damaged after a look at everything that begins now, bytes.
async fn bad_bytes(env: &Env, pool: &Pool) -> Result<u64> {
    let silent = || Error::new(Code::Unreach, "a target gives no answer");
    let passes = pool.scrub().await?;
    loop {
        let mut bytes = 0;
        let mut is_over = true;
        for ((_, stat), (_, pass)) in pool.scrub_stat().await?.into_iter().zip(&passes) {
            let (stat, pass) = (stat.ok_or_else(silent)?, pass.ok_or_else(silent)?);
            bytes += stat.bad_bytes;
            is_over &= stat.passes >= pass;
        }
        if is_over {
            return Ok(bytes);
        }
        env.sleep(LOOK_PAUSE).await;
    }
}
