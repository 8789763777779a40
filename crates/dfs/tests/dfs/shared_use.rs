//! What programs that share files rely on: locks, appends, holes, files without a name, access
//! times. Every case runs with unstriped and with striped directories and files.

use crate::harness::{World, with_fs};
use dfs::check::Mend;
use dfs::sys::Sys;
use dfs::{
    AllocateFlags, Code, CreateOptions, Credentials, Dfs, FormatOptions, LockAsk, LockKind,
    LockMode, LockRange, MountFlags, Obj, OpenFlags, Result, SetAttr, SetTime,
};
use std::collections::BTreeMap;
use types::{ContLayout, ContProps, Durability};
use uuid::Uuid;
use wire::control::{ControlRequest, Name, OpenMode};

const RW: OpenFlags = OpenFlags(OpenFlags::READ_WRITE.0 | OpenFlags::CREATE.0);
const NONE: AllocateFlags = AllocateFlags::NONE;
const KEEP: AllocateFlags = AllocateFlags::KEEP_SIZE;
const PUNCH: AllocateFlags = AllocateFlags(3);
const ZERO: AllocateFlags = AllocateFlags::ZERO_RANGE;
const CHUNK: u64 = 4096;

fn code<T: std::fmt::Debug>(result: Result<T>) -> Code {
    result.expect_err("must fail").code
}

async fn open(fs: &Dfs, path: &str, flags: OpenFlags, mode: u32) -> Result<Obj> {
    Sys::new(fs.clone()).open(path.as_bytes(), flags, mode, &CreateOptions::default()).await
}

async fn size(fs: &Dfs, file: &Obj) -> u64 {
    fs.ostat(file).await.unwrap().size
}

fn lock(kind: LockKind, owner: u64, mode: LockMode) -> LockAsk {
    LockAsk { kind, owner, range: LockRange::WHOLE, mode, pid: 7, wait: false }
}

async fn other_mount(world: &World) -> Dfs {
    world.mount_from("other", Credentials::root()).await
}

#[test]
fn locks_hold_between_mounts() {
    with_fs(async |world, fs| {
        let other = other_mount(world).await;
        let (mine, theirs) =
            (open(&fs, "/f", RW, 0o644).await.unwrap(), open(&other, "/f", RW, 0).await.unwrap());
        use LockMode::{Exclusive, Shared};
        for kind in [LockKind::Flock, LockKind::Posix] {
            fs.lock(&mine, &lock(kind, 1, Exclusive), None).await.unwrap();
            let refused = other.lock(&theirs, &lock(kind, 1, Shared), None).await;
            assert_eq!(code(refused), Code::WouldBlock);
            let holder = other.test_lock(&theirs, &lock(kind, 1, Shared)).await.unwrap().unwrap();
            assert_eq!((holder.pid, holder.mode), (7, Exclusive));
        }
        fs.unlock_owner(&mine, 1).await.unwrap();
        other.lock(&theirs, &lock(LockKind::Flock, 1, Shared), None).await.unwrap();
        // A range lock wants the file open for it; flock does not.
        let reader = open(&fs, "/f", OpenFlags::READ, 0).await.unwrap();
        let refused = fs.lock(&reader, &lock(LockKind::Posix, 2, Exclusive), None).await;
        assert_eq!(code(refused), Code::BadHandle);
        fs.lock(&reader, &lock(LockKind::Flock, 2, Shared), None).await.unwrap();
        let dir = fs.root().await.unwrap();
        fs.lock(&dir, &lock(LockKind::Flock, 3, Exclusive), None).await.unwrap();
    });
}

