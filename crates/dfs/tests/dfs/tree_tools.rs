//! Search, checker, global handles, the path layer's cache.

use crate::harness::{World, with_fs};
use dfs::check::{Finding, Mend, Problem};
use dfs::find::Query;
use dfs::sys::Sys;
use dfs::{Code, CreateOptions, Credentials, Dfs, FileKind, Obj, OpenFlags, RenameFlags, SetTime};
use wire::obj::{Cond, Op, UpdateIod, UpdateValue};

async fn put(sys: &Sys, path: &str, data: &[u8]) {
    sys.write_file(path.as_bytes(), data, 0o644).await.unwrap();
}

async fn found(fs: &Dfs, start: &Obj, query: &Query) -> Vec<String> {
    let mut paths = Vec::new();
    let totals = fs
        .find(start, query, |item| {
            paths.push(String::from_utf8_lossy(&item.path).into_owned());
            Ok(())
        })
        .await
        .unwrap();
    assert_eq!(totals.matched as usize, paths.len());
    paths.sort();
    paths
}

#[test]
fn find_filters_by_everything_it_is_asked() {
    with_fs(async |_, fs| {
        let sys = Sys::new(fs.clone());
        sys.mkdir_p(b"/a/b/c", 0o755).await.unwrap();
        put(&sys, "/a/one.txt", b"1").await;
        put(&sys, "/a/b/two.txt", b"22").await;
        put(&sys, "/a/b/c/two.dat", b"22").await;
        sys.symlink(b"xx", b"/a/b/link").await.unwrap();
        sys.link(b"/a/one.txt", b"/a/b/hard.txt").await.unwrap();
        for (path, time) in
            [(&b"/a/one.txt"[..], 100), (b"/a/b/two.txt", 200), (b"/a/b/c/two.dat", 300)]
        {
            sys.utimens(path, None, Some(SetTime::At(time)), true).await.unwrap();
        }
        let root = fs.root().await.unwrap();
        let all = Query::default();
        assert_eq!(found(&fs, &root, &all).await.len(), 8);
        let name = Some(b"*.txt".to_vec());
        let by_name = Query { name: name.clone(), ..Query::default() };
        assert_eq!(found(&fs, &root, &by_name).await, ["a/b/hard.txt", "a/b/two.txt", "a/one.txt"]);
        let size = Query { size: Some(2), ..Query::default() };
        assert_eq!(found(&fs, &root, &size).await, ["a/b/c/two.dat", "a/b/link", "a/b/two.txt"]);
        let newer = Query {
            newer_than_ns: Some(100),
            size: Some(2),
            kind: Some(FileKind::Regular),
            name,
            ..Query::default()
        };
        assert_eq!(found(&fs, &root, &newer).await, ["a/b/two.txt"]);
        let shallow = Query { depth_max: 2, kind: Some(FileKind::Directory), ..Query::default() };
        assert_eq!(found(&fs, &root, &shallow).await, ["a", "a/b"]);
        let one_by_one = Query { parallel: 1, ..Query::default() };
        assert_eq!(found(&fs, &root, &one_by_one).await.len(), 8);
        let below = sys.lookup(b"/a/b", true).await.unwrap();
        assert_eq!(found(&fs, &below, &by_name).await, ["hard.txt", "two.txt"]);
        // What may not be listed is counted, not an error.
        sys.chmod(b"/a/b/c", 0o700).await.unwrap();
        let ann = fs.with_credentials(Credentials::new(1, 1));
        let totals = ann.find(&root, &all, |_| Ok(())).await.unwrap();
        assert_eq!((totals.seen, totals.denied > 0), (7, true));
    });
}

