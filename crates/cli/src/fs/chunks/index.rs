//! `index.jsonl` of an export: one JSON object a line. The first says what it is; each further one is an entry, directories
//! before what is in them.
//!
//! Paths begin with `/`, the tree itself is `/`. What is not UTF-8 is written in hexadecimal digits, with `hex` true.

use crate::fs::copy::side::Meta;
use dfs::FileKind;
use serde::{Deserialize, Serialize};
use types::{Code, Error, Result};

/// Name of the list in an export.
pub const NAME: &str = "index.jsonl";
const FORMAT: &str = "azekura-s2-chunks";
/// 1: the first.
const VERSION: u32 = 1;

#[derive(Serialize, Deserialize)]
struct First {
    format: String,
    version: u32,
    /// Entries that follow.
    entries: u64,
}

/// Bytes that are text most of the time.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Text {
    text: String,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    hex: bool,
}

impl Text {
    fn of(raw: &[u8]) -> Text {
        match std::str::from_utf8(raw) {
            Ok(text) => Text { text: text.into(), hex: false },
            Err(_) => {
                Text { text: raw.iter().map(|byte| format!("{byte:02x}")).collect(), hex: true }
            }
        }
    }

    fn raw(&self) -> Option<Vec<u8>> {
        if !self.hex {
            return Some(self.text.clone().into_bytes());
        }
        let digits: Option<Vec<u8>> =
            self.text.chars().map(|digit| digit.to_digit(16).map(|digit| digit as u8)).collect();
        let (pairs, odd) = digits.as_ref()?.as_chunks::<2>();
        odd.is_empty().then(|| pairs.iter().map(|[high, low]| high << 4 | low).collect())
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Dir,
    File,
    Symlink,
}

/// An entry as it is written; which fields it has depends on its kind.
#[derive(Serialize, Deserialize)]
struct Line {
    path: Text,
    kind: Kind,
    mode: u32,
    uid: u32,
    gid: u32,
    mtime_ns: i64,
    /// Of a file, bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    size: Option<u64>,
    /// Of a symbolic link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    target: Option<Text>,
    /// User attributes: names and values.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    xattrs: Vec<(Text, Text)>,
}

/// What the tree has.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Begins with `/`; without one at its end.
    pub path: Vec<u8>,
    pub meta: Meta,
    /// Of a symbolic link; else empty.
    pub target: Vec<u8>,
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

/// The whole list.
pub fn encode(entries: &[Entry]) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    let mut line = |json: serde_json::Result<String>| -> Result<()> {
        let json = json.map_err(|error| Error::new(Code::Io, format!("{NAME}: {error}")))?;
        out.extend_from_slice(json.as_bytes());
        out.push(b'\n');
        Ok(())
    };
    let first = First { format: FORMAT.into(), version: VERSION, entries: entries.len() as u64 };
    line(serde_json::to_string(&first))?;
    for entry in entries {
        let kind = match entry.meta.kind {
            FileKind::Directory => Kind::Dir,
            FileKind::Symlink => Kind::Symlink,
            _ => Kind::File,
        };
        line(serde_json::to_string(&Line {
            path: Text::of(&entry.path),
            kind,
            mode: entry.meta.mode,
            uid: entry.meta.uid,
            gid: entry.meta.gid,
            mtime_ns: entry.meta.mtime_ns,
            size: (kind == Kind::File).then_some(entry.meta.size),
            target: (kind == Kind::Symlink).then(|| Text::of(&entry.target)),
            xattrs: entry
                .xattrs
                .iter()
                .map(|(name, value)| (Text::of(name), Text::of(value)))
                .collect(),
        }))?;
    }
    Ok(out)
}

/// Reads a list. `Inval` for what is none, or names what lies outside the tree; `Version` for a later one.
pub fn decode(raw: &[u8]) -> Result<Vec<Entry>> {
    let bad = |at: usize, why: &str| Error::inval(format!("{NAME}, line {}: {why}", at + 1));
    let mut lines = raw.split(|&byte| byte == b'\n').enumerate();
    let first: First = lines
        .next()
        .and_then(|(_, line)| serde_json::from_slice(line).ok())
        .filter(|first: &First| first.format == FORMAT)
        .ok_or_else(|| bad(0, "this is no list of an export"))?;
    if first.version != VERSION {
        let text = format!("{NAME}: version {}, this program reads {VERSION}", first.version);
        return Err(Error::new(Code::Version, text));
    }
    let mut entries = Vec::new();
    for (at, line) in lines.filter(|(_, line)| !line.is_empty()) {
        let line: Line =
            serde_json::from_slice(line).map_err(|error| bad(at, &error.to_string()))?;
        entries.push(entry(line).map_err(|why| bad(at, why))?);
    }
    if entries.len() as u64 != first.entries {
        let text = format!("it has {} entries instead of {}", entries.len(), first.entries);
        return Err(Error::inval(format!("{NAME}: {text}; it was cut or changed")));
    }
    Ok(entries)
}

