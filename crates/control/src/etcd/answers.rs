//! What etcd's JSON gateway answers: numbers are texts, keys and values are base64, what is zero or
//! empty is left out.

use crate::catalog::{Revision, Versioned};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use types::{Code, Error, Result};

/// Parses an answer. `Proto` when it is none of this kind.
pub fn parse<T: DeserializeOwned>(raw: &[u8]) -> Result<T> {
    // A list would be taken too: for the fields in order, those that are missing as none.
    let parsed = match raw.trim_ascii_start().first() {
        Some(b'{') => serde_json::from_slice(raw),
        _ => Err(serde_json::Error::custom("it is no object")),
    };
    parsed.map_err(|error| Error::new(Code::Proto, format!("not an answer of etcd: {error}")))
}

/// Bytes as they go into a request.
pub fn text_of(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

fn bytes<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
    let text = std::borrow::Cow::<str>::deserialize(from)?;
    STANDARD.decode(&*text).map_err(D::Error::custom)
}

/// A number, as a text or as it is.
fn number<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    match Value::deserialize(from)? {
        Value::String(text) => text.parse().map_err(D::Error::custom),
        Value::Number(number) => {
            number.as_u64().ok_or_else(|| D::Error::custom("not a whole number"))
        }
        _ => Err(D::Error::custom("not a number")),
    }
}

/// What every answer says of where it comes from.
#[derive(Deserialize, Default)]
#[serde(default)]
pub struct Header {
    /// Identity of the cluster, a number.
    pub cluster_id: String,
    /// The store's, when it answered.
    #[serde(deserialize_with = "number")]
    pub revision: u64,
}

/// Any answer, as far as all are alike.
#[derive(Deserialize)]
pub struct AnyAnswer {
    #[serde(default)]
    pub header: Header,
}

/// A key with its value.
#[derive(Deserialize)]
pub struct Entry {
    #[serde(deserialize_with = "bytes")]
    pub key: Vec<u8>,
    #[serde(deserialize_with = "number")]
    mod_revision: u64,
    #[serde(default, deserialize_with = "bytes")]
    pub value: Vec<u8>,
}

impl Entry {
    pub fn revision(&self) -> Revision {
        Revision(self.mod_revision)
    }

    pub fn into_versioned(self) -> Versioned {
        Versioned { revision: self.revision(), bytes: self.value }
    }
}

/// Keys that were asked for.
#[derive(Deserialize, Default)]
#[serde(default)]
pub struct Found {
    pub header: Header,
    pub kvs: Vec<Entry>,
    /// There are more than the limit that was asked for.
    pub more: bool,
}

/// How a transaction went.
#[derive(Deserialize, Default)]
#[serde(default)]
pub struct Outcome {
    pub header: Header,
    pub succeeded: bool,
    responses: Vec<Part>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Part {
    response_range: Option<Found>,
}

impl Outcome {
    /// What the questions among its parts found, one entry each.
    pub fn entries(self) -> Vec<Option<Entry>> {
        let found = self.responses.into_iter().filter_map(|part| part.response_range);
        found.map(|found| found.kvs.into_iter().next()).collect()
    }
}

/// A lease: made, or kept.
#[derive(Deserialize, Default)]
#[serde(default)]
pub struct Lease {
    #[serde(rename = "ID", deserialize_with = "number")]
    pub id: u64,
    /// Seconds left; 0: there is no such lease.
    #[serde(rename = "TTL", deserialize_with = "number")]
    pub seconds: u64,
}

/// Answer of a stream with one message.
#[derive(Deserialize)]
pub struct Kept {
    pub result: Lease,
}

/// Who one is from now on.
#[derive(Deserialize)]
pub struct Login {
    pub token: String,
}

/// Why not.
#[derive(Deserialize, Default)]
#[serde(default)]
pub struct Refusal {
    /// As gRPC counts them.
    pub code: u32,
    pub error: String,
}

/// Parses bytes as an answer of every kind, for fuzzing.
pub fn parse_all(raw: &[u8]) {
    let _ = parse::<AnyAnswer>(raw);
    if let Ok(found) = parse::<Found>(raw) {
        found.kvs.into_iter().for_each(|entry| drop(entry.into_versioned()));
    }
    let _ = parse::<Outcome>(raw).map(Outcome::entries);
    let _ = parse::<Lease>(raw);
    let _ = parse::<Kept>(raw);
    let _ = parse::<Login>(raw);
    let _ = parse::<Refusal>(raw);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read_as_etcd_3_4_gives_them() {
        let raw = br#"{"header":{"cluster_id":"10144879847569953045","member_id":"12428976124636271536",
            "revision":"2","raft_term":"2"},"responses":[{"response_put":{"header":{"revision":"2"}}},
            {"response_range":{"header":{"revision":"2"},"kvs":[{"key":"YQ==","create_revision":"2",
            "mod_revision":"2","version":"1","value":"YWI="}],"count":"1"}},{"response_range":{}}]}"#;
        let outcome: Outcome = parse(raw).unwrap();
        assert!(!outcome.succeeded);
        assert_eq!(outcome.header.revision, 2);
        let mut entries = outcome.entries();
        assert!(entries.pop().unwrap().is_none());
        let entry = entries.pop().unwrap().unwrap();
        assert_eq!(entry.key, b"a");
        assert_eq!(
            entry.into_versioned(),
            Versioned { revision: Revision(2), bytes: b"ab".into() }
        );
        let gone: Kept = parse(br#"{"result":{"header":{"revision":"1"},"ID":"77"}}"#).unwrap();
        assert_eq!((gone.result.id, gone.result.seconds), (77, 0));
        for bad in ["", "[]", r#"{"kvs":[{"key":"?","mod_revision":"1"}]}"#, r#"{"kvs":[{}]}"#] {
            assert_eq!(
                parse::<Found>(bad.as_bytes()).err().map(|error| error.code),
                Some(Code::Proto)
            );
        }
    }
}
