//! An administrator who has targets drained or excluded while clients work and engines die, and takes that back: in the midst of it, or when
//! all has moved.

use super::run::Run;
use super::settings::Fault;
use crate::members::newest_map;
use client::Client;
use env::Env;
use std::time::Duration;
use types::{Code, Error, Result, TargetId};
use wire::control::{ControlReply, ControlRequest, Name, TargetAim};

/// Longest time until it is taken back: others have what is drained by then, or not.
const WISH_TIME_MAX: Duration = Duration::from_secs(30);
/// Pause between two tries.
pub(super) const TRY_PAUSE: Duration = Duration::from_millis(200);
/// It is taken back after so long, also when the holder of the catalog is away meanwhile: virtual time.
pub(super) const TRY_TIME_MAX: Duration = Duration::from_secs(60);

impl Run {
    /// A target, or all of an engine, are to do something else for a while. One wish at a time.
    pub(super) async fn wish(&self, env: &Env, engine: usize, aim: TargetAim) {
        if self.is_wishing.replace(true) {
            return;
        }
        let admin = self.cluster.client_within("wisher", Duration::from_secs(5));
        let targets = match newest_map(&admin).await {
            Ok(map) => self.targets_of(&map, engine),
            Err(_) => Vec::new(),
        };
        let count = if env.random_u64().is_multiple_of(2) { 1 } else { targets.len() };
        let some: Vec<TargetId> = targets.into_iter().take(count).collect();
        if !some.is_empty() && self.is_granted(&admin, &some, aim).await {
            // Each length is as likely as one of half of it.
            self.pause(env, WISH_TIME_MAX / (1 << (env.random_u64() % 6))).await;
            let taken_back = async {
                while !self.is_granted(&admin, &some, TargetAim::Serve).await {
                    env.sleep(TRY_PAUSE).await;
                }
            };
            if env.timeout(TRY_TIME_MAX, taken_back).await.is_none() {
                // In peace it is asked whether all is in its place.
                self.note(|| format!("targets {some:?} cannot be had to serve again"));
                return;
            }
        }
        self.is_wishing.set(false);
    }

    /// In peace, all targets serve: a wish that nobody answered may have been heard late.
    pub(super) async fn end_wishes(&self, env: &Env, admin: &Client) -> Result<()> {
        let happened = |fault: Fault| self.happened.borrow().contains_key(&fault);
        if !happened(Fault::Drain) && !happened(Fault::Exclude) {
            return Ok(());
        }
        let targets: Vec<TargetId> =
            newest_map(admin).await?.targets.iter().map(|target| target.id).collect();
        let granted = async {
            while !self.is_granted(admin, &targets, TargetAim::Serve).await {
                env.sleep(TRY_PAUSE).await;
            }
        };
        let granted = env.timeout(TRY_TIME_MAX, granted).await;
        granted.ok_or_else(|| Error::new(Code::Busy, "targets cannot be had to serve again"))
    }

    /// Asks for it; false where it is refused, or where it is not known whether it will be.
    async fn is_granted(&self, admin: &Client, targets: &[TargetId], aim: TargetAim) -> bool {
        let (pool, targets) = (Name::Label("p".into()), targets.to_vec());
        let told = format!("targets {targets:?} are to do this: {aim:?}");
        match admin.control(&ControlRequest::PoolAim { pool, targets, aim }).await {
            Ok(ControlReply::Done) => {
                self.wishes.set(self.wishes.get() + 1);
                self.note(|| told);
                true
            }
            Ok(other) => {
                self.note(|| format!("{told}: {other:?}"));
                false
            }
            // It may have been heard, or will be.
            Err(error) => {
                self.note(|| format!("{told}: {error}"));
                aim != TargetAim::Serve && error.code != Code::Busy
            }
        }
    }
}
