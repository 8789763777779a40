//! An engine asks the holder of the control service to let its targets show what they lead ([`crate::lead`]).
//!
//! It asks four times in a term, for all pools at once, and says which maps its targets have. A target that does not tell that in time is granted
//! nothing; one that has given back what it was granted since it told is not either.

use crate::control_host::ControlHost;
use crate::office::Seat;
use crate::process::Order;
use crate::target::Target;
use control::LEAD_TERM;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use types::{Code, Error, PoolId, Result, TargetId};
use wire::control::{ControlReply, ControlRequest};

/// Pause between two questions: three may fail before what the one before them brought is over.
const ASK_PAUSE: Duration = Duration::from_millis(500);
/// How long one may take: what it brings is worth the less the longer it takes.
const ASK_TIME_MAX: Duration = Duration::from_secs(1);

/// Which maps a target has.
pub(crate) struct StatedMaps {
    target: TargetId,
    versions: Vec<(PoolId, u32)>,
}

/// What came of a question.
pub(crate) struct Granted {
    round: u64,
    /// By the clock that goes on in sleep.
    until: Duration,
    pools: Vec<PoolId>,
}

impl Target {
    /// Tells which maps it has, for a grant that is asked for in this round. Groups of one member need none.
    pub(crate) fn state_maps(&self, round: u64) -> StatedMaps {
        let stated = |(pool, ctx): (PoolId, Rc<crate::target_pool::TargetPool>)| {
            let map = ctx.known_map().filter(|map| map.targets.len() > 1)?;
            ctx.lead.state(round);
            Some((pool, map.version))
        };
        let versions = self.pools.all().into_iter().filter_map(stated).collect();
        StatedMaps { target: self.id, versions }
    }

    pub(crate) fn take_grant(&self, granted: &Granted) {
        for pool in &granted.pools {
            if let Some(ctx) = self.pools.served(*pool) {
                ctx.lead.grant(granted.round, granted.until);
            }
        }
    }
}

impl ControlHost {
    /// Asks for grants, as long as the engine runs.
    pub(crate) async fn ask_for_grants(self: Rc<Self>) {
        let seat = Seat::new(false, true);
        for round in 1.. {
            let next = self.env.now() + ASK_PAUSE;
            match self.env.timeout(ASK_TIME_MAX, self.ask_for_grant(round, &seat)).await {
                Some(Ok(())) => {}
                Some(Err(error)) => tracing::debug!("asking for grants: {error}"),
                None => {
                    seat.hang_up();
                    tracing::debug!("asking for grants: no answer");
                }
            }
            // timer: a grant is asked for at intervals.
            self.env.sleep(next.saturating_sub(self.env.now())).await;
        }
    }

    async fn ask_for_grant(self: &Rc<Self>, round: u64, seat: &Seat) -> Result<()> {
        let until = self.env.boot_now() + LEAD_TERM;
        let stated = self.ask_own(|answer| Order::StateMaps(round, answer)).await;
        let mut known: BTreeMap<PoolId, u32> = BTreeMap::new();
        for (pool, version) in stated.iter().flat_map(|stated| &stated.versions) {
            let least = known.entry(*pool).or_insert(*version);
            *least = (*least).min(*version);
        }
        if known.is_empty() {
            return Ok(());
        }
        let targets = stated.iter().map(|stated| stated.target).collect();
        let request = ControlRequest::LeadGrant { targets, known: known.into_iter().collect() };
        let ControlReply::Granted(pools) = self.ask_from_seat(seat, &request, ASK_TIME_MAX).await?
        else {
            return Err(Error::new(Code::Proto, "no grant, but something else"));
        };
        if pools.is_empty() {
            return Ok(());
        }
        let granted = Arc::new(Granted { round, until, pools });
        for inbox in self.own_inboxes() {
            // One that has stopped needs none.
            let _ = inbox.unbounded_send(Order::Granted(granted.clone()));
        }
        Ok(())
    }
}
