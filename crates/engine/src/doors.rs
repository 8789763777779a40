//! Who comes to an engine: callers are accepted on the control thread, show a secret, and are handed to whom they are for.

use crate::control_host::ControlHost;
use crate::process::Order;
use crate::tokens::{Caller, Tokens};
use env::Env;
use std::rc::Rc;
use std::time::Duration;
use transport::{Acceptor, HelloInfo};
use types::{Code, Error};
use wire::event::{EventCode, Happened};
use wire::hello::Service;

/// Accepts connections for ever and hands each to whom it is for.
pub(crate) async fn accept_all(
    env: &Env,
    acceptor: Acceptor,
    control: Rc<ControlHost>,
    tokens: Tokens,
) {
    loop {
        let mut incomer = match acceptor.accept().await {
            Ok(incomer) => incomer,
            Err(error) => {
                tracing::warn!("accepting connections: {error}");
                // timer: descriptors may be used up: a pause before another try.
                env.sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        match tokens.caller(|secret| incomer.hello().knows(secret)) {
            Ok((caller, secret)) => {
                incomer.prove(secret);
                if caller == Caller::Admin {
                    incomer.trust();
                }
            }
            Err(error) => {
                control.events.note(refused(incomer.hello(), &error));
                incomer.refuse(error);
                continue;
            }
        }
        match incomer.hello().service {
            Service::Control | Service::Leader => control.clone().adopt(incomer.into_handoff()),
            Service::Target(id) => match control.door_of(id) {
                Err(error) => incomer.refuse(error),
                Ok(Some(inbox)) => {
                    if inbox.unbounded_send(Order::Adopt(incomer.into_handoff())).is_err() {
                        tracing::error!("target {id} is gone; its connections are dropped");
                    }
                }
                Ok(None) => incomer.refuse(Error::new(
                    Code::Stale,
                    format!("target {id} is not on this engine; get the newest pool map"),
                )),
            },
        }
    }
}

/// Somebody has shown no secret, or a wrong one.
fn refused(hello: &HelloInfo, error: &Error) -> Happened {
    let (from, who) = match (hello.host, hello.local_pid) {
        (Some(host), _) => (host.to_string(), format!("a caller from {host}")),
        (None, Some(pid)) => ("local".into(), format!("process {pid} of this host")),
        (None, None) => (String::new(), "a caller".to_string()),
    };
    Happened::new(EventCode::CallerRefused, format!("{who} was refused: {error}")).of_object(from)
}