#[test]
fn appends_of_two_mounts_do_not_meet() {
    with_fs(async |world, fs| {
        let other = other_mount(world).await;
        let flags = RW | OpenFlags::APPEND;
        let mine = open(&fs, "/log", flags, 0o644).await.unwrap();
        let theirs = open(&other, "/log", flags, 0).await.unwrap();
        let write = async |fs: &Dfs, file: &Obj, letter: u8| {
            for number in 0..20usize {
                // The offset means nothing.
                let line = vec![letter; 1 + number * 97 % 700];
                assert_eq!(fs.write(file, 0, &line).await.unwrap(), line.len());
                fs.write(file, 0, b"\n").await.unwrap();
            }
        };
        futures_util::future::join(write(&fs, &mine, b'a'), write(&other, &theirs, b'b')).await;
        let data = Sys::new(fs.clone()).read_file(b"/log").await.unwrap();
        let (a, b) = (data.iter().filter(|&&x| x == b'a'), data.iter().filter(|&&x| x == b'b'));
        let each: usize = (0..20).map(|number| 1 + number * 97 % 700).sum();
        assert_eq!((a.count(), b.count(), data.len()), (each, each, 2 * each + 40));
        assert_eq!(fs.append(&mine, &[b"x", b"yz"]).await.unwrap(), data.len() as u64);
    });
}

#[test]
fn fallocate_extends_punches_and_zeroes() {
    with_fs(async |_, fs| {
        let file = open(&fs, "/f", RW, 0o644).await.unwrap();
        fs.write(&file, 0, &[7; 10_000]).await.unwrap();
        fs.fallocate(&file, NONE, 5000, 10_000).await.unwrap();
        assert_eq!(size(&fs, &file).await, 15_000);
        fs.fallocate(&file, KEEP, 0, 100_000).await.unwrap();
        assert_eq!(size(&fs, &file).await, 15_000);
        fs.fallocate(&file, PUNCH, 1000, 8000).await.unwrap();
        fs.fallocate(&file, PUNCH, 14_000, 50_000).await.unwrap();
        assert_eq!(size(&fs, &file).await, 15_000);
        let mut back = vec![1; 15_000];
        assert_eq!(fs.read(&file, 0, &mut back).await.unwrap(), 15_000);
        let is_data = |at: &usize| *at < 1000 || (9000..10_000).contains(at);
        assert!(back.iter().enumerate().all(|(at, &b)| b == if is_data(&at) { 7 } else { 0 }));
        fs.fallocate(&file, ZERO, 0, 100).await.unwrap();
        fs.fallocate(&file, ZERO, 14_000, 6000).await.unwrap();
        assert_eq!(size(&fs, &file).await, 20_000);
        fs.fallocate(&file, ZERO | KEEP, 19_000, 6000).await.unwrap();
        assert_eq!(size(&fs, &file).await, 20_000);
        assert_eq!(fs.read(&file, 0, &mut back[..200]).await.unwrap(), 200);
        assert_eq!((&back[..100], &back[100..200]), (&[0; 100][..], &[7; 100][..]));
        for flags in [8, 16 | 2, 32, 2] {
            assert_eq!(
                code(fs.fallocate(&file, AllocateFlags(flags), 0, 1).await),
                Code::NotSupported
            );
        }
        assert_eq!(code(fs.fallocate(&file, NONE, 0, 0).await), Code::Inval);
        assert_eq!(code(fs.fallocate(&file, NONE, i64::MAX as u64, 1).await), Code::FileTooBig);
        assert_eq!(code(fs.fallocate(&file, NONE, 0, 1 << 50).await), Code::NoSpace);
        assert_eq!(size(&fs, &file).await, 20_000);
        let reader = open(&fs, "/f", OpenFlags::READ, 0).await.unwrap();
        assert_eq!(code(fs.fallocate(&reader, NONE, 0, 1).await), Code::BadHandle);
    });
}

