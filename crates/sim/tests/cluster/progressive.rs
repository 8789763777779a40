//! Progressive arrays against a naive one: whatever two clients write, cut, punch and append around the border of the
//! first part, each sees all that the other has done, and one request is enough while nothing is beyond.

use client::{ArrayObj, Client, Container};
use proptest::prelude::*;
use sim::{Cluster, ClusterSpec};
use types::{ContLayout, Durability, ObjType};
use wire::control::{Name, OpenMode};
use wire::obj::Recx;

/// Of the first part.
const FIRST: u64 = 4096;

#[derive(Clone, Debug)]
enum Step {
    Write { at: u64, count: u64 },
    Append { count: u64 },
    Resize { size: u64 },
    Extend { size: u64 },
    Punch { at: u64, count: u64 },
    Read { at: u64, count: u64 },
    NextRun { from: u64 },
}

fn step() -> impl Strategy<Value = Step> {
    let at = || prop_oneof![0..14_000u64, FIRST - 5..FIRST + 5, Just(0)];
    let count = || prop_oneof![1..9000u64, 1..20u64];
    prop_oneof![
        4 => (at(), count()).prop_map(|(at, count)| Step::Write { at, count }),
        3 => count().prop_map(|count| Step::Append { count }),
        3 => at().prop_map(|size| Step::Resize { size }),
        1 => at().prop_map(|size| Step::Extend { size }),
        2 => (at(), count()).prop_map(|(at, count)| Step::Punch { at, count }),
        3 => (at(), count()).prop_map(|(at, count)| Step::Read { at, count }),
        1 => at().prop_map(|from| Step::NextRun { from }),
    ]
}

async fn open(client: &Client) -> Container {
    let pool = client.pool_open(&Name::Label("p".into()), OpenMode::ReadWrite).await.unwrap();
    pool.cont_open(&Name::Label("c".into()), OpenMode::ReadWrite).await.unwrap()
}

fn array(cont: &Container, class: &str, number: u64, chunk_records: u64) -> ArrayObj {
    let oid = cont.generate_oid(ObjType::ArrayByte, class.parse().unwrap(), 0, number).unwrap();
    ArrayObj { cont: cont.clone(), oid, record_bytes: 1, chunk_records }
}

fn whole(at: u64, count: u64) -> [Recx; 1] {
    [Recx { index: at, count }]
}

/// The naive array: a byte, or nothing where nothing was written.
#[derive(Default)]
struct Naive(Vec<Option<u8>>);

impl Naive {
    fn size(&self) -> u64 {
        self.0.len() as u64
    }

    fn write(&mut self, at: u64, data: &[u8]) {
        let end = at as usize + data.len();
        self.0.resize(self.0.len().max(end), None);
        for (slot, byte) in self.0[at as usize..end].iter_mut().zip(data) {
            *slot = Some(*byte);
        }
    }

    fn read(&self, at: u64, count: u64) -> Vec<u8> {
        (at..at + count).map(|i| self.0.get(i as usize).copied().flatten().unwrap_or(0)).collect()
    }

    fn next_run(&self, from: u64) -> Option<Recx> {
        let is_data = |at: &usize| self.0[*at].is_some();
        let first = (from as usize..self.0.len()).find(is_data)?;
        let end = (first..self.0.len()).find(|at| !is_data(at)).unwrap_or(self.0.len());
        Some(Recx { index: first as u64, count: (end - first) as u64 })
    }
}