#[test]
fn readdirplus_says_what_stat_says() {
    with_fs(async |_, fs| {
        let sys = Sys::new(fs.clone());
        sys.mkdir_p(b"/d/sub/x", 0o755).await.unwrap();
        sys.mkdir(b"/other", 0o755).await.unwrap();
        for i in 0..30 {
            put(&sys, &format!("/d/f{i}"), &vec![1; i * 700]).await;
            put(&sys, &format!("/other/m{i}"), &vec![1; i * 700]).await;
            let (from, to) = (format!("/other/m{i}"), format!("/d/m{i}"));
            sys.rename(from.as_bytes(), to.as_bytes(), RenameFlags::NONE).await.unwrap();
        }
        sys.symlink(b"f1", b"/d/link").await.unwrap();
        sys.link(b"/d/f3", b"/d/hard").await.unwrap();
        sys.utimens(b"/d/f4", None, Some(SetTime::At(7)), true).await.unwrap();
        let dir = sys.lookup(b"/d", true).await.unwrap();
        let mut anchor = dfs::DirAnchor::start();
        let mut count = 0;
        while !anchor.is_end() {
            for (entry, stat) in fs.readdirplus(&dir, &mut anchor, 25).await.unwrap() {
                assert_eq!(stat, fs.stat(&dir, &entry.name).await.unwrap());
                assert_eq!((entry.kind, entry.ino, entry.oid), (stat.kind(), stat.ino, stat.oid));
                count += 1;
            }
        }
        assert_eq!(count, 63);
    });
}

/// Writes a value past the file system.
async fn scribble(world: &World, oid: types::Oid, dkey: &[u8], akey: &[u8], value: &[u8]) {
    let value = UpdateValue::Inline(value);
    let iods = vec![UpdateIod { akey, cond: Cond::NONE, value }];
    let mut batch = world.cont.batch();
    batch.op(Op::Update { unit: oid.first_unit(), dkey, cond: Cond::NONE, iods });
    batch.run().await.unwrap();
}

/// Removes keys or whole objects past the file system.
async fn destroy(world: &World, oid: types::Oid) {
    for unit in world.cont.units(oid).await.unwrap() {
        let mut batch = world.cont.batch();
        batch.op(Op::PunchObj { unit, cond: Cond::NONE, besides: b"" });
        batch.run().await.unwrap();
    }
}

/// A tree with one of each damage: a leaked file, a leaked directory with a file in it, an entry
/// without its directory, a wrong link count, a directory that names another parent.
async fn damage(world: &World, fs: &Dfs) {
    let sys = Sys::new(fs.clone());
    put(&sys, "/leaked", b"lost data").await;
    sys.mkdir(b"/gone", 0o755).await.unwrap();
    sys.mkdir(b"/whole", 0o755).await.unwrap();
    put(&sys, "/whole/inside", b"inside").await;
    sys.mkdir(b"/strayed", 0o755).await.unwrap();
    put(&sys, "/h1", b"hard").await;
    sys.link(b"/h1", b"/h2").await.unwrap();
    sys.link(b"/h1", b"/h3").await.unwrap();
    let oid = async |path: &str| sys.lstat(path.as_bytes()).await.unwrap().oid;
    destroy(world, oid("/gone").await).await;
    scribble(world, oid("/strayed").await, b"/", b"p", &oid("/whole").await.to_bytes()).await;
    let root = fs.root().await.unwrap().oid();
    for name in [&b"leaked"[..], b"whole", b"h3"] {
        let mut batch = world.cont.batch();
        batch.op(Op::PunchDkeys {
            unit: root.first_unit(),
            cond: Cond::PUNCH,
            dkeys: vec![name.into()],
        });
        batch.run().await.unwrap();
    }
}

fn problems(findings: &[Finding]) -> Vec<&'static str> {
    let mut all: Vec<&str> = findings
        .iter()
        .map(|finding| match finding.problem {
            Problem::Leaked => "leaked",
            Problem::Dangling => "dangling",
            Problem::LinkCount { stored: 3, seen: 2 } => "count",
            Problem::LinkCount { .. } => "another count",
            Problem::Parent { .. } => "parent",
            Problem::Misplaced { .. } => "misplaced",
            Problem::Hidden => "hidden",
        })
        .collect();
    all.sort();
    all
}

