//! What the kernel sends to the FUSE server.

use crate::target::Target;

/// All targets of the mount.
pub fn all() -> Vec<Target> {
    vec![
        Target { name: "fuse-request", run: request, seeds, amplification_max: 64 },
        Target { name: "fuse-request-ext", run: request_ext, seeds, amplification_max: 64 },
    ]
}

/// Operation code, bytes of its fixed struct, what follows.
const REQUESTS: [(u32, usize, &[u8]); 34] = [
    (1, 0, b"name\0"),
    (2, 8, b""),
    (3, 16, b""),
    (4, 88, b""),
    (5, 0, b""),
    (6, 0, b"name\0target/path\0"),
    (8, 16, b"name\0"),
    (9, 8, b"name\0"),
    (10, 0, b"name\0"),
    (12, 8, b"name\0new\0"),
    (13, 8, b"name\0"),
    (14, 8, b""),
    (15, 40, b""),
    (16, 40, b"data"),
    (17, 0, b""),
    (18, 24, b""),
    (20, 16, b""),
    (21, 8, b"user.a\0value"),
    (21, 16, b"user.a\0value"),
    (22, 8, b"user.a\0"),
    (24, 0, b"user.a\0"),
    (25, 24, b""),
    (26, 64, b""),
    (31, 48, b""),
    (35, 16, b"name\0"),
    (36, 8, b""),
    (39, 32, b"data"),
    (42, 8, b"0123456789abcdef0123456789abcdef"),
    (43, 32, b""),
    (44, 40, b""),
    (45, 16, b"name\0new\0"),
    (46, 24, b""),
    (47, 56, b""),
    (51, 16, b"/\0"),
];

/// One request of each kind, and one with supplementary groups behind it.
fn seeds() -> Vec<Vec<u8>> {
    let with_groups = request_bytes(9, 8, b"name\0", &[16, 0, 0, 0, 32, 0, 0, 0, 1, 0, 0, 0, 7]);
    let plain = REQUESTS.iter().map(|&(code, fixed, rest)| request_bytes(code, fixed, rest, &[]));
    plain.chain([with_groups]).collect()
}

fn request_bytes(code: u32, fixed_bytes: usize, rest: &[u8], extension: &[u8]) -> Vec<u8> {
    let words = extension.len().div_ceil(8);
    let mut raw = vec![0u8; 40 + fixed_bytes];
    raw[4..8].copy_from_slice(&code.to_ne_bytes());
    raw[8] = 2;
    raw[16] = 1;
    raw[36..38].copy_from_slice(&(words as u16).to_ne_bytes());
    if matches!(code, 16 | 21 | 39 | 42) {
        // Sizes of what follows: a byte or two, wherever this kind has it.
        let at = 40 + [0, 16, 24][usize::from(code == 16) + 2 * usize::from(code == 39)];
        raw[at] = 2;
    }
    if code == 26 {
        // INIT says which version: 7.45.
        (raw[40], raw[44]) = (7, 45);
    }
    raw.extend_from_slice(rest);
    raw.extend_from_slice(extension);
    raw.resize(raw.len() + words * 8 - extension.len(), 0);
    let len = (raw.len() as u32).to_ne_bytes();
    raw[..4].copy_from_slice(&len);
    raw
}

fn request(bytes: &[u8]) {
    let _ = fuselow::decode_bytes(bytes, false);
}

fn request_ext(bytes: &[u8]) {
    let _ = fuselow::decode_bytes(bytes, true);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seeds_are_understood() {
        for seed in seeds() {
            let text = fuselow::decode_bytes(&seed, false);
            let ext = fuselow::decode_bytes(&seed, true);
            assert!(text.or(ext).is_some(), "{seed:?}");
        }
        let text = fuselow::decode_bytes(seeds().last().unwrap(), false).unwrap();
        assert!(text.ends_with("[7]"), "{text}");
    }
}
