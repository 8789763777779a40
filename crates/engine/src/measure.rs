//! Measuring the devices of an engine's targets, in the targets' own threads: a target serves meanwhile.
//!
//! An engine measures by itself once, some time after its first start on a target's devices, one target after the other:
//! they may share a device. It is then short, so that neither a start nor whoever works meanwhile is held up. For longer ones
//! there is `azekura system measure`.

use crate::config::EngineConfig;
use crate::process::{Inbox, Order};
use crate::target::Target;
use env::Env;
use futures_channel::oneshot;
use std::rc::Rc;
use std::time::Duration;
use types::{Code, Error, Result, TargetId};
use wire::measure::{MeasureAsk, Standing};

/// When an engine measures by itself: what starts with it has begun by then.
const FIRST_AFTER: Duration = Duration::from_secs(10);
/// What is written and read then if the configuration does not say, bytes, ...
pub(crate) const FIRST_BYTES: u64 = 64 << 20;
/// ... and how long each of writing and reading may take, milliseconds.
const FIRST_STEP_MS: u32 = 250;
/// Most that a step may take, milliseconds: engines wait ten seconds for each other, and there are two steps and two quarters.
const STEP_MS_MAX: u32 = 3_000;

impl Target {
    /// Measures, if that is asked for, and tells what is known then. `Busy` while another measurement runs.
    pub(crate) async fn stand(self: &Rc<Self>, ask: Option<MeasureAsk>) -> Result<Standing> {
        let known = self.store.standing().await?;
        let Some(ask) = ask.filter(|ask| !(ask.once && known.measures.is_some())) else {
            return Ok(known);
        };
        if self.is_measuring.replace(true) {
            let text = format!("target {} is being measured already; try again", self.id);
            return Err(Error::new(Code::Busy, text));
        }
        let ask = MeasureAsk { step_ms_max: ask.step_ms_max.clamp(1, STEP_MS_MAX), ..ask };
        let outcome = self.store.measure(&self.env, ask).await;
        self.is_measuring.set(false);
        let measures = outcome.map_err(|error| error.context(format!("target {}", self.id)))?;
        tracing::info!(
            "target {}: reads {} MB/s, writes {} MB/s",
            self.id,
            measures.read.kb_s / 1000,
            measures.write.kb_s / 1000
        );
        Ok(Standing { measures: Some(measures), ..known })
    }
}

/// Measures the targets that were not measured yet.
pub(crate) async fn measure_first(env: Env, bytes: u64, inboxes: Vec<(TargetId, Inbox)>) {
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
}
