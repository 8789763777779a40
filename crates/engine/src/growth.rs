//! An engine that runs gets further targets: its configuration was read again, and has more of them than before.
//!
//! Their devices are opened once before anybody is told, so that a mistake in what was written changes nothing. Then the system gives
//! them numbers, and they are started as at the engine's start. Those that it had go on meanwhile. No pool is on the new ones
//! until it is extended.
//!
//! Further targets may share data devices with those that are there where these are directories. What else is a device was cut when the
//! first of them was made, and no part of it is left.

use crate::config::EngineConfig;
use crate::measure::measure_first;
use crate::process::{Order, Serving};
use crate::target_start::{Starter, refuser};
use env::Env;
use std::path::Path;
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
    /// Errors: `Inval` when those that were there are not the same any more, or would have to share what was cut already, those of opening the devices and of joining; then nothing
    /// has changed. A target that fails after that is refused, as at a start.
    pub async fn grow(&mut self, config: EngineConfig) -> Result<Vec<TargetId>> {
        let (Some(control), Some(growth)) = (self.control.clone(), self.growth.as_ref()) else {
            return Err(Error::new(Code::NotSupported, "an engine without a control service"));
        };
        let before = growth.config.targets.len();
        let shared = check_kept(&growth.config, &config)?;
        let numbers = before..config.targets.len();
        if numbers.is_empty() {
            return Ok(Vec::new());
        }
        let starter = &growth.starter;
        for device in shared.iter().flat_map(|of| &of.devices) {
            if !device.takes_further_parts(&starter.env).await? {
                return Err(no_part_left(&device.path));
            }
        }
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
        for Shared { number, devices } in shared {
            let counts = devices.iter().map(|device| device.part_count).collect();
            // A target that has ended counts no room.
            let _ = self.inboxes[number].1.unbounded_send(Order::ShareDevices(counts));
        }
        if let Some(growth) = &mut self.growth {
            growth.config = config;
        }
        Ok(ids)
    }
}

/// A target that is there already, and its data devices, some of which further ones share from now on.
#[derive(PartialEq, Eq, Debug)]
struct Shared {
    number: usize,
    devices: Vec<vos::DataDevice>,
}

/// `Inval` when a configuration is not the other one with further targets behind those that are there; else those that get others beside
/// them on their data devices.
fn check_kept(before: &EngineConfig, after: &EngineConfig) -> Result<Vec<Shared>> {
    if before.dir != after.dir {
        let text = format!(
            "the configuration is of the engine in {}, this one is in {}",
            after.dir.display(),
            before.dir.display()
        );
        return Err(Error::inval(text));
    }
    let mut shared = Vec::new();
    for (number, target) in before.targets.iter().enumerate() {
        let had = before.devices(number);
        let has = (number < after.targets.len()).then(|| after.devices(number));
        let Some(has) = has.filter(|has| has.scm == had.scm && are_same_parts(has, &had)) else {
            let mut text = format!(
                "target number {number} has other devices than before; further [[target]] sections go behind those that are there, with \
                 devices of their own"
            );
            if target.device.is_none() && target.nvme.is_empty() {
                text.push_str(
                    ": what is under [store] nvme goes to targets in turn, so each more or less there changes who has what; leave it as it is, \
                     and give the further targets 'nvme' themselves",
                );
            }
            return Err(Error::inval(text));
        };
        if has != had {
            shared.push(Shared { number, devices: has.nvme });
        }
    }
    Ok(shared)
}

/// The same parts of the same data devices, of however many parts.
fn are_same_parts(one: &vos::Devices, other: &vos::Devices) -> bool {
    let places = |of: &vos::Devices| {
        let place = |device: &vos::DataDevice| (device.path.clone(), device.part);
        of.nvme.iter().map(place).collect::<Vec<_>>()
    };
    places(one) == places(other)
}

fn no_part_left(device: &Path) -> Error {
    Error::inval(format!(
        "{} under [store] nvme is no directory: it was cut into parts when its first target was made, one for each that was to share it, and none \
         is left. Give the further [[target]] sections 'nvme' of their own beside 'scm', on another device or partition, and leave [store] nvme as \
         it is",
        device.display()
    ))
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
        // What is shared changes hands in no other way than that others come to it.
        let sharing = |count: usize, nvme: &str| {
            let targets: String =
                (0..count).map(|at| format!("[[target]]\nscm = '/s{at}'\n")).collect();
            config(&format!("store = {{ nvme = [{nvme}] }}\n{targets}"))
        };
        let parts = |path: &str, part: u32, part_count: u32| {
            vec![vos::DataDevice { path: path.into(), part, part_count }]
        };
        let one = Shared { number: 0, devices: parts("/n", 0, 3) };
        assert_eq!(check_kept(&sharing(1, "'/n'"), &sharing(3, "'/n'")).unwrap(), [one]);
        let second = Shared { number: 1, devices: parts("/n", 1, 3) };
        let before = sharing(2, "'/n'");
        assert_eq!(check_kept(&before, &sharing(3, "'/n'")).unwrap()[1], second);
        // Of two devices the first gets a second part.
        let first = Shared { number: 0, devices: parts("/n", 0, 2) };
        let before = sharing(2, "'/n', '/m'");
        assert_eq!(check_kept(&before, &sharing(3, "'/n', '/m'")).unwrap(), [first]);
        // A further device for a further target.
        assert_eq!(check_kept(&sharing(1, "'/n'"), &sharing(2, "'/n', '/m'")).unwrap(), []);
        let text = refused(&sharing(2, "'/n'"), &sharing(3, "'/n', '/m'"));
        assert!(text.contains("target number 1") && text.contains("'nvme' themselves"), "{text}");
        let text = refused(&sharing(1, "'/n', '/m'"), &sharing(2, "'/n', '/m'"));
        assert!(text.contains("target number 0") && text.contains("in turn"), "{text}");
    }
}
