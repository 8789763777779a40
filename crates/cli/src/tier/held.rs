//! The pool's snapshot that holds still while a container is written down in its tier.
//!
//! Whoever makes it says so again and again, in an attribute of the container. When that does not change for a while its maker has been killed, and whoever wants to make the next one
//! removes what it left. No clocks are compared: the attribute is looked at until it changes or the time is over. A maker that was only slow finds its snapshot gone at
//! the end, before it has written anything down that counts.

use crate::props::{self, wrong_reply};
use crate::session::Session;
use crate::url::Url;
use std::collections::BTreeMap;
use std::sync::mpsc;
use std::time::{Duration, Instant};
use types::{Code, Error, Result};
use uuid::Uuid;
use wire::control::{ControlReply, ControlRequest, SnapName, Subject};

/// Its name: two at a time are refused, and who looks sees whose it is.
const NAME: &str = "azekura-tier-snapshot";
/// The attribute that changes while its maker lives.
const ALIVE: &str = "azekura.tier.snapshot";
/// How often it changes, and for how long it does not when the maker is dead: several changes may be lost to an engine that moves.
const ALIVE_PAUSE: Duration = Duration::from_secs(2);
const SILENCE_MAX: Duration = Duration::from_secs(12);
const LOOK_PAUSE: Duration = Duration::from_millis(500);

/// Does some work on a snapshot of the pool that is there only meanwhile.
///
/// Errors: `Exist` while another one is made of the same container; `Canceled` when somebody has removed it before the work was done: some of what was read may be newer than
/// the rest.
pub fn with_snapshot<T>(
    session: &Session,
    url: &Url,
    work: impl FnOnce(&SnapName) -> Result<T>,
) -> Result<T> {
    let at = take(session, url)?;
    let (stop, stopped) = mpsc::channel::<()>();
    let done = std::thread::scope(|scope| {
        let living = scope.spawn(move || say_alive(session, url, &stopped));
        let done = work(&at);
        drop(stop);
        // Whether it was said or not shows at the end.
        let _ = living.join();
        done
    });
    let removed = destroy(session, url, at);
    match removed {
        // Whatever was said of what was read: it was not there any more.
        Err(error) if error.code == Code::NonExist => {
            let text = "the pool's snapshot was removed before all of it was sent; make it again";
            Err(Error::new(Code::Canceled, text))
        }
        Err(error) => done.and(Err(error)),
        Ok(()) => done,
    }
}

/// Makes it; one that a killed maker has left is removed.
fn take(session: &Session, url: &Url) -> Result<SnapName> {
    let (pool, cont) = (url.pool.clone(), url.cont.clone());
    let request = ControlRequest::SnapCreate { pool, cont, name: NAME.into() };
    let mut is_second = false;
    loop {
        match props::run(session, request.clone()) {
            Ok(ControlReply::Snap(snap)) => return Ok(SnapName::Epoch(snap.epoch)),
            Ok(_) => return Err(wrong_reply()),
            Err(error) if error.code == Code::Exist && !is_second && is_silent(session, url)? => {
                tracing::info!(
                    "the snapshot of the pool that a killed 'tier snapshot create' has left is removed"
                );
                match destroy(session, url, SnapName::Name(NAME.into())) {
                    Err(error) if error.code != Code::NonExist => return Err(error),
                    _ => is_second = true,
                }
            }
            Err(error) if error.code == Code::Exist => {
                let text = "another 'tier snapshot create' of this container runs";
                return Err(Error::new(Code::Exist, text));
            }
            Err(error) => return Err(error),
        }
    }
}

fn destroy(session: &Session, url: &Url, snap: SnapName) -> Result<()> {
    let (pool, cont) = (url.pool.clone(), url.cont.clone());
    props::run(session, ControlRequest::SnapDestroy { pool, cont, snap }).map(|_| ())
}

fn subject(url: &Url) -> Subject {
    Subject::Cont(url.pool.clone(), url.cont.clone())
}

/// Changes the attribute until it is told to stop, and removes it then.
fn say_alive(session: &Session, url: &Url, stopped: &mpsc::Receiver<()>) {
    let maker = Uuid::new_v4();
    let say = |value: Option<String>| {
        let attrs = BTreeMap::from([(ALIVE.to_string(), value.map(String::into_bytes))]);
        let request = ControlRequest::SetAttrs { subject: subject(url), attrs };
        if let Err(error) = props::run(session, request) {
            tracing::debug!("saying that a snapshot is made: {error}");
        }
    };
    for count in 0u64.. {
        say(Some(format!("{maker} {count}")));
        if stopped.recv_timeout(ALIVE_PAUSE) != Err(mpsc::RecvTimeoutError::Timeout) {
            break;
        }
    }
    say(None);
}

/// True when the attribute does not change for a while.
fn is_silent(session: &Session, url: &Url) -> Result<bool> {
    let look = || match props::run(session, ControlRequest::GetAttrs { subject: subject(url) })? {
        ControlReply::Attrs(mut attrs) => Ok(attrs.remove(ALIVE)),
        _ => Err(wrong_reply()),
    };
    let (begin, first) = (Instant::now(), look()?);
    while begin.elapsed() < SILENCE_MAX {
        std::thread::sleep(LOOK_PAUSE);
        if look()? != first {
            return Ok(false);
        }
    }
    Ok(true)
}
