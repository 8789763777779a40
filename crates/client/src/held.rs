//! Handles on pools and containers that are kept.
//!
//! A handle belongs to the connection that it was given on, and is forgotten with that: when the engine that was asked ends, or the
//! control service goes on elsewhere or is started again (engines hang up then). Who has the pool or the container open would be overlooked by whoever
//! destroys it, rolls it back or wants it for himself. So the client asks for the handle again as soon as the connection has ended.
//!
//! Invariant: a handle that was given back is not asked for again; one that comes after that goes back at once.

use crate::client::{Client, WeakClient, unexpected};
use env::Signal;
use futures_util::future::{Either, select};
use std::cell::Cell;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;
use transport::Ending;
use types::{Code, Result};
use wire::control::{ControlReply, ControlRequest};

/// In place of a handle: the control service does not know of this one.
const HANDLE_NONE: u64 = 0;

/// Clients that have lost their handles together ask within this time.
const SPREAD_TIME: Duration = Duration::from_millis(200);
/// Pauses before a handle is asked for again: the first, and where doubling ends.
const AGAIN_PAUSE: Duration = Duration::from_millis(50);
const AGAIN_PAUSE_MAX: Duration = Duration::from_secs(2);
/// The same where the control service answers with what is no answer.
const TROUBLE_PAUSE_MAX: Duration = Duration::from_secs(10);
/// How long what it was on is missing before it counts as destroyed.
const GONE_TIME_MAX: Duration = Duration::from_secs(60);
/// How long others may stand in the way of a handle: its own earlier connection may, until the engine has noticed that it ended.
const BUSY_TIME_MAX: Duration = Duration::from_secs(60);

/// A handle, or none where somebody else has opened what it is on.
#[derive(Default)]
pub(crate) struct HeldHandle(Rc<Handle>);

#[derive(Default)]
struct Handle {
    number: Cell<u64>,
    /// Nobody has it any more, or it was given back.
    is_released: Cell<bool>,
    released: Signal,
}

impl HeldHandle {
    /// A handle that was given on a connection; `again` asks for it once more, by names that are good for ever.
    pub fn new(client: &Client, number: u64, on: Ending, again: ControlRequest) -> HeldHandle {
        let handle = Rc::new(Handle { number: Cell::new(number), ..Handle::default() });
        let keeper = Keeper { client: client.downgrade(), handle: handle.clone(), again };
        client.env().spawn(keeper.keep(on));
        HeldHandle(handle)
    }

    /// Keeps it no more. Its number, which is to be given back; `None` where the control service knows of none.
    pub fn release(&self) -> Option<u64> {
        self.0.is_released.set(true);
        self.0.released.notify();
        Some(self.0.number.replace(HANDLE_NONE)).filter(|number| *number != HANDLE_NONE)
    }
}

impl Drop for HeldHandle {
    fn drop(&mut self) {
        // It ends with the connection.
        self.release();
    }
}

struct Keeper {
    client: WeakClient,
    handle: Rc<Handle>,
    again: ControlRequest,
}

impl Keeper {
    async fn keep(self, mut ending: Ending) {
        loop {
            let released = pin!(self.handle.released.until(|| self.handle.is_released.get()));
            if let Either::Left(_) = select(released, pin!(ending.over())).await {
                return;
            }
            self.handle.number.set(HANDLE_NONE);
            match self.reopen().await {
                Some(next) => ending = next,
                None => return,
            }
        }
    }

    /// Asks until there is a handle again; `None` when it is not wanted any more, or will not be given.
    async fn reopen(&self) -> Option<Ending> {
        let (mut pause, mut pause_max) = (AGAIN_PAUSE, AGAIN_PAUSE_MAX);
        let (mut busy_since, mut gone_since) = (None, None);
        // A thousand others have lost theirs in the same moment.
        let env = self.client.upgrade()?.env().clone();
        let spread = Duration::from_nanos(env.random_u64() % SPREAD_TIME.as_nanos() as u64);
        env.sleep(spread).await;
        loop {
            // Nobody is kept from ending by this.
            let client = self.client.upgrade().filter(|_| !self.handle.is_released.get())?;
            let error = match Box::pin(self.ask(&client)).await {
                Ok((handle, on)) => {
                    if self.handle.is_released.get() {
                        // It ends with the connection in any case.
                        let _ = client.control(&self.close_of(handle)).await;
                        return None;
                    }
                    self.handle.number.set(handle);
                    return Some(on);
                }
                Err(error) => error,
            };
            let now = client.env().now();
            match error.code {
                Code::Unreach | Code::Closed | Code::TimedOut | Code::Stale => {}
                Code::Busy if now - *busy_since.get_or_insert(now) < BUSY_TIME_MAX => {}
                // What it was on is destroyed, unless that is what a catalog tells that somebody has emptied.
                Code::NonExist if now - *gone_since.get_or_insert(now) < GONE_TIME_MAX => {
                    pause_max = TROUBLE_PAUSE_MAX;
                }
                // Or it is not for this client any more; or others have it, and will not give it up.
                Code::NonExist | Code::NoPerm | Code::Access | Code::Busy => {
                    tracing::warn!("a handle that was lost with a connection: {error}");
                    return None;
                }
                // Of a catalog that is out of order, say: an administrator puts that right, and then it counts who has something open.
                _ => {
                    if pause_max == AGAIN_PAUSE_MAX {
                        tracing::warn!("a handle that was lost with a connection: {error}");
                    }
                    pause_max = TROUBLE_PAUSE_MAX;
                }
            }
            drop(client);
            env.sleep(pause).await;
            pause = (2 * pause).min(pause_max);
        }
    }

    async fn ask(&self, client: &Client) -> Result<(u64, Ending)> {
        match client.control_by(&self.again).await? {
            (
                ControlReply::PoolOpened { handle, .. } | ControlReply::ContOpened { handle, .. },
                on,
            ) => Ok((handle, on)),
            _ => Err(unexpected()),
        }
    }

    fn close_of(&self, handle: u64) -> ControlRequest {
        match self.again {
            ControlRequest::PoolOpen { .. } => ControlRequest::PoolClose { handle },
            _ => ControlRequest::ContClose { handle },
        }
    }
}
