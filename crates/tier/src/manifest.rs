//! What describes copies in a store: a *manifest* names the parts of one version of a file, a *tree* all that a container
//! held. Both are JSON, so that they can be read without this program.
//!
//! A tree is lines: a head, an entry each, and an end with their number and the SHA-256 of all lines before it. What is
//! behind a name (`docs/tier.md`) never changes; unknown fields are let pass. A manifest with parts that are compressed or encrypted has a mark of
//! its own, so that who knows the first kind only does not take it for one.

use crate::part::{self, Encoding};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use types::{Code, Error, Result};

/// Mark of a manifest.
pub const FILE_FORMAT: &str = "azekura-tier-file-1";
/// Mark of a manifest with encoded parts.
pub const FILE_FORMAT_ENCODED: &str = "azekura-tier-file-2";
/// Mark of a tree.
pub const TREE_FORMAT: &str = "azekura-tier-tree-1";

/// One version of a file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FileManifest {
    pub format: String,
    /// UUID of the container it was made in.
    pub container: String,
    /// The file's object there.
    pub object: String,
    pub version: u64,
    /// Size of the file, bytes.
    pub size: u64,
    /// Size of each part's bytes but the last one's.
    pub part_bytes: u64,
    pub parts: Vec<PartName>,
}

/// A part of a file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PartName {
    pub key: String,
    /// Of the file, bytes.
    pub bytes: u64,
    /// Of these bytes, hex; of an encrypted part of what the store has behind its header.
    pub sha256: String,
    /// How they are encoded; none: as they are. See [`crate::part`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encoding: Option<String>,
    /// Of an encrypted part the id of its key, hex.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_id: Option<String>,
}

impl FileManifest {
    /// The mark of a manifest with these parts.
    pub fn format_of(parts: &[PartName]) -> &'static str {
        match parts.iter().any(|part| part.encoding.is_some()) {
            true => FILE_FORMAT_ENCODED,
            false => FILE_FORMAT,
        }
    }

    /// The manifest's bytes and their sum.
    pub fn encode(&self) -> (Vec<u8>, [u8; 32]) {
        let raw = serde_json::to_vec(self).unwrap_or_default();
        let sum = part::sum(&raw);
        (raw, sum)
    }

    /// The inverse. `Csum` for other bytes than those with this sum, if one is given.
    pub fn decode(raw: &[u8], wanted: Option<&[u8; 32]>) -> Result<FileManifest> {
        if wanted.is_some_and(|wanted| part::sum(raw) != *wanted) {
            return Err(damaged("a manifest has other bytes than were put there"));
        }
        let manifest: FileManifest =
            serde_json::from_slice(raw).map_err(|_| damaged("a manifest cannot be understood"))?;
        let count = match manifest.part_bytes {
            0 => return Err(damaged("a manifest has parts of no bytes")),
            bytes => manifest.size.div_ceil(bytes),
        };
        match manifest.format.as_str() {
            FILE_FORMAT | FILE_FORMAT_ENCODED => {}
            other if other.starts_with("azekura-tier-file-") => {
                let text =
                    format!("a manifest has format '{other}', which this version does not know");
                return Err(Error::new(Code::Version, text));
            }
            _ => return Err(damaged("a manifest is none")),
        }
        let is_whole = manifest.format == FileManifest::format_of(&manifest.parts)
            && manifest.parts.len() as u64 == count
            && manifest.parts.iter().enumerate().all(|(at, part)| {
                let from = at as u64 * manifest.part_bytes;
                let bytes = manifest.part_bytes.min(manifest.size - from);
                part.bytes == bytes && part.sum().is_ok() && part.encoding().is_ok()
            });
        is_whole.then_some(manifest).ok_or_else(|| damaged("a manifest contradicts itself"))
    }
}

impl PartName {
    /// How its bytes are encoded. `Version` for a way that is not known.
    pub fn encoding(&self) -> Result<Encoding> {
        Encoding::of_word(self.encoding.as_deref())
    }

    /// The sum of its bytes.
    pub fn sum(&self) -> Result<[u8; 32]> {
        from_hex(&self.sha256).ok_or_else(|| damaged("a manifest has a sum that is none"))
    }
}

/// First line of a tree.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TreeHead {
    pub format: String,
    /// UUID of the container.
    pub container: String,
    /// Its name then.
    pub label: String,
    /// When it was made, nanoseconds since 1970.
    pub made_ns: u64,
    /// The directory, if it says of one only what is in it; written as paths of entries are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directory: Option<String>,
}

/// What is at a path.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TreeEntry {
    /// Path in the container, from `/`; of a name that is not UTF-8, base64 after `base64:`.
    pub path: String,
    pub kind: EntryKind,
    /// Permission bits.
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub mtime_ns: i64,
    /// Of a symbolic link; written as `path` is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// The same for all names of a file with several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object: Option<String>,
    /// Extended attributes, base64.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub xattrs: BTreeMap<String, String>,
    /// Of a file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// Of a file: key of its manifest, and the SHA-256 of that, hex. None: it had no copy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manifest: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manifest_sha256: Option<String>,
}

