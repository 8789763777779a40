//! Requests of the control service and of operators: shards, containers, space, listings.

use crate::target::{Target, TargetPool};
use std::rc::Rc;
use transport::Incoming;
use types::{Code, Error, Result};
use wire::obj::{AdminOp, AdminReply, ObjectList, Request};
use wire::store::StoreStat;

impl Target {
    /// Serves requests that are neither batches nor parts of a transaction's first phase.
    pub(crate) async fn serve_admin(self: Rc<Self>, incoming: Incoming) {
        let body = match self.clone().admin_body(&incoming.body).await {
            Ok(body) => body,
            Err(error) => wire::encode(&Err::<(), Error>(error)),
        };
        self.send(incoming.responder, 0, &body, &[]).await;
    }

    /// The encoded answer, `Ok` tag included.
    async fn admin_body(self: Rc<Self>, body: &[u8]) -> Result<Vec<u8>> {
        match wire::decode::<Request<'_>>(body)? {
            Request::PoolShardStat { pool } => {
                let ctx = self.shard(pool).await?;
                Ok(wire::encode(&Ok::<_, Error>(ctx.shard.stat())))
            }
            Request::ListObjects { pool, cont, at, after, count_max } => {
                let ctx = self.shard(pool).await?;
                self.known_cont(&ctx, cont).await?;
                let max = count_max as usize;
                let list = ctx.shard.list_objects(cont, at, after, max).await?;
                ctx.shard.settled().await?;
                Ok(wire::encode(&Ok::<_, Error>(list)))
            }
            Request::ListOrphans { pool, cont } => {
                let ctx = self.shard(pool).await?;
                let orphans = ctx.shard.orphans().into_iter();
                let units = orphans.filter(|(of, _)| *of == cont).map(|(_, unit)| unit).collect();
                ctx.shard.settled().await?;
                Ok(wire::encode(&Ok::<_, Error>(ObjectList { units, complete: true })))
            }
            Request::Decide { pool, tx, outcome } => {
                let ctx = self.shard(pool).await?;
                let lsn = self.decide(pool, &ctx, tx, outcome).await?;
                ctx.shard.written(lsn).await?;
                Ok(wire::encode(&Ok::<_, Error>(outcome)))
            }
            Request::AskOutcome { pool, tx } => {
                let ctx = self.shard(pool).await?;
                Ok(wire::encode(&Ok::<_, Error>(self.outcome_of(&ctx, tx))))
            }
            Request::AdmissionStat { pool } => {
                let ctx = self.shard(pool).await?;
                Ok(wire::encode(&Ok::<_, Error>(ctx.admission.stat())))
            }
            Request::StoreStat { pool } => {
                let ctx = self.shard(pool).await?;
                Ok(wire::encode(&Ok::<_, Error>(self.store_stat(&ctx).await?)))
            }
            Request::Admin { term, op } => {
                Ok(wire::encode(&Ok::<_, Error>(self.admin(term, op).await?)))
            }
            Request::Verify(batch) => {
                let ctx = self.shard(batch.pool).await?;
                let bad_count = self.verify(&ctx, &batch).await?;
                Ok(wire::encode(&Ok::<u64, Error>(bad_count)))
            }
            Request::ScrubStat { pool } => {
                let ctx = self.shard(pool).await?;
                Ok(wire::encode(&Ok::<_, Error>(ctx.scrub_stat().await)))
            }
            Request::Scrub { pool } => {
                let ctx = self.shard(pool).await?;
                Ok(wire::encode(&Ok::<u64, Error>(ctx.scrub_now())))
            }
            Request::Batch(_)
            | Request::Commit { .. }
            | Request::Prepare { .. }
            | Request::Lock(_) => Err(Error::new(Code::Proto, "not an administrative request")),
        }
    }

    async fn store_stat(&self, ctx: &TargetPool) -> Result<StoreStat> {
        Ok(StoreStat {
            devices: self.store.device_stats().await?,
            log: ctx.shard.log_stat(),
            aggregation: ctx.shard.aggregation_stat(),
        })
    }

    /// Carries out an order of the control service, unless a later one has given orders already: an
    /// engine that does not know yet that another has taken over must not undo what that one did.
    pub async fn admin(self: &Rc<Self>, term: u64, op: AdminOp) -> Result<AdminReply> {
        if term < self.term.get() {
            return Err(Error::new(
                Code::Busy,
                "the order is of an engine that holds the control service no more",
            ));
        }
        self.term.set(term);
        if let AdminOp::SetVersions { pool, cont, versions } = op {
            return self.set_versions(pool, cont, versions).await;
        }
        self.carry_out_order(op).await?;
        Ok(AdminReply::default())
    }

    async fn carry_out_order(self: &Rc<Self>, op: AdminOp) -> Result<()> {
        match op {
            AdminOp::SetVersions { .. } => Err(Error::bare(Code::Proto)),
            AdminOp::CreateShard { pool, durability, scm_bytes, nvme_bytes } => {
                let config = vos::PoolShardConfig { durability, scm_bytes, nvme_bytes };
                let known = self.shards.borrow().get(&pool).cloned();
                if let Some(ctx) = known {
                    if *ctx.shard.config() != config {
                        return Err(Error::new(
                            Code::Exist,
                            format!("target {} holds pool {pool} with other settings", self.id),
                        ));
                    }
                    return Ok(());
                }
                let shard = self.store.create_shard(pool, &config).await?;
                let ctx = Rc::new(TargetPool::new(&self.env, shard));
                self.start_scrubber(&ctx);
                self.shards.borrow_mut().insert(pool, ctx);
                Ok(())
            }
            AdminOp::DestroyShard { pool } => {
                let known = self.shards.borrow_mut().remove(&pool);
                if let Some(ctx) = known {
                    ctx.unpark();
                    ctx.scrubber.stop();
                    ctx.admission.close();
                    ctx.shard.close().await?;
                }
                self.store.destroy_shard(pool).await?;
                self.failed.borrow_mut().remove(&pool);
                Ok(())
            }
            AdminOp::CreateCont { pool, cont, csum, server_verify } => {
                let ctx = self.shard(pool).await?;
                let sums = vos::SumPolicy { kind: csum, verify: server_verify };
                let lsn = ctx.shard.create_summed_cont(cont, sums)?;
                ctx.shard.durable(lsn).await
            }
            AdminOp::DestroyCont { pool, cont } => {
                let ctx = self.shard(pool).await?;
                let lsn = ctx.shard.destroy_cont(cont)?;
                ctx.shard.durable(lsn).await
            }
            AdminOp::SetMap(map) => {
                let ctx = self.shard(map.pool).await?;
                if map.version > ctx.map_version() {
                    ctx.map.replace(Some(Rc::new(map)));
                }
                Ok(())
            }
            AdminOp::SetAdmission { pool, admission } => {
                let ctx = self.shard(pool).await?;
                tracing::info!(
                    "target {}: pool {pool}: bulk writers {}, readers {}",
                    self.id,
                    admission.max_writers,
                    admission.max_readers
                );
                ctx.admission.set(&admission);
                Ok(())
            }
            AdminOp::SetScrub { pool, scrub } => {
                let ctx = self.shard(pool).await?;
                tracing::info!("target {}: pool {pool}: scrubber {}", self.id, scrub.rate);
                ctx.scrubber.set(scrub);
                Ok(())
            }
        }
    }
}
