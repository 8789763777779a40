//! One case per rule of POSIX: what succeeds, and the error of each thing that must not.
//! Every case runs with unstriped and with striped directories and files.

use crate::harness::with_fs;
use dfs::sys::Sys;
use dfs::{
    Access, Code, CreateOptions, Credentials, Dfs, FileKind, NodeKind, Obj, OpenFlags, RenameFlags,
    Result, SetAttr, SetTime, XattrMode,
};

const NEW: OpenFlags = OpenFlags(OpenFlags::READ_WRITE.0 | OpenFlags::CREATE.0 | OpenFlags::EXCL.0);

fn code<T: std::fmt::Debug>(result: Result<T>) -> Code {
    result.expect_err("must fail").code
}

async fn touch(sys: &Sys, path: &str) -> Obj {
    sys.open(path.as_bytes(), NEW, 0o644, &CreateOptions::default()).await.unwrap()
}

async fn open(sys: &Sys, path: &str, flags: OpenFlags) -> Obj {
    sys.open(path.as_bytes(), flags, 0, &CreateOptions::default()).await.unwrap()
}

async fn put(sys: &Sys, path: &str, data: &[u8]) {
    sys.write_file(path.as_bytes(), data, 0o644).await.unwrap();
}

async fn names(sys: &Sys, path: &str) -> Vec<String> {
    let entries = sys.list(path.as_bytes()).await.unwrap();
    let mut names: Vec<String> =
        entries.iter().map(|entry| String::from_utf8_lossy(&entry.name).into_owned()).collect();
    names.sort();
    names
}

fn user(fs: &Dfs, uid: u32) -> Sys {
    Sys::new(fs.with_credentials(Credentials::new(uid, uid)))
}

#[test]
fn files_hold_what_was_written() {
    with_fs(async |_, fs| {
        let file = {
            let sys = Sys::new(fs.clone());
            touch(&sys, "/f").await
        };
        assert_eq!(fs.size(&file).await.unwrap(), 0);
        assert_eq!(fs.read(&file, 0, &mut [0; 10]).await.unwrap(), 0);
        // Across three chunks of 4 KiB, with a hole in front.
        let data: Vec<u8> = (0..9000u32).map(|i| (i % 251) as u8).collect();
        assert_eq!(fs.write(&file, 3000, &data).await.unwrap(), 9000);
        assert_eq!(fs.size(&file).await.unwrap(), 12_000);
        let mut back = vec![1; 13_000];
        assert_eq!(fs.read(&file, 0, &mut back).await.unwrap(), 12_000);
        assert!(back[..3000].iter().all(|&b| b == 0));
        assert_eq!(back[3000..12_000], data[..]);
        assert_eq!(fs.read(&file, 11_999, &mut back).await.unwrap(), 1);
        assert_eq!(fs.read(&file, 12_000, &mut back).await.unwrap(), 0);
        assert_eq!(fs.read(&file, 1 << 40, &mut back).await.unwrap(), 0);
        // A short read in a hole is full: the file goes on behind it.
        assert_eq!(fs.read(&file, 0, &mut back[..100]).await.unwrap(), 100);
    });
}

#[test]
fn ranges_and_memory_are_cut_independently() {
    with_fs(async |_, fs| {
        let sys = Sys::new(fs.clone());
        let file = touch(&sys, "/f").await;
        let range = |index, count| dfs::Recx { index, count };
        let written =
            fs.writev(&file, &[range(10, 3), range(5000, 4)], &[b"ab", b"cdefg"]).await.unwrap();
        assert_eq!(written, 7);
        let (mut a, mut b) = ([0; 4], [0; 3]);
        let ranges = [range(10, 3), range(5000, 4)];
        assert_eq!(fs.readv(&file, &ranges, &mut [&mut a, &mut b]).await.unwrap(), 7);
        assert_eq!((&a, &b), (b"abcd", b"efg"));
        // Only the part inside the file counts.
        let ranges = [range(5002, 4), range(9000, 3)];
        assert_eq!(fs.readv(&file, &ranges, &mut [&mut a, &mut b]).await.unwrap(), 2);
        assert_eq!(&a, b"fg\0\0");
        assert_eq!(code(fs.readv(&file, &ranges, &mut [&mut a]).await), Code::Inval);
    });
}

#[test]
fn truncate_cuts_and_extends_and_keeps_what_it_should() {
    with_fs(async |_, fs| {
        let sys = Sys::new(fs.clone());
        put(&sys, "/f", b"hello world").await;
        // A cut that ends inside data must keep the last byte it keeps.
        sys.truncate(b"/f", 5).await.unwrap();
        assert_eq!(sys.read_file(b"/f").await.unwrap(), b"hello");
        sys.truncate(b"/f", 8).await.unwrap();
        assert_eq!(sys.read_file(b"/f").await.unwrap(), b"hello\0\0\0");
        // Into a hole: the file ends in the hole.
        let file = open(&sys, "/f", OpenFlags::READ_WRITE).await;
        fs.write(&file, 20_000, b"x").await.unwrap();
        fs.truncate(&file, 10_000).await.unwrap();
        assert_eq!(fs.size(&file).await.unwrap(), 10_000);
        fs.truncate(&file, 4096).await.unwrap();
        assert_eq!(sys.stat(b"/f").await.unwrap().size, 4096);
        fs.truncate(&file, 0).await.unwrap();
        assert_eq!(sys.stat(b"/f").await.unwrap().size, 0);
        fs.truncate(&file, 70_000).await.unwrap();
        assert_eq!(sys.stat(b"/f").await.unwrap().size, 70_000);
        assert!(sys.read_file(b"/f").await.unwrap().iter().all(|&b| b == 0));
        assert_eq!(code(fs.truncate(&file, u64::MAX).await), Code::FileTooBig);
        let trunc = OpenFlags::WRITE | OpenFlags::TRUNC;
        drop(sys.open(b"/f", trunc, 0, &CreateOptions::default()).await.unwrap());
        assert_eq!(sys.stat(b"/f").await.unwrap().size, 0);
        assert_eq!(code(sys.truncate(b"/", 0).await), Code::IsDir);
        let reader = sys.open(b"/f", OpenFlags::READ, 0, &CreateOptions::default()).await.unwrap();
        assert_eq!(code(fs.truncate(&reader, 1).await), Code::BadHandle);
        assert_eq!(code(fs.write(&reader, 0, b"x").await), Code::BadHandle);
    });
}

