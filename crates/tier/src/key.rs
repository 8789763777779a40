//! Keys that parts are encrypted with: AES-256-GCM, a key for all parts of a tier, a random nonce for each.
//!
//! A key file holds 64 hexadecimal digits. Random nonces of 96 bits are good for some thousand million parts of one key.

use crate::credentials::read_private;
use crate::manifest::{from_hex, to_hex};
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::rand::{SecureRandom, SystemRandom};
use std::fmt;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use types::{Code, Error, Result};

/// Size of a key's id.
pub const KEY_ID_BYTES: usize = 7;
/// What an encrypted part's bytes grow by: nonce and tag.
const GROWTH_BYTES: usize = NONCE_LEN + 16;
/// What a key's id is the sum of, in front of the key.
const ID_OF: &[u8] = b"azekura tier key";

/// A key; never shown, not even by `Debug`. Cheap to clone.
#[derive(Clone)]
pub struct Key(Arc<Inner>);

struct Inner {
    aead: LessSafeKey,
    id: [u8; KEY_ID_BYTES],
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({})", to_hex(&self.id()))
    }
}

impl Key {
    /// A key of these bytes.
    pub fn new(bytes: [u8; 32]) -> Key {
        let sum = crate::part::sum(&[ID_OF, &bytes].concat());
        let mut id = [0; KEY_ID_BYTES];
        id.copy_from_slice(&sum[..KEY_ID_BYTES]);
        // The only thing that could be wrong with a key is its length.
        let unbound = UnboundKey::new(&AES_256_GCM, &bytes).expect("a key of 32 bytes");
        Key(Arc::new(Inner { aead: LessSafeKey::new(unbound), id }))
    }

    /// Reads a key file.
    ///
    /// Errors: `Access` when others than its owner may read or write it; `Inval` for what is no key.
    pub fn read(file: &Path) -> Result<Key> {
        let text = read_private(file, "key file")?;
        let key = from_hex(text.trim());
        key.map(Key::new).ok_or_else(|| {
            Error::inval(format!(
                "key file '{}' is not 64 hexadecimal digits; 'azekura tier make-key FILE' makes one",
                file.display()
            ))
        })
    }

    /// Makes a key and its file, which must not be there.
    pub fn make(file: &Path) -> Result<Key> {
        let mut bytes = [0; 32];
        SystemRandom::new().fill(&mut bytes).map_err(|_| no_randomness())?;
        let failed = |error| Error::named_file(format!("'{}'", file.display()), error);
        let mut out = std::fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(file)
            .map_err(failed)?;
        writeln!(out, "{}", to_hex(&bytes)).and_then(|()| out.sync_all()).map_err(failed)?;
        Ok(Key::new(bytes))
    }

    /// What tells keys apart; says nothing of the key.
    pub fn id(&self) -> [u8; KEY_ID_BYTES] {
        self.0.id
    }

    /// Length of so many bytes when they are encrypted.
    pub(crate) fn sealed_bytes(bytes: usize) -> usize {
        bytes + GROWTH_BYTES
    }

    /// Encrypts bytes and binds them to others: nonce, then the encrypted bytes, then the tag.
    pub(crate) fn seal(&self, bound: &[u8], mut bytes: Vec<u8>) -> Result<Vec<u8>> {
        let mut nonce = [0; NONCE_LEN];
        SystemRandom::new().fill(&mut nonce).map_err(|_| no_randomness())?;
        let mut sealed = Vec::with_capacity(Key::sealed_bytes(bytes.len()));
        sealed.extend_from_slice(&nonce);
        let nonce = Nonce::assume_unique_for_key(nonce);
        let done = self.0.aead.seal_in_place_append_tag(nonce, Aad::from(bound), &mut bytes);
        done.map_err(|_| Error::new(Code::Io, "encrypting a part failed"))?;
        sealed.extend_from_slice(&bytes);
        Ok(sealed)
    }

    /// The inverse; `None` for what was not made so.
    pub(crate) fn open(&self, bound: &[u8], mut sealed: Vec<u8>) -> Option<Vec<u8>> {
        let (nonce, _) = sealed.split_first_chunk()?;
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let aad = Aad::from(bound);
        let opened = self.0.aead.open_within(nonce, aad, &mut sealed, NONCE_LEN..).ok()?;
        let bytes = opened.len();
        sealed.truncate(bytes);
        Some(sealed)
    }
}

fn no_randomness() -> Error {
    Error::new(Code::Io, "this machine gives no randomness")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn key_files_are_made_and_read_and_refused_when_others_read_them() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("key");
        let made = Key::make(&file).unwrap();
        assert_eq!(Key::read(&file).unwrap().id(), made.id());
        assert!(Key::make(&file).is_err(), "one that is there is not written over");
        assert!(format!("{made:?}").len() < 32);
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o640)).unwrap();
        let refused = Key::read(&file).unwrap_err();
        assert!(refused.code == Code::Access && refused.text.contains("chmod 600"), "{refused}");
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
        std::fs::write(&file, "hush").unwrap();
        let refused = Key::read(&file).unwrap_err();
        assert!(refused.code == Code::Inval && !refused.text.contains("hush"), "{refused}");
    }

    /// The first case of AES-256-GCM with all zeros that everybody computes.
    #[test]
    fn golden_bytes_of_what_is_encrypted() {
        let key = Key::new([0; 32]);
        let mut sealed = vec![0; NONCE_LEN];
        let known = "cea7403d4d606b6e074ec5d3baf39d18d0d1c8a799996bf0265b98b5d48ab919";
        sealed.extend_from_slice(&from_hex(known).unwrap());
        assert_eq!(key.open(b"", sealed.clone()).unwrap(), [0; 16]);
        assert_eq!(key.open(b"x", sealed), None);
        assert_eq!(to_hex(&key.id()).len(), 14);
    }
}
