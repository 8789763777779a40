//! Which engine owns which target, as the catalog has it: looked up once for orders to thousands of targets.
//!
//! What is remembered is forgotten when the catalog has changed by this service, and after a moment in any case: a copy of the
//! catalog changes without it.

use control::Service;
use std::cell::RefCell;
use std::rc::{Rc, Weak};
use std::time::Duration;
use types::map::HashMap;
use types::{Code, Error, Result, TargetId};
use wire::map::EngineInfo;

/// How long it is remembered.
const AGE_MAX: Duration = Duration::from_secs(1);

struct Known {
    service: Weak<Service>,
    generation: u64,
    since: Duration,
    engines: HashMap<TargetId, Rc<EngineInfo>>,
}

/// What was looked up last.
#[derive(Default)]
pub(crate) struct Owners(RefCell<Option<Known>>);

impl Owners {
    /// The engine that owns a target; `now` is the environment's clock.
    ///
    /// Errors: `NonExist`, those of the catalog.
    pub async fn find(
        &self,
        service: &Rc<Service>,
        target: TargetId,
        now: Duration,
    ) -> Result<Rc<EngineInfo>> {
        let generation = service.catalog_generation();
        let is_good = |known: &Known| {
            known.generation == generation
                && now.saturating_sub(known.since) < AGE_MAX
                && known.service.upgrade().is_some_and(|of| Rc::ptr_eq(&of, service))
        };
        if !self.0.borrow().as_ref().is_some_and(is_good) {
            let mut engines = HashMap::default();
            for (engine, targets) in service.engines().await? {
                let engine = Rc::new(engine);
                engines.extend(targets.into_iter().map(|target| (target, engine.clone())));
            }
            let service = Rc::downgrade(service);
            self.0.replace(Some(Known { service, generation, since: now, engines }));
        }
        let known = self.0.borrow();
        let found = known.as_ref().and_then(|known| known.engines.get(&target)).cloned();
        found.ok_or_else(|| {
            Error::new(Code::NonExist, format!("no engine is known to own target {target}"))
        })
    }
}