#[test]
fn punch_makes_holes_and_cuts_at_the_end() {
    with_fs(async |_, fs| {
        let sys = Sys::new(fs.clone());
        let file = touch(&sys, "/f").await;
        fs.write(&file, 0, &[7; 10_000]).await.unwrap();
        fs.punch(&file, 4000, 200).await.unwrap();
        let back = sys.read_file(b"/f").await.unwrap();
        assert_eq!(back.len(), 10_000);
        assert!(back.iter().enumerate().all(|(at, &b)| (b == 0) == (4000..4200).contains(&at)));
        fs.punch_hole(&file, 9000, 5000).await.unwrap();
        assert_eq!(fs.size(&file).await.unwrap(), 10_000);
        fs.punch(&file, 20_000, 10).await.unwrap();
        assert_eq!(fs.size(&file).await.unwrap(), 10_000);
        fs.punch(&file, 8000, 5000).await.unwrap();
        assert_eq!(fs.size(&file).await.unwrap(), 8000);
        fs.punch(&file, 9000, u64::MAX).await.unwrap();
        assert_eq!(fs.size(&file).await.unwrap(), 9000);
    });
}

#[test]
fn append_goes_to_the_end() {
    with_fs(async |_, fs| {
        let sys = Sys::new(fs.clone());
        put(&sys, "/f", b"one").await;
        let flags = OpenFlags::WRITE | OpenFlags::APPEND;
        let file = sys.open(b"/f", flags, 0, &CreateOptions::default()).await.unwrap();
        fs.write(&file, 0, b"two").await.unwrap();
        assert_eq!(sys.read_file(b"/f").await.unwrap(), b"onetwo");
    });
}

#[test]
fn create_rules() {
    with_fs(async |_, fs| {
        let sys = Sys::new(fs.clone());
        let options = CreateOptions::default();
        let create = OpenFlags::READ_WRITE | OpenFlags::CREATE;
        touch(&sys, "/f").await;
        assert_eq!(code(sys.open(b"/f", NEW, 0o644, &options).await), Code::Exist);
        // Without EXCL an existing file is opened as it is.
        put(&sys, "/f", b"abc").await;
        let again = sys.open(b"/f", create, 0o600, &options).await.unwrap();
        assert_eq!((fs.size(&again).await.unwrap(), again.mode() & 0o7777), (3, 0o644));
        assert_eq!(code(sys.open(b"/none", OpenFlags::READ, 0, &options).await), Code::NonExist);
        assert_eq!(code(sys.open(b"/none/f", create, 0, &options).await), Code::NonExist);
        assert_eq!(code(sys.open(b"/f/g", create, 0, &options).await), Code::NotDir);
        assert_eq!(code(sys.open(b"/f/", OpenFlags::READ, 0, &options).await), Code::NotDir);
        sys.mkdir(b"/d", 0o755).await.unwrap();
        assert_eq!(code(sys.open(b"/d", OpenFlags::WRITE, 0, &options).await), Code::IsDir);
        assert_eq!(code(sys.open(b"/d", create, 0, &options).await), Code::IsDir);
        assert!(sys.open(b"/d", OpenFlags::READ, 0, &options).await.unwrap().is_dir());
        assert_eq!(code(sys.mkdir(b"/d", 0o755).await), Code::Exist);
        assert_eq!(code(sys.mkdir(b"/f", 0o755).await), Code::Exist);
        assert_eq!(code(sys.mkdir(b"/", 0o755).await), Code::Exist);
        assert_eq!(code(sys.mkdir(b"/x/y", 0o755).await), Code::NonExist);
        let long = [b"/", &[b'n'; 256][..]].concat();
        assert_eq!(code(sys.mkdir(&long, 0o755).await), Code::NameTooLong);
        sys.mkdir(&long[..256], 0o755).await.unwrap();
        let path = b"/d/".repeat(1366);
        assert_eq!(code(sys.stat(&path).await), Code::NameTooLong);
        assert_eq!(code(sys.stat(b"").await), Code::NonExist);
        sys.mkdir_p(b"/p/q/r", 0o755).await.unwrap();
        sys.mkdir_p(b"/p/q/r", 0o755).await.unwrap();
        assert_eq!(code(sys.mkdir_p(b"/f/q", 0o755).await), Code::NotDir);
        assert!(sys.stat(b"/p/q/r/").await.unwrap().is_dir());
    });
}

