//! `[metrics]` of an engine's configuration: where Prometheus finds figures.

use serde::{Deserialize, Serialize};
use std::net::{SocketAddr, ToSocketAddrs};
use types::{Error, Result};

/// Where an engine tells its figures.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MetricsConfig {
    /// TCP address; port 0 chooses a free one, which the log tells.
    pub listen: String,
    /// Tell them beyond this machine: there is no token for them, so whoever reaches the address reads them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub insecure: bool,
}

impl MetricsConfig {
    /// The address to listen on.
    ///
    /// Errors: `Inval` when it has no meaning, or lets other machines in and `insecure` does not say that this is meant.
    pub fn address(&self) -> Result<SocketAddr> {
        let listen = &self.listen;
        let mut addresses = listen
            .to_socket_addrs()
            .map_err(|error| Error::inval(format!("[metrics] listen = \"{listen}\": {error}")))?;
        let address = addresses
            .next()
            .ok_or_else(|| Error::inval(format!("[metrics] listen = \"{listen}\": no address")))?;
        if !address.ip().is_loopback() && !self.insecure {
            return Err(Error::inval(format!(
                "[metrics] listen = \"{listen}\" lets other machines in and no token is asked for: listen on \
                 127.0.0.1, or set insecure = true under [metrics] if everybody who reaches it may read figures"
            )));
        }
        Ok(address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_told_beyond_the_machine_only_if_that_is_meant() {
        let at = |listen: &str, insecure| {
            MetricsConfig { listen: listen.into(), insecure }.address().map_err(|e| e.to_string())
        };
        assert!(at("127.0.0.1:0", false).is_ok() && at("[::1]:7", false).is_ok());
        for open in ["0.0.0.0:7711", "10.0.0.1:7711", "[::]:7711"] {
            let error = at(open, false).unwrap_err();
            assert!(error.contains("insecure = true"), "{error}");
            assert!(at(open, true).is_ok());
        }
        assert!(at("no port", true).is_err());
    }
}