/// Kinds of entries that a tree keeps.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EntryKind {
    Directory,
    File,
    Symlink,
}

#[derive(Serialize, Deserialize)]
struct TreeEnd {
    end: u64,
    sha256: String,
}

/// A tree's bytes.
pub fn encode_tree(head: &TreeHead, entries: &[TreeEntry]) -> Vec<u8> {
    let mut raw = serde_json::to_vec(head).unwrap_or_default();
    raw.push(b'\n');
    for entry in entries {
        raw.extend(serde_json::to_vec(entry).unwrap_or_default());
        raw.push(b'\n');
    }
    let end = TreeEnd { end: entries.len() as u64, sha256: to_hex(&part::sum(&raw)) };
    raw.extend(serde_json::to_vec(&end).unwrap_or_default());
    raw.push(b'\n');
    raw
}

/// A tree's head alone, from the first of its bytes; nothing tells whether they are what was put there. `None` when it does not end in them, or is
/// no head.
pub fn decode_tree_head(raw: &[u8]) -> Option<TreeHead> {
    let (head, _) = raw.split_at(raw.iter().position(|&byte| byte == b'\n')?);
    serde_json::from_slice(head).ok().filter(|head: &TreeHead| head.format == TREE_FORMAT)
}

/// The inverse. `Csum` for anything that is not a whole tree.
pub fn decode_tree(raw: &[u8]) -> Result<(TreeHead, Vec<TreeEntry>)> {
    let body = raw.strip_suffix(b"\n").ok_or_else(|| damaged("a tree is cut off"))?;
    let at = body.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
    let (before, last) = body.split_at(at);
    let end: TreeEnd = serde_json::from_slice(last).map_err(|_| damaged("a tree is cut off"))?;
    if from_hex(&end.sha256) != Some(part::sum(before)) {
        return Err(damaged("a tree has other bytes than were put there"));
    }
    let unknown = |_| damaged("a tree cannot be understood");
    let mut lines = before.split(|&byte| byte == b'\n').filter(|line| !line.is_empty());
    let head = lines.next().ok_or_else(|| damaged("a tree is empty"))?;
    let head: TreeHead = serde_json::from_slice(head).map_err(unknown)?;
    let entries = lines.map(serde_json::from_slice).collect::<Result<Vec<TreeEntry>, _>>();
    let entries = entries.map_err(unknown)?;
    if head.format != TREE_FORMAT || entries.len() as u64 != end.end {
        return Err(damaged("a tree contradicts itself"));
    }
    Ok((head, entries))
}

/// Bytes of a name as text.
pub fn to_text(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.starts_with("base64:") => text.to_string(),
        _ => format!("base64:{}", STANDARD.encode(bytes)),
    }
}

/// The inverse of [`to_text`].
pub fn from_text(text: &str) -> Result<Vec<u8>> {
    match text.strip_prefix("base64:") {
        Some(encoded) => {
            STANDARD.decode(encoded).map_err(|_| damaged("a tree has a name that is none"))
        }
        None => Ok(text.as_bytes().to_vec()),
    }
}

pub(crate) fn to_base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

pub(crate) fn from_base64(text: &str) -> Result<Vec<u8>> {
    STANDARD.decode(text).map_err(|_| damaged("a tree has a value that is none"))
}