#[test]
fn creating_in_a_removed_directory_fails() {
    with_fs(async |_, fs| {
        let sys = Sys::new(fs.clone());
        sys.mkdir(b"/d", 0o755).await.unwrap();
        let dir = sys.lookup(b"/d", true).await.unwrap();
        sys.rmdir(b"/d").await.unwrap();
        let options = CreateOptions::default();
        for name in [&b"a"[..], b"b", b"c", b"d"] {
            assert_eq!(code(fs.open(&dir, name, NEW, 0o644, &options).await), Code::NonExist);
            assert_eq!(code(fs.mkdir(&dir, name, 0o755, None).await), Code::NonExist);
            assert_eq!(code(fs.symlink(&dir, name, b"x").await), Code::NonExist);
        }
        put(&sys, "/f", b"").await;
        let root = fs.root().await.unwrap();
        let moved = fs.rename(&root, b"f", &dir, b"f", RenameFlags::NONE).await;
        assert_eq!(code(moved), Code::NonExist);
        assert_eq!(code(fs.link(&root, b"f", &dir, b"f").await), Code::NonExist);
        assert_eq!(fs.list(&dir).await.unwrap(), []);
    });
}

#[test]
fn removal_rules() {
    with_fs(async |_, fs| {
        let sys = Sys::new(fs.clone());
        sys.mkdir(b"/d", 0o755).await.unwrap();
        put(&sys, "/d/f", b"x").await;
        assert_eq!(code(sys.rmdir(b"/d").await), Code::NotEmpty);
        assert_eq!(code(sys.rmdir(b"/d/f").await), Code::NotDir);
        assert_eq!(code(sys.unlink(b"/d").await), Code::IsDir);
        assert_eq!(code(sys.unlink(b"/d/none").await), Code::NonExist);
        assert_eq!(code(sys.rmdir(b"/none").await), Code::NonExist);
        assert_eq!(code(sys.rmdir(b"/d/.").await), Code::Inval);
        assert_eq!(code(sys.rmdir(b"/d/..").await), Code::NotEmpty);
        assert_eq!(code(sys.rmdir(b"/").await), Code::Busy);
        assert_eq!(code(sys.unlink(b"/d/f/").await), Code::NotDir);
        sys.unlink(b"/d/f").await.unwrap();
        assert_eq!(code(sys.stat(b"/d/f").await), Code::NonExist);
        sys.rmdir(b"/d").await.unwrap();
        assert_eq!(names(&sys, "/").await, [""; 0]);
    });
}

#[test]
fn remove_takes_trees_only_with_force() {
    with_fs(async |_, fs| {
        let sys = Sys::new(fs.clone());
        sys.mkdir_p(b"/t/a/b", 0o755).await.unwrap();
        for i in 0..40 {
            put(&sys, &format!("/t/a/f{i}"), b"x").await;
        }
        sys.symlink(b"/keep", b"/t/a/b/s").await.unwrap();
        put(&sys, "/keep", b"x").await;
        assert_eq!(code(sys.remove(b"/t", false).await), Code::NotEmpty);
        sys.remove(b"/t", true).await.unwrap();
        assert_eq!(names(&sys, "/").await, ["keep"]);
        sys.remove(b"/keep", false).await.unwrap();
        let report = fs.check(dfs::check::Mend::Nothing).await.unwrap();
        assert_eq!(report.findings, []);
        assert_eq!(report.object_count, 2, "superblock and root are all that is left");
    });
}

/// Every pair of kinds, and what renaming the first onto the second gives.
#[test]
fn rename_matrix() {
    with_fs(async |_, fs| {
        let sys = Sys::new(fs.clone());
        let make = async |path: &str, kind: &str| match kind {
            "file" => put(&sys, path, kind.as_bytes()).await,
            "dir" => sys.mkdir(path.as_bytes(), 0o755).await.unwrap(),
            "full" => sys.mkdir_p(format!("{path}/x").as_bytes(), 0o755).await.unwrap(),
            "link" => sys.symlink(b"nowhere", path.as_bytes()).await.unwrap(),
            _ => {}
        };
        let kinds = ["none", "file", "dir", "full", "link"];
        for (round, (from, to)) in
            kinds.iter().flat_map(|a| kinds.iter().map(move |b| (*a, *b))).enumerate()
        {
            let base = format!("/r{round}");
            sys.mkdir_p(format!("{base}/d").as_bytes(), 0o755).await.unwrap();
            let (source, target) = (format!("{base}/s"), format!("{base}/d/t"));
            make(&source, from).await;
            make(&target, to).await;
            let (source, target) = (source.as_bytes(), target.as_bytes());
            let from_dir = matches!(from, "dir" | "full");
            let to_dir = matches!(to, "dir" | "full");
            let expected = match (from, to) {
                ("none", _) => Err(Code::NonExist),
                (_, "none") => Ok(()),
                _ if from_dir && !to_dir => Err(Code::NotDir),
                _ if !from_dir && to_dir => Err(Code::IsDir),
                (_, "full") => Err(Code::NotEmpty),
                _ => Ok(()),
            };
            if to != "none" && from != "none" {
                let refused = sys.rename(source, target, RenameFlags::NOREPLACE).await;
                assert_eq!(code(refused), Code::Exist, "{from} {to}");
            }
            let before = sys.lstat(source).await.map(|stat| stat.ino);
            let done = sys.rename(source, target, RenameFlags::NONE).await;
            assert_eq!(done.map_err(|error| error.code), expected, "{from} onto {to}");
            if expected.is_ok() {
                assert_eq!(code(sys.lstat(source).await), Code::NonExist);
                assert_eq!(sys.lstat(target).await.unwrap().ino, before.unwrap());
            }
            if from == "full" && expected.is_ok() {
                sys.stat(&[target, b"/x"].concat()).await.unwrap();
            }
        }
        assert_eq!(fs.check(dfs::check::Mend::Nothing).await.unwrap().findings, []);
    });
}

