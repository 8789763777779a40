//! Which mount a file is on: one line of `/proc/self/mountinfo`.
//!
//! The table is read through a small buffer, because it may be long and because nothing may be
//! allocated here. Its format is that of proc_pid_mountinfo(5).

use super::text::Text;

/// What the table says about one mount; long texts are cut.
#[derive(Clone, Copy)]
pub struct Mount {
    /// Where it is mounted.
    pub point: Text<240>,
    /// What is mounted: a device, `host:/export`, `mgs@tcp:/fsname`.
    pub source: Text<240>,
    /// Type of the file system: `lustre`, `nfs4`, `fuse.sshfs`.
    pub fstype: Text<40>,
}

impl Mount {
    /// The name of the file system that a Lustre mount shows a part of: `/fsname` in the source.
    pub fn lustre_name(&self) -> &[u8] {
        let source = self.source.as_bytes();
        let path =
            source.windows(2).rposition(|pair| pair == b":/").map(|colon| &source[colon + 2..]);
        path.and_then(|path| path.split(|byte| *byte == b'/').next()).unwrap_or_default()
    }
}

/// Finds the mount with this id. `read` fills a buffer with the next bytes of the table and returns
/// how many, 0 at the end; `buffer` needs room for the longest line (longer ones are passed over).
pub fn find(id: u64, buffer: &mut [u8], mut read: impl FnMut(&mut [u8]) -> usize) -> Option<Mount> {
    let mut filled = 0;
    let mut skipping = false;
    loop {
        if filled == buffer.len() {
            (filled, skipping) = (0, true);
        }
        let got = read(buffer.get_mut(filled..)?);
        if got == 0 {
            return buffer.get(..filled).filter(|_| !skipping).and_then(|line| parse(id, line));
        }
        filled = (filled + got).min(buffer.len());
        while let Some(end) = buffer[..filled].iter().position(|byte| *byte == b'\n') {
            let found = Some(&buffer[..end]).filter(|_| !skipping).and_then(|line| parse(id, line));
            if found.is_some() {
                return found;
            }
            skipping = false;
            buffer.copy_within(end + 1..filled, 0);
            filled -= end + 1;
        }
    }
}

/// Reads a line when it is about this mount.
fn parse(id: u64, line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|byte| *byte == b' ');
    if number(fields.next()?)? != id {
        return None;
    }
    let point = unescape(fields.nth(3)?);
    // Optional fields end with a single dash.
    fields.by_ref().find(|field| *field == b"-")?;
    let fstype = Text::cut(fields.next()?);
    Some(Mount { point, source: unescape(fields.next()?), fstype })
}

/// The value of `mnt_id:` in `/proc/self/fdinfo/N`, for kernels whose `statx` does not tell.
pub fn id_in_fdinfo(fdinfo: &[u8]) -> Option<u64> {
    let mut lines = fdinfo.split(|byte| *byte == b'\n');
    let value = lines.find_map(|line| line.strip_prefix(b"mnt_id:"))?;
    number(value.trim_ascii())
}

fn number(digits: &[u8]) -> Option<u64> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// Undoes the table's escapes: a backslash and three octal digits.
fn unescape<const N: usize>(field: &[u8]) -> Text<N> {
    let mut text = Text::EMPTY;
    let mut rest = field;
    while let Some((byte, tail)) = rest.split_first() {
        let digits = tail.first_chunk::<3>().filter(|_| *byte == b'\\');
        let octal = digits.filter(|three| three.iter().all(|d| (b'0'..=b'7').contains(d)));
        match octal {
            Some(three) => {
                let value =
                    three.iter().fold(0u32, |value, digit| 8 * value + u32::from(digit - b'0'));
                text.push(value as u8);
                rest = &tail[3..];
            }
            None => {
                text.push(*byte);
                rest = tail;
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/root rw
101 22 0:55 / /mnt/with\\040blank rw - nfs4 server:/export/a rw,vers=4.2
230 22 0:60 /sub /scratch rw,nosuid shared:7 master:3 - lustre 10.0.0.1@tcp:10.0.0.2@tcp:/lfs2/sub rw
";

    /// Feeds the table in pieces of this many bytes.
    fn find_in(id: u64, table: &str, buffer: usize, piece: usize) -> Option<Mount> {
        let mut rest = table.as_bytes();
        find(id, &mut vec![0; buffer], |room| {
            let length = rest.len().min(room.len()).min(piece);
            let (now, later) = rest.split_at(length);
            room[..length].copy_from_slice(now);
            rest = later;
            length
        })
    }

    #[test]
    fn lines_are_found_however_the_table_arrives() {
        for piece in 1..40 {
            let mount = find_in(101, TABLE, 128, piece).unwrap();
            assert_eq!(mount.point.as_bytes(), b"/mnt/with blank");
            assert_eq!(mount.source.as_bytes(), b"server:/export/a");
            assert_eq!(mount.fstype.as_bytes(), b"nfs4");
            let mount = find_in(230, TABLE, 128, piece).unwrap();
            assert_eq!(mount.fstype.as_bytes(), b"lustre");
            assert_eq!(mount.lustre_name(), b"lfs2");
            assert!(find_in(23, TABLE, 128, piece).is_none());
        }
        assert!(
            find_in(230, TABLE.trim_end(), 128, 100).is_some(),
            "the last line may lack its end"
        );
    }

    #[test]
    fn lines_longer_than_the_buffer_are_passed_over() {
        let table = format!("7 1 0:1 / /{} rw - tmpfs t rw\n{TABLE}", "x".repeat(300));
        assert!(find_in(7, &table, 128, 50).is_none());
        assert!(find_in(22, &table, 128, 50).is_some());
        assert!(find_in(7, table.lines().next().unwrap(), 128, 50).is_none());
    }

    #[test]
    fn damaged_lines_are_no_mounts() {
        for line in
            ["", "22", "22 1 254:0 / /", "22 1 254:0 / / rw shared:1", "22 1 0:1 / / rw - ext4"]
        {
            assert!(find_in(22, line, 128, 100).is_none(), "{line}");
        }
        assert_eq!(unescape::<8>(b"a\\04").as_bytes(), b"a\\04");
        assert_eq!(unescape::<8>(b"\\777\\").as_bytes(), b"\xff\\");
    }

    #[test]
    fn the_id_from_fdinfo() {
        assert_eq!(id_in_fdinfo(b"pos:\t0\nflags:\t0100002\nmnt_id:\t29\nino:\t5\n"), Some(29));
        assert_eq!(id_in_fdinfo(b"pos:\t0\n"), None);
    }

    #[test]
    fn a_source_without_a_path_has_no_lustre_name() {
        let mount =
            Mount { point: Text::EMPTY, source: Text::cut(b"/dev/sda"), fstype: Text::EMPTY };
        assert_eq!(mount.lustre_name(), b"");
    }
}
