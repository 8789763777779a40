//! The simulated environment: time, kills, repeatability, what a crash leaves on disk.

use env::{AlignedBuf, Decay, DiskFaults, OpenOptions, SimWorld};
use std::cell::{Cell, RefCell};
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;
use types::Code;

const DURABLE: OpenOptions =
    OpenOptions { create: true, exclusive: false, direct: false, dsync: true, read_only: false };

#[test]
fn the_clock_jumps_and_a_killed_node_runs_no_more() {
    let world = SimWorld::new(1);
    let ticks = Rc::new(Cell::new(0));
    for name in ["a", "b"] {
        let (env, ticks) = (world.node(name), ticks.clone());
        env.clone().spawn(async move {
            loop {
                env.sleep(Duration::from_secs(60)).await;
                ticks.set(ticks.get() + 1);
            }
        });
    }
    world.run_for(Duration::from_secs(601));
    assert_eq!(ticks.get(), 20);
    world.kill("b");
    world.run_for(Duration::from_secs(600));
    assert_eq!(ticks.get(), 30);
    assert!(world.now() >= Duration::from_secs(1201));
    // The same name is a fresh node.
    assert!(!world.node("b").sim_node().unwrap().is_dead());
    world.clear();
}

#[test]
#[should_panic(expected = "simulated deadlock")]
fn waiting_for_nothing_is_a_deadlock() {
    SimWorld::new(1).block_on(std::future::pending::<()>());
}

fn run(seed: u64) -> (u64, Vec<u64>) {
    let world = SimWorld::new(seed);
    let drawn = Rc::new(RefCell::new(Vec::new()));
    for name in ["x", "y", "z"] {
        let (env, drawn) = (world.node(name), drawn.clone());
        env.clone().spawn(async move {
            let file = env.disk().open(Path::new("/f"), DURABLE).await.unwrap();
            for count in 0..10 {
                env.sleep(Duration::from_nanos(env.random_u64() % 1_000_000)).await;
                file.write_at(count * 4096, AlignedBuf::zeroed(4096)).await.1.unwrap();
                drawn.borrow_mut().push(env.random_u64());
            }
        });
    }
    world.run_for(Duration::from_secs(1));
    (world.trace_hash(), drawn.take())
}

#[test]
fn equal_seeds_give_equal_runs() {
    assert_eq!(run(5), run(5));
    assert_ne!(run(5).0, run(6).0);
    assert_eq!(run(5).1.len(), 30);
}

#[test]
fn acknowledged_durable_writes_and_synced_names_survive_any_crash() {
    for seed in 0..100 {
        let world = SimWorld::new(seed);
        let env = world.node("n");
        let disk = env.disk();
        env.block_on(async {
            disk.create_dir(Path::new("/d")).await.unwrap();
            disk.sync_dir(Path::new("/")).await.unwrap();
            let file = disk.open(Path::new("/d/kept"), DURABLE).await.unwrap();
            disk.sync_dir(Path::new("/d")).await.unwrap();
            file.write_at(0, AlignedBuf::copy_of(&[1; 4096])).await.1.unwrap();
            let not_durable = OpenOptions { dsync: false, ..DURABLE };
            let lazy = disk.open(Path::new("/d/lazy"), not_durable).await.unwrap();
            lazy.write_at(0, AlignedBuf::copy_of(&[2; 4096])).await.1.unwrap();
        });
        world.kill("n");
        let env = world.node("n");
        let disk = env.disk();
        let kept = env.block_on(async {
            let plain = OpenOptions::default();
            let file = disk.open(Path::new("/d/kept"), plain).await.unwrap();
            file.read_at(0, AlignedBuf::zeroed(4096)).await
        });
        assert_eq!(kept.1.unwrap(), 4096);
        assert!(kept.0.iter().all(|&byte| byte == 1));
    }
}