#[test]
fn data_and_holes_are_found_in_few_requests() {
    with_fs(async |_, fs| {
        let file = open(&fs, "/f", RW, 0o644).await.unwrap();
        // Data in [100, 200), [3 chunks, 5 chunks), and one byte far away; a hole to the end.
        fs.write(&file, 100, &[1; 100]).await.unwrap();
        fs.write(&file, 3 * CHUNK, &vec![1; 2 * CHUNK as usize]).await.unwrap();
        let far = 100_000 * CHUNK + 17;
        fs.write(&file, far, b"x").await.unwrap();
        fs.truncate(&file, far + CHUNK).await.unwrap();
        let end = far + CHUNK;
        for (from, data, hole) in [
            (0, Some(100), 0),
            (100, Some(100), 200),
            (150, Some(150), 200),
            (200, Some(3 * CHUNK), 200),
            (3 * CHUNK, Some(3 * CHUNK), 5 * CHUNK),
            (4 * CHUNK + 1, Some(4 * CHUNK + 1), 5 * CHUNK),
            (5 * CHUNK, Some(far), 5 * CHUNK),
            (far, Some(far), far + 1),
            (far + 1, None, far + 1),
            (end - 1, None, end - 1),
        ] {
            let client = fs.container().client();
            let before = client.request_count();
            match data {
                Some(data) => assert_eq!(fs.seek_data(&file, from).await.unwrap(), data, "{from}"),
                None => assert_eq!(code(fs.seek_data(&file, from).await), Code::NoData, "{from}"),
            }
            assert!(client.request_count() - before <= 6, "two questions to each of three targets");
            assert_eq!(fs.seek_hole(&file, from).await.unwrap(), hole, "{from}");
        }
        assert_eq!(code(fs.seek_hole(&file, end).await), Code::NoData);
        assert_eq!(code(fs.seek_data(&file, end).await), Code::NoData);
        // A hole over very many chunks is made by looking which there are.
        let before = fs.container().client().request_count();
        fs.punch_hole(&file, 200, far - 199).await.unwrap();
        assert!(fs.container().client().request_count() - before < 20);
        assert_eq!(code(fs.seek_data(&file, 200).await), Code::NoData);
        assert_eq!(size(&fs, &file).await, end);
        assert_eq!(fs.seek_hole(&file, 150).await.unwrap(), 200);
    });
}

#[test]
fn ranges_are_copied_with_their_holes() {
    with_fs(async |_, fs| {
        let (from, to) = (
            open(&fs, "/from", RW, 0o644).await.unwrap(),
            open(&fs, "/to", RW, 0o644).await.unwrap(),
        );
        let data: Vec<u8> = (0..20_000u32).map(|i| (i % 241 + 1) as u8).collect();
        fs.write(&from, 0, &data).await.unwrap();
        fs.punch_hole(&from, 5000, 9000).await.unwrap();
        fs.truncate(&from, 30_000).await.unwrap();
        fs.write(&to, 0, &[9; 12_000]).await.unwrap();
        assert_eq!(fs.copy_range(&from, 1000, &to, 700, 1 << 40).await.unwrap(), 29_000);
        let (mut want, mut back) = (vec![0; 30_000], vec![0; 29_700]);
        assert_eq!(fs.read(&from, 0, &mut want).await.unwrap(), 30_000);
        assert_eq!(fs.read(&to, 0, &mut back).await.unwrap(), 29_700);
        assert!(back[..700].iter().all(|&b| b == 9));
        assert_eq!(back[700..], want[1000..]);
        assert_eq!(fs.seek_hole(&to, 700).await.unwrap(), 4700);
        assert_eq!(fs.copy_range(&from, 30_000, &to, 0, 5).await.unwrap(), 0);
        assert_eq!(code(fs.copy_range(&from, 0, &from, 10, 20).await), Code::Inval);
        assert_eq!(fs.copy_range(&from, 0, &from, 40_000, 20).await.unwrap(), 20);
    });
}

