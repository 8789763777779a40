//! Secrets of stores: from a file that only its owner reads, else from the environment.
//!
//! ```toml
//! access_key_id = "…"        # S3; azblob: the account's name; webdav: the user
//! secret_access_key = "…"    # S3; azblob: the account's key; webdav: the password
//! session_token = "…"        # S3, if there is one
//! token = "…"                # swift; gcs: an access token
//! ```
//!
//! For GCS the file may also be the key of a service account, as Google hands it out (JSON).
//!
//! In the environment: `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, `AWS_SESSION_TOKEN`, `OS_AUTH_TOKEN`; for GCS the path of such a file,
//! `GOOGLE_APPLICATION_CREDENTIALS`.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use std::fmt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use types::{Code, Error, Result};

/// Secrets; never shown, not even by `Debug`.
#[derive(Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Credentials {
    pub access_key_id: Option<String>,
    pub secret_access_key: Option<String>,
    pub session_token: Option<String>,
    pub token: Option<String>,
    /// Of a file that is such a key itself.
    #[serde(skip)]
    pub service_account: Option<ServiceAccount>,
}

/// The key of a service account of GCS.
#[derive(Clone, PartialEq, Eq)]
pub struct ServiceAccount(String);

impl ServiceAccount {
    /// Takes a key that has what requests are signed with; `None` for something else.
    fn decode(text: &str) -> Option<ServiceAccount> {
        #[derive(Deserialize)]
        struct Needed {
            client_email: String,
            private_key: String,
        }
        let needed: Needed = serde_json::from_str(text).ok()?;
        let is_whole =
            !needed.client_email.is_empty() && needed.private_key.contains("PRIVATE KEY");
        is_whole.then(|| ServiceAccount(STANDARD.encode(text)))
    }

    /// The file's text, in base64.
    pub(crate) fn as_base64(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credentials(…)")
    }
}

impl Credentials {
    /// Reads a file.
    ///
    /// Errors: `Access` when others than its owner may read or write it; `Inval` for what is not as above, without a word of what is in it.
    pub fn read(file: &Path) -> Result<Credentials> {
        let text = read_private(file, "credentials")?;
        if text.trim_start().starts_with('{') {
            let account = ServiceAccount::decode(&text).ok_or_else(|| {
                Error::inval(format!(
                    "credentials '{}' are JSON, but no service account's key with client_email and private_key",
                    file.display()
                ))
            })?;
            return Ok(Credentials { service_account: Some(account), ..Credentials::default() });
        }
        // The parser's message would quote the line.
        toml::from_str(&text).map_err(|_| {
            Error::inval(format!(
                "credentials '{}' are not lines of NAME = \"VALUE\" with the names access_key_id, secret_access_key, \
                 session_token, token",
                file.display()
            ))
        })
    }

    /// What the environment says; with `is_gcs` also in the file that it names.
    ///
    /// Errors: those of [`Credentials::read`] for that file.
    pub fn from_env(is_gcs: bool) -> Result<Credentials> {
        let var = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        if let Some(file) = var("GOOGLE_APPLICATION_CREDENTIALS").filter(|_| is_gcs) {
            return Credentials::read(&PathBuf::from(file));
        }
        Ok(Credentials {
            access_key_id: var("AWS_ACCESS_KEY_ID"),
            secret_access_key: var("AWS_SECRET_ACCESS_KEY"),
            session_token: var("AWS_SESSION_TOKEN"),
            token: var("OS_AUTH_TOKEN"),
            service_account: None,
        })
    }
}

/// The text of a file with secrets, called `what` in messages.
///
/// Errors: `Access` when others than its owner may read or write it.
pub(crate) fn read_private(file: &Path, what: &str) -> Result<String> {
    let named = |error| Error::named_file(format!("{what} '{}'", file.display()), error);
    let meta = std::fs::metadata(file).map_err(named)?;
    if meta.mode() & 0o077 != 0 {
        return Err(Error::new(
            Code::Access,
            format!(
                "{what} '{0}' can be read by others (mode {1:o}); run: chmod 600 {0}",
                file.display(),
                meta.mode() & 0o777
            ),
        ));
    }
    std::fs::read_to_string(file).map_err(named)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn files_that_others_read_are_refused_and_secrets_are_in_no_message() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("keys");
        let mode = |mode| {
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        std::fs::write(&file, "access_key_id = \"id\"\nsecret_access_key = \"hush\"\n").unwrap();
        mode(0o644);
        let refused = Credentials::read(&file).unwrap_err();
        assert_eq!(refused.code, Code::Access);
        assert!(refused.text.contains("chmod 600"), "{refused}");
        mode(0o600);
        let read = Credentials::read(&file).unwrap();
        assert_eq!(read.secret_access_key.as_deref(), Some("hush"));
        assert!(!format!("{read:?}").contains("hush"));
        std::fs::write(&file, "secret_access_key = hush\n").unwrap();
        let refused = Credentials::read(&file).unwrap_err();
        assert!(refused.code == Code::Inval && !refused.text.contains("hush"), "{refused}");
        // A service account's key, as it is handed out.
        let key = "-----BEGIN PRIVATE KEY-----\\nhush\\n-----END PRIVATE KEY-----\\n";
        let text = format!(
            "{{\"client_email\": \"a@b\", \"private_key\": \"{key}\", \"type\": \"service_account\"}}"
        );
        std::fs::write(&file, &text).unwrap();
        let read = Credentials::read(&file).unwrap().service_account.unwrap();
        assert_eq!(STANDARD.decode(read.as_base64()).unwrap(), text.as_bytes());
        for not_whole in ["{\"client_email\": \"hush\"}", "{hush", "{}"] {
            std::fs::write(&file, not_whole).unwrap();
            let refused = Credentials::read(&file).unwrap_err();
            assert!(refused.code == Code::Inval && !refused.text.contains("hush"), "{refused}");
        }
    }
}