#[test]
fn rename_onto_itself_or_another_name_of_the_file_does_nothing() {
    with_fs(async |_, fs| {
        let sys = Sys::new(fs.clone());
        put(&sys, "/a", b"data").await;
        sys.rename(b"/a", b"/a", RenameFlags::NONE).await.unwrap();
        sys.link(b"/a", b"/b").await.unwrap();
        sys.rename(b"/a", b"/b", RenameFlags::NONE).await.unwrap();
        assert_eq!(names(&sys, "/").await, ["a", "b"]);
        assert_eq!(sys.stat(b"/a").await.unwrap().nlink, 2);
        sys.mkdir(b"/d", 0o755).await.unwrap();
        sys.rename(b"/d", b"/d", RenameFlags::NONE).await.unwrap();
        assert_eq!(sys.read_file(b"/b").await.unwrap(), b"data");
    });
}

#[test]
fn a_directory_cannot_go_below_itself() {
    with_fs(async |_, fs| {
        let sys = Sys::new(fs.clone());
        sys.mkdir_p(b"/a/b/c", 0o755).await.unwrap();
        sys.mkdir(b"/e", 0o755).await.unwrap();
        for target in [&b"/a/x"[..], b"/a/b/x", b"/a/b/c/x"] {
            assert_eq!(code(sys.rename(b"/a", target, RenameFlags::NONE).await), Code::Inval);
        }
        let swap = RenameFlags::EXCHANGE;
        assert_eq!(code(sys.rename(b"/a", b"/a/b/c", swap).await), Code::Inval);
        assert_eq!(code(sys.rename(b"/a/b/c", b"/a", swap).await), Code::Inval);
        assert_eq!(code(sys.rename(b"/a/b", b"/a", RenameFlags::NONE).await), Code::NotEmpty);
        sys.rename(b"/a", b"/e/a", RenameFlags::NONE).await.unwrap();
        // The parent has changed: what was allowed is not any more, and the other way round.
        assert_eq!(code(sys.rename(b"/e", b"/e/a/b/x", RenameFlags::NONE).await), Code::Inval);
        sys.rename(b"/e/a/b", b"/b", RenameFlags::NONE).await.unwrap();
        sys.rename(b"/e", b"/b/c/e", RenameFlags::NONE).await.unwrap();
        assert_eq!(fs.check(dfs::check::Mend::Nothing).await.unwrap().findings, []);
    });
}

#[test]
fn exchange_swaps_whatever_it_is() {
    with_fs(async |_, fs| {
        let sys = Sys::new(fs.clone());
        put(&sys, "/f", b"file").await;
        sys.mkdir_p(b"/d/sub", 0o755).await.unwrap();
        sys.mkdir(b"/p", 0o755).await.unwrap();
        let file = sys.lookup(b"/f", false).await.unwrap();
        fs.setxattr(&file, b"user.a", b"1", XattrMode::Set).await.unwrap();
        let swap = RenameFlags::EXCHANGE;
        sys.rename(b"/f", b"/d", swap).await.unwrap();
        assert_eq!(sys.read_file(b"/d").await.unwrap(), b"file");
        assert!(sys.stat(b"/f/sub").await.unwrap().is_dir());
        assert_eq!(sys.getxattr(b"/d", b"user.a", false).await.unwrap(), b"1");
        assert_eq!(sys.listxattr(b"/f", false).await.unwrap(), [b""; 0]);
        sys.rename(b"/f", b"/p/g", RenameFlags::NONE).await.unwrap();
        sys.rename(b"/p/g/sub", b"/d", swap).await.unwrap();
        assert!(sys.stat(b"/d").await.unwrap().is_dir());
        assert_eq!(code(sys.rename(b"/d", b"/none", swap).await), Code::NonExist);
        let both = RenameFlags::EXCHANGE | RenameFlags::NOREPLACE;
        assert_eq!(code(sys.rename(b"/d", b"/p", both).await), Code::Inval);
        assert_eq!(fs.check(dfs::check::Mend::Nothing).await.unwrap().findings, []);
    });
}

#[test]
fn renames_carry_data_attributes_and_open_handles() {
    with_fs(async |_, fs| {
        let sys = Sys::new(fs.clone());
        sys.mkdir(b"/d", 0o755).await.unwrap();
        let file = touch(&sys, "/a").await;
        fs.write(&file, 0, b"data").await.unwrap();
        for i in 1..4 {
            let value = vec![i; 6000];
            fs.setxattr(&file, &[b'u', i], &value, XattrMode::Set).await.unwrap();
        }
        put(&sys, "/d/b", b"old").await;
        let old = open(&sys, "/d/b", OpenFlags::READ_WRITE).await;
        fs.setxattr(&old, b"stale", b"1", XattrMode::Set).await.unwrap();
        sys.rename(b"/a", b"/d/b", RenameFlags::NONE).await.unwrap();
        assert_eq!(sys.listxattr(b"/d/b", false).await.unwrap().len(), 3);
        assert_eq!(sys.getxattr(b"/d/b", &[b'u', 2], false).await.unwrap(), vec![2; 6000]);
        // The replaced file lives on in its handle.
        let mut back = [0; 3];
        assert_eq!(fs.read(&old, 0, &mut back).await.unwrap(), 3);
        assert_eq!((&back, fs.ostat(&old).await.unwrap().nlink), (b"old", 0));
        // The moved one is found through its handle under the new name.
        fs.write(&file, 4, b"more").await.unwrap();
        let set = SetAttr { mode: Some(0o600), ..SetAttr::default() };
        fs.setattr(&file, &set).await.unwrap();
        let stat = sys.stat(b"/d/b").await.unwrap();
        assert_eq!((stat.size, stat.mode & 0o7777, stat.nlink), (8, 0o600, 1));
        drop(old);
        fs.sync();
    });
}

