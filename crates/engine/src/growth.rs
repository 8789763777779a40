//! An engine that runs gets further targets: its configuration was read again, and has more of them than before.
//!
//! Their devices are opened once before anybody is told, so that a mistake in what was written changes nothing. Then the system gives
//! them numbers, and they are started as at the engine's start. Those that it had go on meanwhile. No pool is on the new ones
//! until it is extended.

use crate::config::EngineConfig;
use crate::measure::measure_first;
use crate::process::Serving;
use crate::target_start::{Starter, refuser};
use env::Env;
use types::{Code, Error, Result, TargetId};
use wire::event::{EventCode, Happened};

/// What an engine has been started with, and starts further targets with.
pub(crate) struct Growth {
    starter: Starter,
    config: EngineConfig,
}

impl Growth {
    pub fn new(starter: Starter, config: EngineConfig) -> Growth {
        Growth { starter, config }
    }
}

impl Serving {
    /// Serves what a configuration has more than the one before, measures it as at a first start, and tells people what has come of it.
    pub(crate) async fn take_config(&mut self, env: &Env, config: EngineConfig) {
        let measure_bytes = config.measure_bytes();
        let known = self.inboxes.len();
        match self.grow(config).await {
            Ok(new) if new.is_empty() => {
                tracing::info!(
                    "the configuration has no further targets; what else has changed in it counts after a restart"
                );
            }
            Ok(new) => {
                tracing::info!("engine {}: serves further targets: {new:?}", self.rank);
                if measure_bytes > 0 {
                    let new = self.inboxes[known..].to_vec();
                    env.spawn(measure_first(env.clone(), measure_bytes, new));
                }
            }
            Err(error) => {
                tracing::error!("{error}; the engine serves the targets that it had");
                if let Some(control) = &self.control {
                    let what = format!("further targets: {error}");
                    control.events.note(Happened::new(EventCode::TargetUnserved, what));
                }
            }
        }
    }

    /// Serves the targets that a configuration has more than the one before; their numbers. What else is different in it waits for a
    /// restart.
    ///
    /// Errors: `Inval` when those that were there are not the same any more, those of opening the devices and of joining; then nothing
    /// has changed. A target that fails after that is refused, as at a start.
    pub async fn grow(&mut self, config: EngineConfig) -> Result<Vec<TargetId>> {
        let (Some(control), Some(growth)) = (self.control.clone(), self.growth.as_ref()) else {
            return Err(Error::new(Code::NotSupported, "an engine without a control service"));
        };
        let before = growth.config.targets.len();
        check_kept(&growth.config, &config)?;
        let numbers = before..config.targets.len();
        if numbers.is_empty() {
            return Ok(Vec::new());
        }
        let starter = &growth.starter;
        for number in numbers.clone() {
            let (devices, options) =
                (config.devices(number), starter.store_options(&config, number));
            let opened = vos::Store::open_with(&starter.env, &devices, options).await;
            opened.map_err(|error| error.context(format!("target number {number}")))?;
        }
        let ids = control.grow(config.targets.len() as u32).await?;
        let (mut failed, mut new) = (Vec::new(), Vec::new());
        for (number, id) in ids.iter().enumerate().skip(before) {
            match starter.start(&config, number, *id).await {
                Ok(started) => new.push((*id, started)),
                Err(error) => {
                    tracing::error!("{error}; the other targets of this engine are served");
                    let happened = Happened::new(EventCode::TargetUnserved, error.to_string());
                    control.events.note(happened.of_target(*id));
                    new.push((*id, (refuser(&starter.env, error.clone()), None)));
                    failed.push((*id, error));
                }
            }
        }
        let ids: Vec<TargetId> = new.iter().map(|(id, _)| *id).collect();
        let inboxes = new.iter().map(|(id, (inbox, _))| (*id, inbox.clone())).collect();
        new.into_iter().for_each(|(id, started)| self.take_in(id, started));
        control.attach(inboxes, failed);
        if let Some(growth) = &mut self.growth {
            growth.config = config;
        }
        Ok(ids)
    }
}

/// `Inval` when a configuration is not the other one with further targets behind those that are there.
fn check_kept(before: &EngineConfig, after: &EngineConfig) -> Result<()> {
    if before.dir != after.dir {
        let text = format!(
            "the configuration is of the engine in {}, this one is in {}",
            after.dir.display(),
            before.dir.display()
        );
        return Err(Error::inval(text));
    }
    for number in 0..before.targets.len() {
        let is_same =
            number < after.targets.len() && before.devices(number) == after.devices(number);
        if !is_same {
            return Err(Error::inval(format!(
                "target number {number} has other devices than before; further [[target]] sections go behind those that are there, with devices \
                 of their own"
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> EngineConfig {
        EngineConfig::parse(&format!("dir = '/e'\n{text}"), "test").unwrap()
    }

    #[test]
    fn what_is_there_stays_as_it_is() {
        let one = "[[target]]\ndevice = '/a'\n";
        let before = config(one);
        let two = config(&format!("{one}[[target]]\ndevice = '/b'\n"));
        check_kept(&before, &two).unwrap();
        check_kept(&two, &two).unwrap();
        let refused = |before: &EngineConfig, after: &EngineConfig| {
            let error = check_kept(before, after).unwrap_err();
            assert_eq!(error.code, Code::Inval);
            error.text
        };
        assert!(refused(&two, &before).contains("target number 1"));
        let first = config(&format!("[[target]]\ndevice = '/b'\n{one}"));
        assert!(refused(&before, &first).contains("target number 0"));
        let elsewhere = EngineConfig { dir: "/f".into(), ..two.clone() };
        assert!(refused(&before, &elsewhere).contains("/f"));
        // A further target that shares the engine's data devices would cut them anew.
        let sharing = |count: usize| {
            let targets: String =
                (0..count).map(|at| format!("[[target]]\nscm = '/s{at}'\n")).collect();
            config(&format!("store = {{ nvme = ['/n'] }}\n{targets}"))
        };
        assert!(refused(&sharing(1), &sharing(2)).contains("target number 0"));
    }
}