#[test]
fn a_crash_can_lose_what_was_not_durable() {
    let (mut lost_name, mut kept_name, mut lost_data, mut kept_data) = (0, 0, 0, 0);
    for seed in 0..100 {
        let world = SimWorld::new(seed);
        let env = world.node("n");
        let disk = env.disk();
        let lazy = OpenOptions { dsync: false, ..DURABLE };
        env.block_on(async {
            let file = disk.open(Path::new("/f"), lazy).await.unwrap();
            file.write_at(0, AlignedBuf::copy_of(&[2; 512])).await.1.unwrap();
        });
        world.disk("n").crash();
        match env.block_on(disk.open(Path::new("/f"), OpenOptions::default())) {
            Err(error) => {
                assert_eq!(error.code, Code::NonExist);
                lost_name += 1;
            }
            Ok(file) => {
                kept_name += 1;
                let (buf, count) = env.block_on(file.read_at(0, AlignedBuf::zeroed(512)));
                if count.unwrap() == 512 && buf[0] == 2 { kept_data += 1 } else { lost_data += 1 }
            }
        }
    }
    assert!(lost_name > 10 && kept_name > 10, "{lost_name} {kept_name}");
    assert!(lost_data > 5 && kept_data > 5, "{lost_data} {kept_data}");
}

#[test]
fn faults_are_reported_and_a_stopped_disk_takes_nothing_more() {
    let world = SimWorld::new(3);
    let env = world.node("n");
    let disk = env.disk();
    let control = world.disk("n");
    let file = env.block_on(disk.open(Path::new("/f"), DURABLE)).unwrap();
    let write = |fill: u8| {
        let buf = AlignedBuf::copy_of(&[fill; 4096]);
        env.block_on(file.write_at(0, buf)).1
    };
    write(1).unwrap();
    control.set_faults(DiskFaults { write_error_ppm: 1_000_000, ..DiskFaults::default() });
    assert_eq!(write(2).unwrap_err().code, Code::Io);
    control.set_faults(DiskFaults { space_bytes: 8192, ..DiskFaults::default() });
    write(3).unwrap();
    let far = env.block_on(file.write_at(4096, AlignedBuf::zeroed(8192))).1;
    assert_eq!(far.unwrap_err().code, Code::NoSpace);
    env.block_on(disk.sync_dir(Path::new("/"))).unwrap();
    let before = control.change_count();
    control.stop_after(1);
    write(4).unwrap_err();
    assert_eq!(write(5).unwrap_err().code, Code::Io);
    assert_eq!(control.change_count(), before + 1);
    control.crash();
    assert_eq!(write(6).unwrap_err().code, Code::Io, "the handle is of before the crash");
    let again = env.block_on(disk.open(Path::new("/f"), DURABLE)).unwrap();
    let (buf, _) = env.block_on(again.read_at(0, AlignedBuf::zeroed(4096)));
    assert!(buf.iter().all(|&byte| byte == 3 || byte == 4));
    let lock = env.block_on(disk.lock(Path::new("/lock"), "one")).unwrap();
    assert_eq!(env.block_on(disk.lock(Path::new("/lock"), "two")).err().unwrap().code, Code::Busy);
    drop(lock);
    env.block_on(disk.lock(Path::new("/lock"), "two")).unwrap();
}

/// A node can be killed at a sync: before it, what was to be durable may be lost; after it, not, though
/// who asked was never told.
#[test]
fn a_disk_hangs_at_the_sync_it_is_told() {
    let mut lost = 0;
    for seed in 0..40 {
        let durable = seed % 2 == 0;
        let world = SimWorld::new(seed);
        let told = Rc::new(Cell::new(0));
        let (env, count) = (world.node("x"), told.clone());
        env.clone().spawn(async move {
            let file = env.disk().open(Path::new("/f"), DURABLE).await.unwrap();
            env.disk().sync_dir(Path::new("/")).await.unwrap();
            for at in 0..4u64 {
                let mut page = AlignedBuf::zeroed(4096);
                page.fill(at as u8 + 1);
                file.write_at(at * 4096, page).await.1.unwrap();
                count.set(count.get() + 1);
            }
        });
        world.block_on(world.disk("x").hang_at_sync(2, durable));
        world.run_for(Duration::from_secs(1));
        assert_eq!(told.get(), 2, "nothing has an end any more");
        world.kill("x");
        let env = world.node("x");
        let third = world.block_on(async {
            let file = env.disk().open(Path::new("/f"), DURABLE).await.unwrap();
            let (page, read) = file.read_at(2 * 4096, AlignedBuf::zeroed(4096)).await;
            read.unwrap();
            page.iter().all(|byte| *byte == 3)
        });
        assert!(third || !durable, "seed {seed}");
        lost += u32::from(!third);
    }
    assert!(lost > 0, "the kill was never before the sync");
}

