//! The layout of a Lustre file, as the client answers the extended attribute `lustre.lov`.
//!
//! Plain layouts (versions 1 and 3) list the object storage targets (OSTs) of all stripes. A
//! composite layout (progressive files, mirrors) is a table of components, each with a plain
//! layout of its own; asked for is the first one that holds data in OSTs: components kept on the
//! metadata target, not yet made ones, parity and stale mirrors are passed over.
//!
//! The attribute is what any user may have stored elsewhere under that name, so every length is
//! checked. Both byte orders are read: the magic number tells. Numbers and offsets are those of
//! Lustre's `lustre_user.h`, version 2.16.

/// Name of the attribute.
pub const XATTR: &str = "lustre.lov";

const MAGIC_V1: u32 = 0x0bd1_0bd0;
const MAGIC_V3: u32 = 0x0bd3_0bd0;
const MAGIC_COMPOSITE: u32 = 0x0bd6_0bd0;

const PLAIN_HEADER_BYTES: usize = 32;
const POOL_NAME_BYTES: usize = 16;
const OBJECT_BYTES: usize = 24;
const COMPOSITE_HEADER_BYTES: usize = 32;
const ENTRY_BYTES: usize = 48;

/// The data is on the metadata target.
const PATTERN_MDT: u32 = 0x100;
/// Not striped by Lustre at all.
const PATTERN_FOREIGN: u32 = 0x400;
/// The data is in an archive; objects are not listed.
const PATTERN_RELEASED: u32 = 0x8000_0000;

/// The component's copy is out of date.
const COMPONENT_STALE: u32 = 0x01;
/// The component has objects.
const COMPONENT_INIT: u32 = 0x10;
/// The component holds parity.
const COMPONENT_PARITY: u32 = 0x80;

/// Calls `visit` with the index of each OST of the file's first component, in stripe order, until
/// it returns false. False when the bytes are not a layout with objects in OSTs; nothing has been
/// visited then.
pub fn osts(layout: &[u8], mut visit: impl FnMut(u32) -> bool) -> bool {
    let Some(view) = View::of(layout) else { return false };
    match view.magic {
        MAGIC_COMPOSITE => {
            let Some(count) = view.u16(14) else { return false };
            let component = (0..usize::from(count)).find_map(|at| component(&view, at));
            component.is_some_and(|plain| plain.visit(&mut visit))
        }
        _ => plain(view).is_some_and(|plain| plain.visit(&mut visit)),
    }
}

/// The n-th component's layout when it has data in OSTs.
fn component<'a>(view: &View<'a>, at: usize) -> Option<Plain<'a>> {
    let entry = COMPOSITE_HEADER_BYTES + at * ENTRY_BYTES;
    let flags = view.u32(entry + 4)?;
    if flags & COMPONENT_INIT == 0 || flags & (COMPONENT_STALE | COMPONENT_PARITY) != 0 {
        return None;
    }
    let start = view.u32(entry + 24)? as usize;
    let bytes = view.u32(entry + 28)? as usize;
    let blob = View::of(view.bytes.get(start..start.checked_add(bytes)?)?)?;
    (blob.swapped == view.swapped).then(|| plain(blob))?
}

/// The objects of a plain layout.
struct Plain<'a> {
    view: View<'a>,
    objects: usize,
    count: usize,
}

impl Plain<'_> {
    fn visit(&self, visit: &mut impl FnMut(u32) -> bool) -> bool {
        let indices = (0..self.count).map(|at| self.objects + at * OBJECT_BYTES + 20);
        for index in indices.filter_map(|at| self.view.u32(at)) {
            if !visit(index) {
                break;
            }
        }
        true
    }
}

fn plain(view: View<'_>) -> Option<Plain<'_>> {
    let objects = match view.magic {
        MAGIC_V1 => PLAIN_HEADER_BYTES,
        MAGIC_V3 => PLAIN_HEADER_BYTES + POOL_NAME_BYTES,
        _ => return None,
    };
    let count = usize::from(view.u16(28)?);
    let elsewhere = PATTERN_MDT | PATTERN_FOREIGN | PATTERN_RELEASED;
    let room = view.bytes.len().checked_sub(objects)? / OBJECT_BYTES;
    let usable = view.u32(4)? & elsewhere == 0 && count > 0 && count <= room;
    usable.then_some(Plain { view, objects, count })
}

/// Bytes that begin with a magic number, in the byte order it shows.
struct View<'a> {
    bytes: &'a [u8],
    swapped: bool,
    magic: u32,
}

impl<'a> View<'a> {
    fn of(bytes: &'a [u8]) -> Option<Self> {
        let raw = u32::from_le_bytes(*bytes.first_chunk()?);
        let known = |magic: &u32| [MAGIC_V1, MAGIC_V3, MAGIC_COMPOSITE].contains(magic);
        let magic = Some(raw).filter(known).or_else(|| Some(raw.swap_bytes()).filter(known))?;
        Some(Self { bytes, swapped: magic != raw, magic })
    }

    fn u16(&self, at: usize) -> Option<u16> {
        let raw = u16::from_le_bytes(*self.bytes.get(at..)?.first_chunk()?);
        Some(if self.swapped { raw.swap_bytes() } else { raw })
    }

    fn u32(&self, at: usize) -> Option<u32> {
        let raw = u32::from_le_bytes(*self.bytes.get(at..)?.first_chunk()?);
        Some(if self.swapped { raw.swap_bytes() } else { raw })
    }
}

