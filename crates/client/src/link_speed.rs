//! How fast this client reaches targets. They are told, and keep it for people to see: a probe at once, and the best of what a client has read and written
//! anyway once a minute. So who only works needs no probe, and who does not work tells nothing.

use crate::client::Client;
use async_recursion::async_recursion as boxed;
use std::cell::Cell;
use std::time::Duration;
use transport::{
    Call, Conn, PROBE_BYTES, PROBE_SLICES, TRANSFER_BYTES_MIN, probed_speed, transfer_kb_s,
};
use types::{Code, Error, Result, TargetId};
use wire::Kind;
use wire::hello::Service;
use wire::map::EngineInfo;
use wire::measure::{SeenSpeed, Speed};
use wire::obj::Request;

/// What was seen in so long is told together.
const TELL_EVERY: Duration = Duration::from_secs(60);
/// A target that does not answer within this is not told, and no probe.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(10);

/// Transfers from and to a target since it was told of any.
#[derive(Default)]
pub(crate) struct SeenTransfers {
    /// Since when, and their speeds; `None`: there were none.
    seen: Cell<Option<(Duration, Speed)>>,
}

impl SeenTransfers {
    /// Adds a transfer that is over now; what there is to tell, if it is time.
    fn add(&self, bytes: u64, taken: Duration, now: Duration) -> Option<Speed> {
        let kb_s = transfer_kb_s(bytes, taken)?;
        let new = Speed { kb_s, kb_s_min: kb_s, kb_s_max: kb_s };
        let (since, before) = self.seen.get().unwrap_or((now, new));
        let kb_s = before.kb_s.max(kb_s);
        let speed = Speed { kb_s, kb_s_min: before.kb_s_min.min(new.kb_s), kb_s_max: kb_s };
        let is_due = now.saturating_sub(since) >= TELL_EVERY;
        self.seen.set((!is_due).then_some((since, speed)));
        is_due.then_some(speed)
    }
}

impl Client {
    /// Notes a transfer that began then and is over now. The target is told now and then, beside what comes next.
    pub(crate) fn note_transfer(
        &self,
        seen: &SeenTransfers,
        conn: &Conn,
        bytes: u64,
        begun: Duration,
    ) {
        // Most say nothing.
        if bytes < TRANSFER_BYTES_MIN {
            return;
        }
        let now = self.env().now();
        let Some(speed) = seen.add(bytes, now.saturating_sub(begun), now) else { return };
        let (conn, request_id) = (conn.clone(), self.next_request());
        self.env().spawn(async move {
            let seen = SeenSpeed { speed, is_probed: false };
            let body = wire::encode(&Request::Probe { seen: Some(seen) });
            if let Err(error) = conn.call(probe(request_id, &body, &mut [])).await {
                tracing::debug!("telling a target how fast it is reached: {error}");
            }
        });
    }

    /// Probes how fast this client reaches a target of an engine, with some MiB each way, and tells the target. It has a connection of its own for
    /// that, in the place of the one that the client may have: what it holds open there is told again.
    ///
    /// Errors: `Unreach`, `Closed` and `TimedOut` when there is no answer.
    #[boxed(?Send)]
    pub async fn probe_link(&self, engine: &EngineInfo, target: TargetId) -> Result<Speed> {
        let mut last = Error::bare(Code::Unreach);
        for address in self.addresses(engine) {
            match self.dial(&address, Service::Target(target)).await {
                Ok(conn) => {
                    let probed = self.probe_on(&conn).await;
                    conn.close();
                    return probed;
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    async fn probe_on(&self, conn: &Conn) -> Result<Speed> {
        let body = wire::encode(&Request::Probe { seen: None });
        let (data, mut room) = (vec![0x5a; PROBE_BYTES], vec![0; PROBE_BYTES]);
        let mut slices = Vec::new();
        for nth in 0..=PROBE_SLICES {
            let begun = self.env().now();
            let mut room_of_it = [&mut room[..]];
            let request_id = self.next_request();
            let call = probe(request_id, &body, &mut room_of_it);
            let answer = conn.call(Call { bulk_out: &[&data[..]], ..call }).await?;
            wire::decode::<Result<()>>(&answer.body)??;
            if answer.bulk_bytes != PROBE_BYTES {
                return Err(Error::new(Code::Proto, "a target answered a probe with less"));
            }
            if nth > 0 {
                let taken = self.env().now().saturating_sub(begun);
                slices.push((2 * PROBE_BYTES as u64, taken));
            }
        }
        let speed = probed_speed(&slices).ok_or_else(|| Error::bare(Code::Proto))?;
        let seen = SeenSpeed { speed, is_probed: true };
        let body = wire::encode(&Request::Probe { seen: Some(seen) });
        let answer = conn.call(probe(self.next_request(), &body, &mut [])).await?;
        wire::decode::<Result<()>>(&answer.body)??;
        Ok(speed)
    }
}

fn probe<'a, 'b>(request_id: u64, body: &'a [u8], bulk_in: &'a mut [&'b mut [u8]]) -> Call<'a, 'b> {
    let (kind, deadline) = (Kind::Request, ANSWER_TIME_MAX);
    Call { kind, request_id, flags: 0, map_version: 0, deadline, body, bulk_out: &[], bulk_in }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_of_a_minute_is_told() {
        let seen = SeenTransfers::default();
        let ms = Duration::from_millis;
        let add = |bytes: u64, took: u64, at_s: u64| {
            seen.add(bytes, ms(took), Duration::from_secs(at_s)).map(|speed| speed.kb_s)
        };
        assert_eq!(add(1_000_000, 10, 100), None);
        assert_eq!(add(1_000_000, 5, 130), None);
        assert_eq!(add(1_000, 1, 200), None, "too small to say anything");
        assert_eq!(add(1_000_000, 20, 160), Some(200_000));
        // Anew.
        assert_eq!(add(1_000_000, 20, 161), None);
        assert_eq!(add(1_000_000, 40, 230), Some(50_000));
    }
}