/// Clocks of nodes differ, and stay so over a kill.
#[test]
fn every_node_has_a_wall_clock_of_its_own() {
    let world = SimWorld::new(1);
    let (fast, slow) = (world.node("fast"), world.node("slow"));
    world.set_wall_off("fast", 5_000);
    assert_eq!(fast.wall_ns(), slow.wall_ns() + 5_000);
    world.kill("fast");
    assert_eq!(world.node("fast").wall_ns(), slow.wall_ns() + 5_000);
}

/// Two monotonic clocks run apart, never back, and what is waited for by one takes longer or shorter by the world's.
#[test]
fn a_monotonic_clock_can_gain_and_lose() {
    let world = SimWorld::new(1);
    let (fast, slow) = (world.node("fast"), world.node("slow"));
    world.set_monotonic_gain("fast", 4_000);
    world.set_monotonic_gain("slow", -4_000);
    let begun = (fast.now(), slow.now());
    world.run_for(Duration::from_secs(10));
    let gone = |env: &env::Env, from: Duration| (env.now() - from).as_millis();
    assert_eq!((gone(&fast, begun.0), gone(&slow, begun.1)), (10_040, 9_960));
    let slept = |env: &env::Env| {
        let from = (world.now(), env.now());
        world.block_on(env.sleep(Duration::from_secs(10)));
        assert!(env.now() - from.1 >= Duration::from_secs(10), "not too early by its own");
        (world.now() - from.0).as_millis()
    };
    assert_eq!((slept(&fast), slept(&slow)), (9_960, 10_040));
    let before = fast.now();
    world.set_monotonic_gain("fast", 0);
    assert_eq!(fast.now(), before);
}

/// A clock that gains goes on from where it is, also when it comes to gain something else; a kill does not put it right.
#[test]
fn a_wall_clock_can_gain_and_lose() {
    let world = SimWorld::new(1);
    let (fast, right) = (world.node("fast"), world.node("right"));
    let off_ns = |fast: &env::Env| fast.wall_ns() as i64 - right.wall_ns() as i64;
    world.set_wall_gain("fast", 1_000);
    world.run_for(Duration::from_secs(2));
    assert_eq!(off_ns(&fast), 2_000_000);
    world.set_wall_gain("fast", -500);
    world.run_for(Duration::from_secs(2));
    assert_eq!(off_ns(&fast), 1_000_000);
    world.kill("fast");
    let fast = world.node("fast");
    world.run_for(Duration::from_secs(2));
    assert_eq!(off_ns(&fast), 0);
    world.set_wall_off("fast", 7_000_000);
    world.run_for(Duration::from_secs(2));
    assert_eq!(off_ns(&fast), 6_000_000);
}

/// A node that stands still does nothing, and what it waited for is there when it goes on; who is killed meanwhile is gone.
#[test]
fn a_node_can_stand_still() {
    let world = SimWorld::new(1);
    let ticks = Rc::new(Cell::new(0));
    let tick = |name: &str| {
        let (env, ticks) = (world.node(name), ticks.clone());
        env.clone().spawn(async move {
            loop {
                env.sleep(Duration::from_secs(60)).await;
                ticks.set(ticks.get() + 1);
            }
        });
    };
    tick("a");
    world.run_for(Duration::from_secs(61));
    world.pause("a");
    world.pause("nobody");
    world.run_for(Duration::from_secs(600));
    assert_eq!(ticks.get(), 1);
    // One sleep is over since long; the next one begins now.
    world.resume("a");
    world.run_for(Duration::from_secs(59));
    assert_eq!(ticks.get(), 2);
    world.run_for(Duration::from_secs(2));
    assert_eq!(ticks.get(), 3);
    world.pause("a");
    world.run_for(Duration::from_secs(100));
    world.kill("a");
    tick("a");
    world.resume("a");
    world.run_for(Duration::from_secs(61));
    assert_eq!(ticks.get(), 4);
    world.clear();
}

