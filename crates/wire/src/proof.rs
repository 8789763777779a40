//! Proofs that both ends of a connection know one secret, without sending it.
//!
//! Each is an HMAC with SHA-256, keyed with the secret, over a label for the side that makes it, the engine's random bytes, and all
//! that the caller has said of itself, its own random bytes among it. So a proof is good for one connection, for what was
//! said on it, and for one side: none can be used again, for another service, or be sent back to who made it.
//!
//! Who listens learns nothing that helps to connect; but may try out guesses against what was heard, so secrets have to be long and
//! random ones. Who can change what passes may still let two ends prove themselves to each other and speak for one of them
//! afterwards: what follows is not encrypted.

use crate::hello::{Nonce, Proof};
use hmac::{Hmac, Mac};
use sha2::Sha256;

/// Of one length, and none begins another proof's message.
const CALLER: &[u8; 16] = b"azekura caller 1";
const ENGINE: &[u8; 16] = b"azekura engine 1";

fn mac(secret: &[u8], label: &[u8; 16], challenge: &Nonce, hello: &[u8]) -> Hmac<Sha256> {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret).expect("a key may be of any length");
    mac.update(label);
    mac.update(challenge);
    mac.update(hello);
    mac
}

/// What a caller that knows `secret` shows: `hello` is what it says, encoded.
pub fn of_caller(secret: &[u8], challenge: &Nonce, hello: &[u8]) -> Proof {
    mac(secret, CALLER, challenge, hello).finalize().into_bytes().into()
}

/// What an engine that knows `secret` answers to it.
pub fn of_engine(secret: &[u8], challenge: &Nonce, hello: &[u8]) -> Proof {
    mac(secret, ENGINE, challenge, hello).finalize().into_bytes().into()
}

/// True when a caller has shown that it knows `secret`. Takes as long wherever the proofs differ.
pub fn is_of_caller(proof: &Proof, secret: &[u8], challenge: &Nonce, hello: &[u8]) -> bool {
    mac(secret, CALLER, challenge, hello).verify_slice(proof).is_ok()
}

/// The same of an engine.
pub fn is_of_engine(proof: &Proof, secret: &[u8], challenge: &Nonce, hello: &[u8]) -> bool {
    mac(secret, ENGINE, challenge, hello).verify_slice(proof).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHALLENGE: Nonce = [7; 32];

    /// The same bytes as another implementation makes (Python's `hmac`).
    #[test]
    fn proofs_are_those_of_any_hmac() {
        let hex = |proof: Proof| proof.map(|byte| format!("{byte:02x}")).concat();
        assert_eq!(
            hex(of_caller(b"secret", &CHALLENGE, b"hello")),
            "1bcde927032148b08256f165b83a5bb5fae64fcf02dea839cf0ad2a97dbc0540"
        );
        assert_eq!(
            hex(of_engine(b"", &CHALLENGE, b"")),
            "9637c9637e2b07f87f01069f19bfb582b354e3e584458d617056df27782e4c21"
        );
    }

    #[test]
    fn a_proof_is_good_for_one_secret_one_side_and_one_exchange() {
        let proof = of_caller(b"secret", &CHALLENGE, b"hello");
        assert!(is_of_caller(&proof, b"secret", &CHALLENGE, b"hello"));
        let mut other = CHALLENGE;
        other[31] ^= 1;
        for (secret, challenge, hello) in [
            (&b"secret"[..], &CHALLENGE, &b"hell"[..]),
            (b"secret", &other, b"hello"),
            (b"secre", &CHALLENGE, b"hello"),
            (b"secretl", &CHALLENGE, b"hello"),
            (b"", &CHALLENGE, b"hello"),
        ] {
            assert!(!is_of_caller(&proof, secret, challenge, hello));
        }
        // Sent back it proves nothing.
        assert!(!is_of_engine(&proof, b"secret", &CHALLENGE, b"hello"));
        let answer = of_engine(b"secret", &CHALLENGE, b"hello");
        assert!(is_of_engine(&answer, b"secret", &CHALLENGE, b"hello"));
        assert!(!is_of_caller(&answer, b"secret", &CHALLENGE, b"hello"));
        for bit in 0..256 {
            let mut flipped = proof;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(!is_of_caller(&flipped, b"secret", &CHALLENGE, b"hello"));
        }
    }
}
