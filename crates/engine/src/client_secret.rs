//! Whether an engine that is to join has the clients' secret of the system.
//!
//! Engines prove the other one to each other, where there are two. One with a wrong secret of clients would be let in, and refuse every client.

use crate::config::EngineConfig;
use crate::peers::Peers;
use env::Env;
use std::time::Duration;
use transport::Address;
use types::{Code, Error, Result};
use wire::hello::Service;

/// How long each of those that are asked may take; who gives no answer says nothing.
const ASK_TIME_MAX: Duration = Duration::from_secs(1);

/// Shows the clients' secret to the first engine named in `join` that answers.
///
/// Errors: `NoPerm` when that one does not know it.
pub(crate) async fn check(
    env: &Env,
    config: &EngineConfig,
    host: &str,
    secret: &[u8],
) -> Result<()> {
    let client = Peers::new(env.clone(), host.to_string(), secret.to_vec());
    for tcp in &config.join {
        let address = Address::Tcp(tcp.clone());
        match env.timeout(ASK_TIME_MAX, client.dial(&address, Service::Control)).await {
            Some(Ok(conn)) => {
                conn.close();
                return Ok(());
            }
            Some(Err(error)) if error.code == Code::NoPerm => {
                let text = format!(
                    "the engine at {tcp} has another secret for clients: token_file is to hold the one of the system, beside admin_token_file"
                );
                return Err(Error::new(Code::NoPerm, text));
            }
            Some(Err(_)) | None => {}
        }
    }
    Ok(())
}