#[test]
fn the_checker_finds_and_mends_every_kind_of_damage() {
    with_fs(async |world, fs| {
        damage(world, &fs).await;
        let expected = ["count", "dangling", "leaked", "leaked", "leaked", "parent"];
        let report = fs.check(Mend::Nothing).await.unwrap();
        assert_eq!(problems(&report.findings), expected);
        assert!(!report.is_clean());
        let again = fs.check(Mend::Nothing).await.unwrap();
        assert_eq!(again, report, "telling changes nothing");
        let report = fs.check(Mend::Remove).await.unwrap();
        assert_eq!(problems(&report.findings), expected);
        assert!(report.is_clean());
        assert_eq!(fs.check(Mend::Nothing).await.unwrap().findings, []);
        let sys = Sys::new(fs.clone());
        assert_eq!(sys.stat(b"/h1").await.unwrap().nlink, 2);
        assert_eq!(sys.lstat(b"/gone").await.unwrap_err().code, Code::NonExist);
        // A cycle would be possible if the parent were still wrong.
        sys.mkdir(b"/strayed/below", 0o755).await.unwrap();
        let moved = sys.rename(b"/strayed", b"/strayed/below/x", RenameFlags::NONE).await;
        assert_eq!(moved.unwrap_err().code, Code::Inval);
        let ann = fs.with_credentials(Credentials::new(1, 1));
        assert_eq!(ann.check(Mend::Nothing).await.unwrap_err().code, Code::NoPerm);
    });
}

#[test]
fn relinked_objects_turn_up_in_lost_and_found_with_their_data() {
    with_fs(async |world, fs| {
        damage(world, &fs).await;
        assert!(fs.check(Mend::Relink).await.unwrap().is_clean());
        assert_eq!(fs.check(Mend::Nothing).await.unwrap().findings, []);
        let sys = Sys::new(fs.clone());
        let entries = sys.list(b"/lost+found").await.unwrap();
        assert_eq!(entries.len(), 2, "the file inside came back with its directory");
        for entry in entries {
            let path = [b"/lost+found/", &entry.name[..]].concat();
            if entry.kind == FileKind::Directory {
                let inside = [&path[..], b"/inside"].concat();
                assert_eq!(sys.read_file(&inside).await.unwrap(), b"inside");
            } else {
                assert_eq!(sys.read_file(&path).await.unwrap(), b"lost data");
            }
        }
        sys.remove(b"/lost+found", true).await.unwrap();
        assert_eq!(fs.check(Mend::Nothing).await.unwrap().findings, []);
    });
}

#[test]
fn global_handles_open_the_same_things_elsewhere() {
    with_fs(async |world, fs| {
        let sys = Sys::new(fs.clone());
        put(&sys, "/f", b"shared").await;
        let flags = OpenFlags::READ_WRITE;
        let options = CreateOptions::default();
        let file = sys.open(b"/f", flags, 0, &options).await.unwrap();
        let (mount, handle) = (fs.to_global(), fs.obj_to_global(&file));
        drop(file);
        let there = world.mount_from("there", Credentials::root()).await;
        let cont = there.container();
        let other = Dfs::from_global(cont, &mount, Credentials::root()).unwrap();
        assert_eq!(other.superblock(), fs.superblock());
        let file = other.obj_from_global(&handle, None).await.unwrap();
        let mut back = [0; 6];
        assert_eq!(other.read(&file, 0, &mut back).await.unwrap(), 6);
        assert_eq!((&back, file.flags()), (b"shared", flags));
        // The imported handle keeps the file alive as any other does.
        sys.unlink(b"/f").await.unwrap();
        assert_eq!(other.read(&file, 0, &mut back).await.unwrap(), 6);
        let reader = other.obj_from_global(&handle, Some(OpenFlags::READ)).await.unwrap();
        assert_eq!(other.write(&reader, 0, b"x").await.unwrap_err().code, Code::BadHandle);
        for cut in 0..handle.len() {
            assert!(other.obj_from_global(&handle[..cut], None).await.is_err());
        }
        for cut in 0..mount.len() {
            assert!(Dfs::from_global(cont, &mount[..cut], Credentials::root()).is_err());
        }
        let mut foreign = handle.clone();
        foreign[7] ^= 1;
        let refused = other.obj_from_global(&foreign, None).await;
        assert_eq!(refused.unwrap_err().code, Code::Inval);
    });
}

