//! What the page of an open file says of it, for the process that gets the descriptor.
//!
//! | bytes | what |
//! |---|---|
//! | 4 + n | `azk://POOL/CONT/DIR` |
//! | 4 + n | path below it when it was opened |
//! | 16 | uuid of the container |
//! | 4 + n | the object, as `dfs::SharedObj::to_global` has it |

/// What a page says of its file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct About {
    /// `azk://POOL/CONT/DIR`.
    pub url: Vec<u8>,
    /// Path below it.
    pub path: Vec<u8>,
    pub cont: [u8; 16],
    pub object: Vec<u8>,
}

impl About {
    pub fn encode(&self) -> Vec<u8> {
        let mut raw = Vec::new();
        for part in [&self.url, &self.path] {
            raw.extend_from_slice(&(part.len() as u32).to_le_bytes());
            raw.extend_from_slice(part);
        }
        raw.extend_from_slice(&self.cont);
        raw.extend_from_slice(&(self.object.len() as u32).to_le_bytes());
        raw.extend_from_slice(&self.object);
        raw
    }

    /// The inverse; none for bytes that are cut.
    pub fn decode(mut raw: &[u8]) -> Option<About> {
        fn take<'a>(raw: &mut &'a [u8], bytes: usize) -> Option<&'a [u8]> {
            let (piece, rest) = raw.split_at_checked(bytes)?;
            *raw = rest;
            Some(piece)
        }
        fn part(raw: &mut &[u8]) -> Option<Vec<u8>> {
            let bytes = u32::from_le_bytes(take(raw, 4)?.try_into().ok()?);
            take(raw, bytes as usize).map(<[u8]>::to_vec)
        }
        let url = part(&mut raw)?;
        let path = part(&mut raw)?;
        let cont = take(&mut raw, 16)?.try_into().ok()?;
        let object = part(&mut raw)?;
        Some(About { url, path, cont, object })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_page_says_is_refused_when_it_is_cut() {
        let about = About {
            url: b"azk://p/c".to_vec(),
            path: b"/a/b".to_vec(),
            cont: [7; 16],
            object: vec![1, 2, 3],
        };
        let raw = about.encode();
        assert_eq!(About::decode(&raw), Some(about));
        for end in 0..raw.len() {
            assert_eq!(About::decode(&raw[..end]), None, "{end}");
        }
    }
}