#[test]
fn hard_links_share_everything() {
    with_fs(async |_, fs| {
        let sys = Sys::new(fs.clone());
        put(&sys, "/a", b"one").await;
        sys.setxattr(b"/a", b"user.k", b"v", XattrMode::Set, true).await.unwrap();
        sys.mkdir(b"/d", 0o755).await.unwrap();
        sys.link(b"/a", b"/d/b").await.unwrap();
        sys.link(b"/d/b", b"/c").await.unwrap();
        let inos: Vec<u64> = {
            let mut inos = Vec::new();
            for path in ["/a", "/d/b", "/c"] {
                let stat = sys.stat(path.as_bytes()).await.unwrap();
                assert_eq!((stat.nlink, stat.size), (3, 3), "{path}");
                inos.push(stat.ino);
            }
            inos
        };
        assert!(inos.iter().all(|ino| *ino == inos[0]));
        sys.chmod(b"/c", 0o640).await.unwrap();
        put(&sys, "/d/b", b"longer").await;
        let stat = sys.stat(b"/a").await.unwrap();
        assert_eq!((stat.mode & 0o7777, stat.size), (0o640, 6));
        assert_eq!(sys.getxattr(b"/c", b"user.k", true).await.unwrap(), b"v");
        sys.removexattr(b"/a", b"user.k", true).await.unwrap();
        assert_eq!(code(sys.getxattr(b"/c", b"user.k", true).await), Code::NoAttr);
        sys.rename(b"/a", b"/d/a", RenameFlags::NONE).await.unwrap();
        sys.unlink(b"/c").await.unwrap();
        assert_eq!(sys.stat(b"/d/a").await.unwrap().nlink, 2);
        put(&sys, "/e", b"").await;
        sys.rename(b"/e", b"/d/a", RenameFlags::NONE).await.unwrap();
        assert_eq!(sys.stat(b"/d/b").await.unwrap().nlink, 1);
        assert_eq!(sys.read_file(b"/d/b").await.unwrap(), b"longer");
        sys.unlink(b"/d/b").await.unwrap();
        assert_eq!(code(sys.link(b"/d", b"/x").await), Code::NoPerm);
        assert_eq!(code(sys.link(b"/none", b"/x").await), Code::NonExist);
        assert_eq!(code(sys.link(b"/d/a", b"/d").await), Code::Exist);
        // Symbolic links and special files can have several names, too.
        sys.symlink(b"target", b"/s").await.unwrap();
        sys.link(b"/s", b"/s2").await.unwrap();
        assert_eq!(sys.readlink(b"/s2").await.unwrap(), b"target");
        assert_eq!(sys.lstat(b"/s").await.unwrap().nlink, 2);
        sys.unlink(b"/s").await.unwrap();
        assert_eq!(sys.readlink(b"/s2").await.unwrap(), b"target");
        sys.unlink(b"/s2").await.unwrap();
        assert_eq!(fs.check(dfs::check::Mend::Nothing).await.unwrap().findings, []);
    });
}

#[test]
fn unlinked_files_live_while_they_are_open() {
    with_fs(async |world, fs| {
        let sys = Sys::new(fs.clone());
        let other = Sys::new(world.mount_from("other", Credentials::root()).await);
        for (name, links) in [("/plain", 1), ("/moved", 1), ("/hard", 2)] {
            let mut path = name.to_string();
            put(&sys, name, b"still here").await;
            if name == "/moved" {
                sys.mkdir_p(b"/elsewhere", 0o755).await.unwrap();
                path = "/elsewhere/moved".into();
                sys.rename(name.as_bytes(), path.as_bytes(), RenameFlags::NONE).await.unwrap();
            }
            if links == 2 {
                sys.link(name.as_bytes(), b"/hard2").await.unwrap();
                sys.unlink(b"/hard2").await.unwrap();
            }
            let flags = OpenFlags::READ_WRITE;
            let file =
                sys.open(path.as_bytes(), flags, 0, &CreateOptions::default()).await.unwrap();
            other.unlink(path.as_bytes()).await.unwrap();
            let mut back = [0; 10];
            assert_eq!(fs.read(&file, 0, &mut back).await.unwrap(), 10, "{name}");
            assert_eq!(&back, b"still here");
            fs.write(&file, 10, b"!").await.unwrap();
            assert_eq!(fs.size(&file).await.unwrap(), 11);
            drop(file);
            fs.sync();
        }
        other.fs().remove(&fs.root().await.unwrap(), b"elsewhere", true).await.unwrap();
    });
}

