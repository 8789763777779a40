//! How fast a target, other engines and clients reach each other ([`transport::LinkSpeeds`]): other engines are probed, and what goes to them anyway
//! counts; clients tell what they have seen.
//!
//! Where enough goes to another engine there are no probes.

use crate::target::Target;
use env::Env;
use std::collections::BTreeMap;
use std::rc::Weak;
use std::time::Duration;
use transport::{LinkSpeeds, PROBE_BYTES, PROBE_SLICES, probed_speed};
use types::{ClientId, Code, Error, Rank, Result, TargetId};
use wire::map::EngineInfo;
use wire::measure::SeenSpeed;
use wire::obj::Request;

/// How long after the start, and how often, it is looked whether a link is to be probed.
const LOOK_PAUSE: Duration = Duration::from_secs(60);
/// No more links than these are looked after: of a large system each target knows some.
const LINKS_MAX: usize = 8;
/// With so many requests between two looks a target has better things to do than to look again at links that are known.
const IDLE_REQUESTS_MAX: u64 = 20;
/// Who waits for probes of all links waits no longer.
const PROBES_TIME_MAX: Duration = Duration::from_secs(1);
/// Of so many clients it is kept what they have told, for so long.
const CLIENTS_MAX: usize = 64;
const CLIENT_AGE_MAX: Duration = Duration::from_secs(24 * 3600);

/// A target's links, by the engine at the other end.
pub(crate) type Links = LinkSpeeds<Rank>;
/// The same of clients.
pub(crate) type ClientLinks = LinkSpeeds<ClientId>;

impl Target {
    /// The engines of all pools beside this target's own, with one target of each.
    fn others(&self) -> BTreeMap<Rank, (EngineInfo, TargetId)> {
        let mut others = BTreeMap::new();
        for (_, ctx) in self.pools.all() {
            let Ok(map) = ctx.map() else { continue };
            let own = map.target(self.id).map(|target| target.rank);
            for target in map.targets.iter().filter(|target| Some(target.rank) != own) {
                if let Some(engine) = map.engine_of(target.id)
                    && placement::is_live(target.id, &map)
                {
                    others.entry(target.rank).or_insert_with(|| (engine.clone(), target.id));
                }
            }
        }
        others
    }

    /// Keeps up to date how fast links are; until the target is gone.
    pub(crate) async fn watch_links(env: Env, target: Weak<Target>, every: Option<Duration>) {
        let mut requests = 0;
        loop {
            // timer: links are measured at intervals.
            env.sleep(LOOK_PAUSE).await;
            let Some(target) = target.upgrade() else { return };
            if target.is_draining() {
                return;
            }
            let before = std::mem::replace(&mut requests, target.request_count());
            let is_idle = requests.saturating_sub(before) <= IDLE_REQUESTS_MAX;
            let others = target.others();
            let ranks = target.nearest(&others);
            let (new, old) = target.links.due(&ranks, env.wall_ns(), every, LINKS_MAX);
            for rank in new.into_iter().chain(old.filter(|_| is_idle)) {
                if let Some((engine, other)) = others.get(&rank)
                    && let Err(error) = target.probe(engine, *other).await
                {
                    tracing::debug!("target {}: link to engine {rank}: {error}", target.id);
                }
            }
        }
    }

    /// Probes the links that the target keeps, for a second at most. Engines that give no answer are passed over.
    pub(crate) async fn probe_links(&self) {
        let until = self.env.now() + PROBES_TIME_MAX;
        let others = self.others();
        for rank in self.nearest(&others).iter().take(LINKS_MAX) {
            if let Some((engine, other)) = others.get(rank)
                && self.env.now() < until
                && let Err(error) = self.probe(engine, *other).await
            {
                tracing::debug!("target {}: link to engine {rank}: {error}", self.id);
            }
        }
    }

    /// Other engines, in an order that differs from target to target: those of a large system know different ones.
    fn nearest(&self, others: &BTreeMap<Rank, (EngineInfo, TargetId)>) -> Vec<Rank> {
        let mut ranks: Vec<Rank> = others.keys().copied().collect();
        let first = self.id.0 as usize % ranks.len().max(1);
        ranks.rotate_left(first);
        ranks
    }

    async fn probe(&self, engine: &EngineInfo, other: TargetId) -> Result<()> {
        let body = wire::encode(&Request::Probe { seen: None });
        let (data, mut room) = (vec![0x5a; PROBE_BYTES], vec![0; PROBE_BYTES]);
        let mut slices = Vec::new();
        for nth in 0..=PROBE_SLICES {
            let begun = self.env.now();
            let mut room_of_it = [&mut room[..]];
            let answer = self
                .peers
                .ask_with_bulk(engine, other, &body, &[&data[..]], &mut room_of_it)
                .await?;
            wire::decode::<Result<()>>(&answer.body)??;
            if answer.bulk_bytes != PROBE_BYTES {
                return Err(Error::new(Code::Proto, "an engine answered a probe with less"));
            }
            if nth > 0 {
                slices.push((2 * PROBE_BYTES as u64, self.env.now().saturating_sub(begun)));
            }
        }
        if let Some(speed) = probed_speed(&slices) {
            self.links.probed(engine.rank, speed, self.env.wall_ns());
        }
        Ok(())
    }

    /// Answers a probe with what came with it. `seen`: what the client has found out before.
    pub(crate) async fn serve_probe(
        &self,
        client: ClientId,
        seen: Option<SeenSpeed>,
        incoming: transport::Incoming,
    ) {
        if let Some(seen) = seen {
            let now_ns = self.env.wall_ns();
            self.client_links.told(client, seen, now_ns);
            self.client_links.forget(now_ns, CLIENT_AGE_MAX, CLIENTS_MAX);
        }
        let transport::Incoming { mut bulk, responder, .. } = incoming;
        let outcome = match bulk.remaining() {
            bytes @ 0..=PROBE_BYTES if responder.room_for_answer(bytes).await => {
                bulk.read_to_vec().await
            }
            0..=PROBE_BYTES => Err(Error::bare(Code::Canceled)),
            _ => Err(Error::new(Code::Proto, "too large a probe")),
        };
        let answer = wire::encode(&outcome.as_ref().map(|_| ()));
        let data = outcome.unwrap_or_default();
        self.send(responder, 0, &answer, &[data.as_slice()]).await;
    }
}
