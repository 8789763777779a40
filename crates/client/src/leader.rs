//! Requests of one answer to whoever leads a group, and to who leads it next.

use crate::attempt::Attempt;
use crate::batch::LEADER_PAUSE;
use crate::cont::Container;
use crate::target::Ask;
use std::cell::Cell;
use transport::Answer;
use types::{Code, Result, TargetId, Unit};

/// A request that changes nothing of what is stored.
pub(crate) struct LedAsk<'a> {
    /// Whoever answers for this one is asked.
    pub unit: Unit,
    pub body: &'a [u8],
    /// An answer may take as long as the caller likes to wait: silence does not say that another one should be asked.
    pub may_take_long: bool,
    /// Not under an older map than this: by that version something was taken to who is to be asked.
    pub since: u32,
}

impl Container {
    /// Asks the target that leads a group, and whoever leads it next, until the client's timeout; notes in `asked` which one.
    pub(crate) async fn ask_leader(
        &self,
        asked: &Cell<TargetId>,
        ask: LedAsk<'_>,
    ) -> Result<Answer> {
        let (client, state) = (self.client(), &self.pool().0.state);
        let mut attempt = Attempt::new(client);
        while state.map_version() < ask.since && !attempt.is_over(client) {
            state.refresh_briefly(client).await;
            if state.map_version() < ask.since {
                client.env().sleep(LEADER_PAUSE).await;
            }
        }
        let is_alone = || placement::is_alone(ask.unit.object, &self.pool().map());
        loop {
            let version = state.map_version();
            match self.target_of(ask.unit) {
                Ok(target) => asked.set(target),
                // None of several members serves at the moment: one may soon.
                Err(error) if error.code == Code::Unreach && !attempt.is_over(client) => {
                    if is_alone() {
                        return Err(error);
                    }
                    state.refresh_briefly(client).await;
                    client.env().sleep(LEADER_PAUSE).await;
                    continue;
                }
                Err(error) => return Err(error),
            }
            if !is_alone() {
                attempt.route(version);
                if !ask.may_take_long {
                    attempt.may_go_elsewhere();
                }
            }
            let sent = Ask { body: ask.body, bulk_out: &[], bulk_in: &mut [] };
            match client.target(asked.get()).ask_as(client, state, sent, &mut attempt).await {
                Err(error) if error.code == Code::Stale && state.map_version() != version => {}
                answer => return answer,
            }
        }
    }
}