pub(crate) fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(crate) fn from_hex(text: &str) -> Option<[u8; 32]> {
    let text: &[u8; 64] = text.as_bytes().try_into().ok()?;
    let digit = |byte: u8| (byte as char).to_digit(16).map(|digit| digit as u8);
    let mut bytes = [0; 32];
    for (byte, pair) in bytes.iter_mut().zip(text.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}

fn damaged(what: &str) -> Error {
    Error::new(Code::Csum, format!("{what}; the tier is damaged"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest() -> FileManifest {
        let part = |bytes: u64, key: &str| PartName {
            key: key.into(),
            bytes,
            sha256: to_hex(&part::sum(key.as_bytes())),
            encoding: None,
            key_id: None,
        };
        FileManifest {
            format: FILE_FORMAT.into(),
            container: "c".into(),
            object: "o".into(),
            version: 3,
            size: 15,
            part_bytes: 10,
            parts: vec![part(10, "p0"), part(5, "p1")],
        }
    }

    #[test]
    fn golden_text_of_a_manifest_and_a_tree() {
        // Others read these: a change needs a new mark and a reader of this one.
        let (raw, sum) = manifest().encode();
        let want = concat!(
            r#"{"format":"azekura-tier-file-1","container":"c","object":"o","version":3,"size":15,"part_bytes":10,"#,
            r#""parts":[{"key":"p0","bytes":10,"#,
            r#""sha256":"169b5b823c62b64ca7e5f8456a13c8d5d06f4ece522a58bc2b8a784dcf3609b0"},"#,
            r#"{"key":"p1","bytes":5,"#,
            r#""sha256":"f64551fcd6f07823cb87971cfb91446425da18286b3ab1ef935e0cbd7a69f68a"}]}"#,
        );
        assert_eq!(String::from_utf8(raw.clone()).unwrap(), want);
        assert_eq!(FileManifest::decode(&raw, Some(&sum)).unwrap(), manifest());
        let mut encoded = manifest();
        encoded.parts[0].encoding = Some("zstd".into());
        encoded.parts[1].encoding = Some("zstd+aes-256-gcm".into());
        encoded.parts[1].key_id = Some("01020304050607".into());
        encoded.format = FILE_FORMAT_ENCODED.into();
        let (raw, sum) = encoded.encode();
        let text = String::from_utf8(raw.clone()).unwrap();
        assert!(text.starts_with(r#"{"format":"azekura-tier-file-2","container":"c","#), "{text}");
        assert!(text.contains(r#"3609b0","encoding":"zstd"},{"key":"p1","#), "{text}");
        let end = r#"7a69f68a","encoding":"zstd+aes-256-gcm","key_id":"01020304050607"}]}"#;
        assert!(text.ends_with(end), "{text}");
        assert_eq!(FileManifest::decode(&raw, Some(&sum)).unwrap(), encoded);
        let head = TreeHead {
            format: TREE_FORMAT.into(),
            container: "c".into(),
            label: "home".into(),
            made_ns: 1,
            directory: None,
        };
        let entry = TreeEntry {
            path: "/a".into(),
            kind: EntryKind::Symlink,
            mode: 0o777,
            uid: 1,
            gid: 2,
            mtime_ns: -3,
            target: Some(to_text(b"\xff")),
            object: None,
            xattrs: BTreeMap::new(),
            size: None,
            manifest: None,
            manifest_sha256: None,
        };
        let raw = encode_tree(&head, std::slice::from_ref(&entry));
        let text = String::from_utf8(raw.clone()).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[0],
            r#"{"format":"azekura-tier-tree-1","container":"c","label":"home","made_ns":1}"#
        );
        assert_eq!(decode_tree_head(&raw).unwrap(), head);
        assert_eq!(decode_tree_head(&raw[..lines[0].len()]), None);
        let of_one = TreeHead { directory: Some("/d".into()), ..head.clone() };
        let raw_of_one = encode_tree(&of_one, &[]);
        let start = br#"{"format":"azekura-tier-tree-1","container":"c","label":"home","made_ns":1,"directory":"/d"}"#;
        assert!(raw_of_one.starts_with(start));
        assert_eq!(decode_tree(&raw_of_one).unwrap().0, of_one);
        assert_eq!(
            lines[1],
            r#"{"path":"/a","kind":"symlink","mode":511,"uid":1,"gid":2,"mtime_ns":-3,"target":"base64:/w=="}"#
        );
        assert!(lines[2].starts_with(r#"{"end":1,"sha256":""#), "{text}");
        assert_eq!(decode_tree(&raw).unwrap(), (head, vec![entry]));
        for at in 0..raw.len() {
            assert!(decode_tree(&raw[..at]).is_err(), "cut at {at}");
            let mut changed = raw.clone();
            changed[at] ^= 1;
            assert!(decode_tree(&changed).is_err(), "byte {at}");
        }
    }

    #[test]
    fn manifests_that_contradict_themselves_are_refused() {
        let refused = |change: fn(&mut FileManifest)| {
            let mut changed = manifest();
            change(&mut changed);
            FileManifest::decode(&changed.encode().0, None).unwrap_err().code
        };
        assert_eq!(refused(|m| m.size = 16), Code::Csum);
        assert_eq!(refused(|m| m.size = u64::MAX), Code::Csum);
        assert_eq!(refused(|m| m.part_bytes = 0), Code::Csum);
        assert_eq!(refused(|m| m.format = "x".into()), Code::Csum);
        assert_eq!(refused(|m| m.format = "azekura-tier-file-3".into()), Code::Version);
        assert_eq!(refused(|m| m.parts[0].encoding = Some("zstd".into())), Code::Csum);
        let lz4 = |m: &mut FileManifest| {
            m.format = FILE_FORMAT_ENCODED.into();
            m.parts[0].encoding = Some("lz4".into());
        };
        assert_eq!(refused(lz4), Code::Csum);
        assert_eq!(refused(|m| m.parts[0].sha256 = "ab".into()), Code::Csum);
        assert_eq!(refused(|m| drop(m.parts.pop())), Code::Csum);
        let (raw, sum) = manifest().encode();
        assert!(FileManifest::decode(&raw[1..], Some(&sum)).is_err());
    }

    #[test]
    fn names_of_any_bytes_come_back() {
        for name in [&b"/a b"[..], b"/\xff\x00", b"base64:eA==", b""] {
            assert_eq!(from_text(&to_text(name)).unwrap(), name);
        }
    }
}
