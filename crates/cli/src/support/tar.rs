//! Archives in the ustar format (POSIX.1-1988), as far as a few regular files need it.
//!
//! A header of 512 bytes, the content, zeros up to the next 512; two empty headers at the end.

use std::io::{self, Write};

const BLOCK_BYTES: usize = 512;
/// Fields of a header: where each begins, from the end of the one before it.
const NAME: std::ops::Range<usize> = 0..100;
const MODE: std::ops::Range<usize> = NAME.end..NAME.end + 8;
const UID: std::ops::Range<usize> = MODE.end..MODE.end + 8;
const GID: std::ops::Range<usize> = UID.end..UID.end + 8;
const SIZE: std::ops::Range<usize> = GID.end..GID.end + 12;
const MTIME: std::ops::Range<usize> = SIZE.end..SIZE.end + 12;
const SUM: std::ops::Range<usize> = MTIME.end..MTIME.end + 8;
const KIND: usize = SUM.end;
const MAGIC: std::ops::Range<usize> = KIND + 101..KIND + 109;

/// Adds a file that its owner alone may read. Names are at most 100 bytes long.
pub fn add(out: &mut impl Write, name: &str, mtime_s: u64, content: &[u8]) -> io::Result<()> {
    let mut header = [0; BLOCK_BYTES];
    if name.len() > NAME.len() || content.len() >= 1 << 33 {
        let text = format!("'{name}' does not fit into an archive");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    header[..name.len()].copy_from_slice(name.as_bytes());
    let mut octal = |field: std::ops::Range<usize>, value: u64| {
        let digits = field.len() - 1;
        let text = format!("{value:0digits$o}");
        header[field.start..field.start + digits].copy_from_slice(&text.as_bytes()[..digits]);
    };
    octal(MODE, 0o600);
    octal(UID, 0);
    octal(GID, 0);
    octal(SIZE, content.len() as u64);
    octal(MTIME, mtime_s);
    header[KIND] = b'0';
    header[MAGIC].copy_from_slice(b"ustar\x0000");
    // The sum counts itself as spaces.
    header[SUM].fill(b' ');
    let sum: u32 = header.iter().map(|&byte| u32::from(byte)).sum();
    header[SUM].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    out.write_all(&header)?;
    out.write_all(content)?;
    let rest = content.len().next_multiple_of(BLOCK_BYTES) - content.len();
    out.write_all(&[0; BLOCK_BYTES][..rest])
}

/// Writes the end of an archive.
pub fn end(out: &mut impl Write) -> io::Result<()> {
    out.write_all(&[0; 2 * BLOCK_BYTES])?;
    out.flush()
}