/// Makes attributes for tests and for the fuzzer's seeds.
#[doc(hidden)]
pub mod sample {
    use super::*;

    /// A plain layout with these OSTs; a version 3 one when `pool` is set.
    pub fn plain(pattern: u32, osts: &[u32], pool: bool) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend(if pool { MAGIC_V3 } else { MAGIC_V1 }.to_le_bytes());
        bytes.extend(pattern.to_le_bytes());
        bytes.extend([7; 16]);
        bytes.extend((1u32 << 20).to_le_bytes());
        bytes.extend((osts.len() as u16).to_le_bytes());
        bytes.extend(0u16.to_le_bytes());
        if pool {
            bytes.extend(*b"flash\0\0\0\0\0\0\0\0\0\0\0");
        }
        for (at, ost) in osts.iter().enumerate() {
            bytes.extend([at as u8; 16]);
            bytes.extend(0u32.to_le_bytes());
            bytes.extend(ost.to_le_bytes());
        }
        bytes
    }

    /// A composite layout of components: flags and plain layout.
    pub fn composite(components: &[(u32, Vec<u8>)]) -> Vec<u8> {
        let blobs: usize = components.iter().map(|(_, blob)| blob.len()).sum();
        let mut at = COMPOSITE_HEADER_BYTES + components.len() * ENTRY_BYTES;
        let mut bytes = Vec::new();
        bytes.extend(MAGIC_COMPOSITE.to_le_bytes());
        bytes.extend(((at + blobs) as u32).to_le_bytes());
        bytes.extend(1u32.to_le_bytes());
        bytes.extend(0u16.to_le_bytes());
        bytes.extend((components.len() as u16).to_le_bytes());
        bytes.extend([0; 16]);
        for (number, (flags, blob)) in components.iter().enumerate() {
            bytes.extend((number as u32 + 1).to_le_bytes());
            bytes.extend(flags.to_le_bytes());
            bytes.extend([0; 16]);
            bytes.extend((at as u32).to_le_bytes());
            bytes.extend((blob.len() as u32).to_le_bytes());
            bytes.extend([0; 16]);
            at += blob.len();
        }
        components.iter().for_each(|(_, blob)| bytes.extend(blob));
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(layout: &[u8]) -> Option<Vec<u32>> {
        let mut all = Vec::new();
        osts(layout, |ost| {
            all.push(ost);
            true
        })
        .then_some(all)
    }

    #[test]
    fn plain_layouts_of_both_versions() {
        assert_eq!(found(&sample::plain(1, &[3, 12, 5], false)), Some(vec![3, 12, 5]));
        assert_eq!(found(&sample::plain(1, &[300], true)), Some(vec![300]));
        let mut first = None;
        assert!(osts(&sample::plain(1, &[8, 9], true), |ost| {
            first = Some(ost);
            false
        }));
        assert_eq!(first, Some(8));
    }

    #[test]
    fn a_layout_from_a_machine_of_the_other_byte_order() {
        let swapped = |from: &[u8], sizes: &[usize]| {
            let mut at = 0;
            let mut out = from.to_vec();
            for size in sizes {
                out[at..at + size].reverse();
                at += size;
            }
            out
        };
        let plain = sample::plain(1, &[0x0102], false);
        let sizes = [4, 4, 8, 8, 4, 2, 2, 8, 8, 4, 4];
        assert_eq!(found(&swapped(&plain, &sizes)), Some(vec![0x0102]));
    }

    #[test]
    fn the_first_component_with_data_in_osts_counts() {
        let small = sample::plain(1, &[1], false);
        let wide = sample::plain(1, &[2, 3], true);
        let on_mdt = sample::plain(PATTERN_MDT, &[], false);
        let init = COMPONENT_INIT;
        let of = |parts: &[(u32, &Vec<u8>)]| {
            let parts: Vec<_> =
                parts.iter().map(|(flags, blob)| (*flags, (*blob).clone())).collect();
            found(&sample::composite(&parts))
        };
        assert_eq!(of(&[(init, &small), (0, &wide)]), Some(vec![1]));
        assert_eq!(of(&[(init, &on_mdt), (init, &wide)]), Some(vec![2, 3]), "data on MDT");
        assert_eq!(of(&[(init | COMPONENT_STALE, &small), (init, &wide)]), Some(vec![2, 3]));
        assert_eq!(of(&[(init | COMPONENT_PARITY, &small), (init, &wide)]), Some(vec![2, 3]));
        assert_eq!(of(&[(0, &small), (0, &wide)]), None, "nothing made yet");
        assert_eq!(of(&[]), None);
    }

    #[test]
    fn what_is_no_layout_with_objects_visits_nothing() {
        let whole = sample::composite(&[(COMPONENT_INIT, sample::plain(1, &[1, 2], true))]);
        for length in 0..whole.len() {
            assert_eq!(found(&whole[..length]), None, "cut to {length}");
        }
        assert_eq!(found(&sample::plain(PATTERN_RELEASED | 1, &[1], false)), None);
        assert_eq!(found(&sample::plain(PATTERN_FOREIGN, &[1], false)), None);
        assert_eq!(found(&sample::plain(1, &[], false)), None);
        assert_eq!(found(b"user stored this"), None);
        // A component that points at the table itself must not lead round in circles.
        let mut looped = whole.clone();
        looped[32 + 24..32 + 28].copy_from_slice(&0u32.to_le_bytes());
        assert_eq!(found(&looped), None);
    }
}
