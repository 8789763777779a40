//! Secrets that callers know: who may work with data, and who may also speak for the system.
//!
//! Two secrets make two kinds of callers. What engines tell each other (orders to members of a group, outcomes of
//! transactions, what a map says) is taken as the truth, so it is heard from those only that know the secret of engines and
//! administrators. Where no such secret is set, the one secret is for all of it.

use types::{Code, Error, Result};

/// Who a caller is, by the secret that it has shown to know.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Caller {
    /// Works with containers and what is in them.
    Client,
    /// An engine of the system, or who administers it.
    Admin,
}

/// The secrets of a system.
#[derive(Clone)]
pub struct Tokens {
    /// Empty: everybody is a client.
    client: Vec<u8>,
    /// `None`: a client's is this one, too.
    admin: Option<Vec<u8>>,
}

impl Tokens {
    /// `client`: empty where none is asked for. `admin`: `None` where there is one secret only.
    ///
    /// Errors: `Inval` when both are the same.
    pub fn new(client: Vec<u8>, admin: Option<Vec<u8>>) -> Result<Tokens> {
        if admin.as_ref() == Some(&client) {
            return Err(Error::inval(
                "token_file and admin_token_file hold the same secret, so clients could speak for engines; \
                 give them different ones, or leave admin_token_file away",
            ));
        }
        Ok(Tokens { client, admin })
    }

    /// What this engine proves to others that it knows.
    pub fn own(&self) -> &[u8] {
        self.admin.as_deref().unwrap_or(&self.client)
    }

    /// What clients prove, where engines prove something else.
    pub fn clients_own(&self) -> Option<&[u8]> {
        self.admin.as_ref().map(|_| &self.client[..])
    }

    /// Who a caller is, and the secret it knows; `knows` tells whether it knows a given one.
    ///
    /// Errors: `NoPerm` for one that knows none of them.
    pub fn caller(&self, knows: impl Fn(&[u8]) -> bool) -> Result<(Caller, &[u8])> {
        // Both are looked at, whatever the first says.
        let is_client = knows(&self.client);
        let as_admin = self.admin.as_deref().filter(|admin| knows(admin));
        match (as_admin, is_client) {
            (Some(admin), _) => Ok((Caller::Admin, admin)),
            (None, true) if self.admin.is_none() => Ok((Caller::Admin, &self.client)),
            (None, true) => Ok((Caller::Client, &self.client)),
            (None, false) => Err(Error::new(
                Code::NoPerm,
                "wrong or missing token; set AZEKURA_TOKEN_FILE to the system's token file",
            )),
        }
    }
}

/// The answer to a client that asks what engines and administrators may ask.
pub fn not_for_clients() -> Error {
    Error::new(
        Code::NoPerm,
        "only administrators and engines may ask for this; set AZEKURA_TOKEN_FILE to what the engines have as \
         admin_token_file",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(client: &str, admin: Option<&str>) -> Tokens {
        Tokens::new(client.into(), admin.map(|admin| admin.into())).unwrap()
    }

    fn caller(tokens: &Tokens, given: &str) -> Option<Caller> {
        let (caller, secret) = tokens.caller(|secret| secret == given.as_bytes()).ok()?;
        assert_eq!(secret, given.as_bytes(), "the answer proves what the caller knows");
        Some(caller)
    }

    #[test]
    fn one_secret_is_for_all() {
        let tokens = tokens("one", None);
        assert_eq!(caller(&tokens, "one"), Some(Caller::Admin));
        for wrong in ["", "on", "ones", "two"] {
            assert_eq!(caller(&tokens, wrong), None, "{wrong}");
        }
        assert_eq!(tokens.own(), b"one");
    }

    #[test]
    fn two_secrets_tell_clients_from_engines() {
        let tokens = tokens("one", Some("two"));
        assert_eq!(caller(&tokens, "one"), Some(Caller::Client));
        assert_eq!(caller(&tokens, "two"), Some(Caller::Admin));
        for wrong in ["", "on", "ones", "tw", "onetwo"] {
            assert_eq!(caller(&tokens, wrong), None, "{wrong}");
        }
        assert_eq!(tokens.own(), b"two");
    }

    #[test]
    fn without_secrets_everybody_is_trusted_and_with_one_for_engines_only_these_are() {
        assert_eq!(caller(&tokens("", None), ""), Some(Caller::Admin));
        assert_eq!(caller(&tokens("", None), "x"), None);
        let engines_only = tokens("", Some("two"));
        assert_eq!(caller(&engines_only, ""), Some(Caller::Client));
        assert_eq!(caller(&engines_only, "x"), None, "its secret could not be proved to it");
        assert_eq!(caller(&engines_only, "two"), Some(Caller::Admin));
    }

    #[test]
    fn the_same_secret_twice_is_a_mistake() {
        let error = Tokens::new(b"one".to_vec(), Some(b"one".to_vec())).err().unwrap();
        assert!(error.to_string().contains("admin_token_file"), "{error}");
    }
}