/// All files of a directory were on the target of its entries: with three targets a third of a pool could be
/// filled, and then there was no space.
#[test]
fn files_of_a_full_target_go_to_those_with_room() {
    let world = World::new(1, "S1", "S1");
    world.cluster.block_on(async {
        let (durability, name) = (Durability::Memory, |text: &str| Name::Label(text.into()));
        let (bytes, targets) = (96 << 20, Vec::new());
        let label = "small".to_string();
        let small = ControlRequest::PoolCreate {
            placement: types::PlacementRule::default(),
            label,
            bytes,
            scm_percent: 20,
            durability,
            targets,
        };
        world.client.pool_create(small).await.unwrap();
        let pool = world.client.pool_open(&name("small"), OpenMode::ReadWrite).await.unwrap();
        let props = ContProps { layout: ContLayout::Posix, ..world.cont.info().props.clone() };
        pool.cont_create("fs", Uuid::nil(), props, BTreeMap::new()).await.unwrap();
        let cont = pool.cont_open(&name("fs"), OpenMode::ReadWrite).await.unwrap();
        Dfs::format(&cont, &FormatOptions::default()).await.unwrap();
        let fs = Dfs::mount(&cont, MountFlags::NONE, Credentials::root()).await.unwrap();
        let sys = Sys::new(fs.clone());
        let room = fs.statfs().await.unwrap().available_bytes;
        let data = vec![7; 1 << 20];
        let path = |number: u64| format!("/f{number}").into_bytes();
        let mut count = 0;
        loop {
            match sys.write_file(&path(count), &data, 0o644).await {
                Ok(_) => count += 1,
                Err(error) if error.code == Code::NoSpace => break,
                Err(error) => panic!("{error}"),
            }
        }
        assert!(count << 20 >= room / 4 * 3, "{count} MiB of {room} bytes");
        // Wherever they are, they are like others.
        let other =
            Sys::new(Dfs::mount(&cont, MountFlags::NONE, Credentials::root()).await.unwrap());
        for number in 0..count {
            assert!(other.read_file(&path(number)).await.unwrap() == data);
            other.unlink(&path(number)).await.unwrap();
        }
        sys.unlink(&path(count)).await.unwrap();
        for _ in 0..1000 {
            if fs.statfs().await.unwrap().available_bytes == room {
                return;
            }
            world.client.env().sleep(std::time::Duration::from_millis(10)).await;
        }
        panic!("what was removed was not freed");
    });
}

#[test]
fn a_file_without_a_name_goes_or_gets_one() {
    with_fs(async |world, fs| {
        let root = fs.root().await.unwrap();
        let options = CreateOptions::default();
        let orphans = async || {
            let map = fs.container().pool().map();
            let mut count = 0;
            for target in &map.targets {
                let page = fs.container().list_orphans(target.id, None, 9).await.unwrap();
                assert!(page.complete);
                count += page.units.len();
            }
            count
        };
        let rw = OpenFlags::READ_WRITE;
        let gone = fs.tmpfile(&root, rw, 0o600, &options).await.unwrap();
        fs.write(&gone, 0, &[1; 9000]).await.unwrap();
        assert_eq!((fs.ostat(&gone).await.unwrap().nlink, orphans().await), (0, 1));
        // The checker does not take it for damage, and says what it keeps.
        let report = fs.check(Mend::Nothing).await.unwrap();
        assert_eq!((report.waiting_count, report.waiting_bytes), (1, 9000));
        assert_eq!(report.findings, []);
        drop(gone);
        fs.sync();
        let env = world.client.env();
        while orphans().await > 0 {
            env.sleep(std::time::Duration::from_millis(10)).await;
        }
        let kept = fs.tmpfile(&root, rw, 0o640, &options).await.unwrap();
        fs.write(&kept, 0, b"kept").await.unwrap();
        let set = SetAttr { mode: Some(0o604), ..SetAttr::default() };
        fs.setattr(&kept, &set).await.unwrap();
        fs.link_open(&kept, &root, b"name").await.unwrap();
        assert_eq!(orphans().await, 0);
        let stat = fs.ostat(&kept).await.unwrap();
        assert_eq!((stat.nlink, stat.mode & 0o7777, stat.size), (1, 0o604, 4));
        // From now on it is a file like others.
        fs.link_open(&kept, &root, b"second").await.unwrap();
        drop(kept);
        fs.sync();
        let other = other_mount(world).await;
        assert_eq!(Sys::new(other).read_file(b"/second").await.unwrap(), b"kept");
        assert_eq!(code(fs.tmpfile(&root, OpenFlags::READ, 0o600, &options).await), Code::Inval);
        let taken = fs.tmpfile(&root, rw, 0o600, &options).await.unwrap();
        assert_eq!(code(fs.link_open(&taken, &root, b"name").await), Code::Exist);
        // A file that lost its names gets none any more.
        let lost = open(&fs, "/lost", RW, 0o644).await.unwrap();
        fs.unlink(&root, b"lost").await.unwrap();
        assert_eq!(code(fs.link_open(&lost, &root, b"found").await), Code::NonExist);
    });
}

