//! What the data of a file with several names tell of its time of modification: its inode lies beside them.

use crate::harness::World;
use dfs::sys::Sys;
use dfs::{CreateOptions, Credentials, OpenFlags, RenameFlags};
use futures_util::future::join;
use std::cell::Cell;
use std::time::Duration;

const CHUNK: u64 = 4096;

/// A write at the moment of a change of the inode (a mode, an access time, an attribute, a name) left no trace in the times: the epoch of the unit was that of
/// the inode then. Mounts that keep data were not told that theirs were old.
#[test]
fn a_write_shows_whatever_becomes_of_the_inode_meanwhile() {
    for seed in sim::seeds(4) {
        let class = ["S1", "SX", "SX+8KiB", "RP_2GX"][seed as usize % 4];
        let world = World::new(seed, "S1", class);
        world.cluster.block_on(async {
            let fs = world.mount(Credentials::root()).await;
            let others = world.mount_from("others", Credentials::root()).await;
            let (sys, theirs) = (Sys::new(fs.clone()), Sys::new(others.clone()));
            let env = fs.container().client().env().clone();
            let flags = OpenFlags::READ_WRITE | OpenFlags::CREATE;
            let options = CreateOptions { chunk_bytes: CHUNK, ..CreateOptions::default() };
            let file = sys.open(b"/f", flags, 0o600, &options).await.unwrap();
            fs.write(&file, 0, &[1; 6 * CHUNK as usize]).await.unwrap();
            sys.link(b"/f", b"/g").await.unwrap();
            let is_over = Cell::new(false);
            let writing = async {
                for round in 0..60u64 {
                    let before = theirs.stat(b"/f").await.unwrap();
                    let at = env.random_u64() % (5 * CHUNK);
                    fs.write(&file, at, &[round as u8; 100]).await.unwrap();
                    env.sleep(Duration::from_micros(env.random_u64() % 300)).await;
                    let after = theirs.stat(b"/g").await.unwrap();
                    assert!(after.mtime_ns > before.mtime_ns, "seed {seed}, round {round}");
                    assert!(after.ctime_ns > before.ctime_ns, "seed {seed}, round {round}");
                }
                is_over.set(true);
            };
            let changing = async {
                let known = theirs.open(b"/g", OpenFlags::READ, 0, &options).await.unwrap();
                for round in 0.. {
                    let was_over = is_over.get();
                    let still = theirs.stat(b"/f").await.unwrap();
                    match round % 6 {
                        0 => theirs.chmod(b"/f", 0o600 + round % 8).await.unwrap(),
                        1 => others.touch_atime(&known).await.unwrap(),
                        2 => others
                            .setxattr(&known, b"user.a", b"b", dfs::XattrMode::Set)
                            .await
                            .unwrap(),
                        3 => theirs.link(b"/f", b"/h").await.unwrap(),
                        4 => theirs.rename(b"/h", b"/i", RenameFlags::NONE).await.unwrap(),
                        _ => theirs.unlink(b"/i").await.unwrap(),
                    }
                    if was_over {
                        // A change of the inode alone is none of the data.
                        let now = theirs.stat(b"/f").await.unwrap();
                        assert_eq!(now.mtime_ns, still.mtime_ns, "seed {seed}, round {round}");
                        if round % 6 == 5 {
                            break;
                        }
                    }
                }
            };
            join(writing, changing).await;
        });
    }
}