fn run(
    seed: u64,
    durability: Durability,
    class: &str,
    chunk: u64,
    targets: usize,
    steps: &[(bool, Step)],
) {
    let cluster = Cluster::start(ClusterSpec { seed, engines: 2, targets }).unwrap();
    cluster.block_on(async {
        let setup = cluster.client("setup");
        cluster.container(&setup, durability, ContLayout::Plain).await.unwrap();
        let conts = [open(&cluster.client("a")).await, open(&cluster.client("b")).await];
        let arrays = [array(&conts[0], class, seed, chunk), array(&conts[1], class, seed, chunk)];
        let mut naive = Naive::default();
        for (number, (who, step)) in steps.iter().enumerate() {
            let array = &arrays[*who as usize];
            let data = |count: u64| -> Vec<u8> {
                (0..count).map(|i| (i as usize * 7 + number) as u8 | 1).collect()
            };
            match *step {
                Step::Write { at, count } => {
                    array.write(&whole(at, count), &[&data(count)]).await.unwrap();
                    naive.write(at, &data(count));
                }
                Step::Append { count } => {
                    let at = array.append(&[&data(count)]).await.unwrap();
                    assert_eq!(at, naive.size(), "{number} {step:?}");
                    naive.write(at, &data(count));
                }
                Step::Resize { size } => {
                    array.set_size(size).await.unwrap();
                    naive.0.resize(size as usize, None);
                }
                Step::Extend { size } => {
                    array.extend(size).await.unwrap();
                    naive.0.resize(naive.0.len().max(size as usize), None);
                }
                Step::Punch { at, count } => {
                    // A hole at the end would move the end, as it pleases.
                    let count = count.min(naive.size().saturating_sub(at + 1));
                    if count > 0 {
                        array.punch(&whole(at, count)).await.unwrap();
                        naive.0[at as usize..(at + count) as usize].fill(None);
                    }
                }
                Step::Read { at, count } => {
                    let mut room = vec![0xee; count as usize];
                    let size_min = array.read(&whole(at, count), &mut [&mut room]).await.unwrap();
                    assert!(size_min <= naive.size(), "{number} {step:?}: {size_min}");
                    assert!(room == naive.read(at, count), "{number} {step:?}");
                    room.fill(0xee);
                    let size =
                        array.read_and_size(&whole(at, count), &mut [&mut room]).await.unwrap();
                    assert!(room == naive.read(at, count), "{number} {step:?}");
                    assert_eq!(size, naive.size(), "{number} {step:?}");
                    let mut room = vec![0; count as usize];
                    array.read_present(None, &whole(at, count), &mut [&mut room]).await.unwrap();
                    assert!(room == naive.read(at, count), "{number} {step:?}");
                }
                Step::NextRun { from } => {
                    let found = array.next_run(from).await.unwrap();
                    let known = naive.next_run(from);
                    // The end of a cut array is filled, which is no data; so is what was data there.
                    let starts = |run: Option<Recx>| run.map(|run| run.index);
                    if known.is_some_and(|run| run.index + 1 < naive.size()) {
                        assert_eq!(starts(found), starts(known), "{number} {step:?}");
                    }
                }
            }
            for array in &arrays {
                assert_eq!(array.size().await.unwrap(), naive.size(), "{number} {step:?}");
            }
        }
        let size = naive.size();
        for array in &arrays {
            let mut room = vec![0xee; size as usize];
            array.read(&whole(0, size), &mut [&mut room]).await.unwrap();
            assert!(room == naive.read(0, size));
        }
    });
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, max_shrink_iters: 2000, ..ProptestConfig::default() })]

    /// Chunks smaller and larger than the first part, and such that it ends inside one.
    #[test]
    fn progressive_arrays_are_arrays(
        seed in 1..1u64 << 40,
        chunk in prop_oneof![Just(4096u64), Just(1000), Just(3000), Just(8192), Just(100_000)],
        targets in 1..4usize,
        durability in prop_oneof![Just(Durability::Memory), Just(Durability::Relaxed)],
        class in prop_oneof![Just("SX+4KiB"), Just("RP_2GX+4KiB")],
        steps in prop::collection::vec((any::<bool>(), step()), 1..40),
    ) {
        run(seed, durability, class, chunk, targets, &steps);
    }
}

#[test]
fn an_array_inside_its_first_part_costs_one_request_a_call() {
    let cluster = Cluster::start(ClusterSpec { seed: 3, engines: 1, targets: 4 }).unwrap();
    cluster.block_on(async {
        let client = cluster.client("a");
        let cont = cluster.container(&client, Durability::Memory, ContLayout::Plain).await.unwrap();
        let array = array(&cont, "SX+4KiB", 1, 1000);
        let (data, mut room) = ([7; 4096], [0; 9000]);
        // Connections are made.
        array.size().await.unwrap();
        let before = || client.request_count();
        let mut asked = before();
        let mut one = |what: &str| {
            assert_eq!(before() - asked, 1, "{what}");
            asked = before();
        };
        array.write(&whole(0, 4096), &[&data]).await.unwrap();
        one("write");
        assert_eq!(array.size().await.unwrap(), 4096);
        one("size");
        array.read(&whole(0, 9000), &mut [&mut room]).await.unwrap();
        one("read");
        array.set_size(4000).await.unwrap();
        one("cut");
        assert_eq!(array.append(&[&data[..96]]).await.unwrap(), 4000);
        one("append");
    });
}