#[test]
fn symbolic_links_lead_where_they_should() {
    with_fs(async |_, fs| {
        let sys = Sys::new(fs.clone());
        sys.mkdir_p(b"/d/e", 0o755).await.unwrap();
        put(&sys, "/d/f", b"f").await;
        for (path, target) in [
            ("/abs", "/d/f"),
            ("/rel", "d/f"),
            ("/dir", "d"),
            ("/d/e/up", "../f"),
            ("/d/e/upup", "../../d/e/.."),
            ("/dot", "./d/./e/../f"),
            ("/chain", "rel"),
            ("/loop1", "loop2"),
            ("/loop2", "loop1"),
            ("/dangling", "d/new"),
        ] {
            sys.symlink(target.as_bytes(), path.as_bytes()).await.unwrap();
        }
        for path in ["/abs", "/rel", "/dir/f", "/d/e/up", "/d/e/upup/f", "/dot", "/chain"] {
            assert_eq!(sys.read_file(path.as_bytes()).await.unwrap(), b"f", "{path}");
        }
        assert_eq!(sys.lstat(b"/abs").await.unwrap().size, 4);
        assert_eq!(sys.readlink(b"/abs").await.unwrap(), b"/d/f");
        assert_eq!(code(sys.readlink(b"/d").await), Code::Inval);
        assert_eq!(code(sys.stat(b"/loop1").await), Code::TooManyLinks);
        assert_eq!(code(sys.stat(b"/loop1/x").await), Code::TooManyLinks);
        let options = CreateOptions::default();
        let nofollow = OpenFlags::READ | OpenFlags::NOFOLLOW;
        assert_eq!(code(sys.open(b"/abs", nofollow, 0, &options).await), Code::TooManyLinks);
        assert_eq!(code(sys.open(b"/abs/", OpenFlags::READ, 0, &options).await), Code::NotDir);
        assert_eq!(code(sys.open(b"/dangling", NEW, 0o644, &options).await), Code::Exist);
        assert_eq!(code(sys.stat(b"/dangling").await), Code::NonExist);
        // Creation through a dangling link makes its target.
        let create = OpenFlags::WRITE | OpenFlags::CREATE;
        sys.open(b"/dangling", create, 0o644, &options).await.unwrap();
        assert_eq!(sys.lstat(b"/d/new").await.unwrap().kind(), FileKind::Regular);
        assert_eq!(code(sys.rmdir(b"/dir").await), Code::NotDir);
        sys.unlink(b"/dir").await.unwrap();
        assert!(sys.stat(b"/d").await.unwrap().is_dir());
        assert_eq!(code(sys.symlink(b"", b"/x").await), Code::NonExist);
        assert_eq!(code(sys.symlink(&[b'x'; 4096], b"/x").await), Code::NameTooLong);
        sys.symlink(&[b'x'; 4095], b"/x").await.unwrap();
        assert_eq!(sys.readlink(b"/x").await.unwrap().len(), 4095);
        // From a handle, `..` finds the parent through the marker.
        let e = sys.lookup(b"/d/e", true).await.unwrap();
        let up = fs.lookup_rel(&e, b"..", OpenFlags::READ).await.unwrap();
        assert_eq!(up.ino(), sys.stat(b"/d").await.unwrap().ino);
        let f = fs.lookup_rel(&e, b"../../d/f", OpenFlags::READ).await.unwrap();
        assert_eq!(f.ino(), sys.stat(b"/d/f").await.unwrap().ino);
        let top = fs.lookup_rel(&e, b"../../../..", OpenFlags::READ).await.unwrap();
        assert_eq!(top.ino(), sys.stat(b"/").await.unwrap().ino);
    });
}

#[test]
fn permission_bits_are_enforced() {
    with_fs(async |_, fs| {
        let root = Sys::new(fs.clone());
        let (ann, bob) = (user(&fs, 1), user(&fs, 2));
        ann.mkdir(b"/a", 0o700).await.unwrap();
        put(&ann, "/a/f", b"x").await;
        let options = CreateOptions::default();
        assert_eq!(code(bob.stat(b"/a/f").await), Code::Access);
        assert_eq!(code(bob.list(b"/a").await), Code::Access);
        assert_eq!(code(bob.write_file(b"/a/g", b"", 0o644).await), Code::Access);
        root.read_file(b"/a/f").await.unwrap();
        ann.chmod(b"/a", 0o711).await.unwrap();
        bob.set_cache_lifetime(std::time::Duration::ZERO);
        // Search alone allows to pass, not to list or to make.
        assert_eq!(bob.read_file(b"/a/f").await.unwrap(), b"x");
        assert_eq!(code(bob.list(b"/a").await), Code::Access);
        assert_eq!(code(bob.open(b"/a/f", OpenFlags::WRITE, 0, &options).await), Code::Access);
        assert_eq!(code(bob.open(b"/a/g", NEW, 0o644, &options).await), Code::Access);
        assert_eq!(code(bob.open(b"/a/f", NEW, 0o644, &options).await), Code::Exist);
        assert_eq!(code(bob.mkdir(b"/a/f", 0o755).await), Code::Exist);
        assert_eq!(code(bob.unlink(b"/a/f").await), Code::Access);
        assert_eq!(code(bob.rename(b"/a/f", b"/f", RenameFlags::NONE).await), Code::Access);
        assert_eq!(code(bob.link(b"/a/f", b"/a/h").await), Code::Access);
        assert_eq!(code(bob.chmod(b"/a/f", 0o777).await), Code::NoPerm);
        assert_eq!(code(bob.chown(b"/a/f", Some(2), None, true).await), Code::NoPerm);
        let now = Some(SetTime::Now);
        assert_eq!(code(bob.utimens(b"/a/f", now, now, true).await), Code::Access);
        let past = Some(SetTime::At(5));
        assert_eq!(code(bob.utimens(b"/a/f", past, None, true).await), Code::NoPerm);
        assert_eq!(code(bob.truncate(b"/a/f", 0).await), Code::Access);
        assert_eq!(code(bob.access(b"/a/f", Access::WRITE).await), Code::Access);
        bob.access(b"/a/f", Access::READ).await.unwrap();
        ann.chmod(b"/a/f", 0o666).await.unwrap();
        bob.utimens(b"/a/f", now, now, true).await.unwrap();
        // An owner may give a file to a group of theirs, not away.
        assert_eq!(code(ann.chown(b"/a/f", Some(2), None, true).await), Code::NoPerm);
        assert_eq!(code(ann.chown(b"/a/f", None, Some(2), true).await), Code::NoPerm);
        let cred = Credentials { groups: vec![9], ..Credentials::new(1, 1) };
        let ann9 = Sys::new(fs.with_credentials(cred));
        ann9.chown(b"/a/f", None, Some(9), true).await.unwrap();
        root.chown(b"/a/f", Some(2), Some(2), true).await.unwrap();
        let stat = root.stat(b"/a/f").await.unwrap();
        assert_eq!((stat.uid, stat.gid), (2, 2));
    });
}