#[test]
fn cached_paths_follow_renames_links_and_removals() {
    with_fs(async |_, fs| {
        let sys = Sys::new(fs.clone());
        sys.set_cache_lifetime(std::time::Duration::from_secs(3600));
        sys.mkdir_p(b"/a/b", 0o755).await.unwrap();
        put(&sys, "/a/b/f", b"first").await;
        sys.symlink(b"/a/b", b"/link").await.unwrap();
        sys.symlink(b"link", b"/link2").await.unwrap();
        assert_eq!(sys.read_file(b"/link2/f").await.unwrap(), b"first");
        assert_eq!(sys.read_file(b"/a/b/../b/f").await.unwrap(), b"first");
        // A directory above moves: neither its path nor a link to it leads there any more.
        sys.rename(b"/a", b"/c", RenameFlags::NONE).await.unwrap();
        for path in [&b"/a/b/f"[..], b"/link/f", b"/link2/f", b"/a/b/../b/f"] {
            let gone = sys.read_file(path).await.unwrap_err().code;
            assert_eq!(gone, Code::NonExist, "{}", path.escape_ascii());
        }
        sys.mkdir_p(b"/a/b", 0o755).await.unwrap();
        put(&sys, "/a/b/f", b"second").await;
        assert_eq!(sys.read_file(b"/link2/f").await.unwrap(), b"second");
        // A link in the middle changes.
        sys.unlink(b"/link").await.unwrap();
        sys.symlink(b"/c/b", b"/link").await.unwrap();
        assert_eq!(sys.read_file(b"/link2/f").await.unwrap(), b"first");
        // A directory is removed and made anew.
        sys.unlink(b"/c/b/f").await.unwrap();
        sys.rmdir(b"/c/b").await.unwrap();
        sys.mkdir(b"/c/b", 0o755).await.unwrap();
        put(&sys, "/link2/f", b"third").await;
        assert_eq!(sys.read_file(b"/c/b/f").await.unwrap(), b"third");
    });
}

#[test]
fn a_prefix_is_taken_off_once() {
    with_fs(async |_, fs| {
        let sys = Sys::new(fs.clone());
        sys.mkdir_p(b"/mnt/x", 0o755).await.unwrap();
        put(&sys, "/mnt/x/f", b"deep").await;
        put(&sys, "/f", b"top").await;
        fs.set_prefix(b"/mnt").unwrap();
        assert_eq!(sys.read_file(b"/mnt/f").await.unwrap(), b"top");
        // What is left may begin like the prefix again.
        assert_eq!(sys.read_file(b"/mnt/mnt/x/f").await.unwrap(), b"deep");
        let obj = fs.lookup(b"/mnt/mnt/x/f", OpenFlags::READ).await.unwrap();
        assert_eq!(fs.size(&obj).await.unwrap(), 4);
        sys.rename(b"/mnt/mnt/x", b"/mnt/y", RenameFlags::NONE).await.unwrap();
        assert_eq!(sys.read_file(b"/mnt/y/f").await.unwrap(), b"deep");
        assert_eq!(sys.lstat(b"/mnt/mnt/x/f").await.unwrap_err().code, Code::NonExist);
        assert_eq!(fs.set_prefix(b"mnt").unwrap_err().code, Code::Inval);
    });
}
