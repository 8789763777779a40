//! The stores on the disks of a cluster that has stopped, by their own check: nothing is damaged, and space is counted as it is used.

use crate::Cluster;
use std::path::Path;
use types::Result;
use vos::Devices;
use vos::offline::{Offline, Severity};

/// Looks at every store of a cluster whose engines have stopped or died, all data included; says what is damaged.
///
/// Errors: those of opening a store.
pub async fn damage(cluster: &Cluster) -> Result<Option<String>> {
    let spec = cluster.spec();
    for at in 0..spec.engines {
        let name = Cluster::engine_name(at);
        let env = cluster.world().node(&name);
        for number in 0..cluster.target_count(at) {
            let devices = Devices::one(Path::new(&format!("/target{number}")));
            let found = Offline::open(&env, &devices, false).await?.check(true).await?;
            let damage = found.into_iter().find(|found| found.severity == Severity::Damage);
            if let Some(damage) = damage {
                return Ok(Some(format!("target {number} of {name}: {}", damage.text)));
            }
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ClusterSpec;
    use client::KvObj;
    use engine::StoreConfig;
    use env::Decay;
    use types::{ContLayout, Durability, ObjType};
    use wire::obj::Cond;

    /// A reader got an error where the device of the leader did not give a sector, though others had the data whole: only what the scrubber
    /// had found, which looks at everything once a day, was damage that they put right.
    #[test]
    fn others_have_what_a_sector_does_not_give() {
        let spec = ClusterSpec { seed: 2, engines: 2, targets: 1 };
        // What was just written is in no cache.
        let store = StoreConfig { data_cache_percent: Some(0), ..StoreConfig::default() };
        let cluster = Cluster::start_with(spec, store).unwrap();
        let client = cluster.client("c");
        cluster.block_on(async {
            let made = cluster.container(&client, Durability::Wal, ContLayout::Plain).await;
            let cont = made.unwrap();
            let class = "RP_2G1".parse().unwrap();
            let oid = cont.generate_oid(ObjType::KvHashed, class, 0, 1).unwrap();
            let kv = KvObj { object: cont.object(oid) };
            let value: Vec<u8> = (0..40_960u32).map(|at| (at / 7) as u8).collect();
            kv.put(None, Cond::NONE, b"k", &value).await.unwrap();
            let map = cont.pool().map();
            let leader = cont.layout(oid).unwrap().leader(0, &map).unwrap();
            let address = map.engine_of(leader).unwrap().tcp.clone();
            let disk = cluster.world().disk(address.strip_prefix("sim:").unwrap());
            let area = Path::new("/target0/pool.1/data");
            let used = disk.filled_pages(area);
            assert!(used.len() >= 10, "{used:?}");
            for page in &used[3..6] {
                disk.decay(area, *page, Decay::Unreadable);
            }
            assert_eq!(kv.get(None, b"k").await.unwrap(), Some(value));
        });
    }

    /// What is whole is, and each way in which a page decays is seen.
    #[test]
    fn known_good_and_bad_stores() {
        let ways = [
            None,
            Some(Decay::Flipped { byte: 5, mask: 1 }),
            Some(Decay::Misdirected { other: 4096 }),
            Some(Decay::Unreadable),
        ];
        for way in ways {
            let cluster = Cluster::start(ClusterSpec { seed: 1, engines: 1, targets: 1 }).unwrap();
            let client = cluster.client("c");
            cluster.block_on(async {
                let made = cluster.container(&client, Durability::Wal, ContLayout::Plain).await;
                let cont = made.unwrap();
                let class = "S1".parse().unwrap();
                let oid = cont.generate_oid(ObjType::KvHashed, class, 0, 1).unwrap();
                let kv = KvObj { object: cont.object(oid) };
                let value: Vec<u8> = (0..40_960u32).map(|at| (at / 7) as u8).collect();
                kv.put(None, Cond::NONE, b"k", &value).await.unwrap();
                cluster.stop_engine(0).await.unwrap();
            });
            cluster.kill_engine(0);
            let (disk, area) = (cluster.world().disk("e0"), Path::new("/target0/pool.1/data"));
            let used = disk.filled_pages(area);
            assert!(used.len() >= 10, "{used:?}");
            if let Some(decay) = way {
                let decay = match decay {
                    Decay::Misdirected { .. } => Decay::Misdirected { other: used[1] },
                    other => other,
                };
                disk.decay(area, used[3], decay);
            }
            let found = cluster.block_on(damage(&cluster)).unwrap();
            assert_eq!(found.is_some(), way.is_some(), "{way:?}: {found:?}");
        }
    }
}
