//! A request over its tries.

use crate::client::Client;
use crate::in_doubt::Doubt;
use std::time::Duration;
use types::TargetId;
use wire::request_id::{self, UNANSWERED_MAX};

/// First pause before a reconnect.
const RECONNECT_PAUSE_MIN: Duration = Duration::from_millis(2);
/// How long a target of a group of several members is waited for at first; each time twice as long.
const TRY_TIME_MIN: Duration = Duration::from_secs(3);

/// A request over its tries: its id stays the same wherever it is sent.
pub(crate) struct Attempt {
    pub request_id: u64,
    pub deadline: Duration,
    pub flags: u8,
    pub pause: Duration,
    /// A target that gives no answer for so long is given up, for there may be another one soon.
    pub try_time: Option<Duration>,
    /// Version of the map by which its target was found; `None`: no other target could answer it.
    pub routed_under: Option<u32>,
    /// There is another way to what is wanted: what goes wrong is an error at once.
    pub is_only_try: bool,
    /// The update is in doubt, in the lane of the target that it was sent to first.
    doubt: Option<(u16, Doubt)>,
}

impl Attempt {
    pub fn new(client: &Client) -> Attempt {
        Attempt {
            request_id: client.next_request(),
            deadline: client.env().now() + client.options().timeout,
            flags: 0,
            pause: RECONNECT_PAUSE_MIN,
            try_time: None,
            routed_under: None,
            is_only_try: false,
            doubt: None,
        }
    }

    /// It is an update, about to be sent to a target. Waits as long as too many are in doubt there.
    pub async fn begin_update(&mut self, client: &Client, target: TargetId) {
        if self.doubt.is_none() {
            let lane = request_id::lane_of(target);
            let doubt = client.lane(lane).begin().await;
            // In the order in which they begin.
            self.request_id = request_id::in_lane(client.next_count(), lane, doubt.begun());
            self.doubt = Some((lane, doubt));
        }
    }

    /// One try, which takes no longer than this.
    pub fn only_try(client: &Client, time_max: Duration) -> Attempt {
        let mut attempt = Attempt::new(client);
        attempt.deadline = attempt.deadline.min(client.env().now() + time_max);
        attempt.is_only_try = true;
        attempt
    }

    /// One try at a member of a group, whoever leads it.
    pub fn at_member(client: &Client, map_version: u32, time_max: Duration) -> Attempt {
        let mut attempt = Attempt::only_try(client, time_max);
        attempt.flags |= wire::header::FLAG_MEMBER;
        attempt.route(map_version);
        attempt
    }

    /// The asker can read cells itself.
    pub fn may_be_told_cells(&mut self) {
        self.flags |= wire::header::FLAG_CELLS;
    }

    /// Its target was found under this version of the map.
    pub fn route(&mut self, map_version: u32) {
        self.routed_under = Some(map_version);
    }

    /// Another target may come to answer for what is asked.
    pub fn may_go_elsewhere(&mut self) {
        self.try_time.get_or_insert(TRY_TIME_MIN);
    }

    /// What was tried has had no effect and will have none: another id, within the same time.
    pub fn begin_anew(&mut self, client: &Client) {
        self.request_id = client.next_request();
        if let Some((lane, _)) = self.doubt {
            self.request_id = request_id::in_lane(client.next_count(), lane, UNANSWERED_MAX);
        }
        self.flags &= wire::header::FLAG_CELLS;
    }

    /// Its time is over.
    pub fn is_over(&self, client: &Client) -> bool {
        client.env().now() >= self.deadline
    }
}
