//! Targets of the crates above the wire: lists of memory ranges, inodes, superblocks, anchors
//! that callers hand back, configuration files.

use crate::corpus;
use crate::target::Target;
use dfs::DirAnchor;
use dfs::inode::Inode;
use dfs::layout::Superblock;
use engine::EngineConfig;

/// A parsed configuration holds a tree of its tables beside the result.
const CONFIG_AMPLIFICATION: usize = 256;
const AMPLIFICATION: usize = 64;

/// All targets of this module.
pub fn all() -> Vec<Target> {
    let target = |name, run: fn(&[u8]), seeds: fn() -> Vec<Vec<u8>>| Target {
        name,
        run,
        seeds,
        amplification_max: AMPLIFICATION,
    };
    vec![
        target("transport-hello", transport::fuzz::hello, || vec![transport::fuzz::hello_seed()]),
        target("transport-trailer", transport::fuzz::remote_trailer, || {
            vec![transport::fuzz::remote_trailer_seed()]
        }),
        target("reply-sums", client::fuzz::reply_sums, || vec![client::fuzz::reply_sums_seed()]),
        target("dfs-inode", dfs_inode, || vec![vec![1; 100], vec![0; 64]]),
        target("dfs-superblock", dfs_superblock, || vec![vec![1; 64]]),
        target("shared-obj", shared_obj, || {
            let head = [&b"AZO1"[..], &CONT, &[3, 0, 0, 0], &[9; 16], &[4, 0], b"name"].concat();
            [&INODE[..], &[], &[1]].iter().map(|inode| [&head, *inode].concat()).collect()
        }),
        target("spread", spread, || {
            let spread = wire::spread::Spread { own_first: 1, own_last: 2, reached: 3 };
            vec![spread.encode().to_vec()]
        }),
        target("dir-anchor", dir_anchor, || vec![DirAnchor::start().to_bytes()]),
        target("short-dir-anchor", short_dir_anchor, || {
            let mut marked = DirAnchor::start().to_bytes();
            marked[0] = 2;
            marked.extend([7; 8]);
            vec![DirAnchor::start().to_short(), marked]
        }),
        target("object-anchor", object_anchor, || vec![client::Anchor::start().to_bytes()]),
        Target {
            name: "engine-config",
            run: engine_config,
            seeds: || {
                corpus::texts(&[
                    "dir = '/a'\nlisten = '127.0.0.1:0'\n[[target]]\ndevice = '/b'\n",
                    "dir = '/a'\njoin = ['h:1']\ndomain = ['r', 'n']\n[[target]]\ndevice = '/b'\n",
                ])
            },
            amplification_max: CONFIG_AMPLIFICATION,
        },
    ]
}

/// An inode that decodes is written as it was read.
fn dfs_inode(bytes: &[u8]) {
    if let Ok((inode, target)) = Inode::decode(bytes) {
        let target = target.to_vec();
        let written = inode.encode(&target);
        let again = Inode::decode(&written).expect("what we write can be read");
        assert_eq!(again, (inode, &target[..]));
    }
}

/// The container that [`shared_obj`] is asked about.
const CONT: [u8; 16] = [5; 16];

/// A record of an inode of a regular file, without a symbolic link's target: version 1, array
/// link, mode 0100644.
const INODE: [u8; 86] = {
    let mut raw = [0; 86];
    (raw[0], raw[1], raw[4], raw[5]) = (1, 1, 0xa4, 0x81);
    (raw[8], raw[24], raw[32]) = (77, 1, 1);
    (raw[80], raw[81], raw[82], raw[83]) = (255, 255, 255, 255);
    raw
};

/// An open file handed over by another process: what is understood is handed on as it was.
fn shared_obj(bytes: &[u8]) {
    if let Ok(obj) = dfs::SharedObj::from_global(CONT, bytes) {
        let again = dfs::SharedObj::from_global(CONT, &obj.to_global(CONT)).expect("our own bytes");
        assert_eq!((again.oid(), again.parent_oid()), (obj.oid(), obj.parent_oid()));
        assert_eq!(
            (again.name(), again.mode(), again.flags()),
            (obj.name(), obj.mode(), obj.flags())
        );
        assert!(obj.name().len() <= bytes.len());
        // Its layout is computed from these bytes, too.
        let _ = obj.oid().class();
    }
}

fn dfs_superblock(bytes: &[u8]) {
    if let Ok(superblock) = Superblock::decode(bytes) {
        let again = Superblock::decode(&superblock.encode()).expect("what we write can be read");
        assert_eq!(again, superblock);
    }
}

fn spread(bytes: &[u8]) {
    if let Some(spread) = wire::spread::Spread::decode(bytes) {
        assert_eq!(spread.encode(), bytes);
        let moved = spread.moved(false);
        assert!(moved.is_none_or(|range| range.0 <= range.1));
    }
}

fn dir_anchor(bytes: &[u8]) {
    if let Ok(anchor) = DirAnchor::from_bytes(bytes) {
        assert_eq!(DirAnchor::from_bytes(&anchor.to_bytes()).expect("our own bytes"), anchor);
    }
}

fn short_dir_anchor(bytes: &[u8]) {
    if let Ok(anchor) = DirAnchor::from_short(bytes) {
        assert_eq!(DirAnchor::from_short(&anchor.to_short()).expect("our own bytes"), anchor);
    }
}

fn object_anchor(bytes: &[u8]) {
    if let Ok(anchor) = client::Anchor::from_bytes(bytes) {
        assert_eq!(client::Anchor::from_bytes(&anchor.to_bytes()).expect("our own bytes"), anchor);
    }
}

fn engine_config(bytes: &[u8]) {
    if let Ok(text) = std::str::from_utf8(bytes) {
        let _ = EngineConfig::parse(text, "fuzz.toml");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seed_of_an_open_file_is_understood() {
        let targets = all();
        let target = targets.iter().find(|target| target.name == "shared-obj").unwrap();
        let seeds = (target.seeds)();
        assert!(dfs::SharedObj::from_global(CONT, &seeds[0]).is_ok());
        assert!(dfs::SharedObj::from_global([0; 16], &seeds[0]).is_err());
    }
}