#[test]
fn writing_takes_set_user_id_from_others_files() {
    with_fs(async |_, fs| {
        drop(open(&fs, "/f", RW, 0).await.unwrap());
        Sys::new(fs.clone()).chmod(b"/f", 0o6777).await.unwrap();
        let user = fs.with_credentials(Credentials::new(7, 7));
        let file = open(&user, "/f", OpenFlags::READ_WRITE, 0).await.unwrap();
        fs.write(&file, 0, b"x").await.unwrap();
        assert_eq!(fs.ostat(&file).await.unwrap().mode & 0o7777, 0o6777, "the superuser may");
        user.write(&file, 0, b"x").await.unwrap();
        assert_eq!(user.ostat(&file).await.unwrap().mode & 0o7777, 0o777);
    });
}

#[test]
fn access_times_follow_the_rule_of_relatime() {
    with_fs(async |world, fs| {
        let fs = fs.with_flags(MountFlags::RELATIME);
        let env = world.client.env();
        let later = std::time::Duration::from_secs(10);
        let sys = Sys::new(fs.clone());
        sys.write_file(b"/f", b"data", 0o644).await.unwrap();
        env.sleep(later).await;
        let read = async || {
            let file = open(&fs, "/f", OpenFlags::READ, 0).await.unwrap();
            let before = fs.container().client().request_count();
            fs.read(&file, 0, &mut [0; 4]).await.unwrap();
            fs.read(&file, 0, &mut [0; 4]).await.unwrap();
            fs.container().client().request_count() - before
        };
        let first = sys.stat(b"/f").await.unwrap();
        read().await;
        let second = sys.stat(b"/f").await.unwrap();
        assert!(second.atime_ns >= first.atime_ns + 10_000_000_000);
        assert_eq!((second.mtime_ns, second.ctime_ns), (first.mtime_ns, first.ctime_ns));
        env.sleep(later).await;
        assert!(read().await <= 8, "no request for a time that is new enough");
        assert_eq!(sys.stat(b"/f").await.unwrap(), second);
        // After a day, or a change, it is due again. (The clock is set on, as engines that sit a day out take a minute.)
        world.cluster.world().set_wall_off("first", 25 * 3600 * 1_000_000_000);
        read().await;
        let third = sys.stat(b"/f").await.unwrap();
        assert!(third.atime_ns > second.atime_ns);
        env.sleep(later).await;
        sys.utimens(b"/f", None, Some(SetTime::Now), true).await.unwrap();
        let fourth = sys.stat(b"/f").await.unwrap();
        assert!(fourth.atime_ns == third.atime_ns && fourth.ctime_ns > third.ctime_ns);
        env.sleep(later).await;
        read().await;
        let fifth = sys.stat(b"/f").await.unwrap();
        assert!(fifth.atime_ns > fifth.mtime_ns);
        assert_eq!((fifth.mtime_ns, fifth.ctime_ns), (fourth.mtime_ns, fourth.ctime_ns));
    });
}
