//! What jobs in the background do outside of engines while users want something of these.
//!
//! At an engine such jobs wait for their turn. What else they do (computing, what they have an object store on the same machine do) no engine holds
//! back. So engines say in each answer to them whether users are there ([`wire::header::FLAG_USERS`]); then such work is done one after the other, with a
//! rest after each, so that it has a small part of the time. With nobody there nothing waits.

use crate::client::Client;
use futures_util::lock::Mutex;
use std::cell::Cell;
use std::future::Future;
use std::time::Duration;
use types::job::is_background;

/// What such work has of the time, percent.
const SHARE: u32 = 10;
/// Longest rest: what takes longer waits for a way that is slow, and takes little of anything meanwhile.
const REST_MAX: Duration = Duration::from_secs(2);
/// Users are there for so long after an engine has said so.
const SEEN_TIME: Duration = Duration::from_secs(1);

/// What is known of users, and of what was done beside them.
#[derive(Default)]
pub(crate) struct Users {
    seen_until: Cell<Duration>,
    /// After a rest nobody knows whether they are still there, until an engine has answered.
    doubt_until: Cell<Duration>,
    rests_until: Cell<Duration>,
    turn: Mutex<()>,
}

impl Client {
    /// An engine has answered, and may have said that users are there.
    pub(crate) fn note_users(&self, are_there: bool) {
        let users = self.users();
        users.doubt_until.set(Duration::ZERO);
        if are_there {
            users.seen_until.set(self.env().now() + SEEN_TIME);
        }
    }

    /// True for what is done for a job in the background while users are there.
    pub fn gives_way(&self) -> bool {
        let is_background = match transport::current_job() {
            Some(job) => is_background(&job),
            None => is_background(self.job()),
        };
        let users = self.users();
        is_background && self.env().now() < users.seen_until.get().max(users.doubt_until.get())
    }

    /// Does something that no engine has a part in; for a job in the background beside users when it is its turn.
    pub async fn beside_users<F: Future>(&self, work: F) -> F::Output {
        if !self.gives_way() {
            return work.await;
        }
        let (users, env) = (self.users(), self.env());
        let _turn = users.turn.lock().await;
        let now = env.now();
        if now < users.rests_until.get() && self.gives_way() {
            env.sleep(users.rests_until.get() - now).await;
        }
        let begun = env.now();
        let done = work.await;
        if self.gives_way() {
            let now = env.now();
            let rests_until = now + rest(now.saturating_sub(begun));
            users.rests_until.set(rests_until);
            users.doubt_until.set(rests_until + SEEN_TIME);
        }
        done
    }
}

/// How long others have their turn after something that took so long.
fn rest(took: Duration) -> Duration {
    (took * (100 - SHARE) / SHARE).min(REST_MAX)
}
