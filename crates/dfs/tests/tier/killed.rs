//! The engine is killed at each sync of its disk while a file's data are copied, given up and brought back: before what a transaction wrote is durable, and
//! just after that. The bytes are what they were, and what was begun can be done again.

use super::*;
use futures_util::future::{Either, select};
use std::pin::pin;
use types::Durability;

const ENGINE: usize = 0;

/// What is interrupted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Verb {
    Copy,
    Evict,
    Fetch,
    Read,
}

impl Verb {
    /// Does it to a file whose copy has this key.
    async fn run(self, fs: &Dfs, file: &Obj, key: &str) -> Result<()> {
        match self {
            Verb::Copy => {
                if fs.tier_record(file).await?.is_none() {
                    // As an upload says how far it is.
                    let at_ns = fs.container().client().env().wall_ns();
                    let upload = Some(Upload { done_bytes: 0, total_bytes: 1, at_ns });
                    let survey = fs.tier_survey(file).await?;
                    let mut begun = record_of(file, key, &survey);
                    (begun.version, begun.upload) = (0, upload);
                    fs.set_tier_record(file, &begun).await?;
                }
                try_copy(fs, file, key).await.map(|_| ())
            }
            Verb::Evict => {
                let record = fs.tier_record(file).await?.expect("it has a copy");
                try_evict(fs, file, &record).await.map(|_| ())
            }
            Verb::Fetch => fs.tier_fetch(file, &|_| {}).await.map(|_| ()),
            Verb::Read => {
                // By chunks, while those before go back into the pool.
                let size = fs.size(file).await?;
                for at in (0..size).step_by(CHUNK) {
                    fs.read(file, at, &mut [0; CHUNK]).await?;
                }
                fs.tier_survey(file).await.map(|_| ())
            }
        }
    }

    fn then(self) -> &'static str {
        match self {
            Verb::Evict => "cloud",
            Verb::Copy | Verb::Fetch | Verb::Read => "both",
        }
    }
}

async fn open(fs: &Dfs, path: &str) -> Obj {
    let sys = Sys::new(fs.clone());
    sys.open(path.as_bytes(), OpenFlags::READ_WRITE, 0, &CreateOptions::default()).await.unwrap()
}

#[test]
fn an_engine_killed_at_each_sync_loses_nothing() {
    for (seed, (dir_class, file_class)) in LAYOUTS_KILLED.iter().enumerate() {
        let world = World::of(seed as u64, dir_class, file_class, Durability::Wal);
        world.cluster.block_on(async {
            for verb in [Verb::Copy, Verb::Evict, Verb::Fetch, Verb::Read] {
                let kills = at_each_sync(&world, verb, file_class).await;
                // Copies write two records; the others a batch or some chunks at a time, and the time of modification.
                let brings = matches!(verb, Verb::Fetch | Verb::Read);
                let least = if brings { 8 } else { 4 };
                assert!(kills >= least, "{verb:?}, {file_class}: {kills} kills");
            }
        });
    }
}

/// Returns how often the engine was killed until the operation came to its end.
async fn at_each_sync(world: &World, verb: Verb, file_class: &str) -> u32 {
    let disk = world.cluster.world().disk(&sim::Cluster::engine_name(ENGINE));
    let mut kills = 0;
    for step in 0.. {
        for is_durable in [false, true] {
            let name = format!("/{verb:?} {step} {is_durable}");
            let key = format!("{file_class} {name}");
            let data = noise(step as u8, 9 * CHUNK + 100);
            let fs = world.mount_from(&format!("{name} before"), Credentials::root()).await;
            let file = make(&Sys::new(fs.clone()), &name, &data).await;
            if verb != Verb::Copy {
                let record = copy(&fs, &file, &key).await;
                if matches!(verb, Verb::Fetch | Verb::Read) {
                    assert_eq!(evict(&fs, &file, &record).await, 9);
                }
            }
            let is_killed = {
                let mut going = pin!(verb.run(&fs, &file, &key));
                let hang = pin!(disk.hang_at_sync(step, is_durable));
                match select(hang, going.as_mut()).await {
                    Either::Right((done, _)) => {
                        done.unwrap();
                        disk.hang_no_more();
                        false
                    }
                    Either::Left(_) => {
                        world.cluster.kill_engine(ENGINE);
                        world.cluster.start_engine(ENGINE).await.unwrap();
                        if step % 2 == 0 {
                            // It goes on with the engine that is back, or fails. The others have died with the engine.
                            let _ = going.await;
                        }
                        true
                    }
                }
            };
            let at = format!("{verb:?}, {file_class}, sync {step}, durable {is_durable}");
            let fs = world.mount_from(&format!("{name} after"), Credentials::root()).await;
            let file = open(&fs, &name).await;
            assert!(all(&fs, &file).await == data, "{at}");
            // Reading has brought back what was given up.
            verb.run(&fs, &file, &key).await.unwrap();
            assert_eq!(state(&fs, &file).await, verb.then(), "{at}");
            assert!(all(&fs, &file).await == data, "{at}, again");
            if !is_killed {
                return kills;
            }
            kills += 1;
        }
    }
    unreachable!()
}
