//! Limits that users can meet.

/// Longest file name, bytes (POSIX `NAME_MAX`).
pub const NAME_BYTES_MAX: usize = 255;
/// Longest path, bytes (POSIX `PATH_MAX`).
pub const PATH_BYTES_MAX: usize = 4096;
/// Symbolic links followed in one lookup before `ELOOP`.
pub const SYMLINK_DEPTH_MAX: usize = 40;
/// Longest dkey or akey, bytes.
pub const KEY_BYTES_MAX: usize = 4096;
/// Longest label of a pool or container, bytes.
pub const LABEL_BYTES_MAX: usize = 127;
/// Most bulk bytes in one request; clients cut longer transfers.
pub const BULK_BYTES_MAX: usize = 32 << 20;
/// Longest message body, bytes.
pub const BODY_BYTES_MAX: usize = 4 << 20;
/// Values smaller than this live in the index and the log, larger ones in extents.
pub const INLINE_BYTES_MAX: usize = 4096;
/// Longest extended attribute value, bytes (Linux `XATTR_SIZE_MAX`).
pub const XATTR_BYTES_MAX: usize = 64 << 10;
/// Most copies of an object: those of classes `RP_6`.
pub const COPIES_MAX: usize = 6;
/// Most hard links to one file.
pub const LINK_COUNT_MAX: u32 = 65_000;
/// Default chunk of a file, bytes; the same as DAOS's.
pub const CHUNK_BYTES_DEFAULT: u64 = 1 << 20;
/// Smallest pool share of one target, bytes.
pub const SHARD_BYTES_MIN: u64 = 16 << 20;

use crate::{Code, Error, Result};

/// Checks a label of a pool, a container or a snapshot: 1 to 127 of letters, digits, `_ - . :`, not shaped like
/// a UUID (so that a name always means one thing), and not `.` or `..` (it is a part of paths, too).
pub fn check_label(label: &str) -> Result<()> {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || b"_-.:".contains(&b);
    if label.is_empty() || label.len() > LABEL_BYTES_MAX {
        return Err(Error::inval(format!(
            "label '{label}' must have 1 to {LABEL_BYTES_MAX} characters"
        )));
    }
    if !label.bytes().all(allowed) {
        return Err(Error::inval(format!(
            "label '{label}' may hold letters, digits, '_', '-', '.' and ':' only"
        )));
    }
    if label == "." || label == ".." {
        return Err(Error::inval(format!("'{label}' is no label: in paths it means a directory")));
    }
    if uuid::Uuid::try_parse(label).is_ok() {
        return Err(Error::inval(format!("label '{label}' looks like a UUID; choose another")));
    }
    Ok(())
}

/// Checks a file name: 1 to 255 bytes, no `/` and no NUL, not `.` or `..`.
pub fn check_name(name: &[u8]) -> Result<()> {
    if name.len() > NAME_BYTES_MAX {
        return Err(Error::new(
            Code::NameTooLong,
            format!("name of {} bytes is over the limit of {NAME_BYTES_MAX}", name.len()),
        ));
    }
    if name.is_empty() || name == b"." || name == b".." || name.iter().any(|&b| b == b'/' || b == 0)
    {
        return Err(Error::inval(format!("'{}' is not a file name", name.escape_ascii())));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_and_names_at_their_limits() {
        assert!(check_label(&"a".repeat(127)).is_ok());
        assert!(check_label(&"a".repeat(128)).is_err());
        assert!(check_label("").is_err());
        assert!(check_label("a/b").is_err());
        assert!(check_label(".").is_err() && check_label("..").is_err());
        assert!(check_label("...").is_ok() && check_label(".a").is_ok());
        assert!(check_label("67e55044-10b1-426f-9247-bb680e5fe0c8").is_err());
        assert!(check_name(&[b'x'; 255]).is_ok());
        assert_eq!(check_name(&[b'x'; 256]).unwrap_err().code, Code::NameTooLong);
        for bad in [&b""[..], b".", b"..", b"a/b", b"a\0b"] {
            assert_eq!(check_name(bad).unwrap_err().code, Code::Inval);
        }
    }
}
