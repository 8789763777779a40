//! Names of temporary files and directories: `XXXXXX` in a template is replaced.

use libc::c_int;

/// Names tried before giving up.
pub const ATTEMPTS: u32 = 10_000;
const LETTERS: &[u8; 62] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";

/// Replaces the six letters before a suffix of so many bytes. `EINVAL` when they are not `XXXXXX`
/// (or what an earlier attempt has put there, with `again`).
pub fn fill(template: &mut [u8], suffix: usize, again: bool, random: u64) -> Result<(), c_int> {
    let end = template.len().checked_sub(suffix).ok_or(libc::EINVAL)?;
    let start = end.checked_sub(6).ok_or(libc::EINVAL)?;
    let place = &mut template[start..end];
    if !again && place != b"XXXXXX" {
        return Err(libc::EINVAL);
    }
    let mut value = random;
    for letter in place {
        *letter = LETTERS[(value % 62) as usize];
        value /= 62;
    }
    Ok(())
}

/// A number nobody guesses.
pub fn random() -> u64 {
    let mut bytes = [0; 8];
    // SAFETY: the room is as long as said.
    let got = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    if got == 8 {
        return u64::from_ne_bytes(bytes);
    }
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(0, |now| now.as_nanos() as u64) ^ u64::from(std::process::id()) << 40
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_six_letters_change() {
        let mut template = *b"/a/fooXXXXXX.c";
        fill(&mut template, 2, false, 12_345_678_901).unwrap();
        assert!(template.starts_with(b"/a/foo") && template.ends_with(b".c"));
        assert_ne!(&template[6..12], b"XXXXXX");
        fill(&mut template, 2, true, 1).unwrap();
        let cases: [(&[u8], usize); 3] = [(b"/a/fooXXXXX", 0), (b"X", 0), (b"XXXXXX", 7)];
        for (template, suffix) in cases {
            let mut template = template.to_vec();
            assert_eq!(fill(&mut template, suffix, false, 1), Err(libc::EINVAL));
        }
    }
}
