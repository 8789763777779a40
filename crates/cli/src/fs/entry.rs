//! How an entry of a file system is shown, in `ls`, `stat` and `find`.

use dfs::{FileKind, Stat};
use serde::Serialize;
use types::size;

/// An entry, for programs.
#[derive(Serialize)]
pub struct EntryReport {
    /// Name, or path, as the command says. Bytes that are not UTF-8 are replaced.
    pub path: String,
    /// Words of `find -type`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// Permission bits, octal.
    pub mode: String,
    /// Names of the file.
    pub nlink: u32,
    pub uid: u32,
    pub gid: u32,
    pub size: u64,
    pub stored_bytes: u64,
    /// Modification time, nanoseconds since 1970.
    pub mtime_ns: i64,
    /// Where a symbolic link leads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
}

impl EntryReport {
    /// The report on an entry.
    pub fn of(path: &[u8], stat: &Stat, target: Option<&[u8]>) -> EntryReport {
        EntryReport {
            path: text(path),
            kind: kind_name(stat.kind()),
            mode: format!("{:04o}", stat.mode & 0o7777),
            nlink: stat.nlink,
            uid: stat.uid,
            gid: stat.gid,
            size: stat.size,
            stored_bytes: stat.stored_bytes,
            mtime_ns: stat.mtime_ns,
            target: target.map(text),
        }
    }
}

/// Bytes of a name, for people.
pub fn text(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}

/// A word for a kind.
pub fn kind_name(kind: FileKind) -> &'static str {
    match kind {
        FileKind::Regular => "file",
        FileKind::Directory => "directory",
        FileKind::Symlink => "symlink",
        FileKind::Fifo => "fifo",
        FileKind::Socket => "socket",
        FileKind::CharDevice => "char-device",
        FileKind::BlockDevice => "block-device",
    }
}

/// The letter of a kind, as `find -type` takes it.
pub fn kind_letter(kind: FileKind) -> char {
    match kind {
        FileKind::Regular => 'f',
        FileKind::Directory => 'd',
        FileKind::Symlink => 'l',
        FileKind::Fifo => 'p',
        FileKind::Socket => 's',
        FileKind::CharDevice => 'c',
        FileKind::BlockDevice => 'b',
    }
}

/// Type and permission bits as `ls -l` writes them.
pub fn mode_text(mode: u32) -> String {
    let kind = match FileKind::from_mode(mode) {
        Some(FileKind::Regular) | None => '-',
        Some(kind) => kind_letter(kind),
    };
    let mut text = String::from(kind);
    for (shift, special, lower, upper) in
        [(6, 0o4000, 's', 'S'), (3, 0o2000, 's', 'S'), (0, 0o1000, 't', 'T')]
    {
        let bits = mode >> shift;
        text.push(if bits & 4 != 0 { 'r' } else { '-' });
        text.push(if bits & 2 != 0 { 'w' } else { '-' });
        text.push(match (bits & 1 != 0, mode & special != 0) {
            (true, false) => 'x',
            (true, true) => lower,
            (false, true) => upper,
            (false, false) => '-',
        });
    }
    text
}

/// A number of bytes, plain or for people.
pub fn size_text(bytes: u64, human: bool) -> String {
    if human { size::format(bytes) } else { bytes.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_read_as_ls_writes_them() {
        for (mode, text) in [
            (0o100644, "-rw-r--r--"),
            (0o040755, "drwxr-xr-x"),
            (0o120777, "lrwxrwxrwx"),
            (0o104755, "-rwsr-xr-x"),
            (0o102644, "-rw-r-Sr--"),
            (0o041777, "drwxrwxrwt"),
            (0o010600, "prw-------"),
        ] {
            assert_eq!(mode_text(mode), text);
        }
    }
}