#[test]
fn a_disk_that_is_exchanged_has_nothing() {
    let world = SimWorld::new(1);
    let env = world.node("a");
    world.block_on(async {
        for path in ["/keep", "/t"] {
            env.disk().create_dir(Path::new(path)).await.unwrap();
        }
        env.disk().sync_dir(Path::new("/")).await.unwrap();
        for path in ["/keep/f", "/t/synced", "/t/not"] {
            let file = env.disk().open(Path::new(path), DURABLE).await.unwrap();
            file.write_at(0, AlignedBuf::zeroed(4096)).await.1.unwrap();
            if path != "/t/not" {
                env.disk().sync_dir(Path::new(path).parent().unwrap()).await.unwrap();
            }
        }
    });
    world.kill("a");
    world.disk("a").wipe(Path::new("/t"));
    let env = world.node("a");
    world.block_on(async {
        assert!(env.disk().list(Path::new("/t")).await.unwrap().is_empty());
        assert_eq!(env.disk().list(Path::new("/keep")).await.unwrap().len(), 1);
        let open = env.disk().open(Path::new("/t/synced"), OpenOptions::default()).await;
        assert_eq!(open.err().map(|error| error.code), Some(Code::NonExist));
    });
}

/// Pages decay one by one, also in what a crash leaves; a page that cannot be read can be written.
#[test]
fn pages_of_a_file_decay() {
    let world = SimWorld::new(1);
    let path = Path::new("/f");
    let env = world.node("a");
    world.block_on(async {
        let file = env.disk().open(path, DURABLE).await.unwrap();
        for (at, fill) in [1, 2, 0, 4].into_iter().enumerate() {
            file.write_at(at as u64 * 4096, AlignedBuf::copy_of(&[fill; 4096])).await.1.unwrap();
        }
        env.disk().sync_dir(Path::new("/")).await.unwrap();
    });
    let disk = world.disk("a");
    assert_eq!(disk.filled_pages(path), [0, 4096, 3 * 4096]);
    assert!(disk.filled_pages(Path::new("/none")).is_empty());
    disk.decay(path, 0, Decay::Flipped { byte: 7, mask: 0x10 });
    disk.decay(path, 4096, Decay::Misdirected { other: 3 * 4096 });
    disk.decay(path, 3 * 4096, Decay::Unreadable);
    for _ in 0..2 {
        let env = world.node("a");
        world.block_on(async {
            let file = env.disk().open(path, DURABLE).await.unwrap();
            let read = async |at: u64, bytes| file.read_at(at, AlignedBuf::zeroed(bytes)).await;
            let (first, count) = read(0, 12_288).await;
            assert_eq!(count.unwrap(), 12_288);
            assert_eq!((first[6], first[7], first[8]), (1, 0x11, 1));
            assert!(first[4096..8192].iter().all(|byte| *byte == 4));
            assert_eq!(read(8192, 8192).await.1.unwrap_err().code, Code::Io);
        });
        world.kill("a");
    }
    let env = world.node("a");
    world.block_on(async {
        let file = env.disk().open(path, DURABLE).await.unwrap();
        file.write_at(3 * 4096, AlignedBuf::copy_of(&[5; 4096])).await.1.unwrap();
        let (last, count) = file.read_at(3 * 4096, AlignedBuf::zeroed(4096)).await;
        assert!(count.unwrap() == 4096 && last.iter().all(|byte| *byte == 5));
    });
}
