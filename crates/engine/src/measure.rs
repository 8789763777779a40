//! Measuring the devices of an engine's targets, in the targets' own threads: a target serves meanwhile.
//!
//! An engine measures by itself some time after its first start on a target's devices, one target after the other:
//! they may share a device. It is then short, so that neither a start nor whoever works meanwhile is held up; so it is later
//! (`decay`). For longer ones there is `azekura system measure`.

use crate::config::EngineConfig;
use crate::decay::{self, Habit};
use crate::process::{Inbox, Order};
use crate::target::Target;
use env::Env;
use futures_channel::oneshot;
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;
use types::{Code, Error, Result, TargetId};
use wire::event::{EventCode, Happened};
use wire::measure::{MeasureAsk, Measures, Standing};

/// When an engine measures by itself: what starts with it has begun by then.
const FIRST_AFTER: Duration = Duration::from_secs(10);
/// What is written and read then if the configuration does not say, bytes, ...
pub(crate) const FIRST_BYTES: u64 = 64 << 20;
/// ... and how long each of writing and reading may take, milliseconds.
const FIRST_STEP_MS: u32 = 250;
/// Most that a step may take, milliseconds: engines wait ten seconds for each other, and there are two steps and two quarters.
const STEP_MS_MAX: u32 = 3_000;

/// Beside clients what is measured takes so much of the time, percent: with some transfers under way at once it has the device nearly for itself then.
const SHARE_BESIDE_CLIENTS: u32 = 10;

/// The measuring of a target's devices.
#[derive(Default)]
pub(crate) struct Measuring {
    is_running: Cell<bool>,
    /// What was found last.
    last: Cell<Option<Measures>>,
}

impl Measuring {
    /// By what is kept on the devices.
    pub fn known(last: Option<Measures>) -> Measuring {
        Measuring { last: Cell::new(last), ..Measuring::default() }
    }

    pub fn last(&self) -> Option<Measures> {
        self.last.get()
    }
}

impl Target {
    /// Measures, if that is asked for, and tells what is known then. `Busy` while another measurement runs.
    pub(crate) async fn stand(self: &Rc<Self>, ask: Option<MeasureAsk>) -> Result<Standing> {
        let known = self.store.standing().await?;
        let Some(ask) = ask.filter(|ask| !(ask.once && known.measures.is_some())) else {
            return Ok(known);
        };
        let measures = self.measure_now(ask).await?;
        let measures = decay::judged(known.measures.as_ref(), measures);
        self.keep_measures(measures).await?;
        Ok(Standing { measures: Some(measures), ..known })
    }

    /// Measures, and keeps nothing of it. `Busy` while another measurement runs.
    pub(crate) async fn measure_now(self: &Rc<Self>, ask: MeasureAsk) -> Result<Measures> {
        if self.measuring.is_running.replace(true) {
            let text = format!("target {} is being measured already; try again", self.id);
            return Err(Error::new(Code::Busy, text));
        }
        let ask = MeasureAsk { step_ms_max: ask.step_ms_max.clamp(1, STEP_MS_MAX), ..ask };
        let outcome = self
            .store
            .measure(&self.env, ask, &|took| {
                Box::pin(self.let_clients_go_on(took, SHARE_BESIDE_CLIENTS))
            })
            .await;
        self.measuring.is_running.set(false);
        outcome.map_err(|error| error.context(format!("target {}", self.id)))
    }

    /// Keeps what was measured, and tells people.
    pub(crate) async fn keep_measures(&self, measures: Measures) -> Result<()> {
        self.store.keep_measures(&measures).await?;
        let was_slow =
            self.measuring.last.replace(Some(measures)).is_some_and(|of| of.past.is_some());
        tracing::info!(
            "target {}: reads {} MB/s, writes {} MB/s",
            self.id,
            measures.read.kb_s / 1000,
            measures.write.kb_s / 1000
        );
        let (read, write) = (measures.read.kb_s / 1000, measures.write.kb_s / 1000);
        let happened = match (measures.past, was_slow) {
            (Some(past), false) => {
                let what = format!(
                    "target {}: its devices have become slow: they read {read} and write {write} MB/s, and did {} and {} MB/s before",
                    self.id,
                    past.read / 1000,
                    past.write / 1000
                );
                tracing::error!(
                    "{what}; look at them, and drain the target ('azekura pool drain') if they stay so"
                );
                Happened::new(EventCode::DeviceSlow, what)
            }
            (None, true) => {
                let what = format!("target {}: its devices are as fast again", self.id);
                tracing::warn!("{what}");
                Happened::new(EventCode::DeviceRecovered, what)
            }
            (Some(_), true) | (None, false) => return Ok(()),
        };
        self.events.tell(happened.of_target(self.id));
        Ok(())
    }
}

/// How long measures hold if the configuration does not say, hours.
const EVERY_HOURS: u32 = 24;

/// Measures the targets that were not measured yet.
pub(crate) async fn measure_first(env: Env, bytes: u64, inboxes: Vec<(TargetId, Inbox)>) {
    // timer: a start is not slowed down.
    env.sleep(FIRST_AFTER).await;
    for (id, inbox) in inboxes {
        let ask = MeasureAsk { bytes, step_ms_max: FIRST_STEP_MS, once: true };
        let (sender, done) = oneshot::channel();
        // A target that has ended needs no measures.
        if inbox.unbounded_send(Order::Measure(ask, sender)).is_ok()
            && let Ok(Err(error)) = done.await
        {
            tracing::warn!("target {id} was not measured: {error}");
        }
    }
}

impl EngineConfig {
    /// What is written and read to measure a target's devices after its first start, bytes; 0: nothing is measured.
    pub fn measure_bytes(&self) -> u64 {
        self.store.measure.map_or(FIRST_BYTES, |bytes| bytes.0)
    }

    /// How targets measure by themselves later; `None`: they do not.
    pub(crate) fn measure_habit(&self) -> Option<Habit> {
        let bytes = self.measure_bytes();
        let hours = self.store.measure_every_h.unwrap_or(EVERY_HOURS);
        let every = (hours > 0).then(|| Duration::from_secs(u64::from(hours) * 3600));
        let ask = MeasureAsk { bytes, step_ms_max: FIRST_STEP_MS, once: false };
        (bytes > 0).then_some(Habit { ask, every })
    }
}