#[test]
fn sticky_setgid_and_setuid() {
    with_fs(async |_, fs| {
        let root = Sys::new(fs.clone());
        let (ann, bob) = (user(&fs, 1), user(&fs, 2));
        root.mkdir(b"/tmp", 0o1777).await.unwrap();
        put(&ann, "/tmp/a", b"").await;
        ann.mkdir(b"/tmp/ad", 0o777).await.unwrap();
        put(&bob, "/tmp/b", b"").await;
        assert_eq!(code(bob.unlink(b"/tmp/a").await), Code::NoPerm);
        assert_eq!(code(bob.rmdir(b"/tmp/ad").await), Code::NoPerm);
        assert_eq!(code(bob.rename(b"/tmp/a", b"/x", RenameFlags::NONE).await), Code::NoPerm);
        assert_eq!(code(bob.rename(b"/tmp/b", b"/tmp/a", RenameFlags::NONE).await), Code::NoPerm);
        bob.unlink(b"/tmp/b").await.unwrap();
        root.unlink(b"/tmp/a").await.unwrap();
        root.mkdir(b"/shared", 0o777).await.unwrap();
        root.chown(b"/shared", None, Some(50), true).await.unwrap();
        root.chmod(b"/shared", 0o2777).await.unwrap();
        ann.set_cache_lifetime(std::time::Duration::ZERO);
        put(&ann, "/shared/f", b"").await;
        ann.mkdir(b"/shared/d", 0o755).await.unwrap();
        assert_eq!(ann.stat(b"/shared/f").await.unwrap().gid, 50);
        let dir = ann.stat(b"/shared/d").await.unwrap();
        assert_eq!((dir.gid, dir.mode & 0o7777), (50, 0o2755));
        // A chown drops set-user-id; a chmod by a stranger to the group drops set-group-id.
        ann.chmod(b"/shared/f", 0o6755).await.unwrap();
        assert_eq!(ann.stat(b"/shared/f").await.unwrap().mode & 0o7777, 0o4755);
        root.chown(b"/shared/f", Some(2), None, true).await.unwrap();
        assert_eq!(ann.stat(b"/shared/f").await.unwrap().mode & 0o7777, 0o755);
        let cred = Credentials { umask: 0o027, ..Credentials::new(1, 1) };
        let masked = Sys::new(fs.with_credentials(cred));
        masked.mkdir(b"/m", 0o777).await.unwrap();
        assert_eq!(masked.stat(b"/m").await.unwrap().mode & 0o7777, 0o750);
    });
}

#[test]
fn times_follow_data_unless_set() {
    with_fs(async |world, fs| {
        let sys = Sys::new(fs.clone());
        let env = world.client.env();
        let file = touch(&sys, "/f").await;
        let made = sys.stat(b"/f").await.unwrap();
        let pause = std::time::Duration::from_millis(5);
        env.sleep(pause).await;
        fs.write(&file, 0, b"x").await.unwrap();
        let written = sys.stat(b"/f").await.unwrap();
        assert!(written.mtime_ns > made.mtime_ns && written.ctime_ns >= written.mtime_ns);
        // Explicit times stay...
        for hard in [false, true] {
            if hard {
                sys.link(b"/f", b"/f2").await.unwrap();
            }
            let old = Some(SetTime::At(1_000));
            sys.utimens(b"/f", Some(SetTime::At(-5)), old, true).await.unwrap();
            let set = sys.stat(b"/f").await.unwrap();
            assert_eq!((set.atime_ns, set.mtime_ns), (-5, 1_000));
            assert!(set.ctime_ns > written.ctime_ns);
            // ... also when other attributes change ...
            sys.chmod(b"/f", 0o600).await.unwrap();
            assert_eq!(sys.stat(b"/f").await.unwrap().mtime_ns, 1_000);
            // ... until the next write.
            env.sleep(pause).await;
            fs.write(&file, 0, b"y").await.unwrap();
            let again = sys.stat(b"/f").await.unwrap().mtime_ns;
            assert!(again > written.mtime_ns);
            sys.chmod(b"/f", 0o644).await.unwrap();
            assert_eq!(sys.stat(b"/f").await.unwrap().mtime_ns, again);
        }
        // A size given with a time keeps the time.
        let set = SetAttr { size: Some(100), mtime: Some(SetTime::At(77)), ..SetAttr::default() };
        let stat = sys.setattr(b"/f", &set, true).await.unwrap();
        assert_eq!((stat.size, stat.mtime_ns), (100, 77));
        let before = sys.stat(b"/f").await.unwrap();
        env.sleep(pause).await;
        sys.truncate(b"/f", 0).await.unwrap();
        assert!(sys.stat(b"/f").await.unwrap().mtime_ns > before.mtime_ns);
        // Directories change with their entries.
        sys.mkdir(b"/d", 0o755).await.unwrap();
        let before = sys.stat(b"/d").await.unwrap();
        env.sleep(pause).await;
        put(&sys, "/d/x", b"").await;
        let after = sys.stat(b"/d").await.unwrap();
        assert!(after.mtime_ns > before.mtime_ns);
        sys.utimens(b"/d", None, Some(SetTime::At(3)), true).await.unwrap();
        assert_eq!(sys.stat(b"/d").await.unwrap().mtime_ns, 3);
        env.sleep(pause).await;
        sys.unlink(b"/d/x").await.unwrap();
        assert!(sys.stat(b"/d").await.unwrap().mtime_ns > after.mtime_ns);
    });
}

