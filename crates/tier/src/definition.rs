//! What a tier is: where, and how it is reached.

use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use types::limits::check_label;
use types::{Error, Result, size};

/// Size of parts unless one is given, bytes.
pub const PART_BYTES_DEFAULT: u64 = 16 << 20;
/// Sizes of parts that may be given, bytes.
const PART_BYTES: std::ops::RangeInclusive<u64> = 8 << 20..=64 << 20;
/// Levels of zstd that may be given.
const ZSTD_LEVELS: std::ops::RangeInclusive<i32> = 1..=19;
/// Level of zstd unless one is given.
pub const ZSTD_LEVEL_DEFAULT: i32 = 3;
/// Attribute of the system that holds a definition: this and the tier's name.
const ATTR: &str = "tier/";
/// Attribute of a container that names its tier.
pub const ATTACHED: &str = "azekura.tier";
/// The same for the tiers it had before and may have copies in, with spaces in between.
pub const EARLIER: &str = "azekura.tier.earlier";

/// A tier. Holds no secret: credentials are named, not kept.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Definition {
    /// `fs:///DIR`, `s3://BUCKET/PREFIX`, `swift://CONTAINER/PREFIX`, `azblob://CONTAINER/PREFIX`,
    /// `gcs://BUCKET/PREFIX`, `webdav://HOST/PATH`.
    pub url: String,
    /// Where the store answers, a URL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// S3: the bucket is part of the host name, not of the path.
    #[serde(default)]
    pub virtual_host: bool,
    /// File with credentials, on every machine that uses the tier.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credentials: Option<PathBuf>,
    /// Size of a part, bytes.
    pub part_bytes: u64,
    /// Parts are compressed with zstd at this level.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zstd_level: Option<i32>,
    /// File with the key that parts are encrypted with, on every machine that uses the tier.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_file: Option<PathBuf>,
}

/// The kinds of stores.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Fs,
    S3,
    Swift,
    Azblob,
    Gcs,
    Webdav,
}

/// A definition's URL, taken apart.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    pub kind: Kind,
    /// Bucket, container or host; empty for a directory.
    pub bucket: String,
    /// Absolute path in it.
    pub root: String,
}

impl Definition {
    /// Checks all that can be without asking the store.
    pub fn check(&self) -> Result<()> {
        let place = self.place()?;
        if matches!(place.kind, Kind::Swift | Kind::Azblob) && self.endpoint.is_none() {
            return Err(Error::inval(format!("'{}' needs --endpoint", self.url)));
        }
        if !PART_BYTES.contains(&self.part_bytes) {
            return Err(Error::inval(format!(
                "parts of {}; give {} to {}",
                size::format(self.part_bytes),
                size::format(*PART_BYTES.start()),
                size::format(*PART_BYTES.end())
            )));
        }
        if let Some(level) = self.zstd_level.filter(|level| !ZSTD_LEVELS.contains(level)) {
            return Err(Error::inval(format!("zstd level {level}; give 1 to 19")));
        }
        for (file, what) in [(&self.credentials, "credentials"), (&self.key_file, "key file")] {
            if let Some(file) = file.as_ref().filter(|file| !file.is_absolute()) {
                return Err(Error::inval(format!(
                    "the path of the {what}, '{}', must be absolute: it is the same on all machines",
                    file.display()
                )));
            }
        }
        Ok(())
    }

    pub(crate) fn place(&self) -> Result<Place> {
        let bad = |what: &str| {
            Error::inval(format!(
                "'{}' {what} (want fs:///DIR, s3://BUCKET/PREFIX, swift://CONTAINER/PREFIX, azblob://CONTAINER/PREFIX, \
                 gcs://BUCKET/PREFIX or webdav://HOST/PATH)",
                self.url
            ))
        };
        let (scheme, rest) = self.url.split_once("://").ok_or_else(|| bad("is no URL"))?;
        if rest.contains('@') || rest.contains('?') {
            // It would be shown with the definition.
            return Err(Error::inval("a tier's URL holds no password; use --credentials FILE"));
        }
        let kind = match scheme {
            "fs" => Kind::Fs,
            "s3" => Kind::S3,
            "swift" => Kind::Swift,
            "azblob" => Kind::Azblob,
            "gcs" => Kind::Gcs,
            "webdav" => Kind::Webdav,
            _ => return Err(bad("is of a kind that is not known")),
        };
        let (bucket, path) = rest.split_once('/').unwrap_or((rest, ""));
        if (kind == Kind::Fs) != bucket.is_empty() {
            return Err(bad(if kind == Kind::Fs { "names a host" } else { "names no bucket" }));
        }
        if path.split('/').any(|part| part == "..") || (kind == Kind::Fs && path.is_empty()) {
            return Err(bad("names no place of its own"));
        }
        let root = format!("/{}", path.trim_matches('/'));
        Ok(Place { kind, bucket: bucket.to_string(), root })
    }

    /// The definition as it is kept.
    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// The inverse of [`Definition::encode`].
    pub fn decode(raw: &[u8]) -> Result<Definition> {
        let definition: Definition = serde_json::from_slice(raw).map_err(|error| {
            Error::new(types::Code::Io, format!("a tier's definition: {error}"))
        })?;
        definition.check()?;
        Ok(definition)
    }
}

/// The system's attribute that defines a tier. `Inval` for a name that is none.
pub fn attr_name(tier: &str) -> Result<String> {
    check_label(tier)?;
    Ok(format!("{ATTR}{tier}"))
}

/// The tier that an attribute of the system defines, if it does.
pub fn name_of_attr(attr: &str) -> Option<&str> {
    attr.strip_prefix(ATTR)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(url: &str) -> Definition {
        Definition {
            url: url.into(),
            endpoint: None,
            region: None,
            virtual_host: false,
            credentials: None,
            part_bytes: PART_BYTES_DEFAULT,
            zstd_level: None,
            key_file: None,
        }
    }

    #[test]
    fn places_are_taken_apart_and_nonsense_is_refused() {
        let place = |url: &str| at(url).place().map(|place| (place.kind, place.bucket, place.root));
        assert_eq!(place("fs:///a/b/").unwrap(), (Kind::Fs, "".into(), "/a/b".into()));
        assert_eq!(place("s3://b").unwrap(), (Kind::S3, "b".into(), "/".into()));
        assert_eq!(place("s3://b/x/y").unwrap(), (Kind::S3, "b".into(), "/x/y".into()));
        for bad in [
            "",
            "/a",
            "fs://",
            "fs:///",
            "fs://host/a",
            "s3:///x",
            "ftp://a/b",
            "s3://b/../c",
            "s3://u:p@b/c",
        ] {
            assert!(place(bad).is_err(), "{bad}");
        }
        assert!(at("swift://c/p").check().is_err(), "no endpoint");
        assert!(Definition { part_bytes: 1 << 20, ..at("fs:///a") }.check().is_err());
        let relative = Definition { credentials: Some("x".into()), ..at("fs:///a") };
        assert!(relative.check().is_err());
        let no_level = Definition { zstd_level: Some(20), ..at("fs:///a") };
        assert!(no_level.check().is_err());
        let relative = Definition { key_file: Some("x".into()), ..at("fs:///a") };
        assert!(relative.check().is_err());
        let whole = Definition { region: Some("r".into()), ..at("s3://b/x") };
        assert_eq!(Definition::decode(&whole.encode()).unwrap(), whole);
        assert!(Definition::decode(b"{}").is_err());
    }
}