fn entry(line: Line) -> std::result::Result<Entry, &'static str> {
    const DIGITS: &str = "these are no hexadecimal digits";
    let path = line.path.raw().ok_or(DIGITS)?;
    let is_plain = |name: &[u8]| !name.is_empty() && name != b"." && name != b"..";
    let is_inside = match path.strip_prefix(b"/") {
        Some(b"") => line.kind == Kind::Dir,
        Some(rest) => rest.split(|&byte| byte == b'/').all(is_plain) && !path.contains(&0),
        None => false,
    };
    if !is_inside {
        return Err("the path leads out of the tree, or is none");
    }
    let kind = match line.kind {
        Kind::Dir => FileKind::Directory,
        Kind::File => FileKind::Regular,
        Kind::Symlink => FileKind::Symlink,
    };
    if (line.kind == Kind::File) != line.size.is_some()
        || (line.kind == Kind::Symlink) != line.target.is_some()
    {
        return Err("a file has a size, a symbolic link a target, and nothing else has them");
    }
    let mut xattrs = Vec::new();
    for (name, value) in &line.xattrs {
        xattrs.push((name.raw().ok_or(DIGITS)?, value.raw().ok_or(DIGITS)?));
    }
    let target = match &line.target {
        Some(target) => target.raw().ok_or(DIGITS)?,
        None => Vec::new(),
    };
    let meta = Meta {
        kind,
        mode: line.mode & 0o7777,
        uid: line.uid,
        gid: line.gid,
        size: line.size.unwrap_or(0),
        mtime_ns: line.mtime_ns,
        nlink: 1,
        identity: (0, 0),
    };
    Ok(Entry { path, meta, target, xattrs })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some(path: &[u8], kind: FileKind) -> Entry {
        let meta = Meta {
            kind,
            mode: 0o640,
            uid: 1,
            gid: 2,
            size: if kind == FileKind::Regular { 70_000_000 } else { 0 },
            mtime_ns: -5,
            nlink: 1,
            identity: (0, 0),
        };
        let target = if kind == FileKind::Symlink { b"../x".to_vec() } else { Vec::new() };
        Entry { path: path.to_vec(), meta, target, xattrs: Vec::new() }
    }

    #[test]
    fn lists_come_back_with_names_of_any_bytes() {
        let mut all = vec![
            some(b"/", FileKind::Directory),
            some(b"/a b\n\"c", FileKind::Regular),
            some(b"/\xff\x00f".split(|byte| *byte == 0).next().unwrap(), FileKind::Symlink),
        ];
        all[1].xattrs.push((b"user.k".to_vec(), vec![0, 255]));
        let raw = encode(&all).unwrap();
        assert_eq!(raw.iter().filter(|&&byte| byte == b'\n').count(), 4);
        assert_eq!(decode(&raw).unwrap(), all);
    }

    #[test]
    fn lists_that_are_cut_foreign_or_lead_outside_are_refused() {
        let whole = encode(&[some(b"/", FileKind::Directory), some(b"/f", FileKind::Regular)]);
        let whole = String::from_utf8(whole.unwrap()).unwrap();
        let refused = |text: &str, word: &str| {
            let error = decode(text.as_bytes()).unwrap_err();
            assert!(error.to_string().contains(word), "{error}");
        };
        refused("", "no list");
        refused("{}\n", "no list");
        refused(&whole.replace("\"version\":1", "\"version\":2"), "version 2");
        refused(&whole.lines().take(2).collect::<Vec<_>>().join("\n"), "1 entries instead of 2");
        for path in ["f", "/../f", "/a/../f", "//f", "/f/", "/.", ""] {
            refused(&whole.replace("\"/f\"", &format!("\"{path}\"")), "line 3: the path");
        }
        refused(&whole.replace("\"kind\":\"file\"", "\"kind\":\"dir\""), "line 3: a file has");
        refused(&whole.replace("\"/f\"", "\"xy\",\"hex\":true"), "hexadecimal");
    }
}