#[test]
fn extended_attributes() {
    with_fs(async |_, fs| {
        let sys = Sys::new(fs.clone());
        put(&sys, "/f", b"").await;
        for path in [&b"/f"[..], b"/"] {
            let set = async |name: &[u8], value: &[u8], mode| {
                sys.setxattr(path, name, value, mode, true).await
            };
            set(b"user.a", b"1", XattrMode::Create).await.unwrap();
            assert_eq!(code(set(b"user.a", b"2", XattrMode::Create).await), Code::Exist);
            set(b"user.a", b"2", XattrMode::Replace).await.unwrap();
            assert_eq!(code(set(b"user.b", b"2", XattrMode::Replace).await), Code::NoAttr);
            let big = vec![7; 65_536];
            set(b"user.big", &big, XattrMode::Set).await.unwrap();
            assert_eq!(sys.getxattr(path, b"user.big", true).await.unwrap(), big);
            let too_big = vec![7; 65_537];
            assert_eq!(code(set(b"user.c", &too_big, XattrMode::Set).await), Code::RecordTooBig);
            assert_eq!(code(set(b"", b"", XattrMode::Set).await), Code::Range);
            set(b"user.empty", b"", XattrMode::Set).await.unwrap();
            assert_eq!(sys.getxattr(path, b"user.empty", true).await.unwrap(), b"");
            let mut all = sys.listxattr(path, true).await.unwrap();
            all.sort();
            assert_eq!(all, [&b"user.a"[..], b"user.big", b"user.empty"]);
            assert_eq!(sys.getxattr(path, b"user.a", true).await.unwrap(), b"2");
            sys.removexattr(path, b"user.a", true).await.unwrap();
            assert_eq!(code(sys.removexattr(path, b"user.a", true).await), Code::NoAttr);
            assert_eq!(code(sys.getxattr(path, b"user.a", true).await), Code::NoAttr);
        }
        sys.symlink(b"x", b"/s").await.unwrap();
        let refused = sys.setxattr(b"/s", b"user.a", b"", XattrMode::Set, false).await;
        assert_eq!(code(refused), Code::NoPerm);
        let ann = user(&fs, 1);
        let refused = ann.setxattr(b"/f", b"trusted.x", b"", XattrMode::Set, true).await;
        assert_eq!(code(refused), Code::NoPerm);
        let refused = ann.setxattr(b"/f", b"user.x", b"", XattrMode::Set, true).await;
        assert_eq!(code(refused), Code::Access);
    });
}

#[test]
fn special_files_are_stored() {
    with_fs(async |_, fs| {
        let sys = Sys::new(fs.clone());
        for (path, kind, rdev) in [
            ("/fifo", FileKind::Fifo, 0),
            ("/sock", FileKind::Socket, 0),
            ("/null", FileKind::CharDevice, 0x103),
            ("/sda", FileKind::BlockDevice, 0x800),
            ("/reg", FileKind::Regular, 0),
        ] {
            sys.mknod(path.as_bytes(), 0o640, NodeKind { kind, rdev }).await.unwrap();
            let stat = sys.stat(path.as_bytes()).await.unwrap();
            assert_eq!((stat.kind(), stat.rdev, stat.mode & 0o7777), (kind, rdev, 0o640));
            let node = NodeKind { kind, rdev };
            assert_eq!(code(sys.mknod(path.as_bytes(), 0o640, node).await), Code::Exist);
        }
        let ann = user(&fs, 1);
        let device = NodeKind { kind: FileKind::CharDevice, rdev: 1 };
        assert_eq!(code(ann.mknod(b"/x", 0o666, device).await), Code::NoPerm);
        let dir = NodeKind { kind: FileKind::Directory, rdev: 0 };
        assert_eq!(code(sys.mknod(b"/x", 0o666, dir).await), Code::Inval);
        for path in ["/fifo", "/sock", "/null", "/sda", "/reg"] {
            sys.unlink(path.as_bytes()).await.unwrap();
        }
    });
}

#[test]
fn read_only_mounts_change_nothing() {
    with_fs(async |world, fs| {
        let sys = Sys::new(fs.clone());
        put(&sys, "/f", b"x").await;
        let flags = dfs::MountFlags::READ_ONLY;
        let reader = Sys::new(Dfs::mount(&world.cont, flags, Credentials::root()).await.unwrap());
        assert_eq!(reader.read_file(b"/f").await.unwrap(), b"x");
        assert_eq!(code(reader.write_file(b"/f", b"y", 0o644).await), Code::ReadOnly);
        assert_eq!(
            code(reader.open(b"/g", NEW, 0, &CreateOptions::default()).await),
            Code::ReadOnly
        );
        assert_eq!(code(reader.mkdir(b"/d", 0o755).await), Code::ReadOnly);
        assert_eq!(code(reader.mkdir(b"/f", 0o755).await), Code::Exist);
        assert_eq!(code(reader.unlink(b"/f").await), Code::ReadOnly);
        assert_eq!(code(reader.chmod(b"/f", 0o600).await), Code::ReadOnly);
        assert_eq!(code(reader.access(b"/f", Access::WRITE).await), Code::ReadOnly);
        let moved = reader.rename(b"/f", b"/g", RenameFlags::NONE).await;
        assert_eq!(code(moved), Code::ReadOnly);
    });
}
