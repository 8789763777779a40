//! An administrator who has the shares of targets change while clients work and engines die: a further target takes over its share, or the pool weighs its targets
//! anew; and what is there moves.

use super::run::Run;
use super::wishes::{TRY_PAUSE, TRY_TIME_MAX};
use crate::Cluster;
use client::Client;
use env::{DiskFaults, Env};
use std::time::Duration;
use types::Code;
use wire::control::{ControlReply, ControlRequest, Name, Reweighed};

/// So many targets an engine, or another one, gets while it runs.
const GROWN_MAX: u64 = 2;
/// So often the pool weighs its targets anew.
const WEIGHED_MAX: u64 = 4;
/// Room that a disk has beside what is there when it is weighed: this, or less.
const ROOM_BYTES: u64 = 64 << 30;

fn pool() -> Name {
    Name::Label("p".into())
}

impl Run {
    /// An engine gets a further target, and the pool takes it in, and gives it its share.
    pub(super) async fn grow(&self, env: &Env, engine: usize) {
        if self.grown.get() >= GROWN_MAX || self.is_growing.replace(true) {
            return;
        }
        // Nobody takes the engine away while it comes to have it.
        if self.down.borrow_mut().insert(engine) {
            match self.cluster.grow_engine(engine).await {
                Ok(()) => {
                    self.grown.set(self.grown.get() + 1);
                    self.note(|| format!("e{engine} has one more target"));
                }
                Err(error) => self.note(|| format!("a further target of e{engine}: {error}")),
            }
            self.down.borrow_mut().remove(&engine);
            let admin = self.cluster.client_within("grower", Duration::from_secs(5));
            let extend = ControlRequest::PoolExtend { pool: pool(), targets: Vec::new() };
            for request in [extend, ControlRequest::PoolBalance { pool: pool() }] {
                self.have_done(env, &admin, &request).await;
                self.pause(env, Duration::from_secs(2)).await;
            }
        }
        self.is_growing.set(false);
    }

    /// Disks have more or less room than before, and what targets get of the pool follows.
    pub(super) async fn reweigh(&self, env: &Env) {
        if self.weighed.get() >= WEIGHED_MAX || self.is_growing.replace(true) {
            return;
        }
        let disk = |engine: usize| self.cluster.world().disk(&Cluster::engine_name(engine));
        for engine in 0..self.settings.engines {
            // Each size is as likely as one of half of it.
            let room = ROOM_BYTES >> (env.random_u64() % 4);
            let space_bytes = disk(engine).used_bytes() + room;
            disk(engine).set_faults(DiskFaults { space_bytes, ..DiskFaults::default() });
        }
        let admin = self.cluster.client_within("weigher", Duration::from_secs(5));
        let reweigh = ControlRequest::PoolReweigh { pool: pool(), is_trial: false };
        let reply = self.have_done(env, &admin, &reweigh).await;
        (0..self.settings.engines).for_each(|at| disk(at).set_faults(DiskFaults::default()));
        if let Some(ControlReply::Reweighed(Reweighed { is_news: true, shares })) = reply {
            self.weighed.set(self.weighed.get() + 1);
            self.note(|| format!("new shares: {shares:?}"));
            self.pause(env, Duration::from_secs(2)).await;
            self.have_done(env, &admin, &ControlRequest::PoolBalance { pool: pool() }).await;
            self.pause(env, Duration::from_secs(2)).await;
        }
        self.is_growing.set(false);
    }

    /// Asks for it until it is done, and is answered, or for long enough.
    async fn have_done(
        &self,
        env: &Env,
        admin: &Client,
        request: &ControlRequest,
    ) -> Option<ControlReply> {
        let asked = async {
            loop {
                match admin.control(request).await {
                    Ok(reply) => return Some(reply),
                    Err(error) => {
                        self.note(|| format!("{request:?}: {error}"));
                        // It was heard when nobody was told so.
                        if error.code == Code::Inval {
                            return None;
                        }
                    }
                }
                env.sleep(TRY_PAUSE).await;
            }
        };
        let reply = env.timeout(TRY_TIME_MAX, asked).await;
        if reply.is_some() {
            self.note(|| format!("{request:?}"));
        }
        reply.flatten()
    }
}
