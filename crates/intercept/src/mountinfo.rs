//! Lines of `/proc/self/mountinfo`, as proc(5) describes them:
//!
//! ```text
//! 36 35 98:0 /root /point rw,noatime master:1 - type source rw,errors=continue
//! ```

/// What one line says of a mount.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mount {
    /// Major and minor number of the file system.
    pub device: (u32, u32),
    /// What of the file system is mounted.
    pub root: Vec<u8>,
    pub point: Vec<u8>,
    /// Type of the file system.
    pub kind: Vec<u8>,
    pub source: Vec<u8>,
    /// Nothing can be changed through it: this mount of the file system, or any.
    pub is_read_only: bool,
}

/// Reads a line; none for one that is no mount.
pub fn parse(line: &[u8]) -> Option<Mount> {
    let end = line.windows(3).position(|three| three == b" - ")?;
    let mut tail = line[end + 3..].split(|byte| *byte == b' ');
    let (kind, source) = (tail.next()?, tail.next()?);
    let options_of_all = tail.next().unwrap_or_default();
    let mut head = line[..end].split(|byte| *byte == b' ').skip(2);
    let (device, root, point) = (head.next()?, head.next()?, head.next()?);
    let options = head.next().unwrap_or_default();
    let (major, minor) = std::str::from_utf8(device).ok()?.split_once(':')?;
    let has_ro = |options: &[u8]| options.split(|byte| *byte == b',').any(|one| one == b"ro");
    Some(Mount {
        device: (major.parse().ok()?, minor.parse().ok()?),
        root: unescape(root),
        point: unescape(point),
        kind: unescape(kind),
        source: unescape(source),
        is_read_only: has_ro(options) || has_ro(options_of_all),
    })
}

/// The kernel writes blanks and the like as `\040`.
fn unescape(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut at = 0;
    while at < text.len() {
        let digits = text.get(at + 1..at + 4).filter(|_| text[at] == b'\\');
        let value = digits.and_then(|digits| {
            digits.iter().try_fold(0u32, |value, digit| {
                (b'0'..=b'7').contains(digit).then(|| value * 8 + u32::from(digit - b'0'))
            })
        });
        match value.and_then(|value| u8::try_from(value).ok()) {
            Some(byte) => {
                out.push(byte);
                at += 4;
            }
            None => {
                out.push(text[at]);
                at += 1;
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_as_the_kernel_writes_them() {
        let line =
            b"36 35 98:1 /sub /mnt/a\\040b ro,noatime master:1 shared:2 - ext3 /dev/x rw,ro2";
        let mount = parse(line).unwrap();
        assert_eq!((mount.device, &mount.root[..]), ((98, 1), &b"/sub"[..]));
        assert_eq!((&mount.point[..], &mount.kind[..]), (&b"/mnt/a b"[..], &b"ext3"[..]));
        assert_eq!((&mount.source[..], mount.is_read_only), (&b"/dev/x"[..], true));
        let written = parse(b"36 35 0:5 / /m rw - fuse.x src rw,ro2").unwrap();
        assert!(!written.is_read_only);
        assert!(parse(b"36 35 0:5 / /m rw - fuse.x src ro").unwrap().is_read_only);
        for cut in 0..line.len() {
            let _ = parse(&line[..cut]);
        }
        // The machine's own.
        let text = std::fs::read("/proc/self/mountinfo").unwrap();
        let mut lines = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        assert!(lines.all(|line| parse(line).is_some()));
        assert_eq!(unescape(b"a\\134b\\04\\777\\"), b"a\\b\\04\\777\\");
    }
}
