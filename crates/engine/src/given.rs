//! Handles on pools and containers that a caller of the control service was given on its connection.
//!
//! The service that gave them keeps them in memory. When it goes on elsewhere, is started again, or cannot be reached by the
//! connection any more, they are forgotten, and nobody would tell the caller, which may not ask for hours. So its connection is ended: it asks
//! for them again on the next one (`client`'s `held` module).
//!
//! Invariant: a connection is not ended for that while a request of it is being answered.

use crate::control_host::ControlHost;
use crate::office::Role;
use control::Service;
use env::Signal;
use futures_util::future::{Either, select};
use std::cell::{Cell, RefCell};
use std::pin::pin;
use std::rc::Rc;
use transport::Ending;
use wire::control::ControlRequest;
use wire::map::EngineInfo;

/// Who has given a handle.
#[derive(Clone)]
pub(crate) enum Giver {
    /// The control service, which is here.
    Here(Rc<Service>),
    /// This engine, from its copy of the catalog, which was away.
    Copy,
    /// The control service by way of a connection, and the engine that holds it if that is known.
    Upstream(Option<EngineInfo>, Ending),
}

/// What a caller was given, and whether it is being answered.
#[derive(Default)]
pub(crate) struct Given {
    count: Cell<usize>,
    /// Who gave the first of them.
    giver: RefCell<Option<Giver>>,
    /// Requests that are being answered.
    under_way: Cell<usize>,
    changed: Signal,
}

/// A request that is being answered.
pub(crate) struct UnderWay(Rc<Given>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.under_way.set(self.0.under_way.get() - 1);
        self.0.changed.notify();
    }
}

impl Given {
    /// A request is being answered until what is returned goes.
    pub fn begin(self: &Rc<Self>) -> UnderWay {
        self.under_way.set(self.under_way.get() + 1);
        UnderWay(self.clone())
    }

    /// A request was carried out: it may have opened a handle, which `giver` has given, or closed one.
    pub fn note(&self, request: &ControlRequest, giver: impl FnOnce() -> Giver) {
        match request {
            ControlRequest::PoolOpen { .. } | ControlRequest::ContOpen { .. } => {
                self.count.set(self.count.get() + 1);
                let is_first = self.giver.borrow().is_none();
                if is_first {
                    self.giver.replace(Some(giver()));
                    self.changed.notify();
                }
            }
            ControlRequest::PoolClose { .. } | ControlRequest::ContClose { .. } => {
                let left = self.count.get().saturating_sub(1);
                self.count.set(left);
                if left == 0 && self.giver.take().is_some() {
                    self.changed.notify();
                }
            }
            _ => {}
        }
    }
}

impl ControlHost {
    /// Ends when what a caller was given is forgotten, or may be known better to the control service itself.
    pub(crate) async fn until_forgotten(&self, given: &Given) {
        loop {
            let giver = given.changed.until_some(|| given.giver.borrow().clone()).await;
            let closed = pin!(given.changed.until(|| given.giver.borrow().is_none()));
            if let Either::Left(_) = select(closed, pin!(self.until_gone(&giver))).await {
                continue;
            }
            given.changed.until(|| given.under_way.get() == 0).await;
            if given.giver.borrow().is_some() {
                return;
            }
        }
    }

    async fn until_gone(&self, giver: &Giver) {
        match giver {
            Giver::Here(service) => {
                let is_here =
                    |role: &Role| matches!(role, Role::Holder(held) if Rc::ptr_eq(held, service));
                self.until_role_not(is_here).await;
            }
            Giver::Copy => self.until_catalog_back().await,
            Giver::Upstream(None, ending) => ending.over().await,
            Giver::Upstream(Some(leader), ending) => {
                let is_held =
                    |role: &Role| matches!(role, Role::Follower(Some(held)) if held == leader);
                select(pin!(ending.over()), pin!(self.until_role_not(is_held))).await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_giver_counts_until_all_is_given_back() {
        let pool = wire::control::Name::Label("tank".into());
        let open = ControlRequest::PoolOpen { pool, mode: wire::control::OpenMode::ReadWrite };
        let close = ControlRequest::PoolClose { handle: 1 };
        let given = Rc::new(Given::default());
        given.note(&ControlRequest::PoolList, || panic!("it gives nothing"));
        given.note(&open, || Giver::Copy);
        given.note(&open, || panic!("one is enough"));
        given.note(&close, || panic!("it gives nothing"));
        assert!(given.giver.borrow().is_some());
        given.note(&close, || Giver::Copy);
        assert!(given.giver.borrow().is_none());
        // One that was evicted is closed as well.
        given.note(&close, || Giver::Copy);
        given.note(&open, || Giver::Copy);
        assert!(given.giver.borrow().is_some());
        let (one, two) = (given.begin(), given.begin());
        drop(one);
        assert_eq!(given.under_way.get(), 1);
        drop(two);
        assert_eq!(given.under_way.get(), 0);
    }
}
