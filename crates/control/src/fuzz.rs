//! Entry points for fuzzing: what decodes bytes of the catalog's files, and of etcd. None may panic.

use crate::copies::choose;
use crate::{Change, frame};

/// Two files, one behind the other: two bytes say how long the first is.
pub fn catalog_files(bytes: &[u8]) {
    let Some((length, rest)) = bytes.split_first_chunk::<2>() else { return };
    let (first, second) = rest.split_at(rest.len().min(u16::from_le_bytes(*length) as usize));
    if let Ok(chosen) = choose(["first", "second"], [Some(first), Some(second)]) {
        assert!(chosen.copy.is_some() && chosen.found.revision.is_some());
    }
    let _ = choose(["first", "second"], [Some(first), None]);
}

/// Two files with a commit each.
pub fn catalog_seeds() -> Vec<Vec<u8>> {
    let mut entries = frame::Entries::new();
    frame::apply(&mut entries, 1, vec![Change::Put("key".into(), b"value".to_vec())]);
    let file = [
        frame::encode_whole(1, &entries).unwrap_or_default(),
        frame::encode_changes(2, &[Change::Delete("key".into())]).unwrap_or_default(),
        vec![0; 40],
    ]
    .concat();
    vec![[&(file.len() as u16).to_le_bytes()[..], &file, &file].concat()]
}

/// An answer of etcd, or of whoever is there instead.
pub fn etcd_answer(bytes: &[u8]) {
    crate::etcd::parse_all(bytes);
}

/// An answer of each kind.
pub fn etcd_seeds() -> Vec<Vec<u8>> {
    [
        r#"{"header":{"cluster_id":"1","revision":"2"},"kvs":[{"key":"YQ==","mod_revision":"2","value":"YWI="}],"more":true}"#,
        r#"{"header":{"revision":"2"},"succeeded":true,"responses":[{"response_range":{"kvs":[{"key":"YQ==","mod_revision":"2"}]}},{"response_put":{}}]}"#,
        r#"{"result":{"header":{"revision":"1"},"ID":"77","TTL":"10"}}"#,
        r#"{"header":{"revision":"1"},"token":"a.1"}"#,
        r#"{"error":"etcdserver: request is too large","code":3}"#,
    ]
    .map(|text| text.as_bytes().to_vec())
    .to_vec()
}
