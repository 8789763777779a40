//! Entry points for fuzzing: what decodes bytes of the catalog's files. None may panic.

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
