//! Calls for mounts: what they tell is what asking again tells, and an object that lost its name
//! is never mistaken for the one that has the name now.

use crate::harness::with_fs;
use dfs::{
    Code, CreateOptions, DirAnchor, FileKind, OpenFlags, RenameFlags, SetAttr, SetTime, Unnamed,
    XattrMode,
};

const RW: OpenFlags = OpenFlags::READ_WRITE;

#[test]
fn what_a_call_tells_is_what_asking_tells() {
    with_fs(async |_, fs| {
        let root = fs.root().await.unwrap();
        let made = fs.create_stat(&root, b"f", RW | OpenFlags::EXCL, 0o644).await.unwrap();
        let (file, changed_ns) = (made.obj, made.changed_ns.unwrap());
        // The directory's times are what the making said.
        let dir = fs.ostat(&root).await.unwrap();
        assert_eq!((dir.mtime_ns, dir.ctime_ns), (changed_ns, changed_ns));
        let made = made.stat;
        assert_eq!(made, fs.ostat(&file).await.unwrap());
        let again = fs.create_stat(&root, b"f", RW | OpenFlags::EXCL, 0o644).await;
        assert_eq!(again.err().unwrap().code, Code::Exist);
        fs.write(&file, 0, b"four").await.unwrap();
        let there = fs.create_stat(&root, b"f", RW, 0o600).await.unwrap();
        assert_eq!(there.changed_ns, None);
        let (again, found) = (there.obj, there.stat);
        assert_eq!((again.oid(), found.size, found.mode & 0o777), (file.oid(), 4, 0o644));
        let (named, stat) = fs.lookup_stat(&root, b"f").await.unwrap();
        assert_eq!(stat, fs.stat_named(&named).await.unwrap());
        assert_eq!(fs.lookup_stat(&root, b"g").await.unwrap_err().code, Code::NonExist);
        fs.mkdir(&root, b"d", 0o755, None).await.unwrap();
        let mut anchor = DirAnchor::start();
        let mut listed = Vec::new();
        while !anchor.is_end() {
            listed.append(&mut fs.readdir_objs(&root, &mut anchor, 100).await.unwrap());
        }
        assert_eq!(listed.len(), 2);
        for (name, shared, stat) in listed {
            let (obj, looked_up) = fs.lookup_stat(&root, &name).await.unwrap();
            assert_eq!((shared.oid(), stat), (obj.oid(), looked_up));
            assert_eq!(fs.ostat(&fs.attach(&shared)).await.unwrap(), stat);
        }
        for (offset, room) in [(0, 4), (0, 9000), (3, 10), (4, 1), (5000, 7)] {
            let (mut a, mut b) = (vec![1; room], vec![2; room]);
            let one = fs.read_to_end(&file, offset, &mut a).await.unwrap();
            let other = fs.read(&file, offset, &mut b).await.unwrap();
            assert_eq!((one, &a), (other, &b), "{offset}");
        }
        fs.write(&file, 9000, b"far").await.unwrap();
        for (offset, room) in [(0, 9003), (0, 9004), (4090, 8192), (9002, 5)] {
            let (mut a, mut b) = (vec![1; room], vec![2; room]);
            let one = fs.read_to_end(&file, offset, &mut a).await.unwrap();
            let other = fs.read(&file, offset, &mut b).await.unwrap();
            assert_eq!((one, &a), (other, &b), "{offset}");
        }
        let (cut, stat) =
            fs.open_obj(&named, RW | OpenFlags::TRUNC, Unnamed::Linked).await.unwrap();
        assert_eq!((stat.size, fs.size(&cut).await.unwrap()), (0, 0));
    });
}

#[test]
fn who_lost_a_name_is_told() {
    with_fs(async |_, fs| {
        let root = fs.root().await.unwrap();
        let file = fs.create_stat(&root, b"a", RW, 0o644).await.unwrap().obj;
        fs.link_obj(&file, &root, b"b").await.unwrap();
        let gone = fs.unlink_told(&root, b"a").await.unwrap();
        if let Some(changed_ns) = gone.changed_ns {
            assert_eq!(fs.ostat(&root).await.unwrap().mtime_ns, changed_ns);
        }
        assert_eq!((gone.oid, gone.kind, gone.nlink), (file.oid(), FileKind::Regular, 1));
        let other = fs.create_stat(&root, b"c", RW, 0o644).await.unwrap().obj;
        let plain = RenameFlags::NONE;
        let renamed = fs.rename_told(&root, b"c", &root, b"b", plain).await.unwrap();
        assert_eq!(renamed.moved, other.oid());
        assert_eq!(renamed.replaced.map(|gone| (gone.oid, gone.nlink)), Some((file.oid(), 0)));
        assert_eq!(renamed.swapped, None);
        assert_eq!(fs.ostat(&file).await.unwrap().nlink, 0);
        let dir = fs.mkdir(&root, b"d", 0o755, None).await.unwrap();
        let swap = RenameFlags::EXCHANGE;
        let renamed = fs.rename_told(&root, b"d", &root, b"b", swap).await.unwrap();
        assert_eq!((renamed.moved, renamed.swapped), (dir.oid(), Some(other.oid())));
        assert_eq!(renamed.replaced, None);
    });
}

#[test]
fn objects_are_not_confused_with_those_that_took_their_names() {
    with_fs(async |world, fs| {
        let root = fs.root().await.unwrap();
        let file = fs.create_stat(&root, b"f", RW, 0o644).await.unwrap().obj;
        fs.write(&file, 0, b"old").await.unwrap();
        let elsewhere = world.mount_from("second", dfs::Credentials::root()).await;
        let far_root = elsewhere.root().await.unwrap();
        let seen = elsewhere.lookup_stat(&far_root, b"f").await.unwrap().0.share();
        fs.rename(&root, b"f", &root, b"g", RenameFlags::NONE).await.unwrap();
        let taker = fs.create_stat(&root, b"f", RW, 0o644).await.unwrap().obj;
        fs.write(&taker, 0, b"newer").await.unwrap();

        let stale = elsewhere.attach(&seen);
        assert_eq!(elsewhere.stat_named(&stale).await.unwrap_err().code, Code::NonExist);
        let cut = elsewhere.open_obj(&stale, RW | OpenFlags::TRUNC, Unnamed::Linked).await;
        assert_eq!(cut.unwrap_err().code, Code::NonExist);
        assert_eq!(
            elsewhere.link_obj(&stale, &far_root, b"h").await.unwrap_err().code,
            Code::NonExist
        );
        assert_eq!(fs.size(&taker).await.unwrap(), 5);
        assert_eq!(fs.size(&file).await.unwrap(), 3);
    });
}

/// Each thread of a mount has a mirror of its own. One made a file without a name, another gave it
/// one, and who then looked the name up through the first was told that the file had none.
#[test]
fn a_file_that_another_mirror_named_has_a_name() {
    with_fs(async |world, fs| {
        let root = fs.root().await.unwrap();
        let file = fs.tmpfile(&root, RW, 0o600, &CreateOptions::default()).await.unwrap();
        let elsewhere = world.mount_from("second", dfs::Credentials::root()).await;
        let far_root = elsewhere.root().await.unwrap();
        let far = elsewhere.attach(&file.share());
        elsewhere.link_obj(&far, &far_root, b"named").await.unwrap();
        let found = fs.lookup_stat(&root, b"named").await.unwrap().0;
        assert!(!found.is_unlinked());
        assert_eq!(fs.ostat(&found).await.unwrap().nlink, 1);
        assert_eq!(fs.ostat(&file).await.unwrap().nlink, 1);
    });
}

#[test]
fn a_held_file_opens_again_without_a_name() {
    with_fs(async |_, fs| {
        let root = fs.root().await.unwrap();
        let file = fs.create_stat(&root, b"f", RW, 0o644).await.unwrap().obj;
        fs.write(&file, 0, b"data").await.unwrap();
        let mut shared = file.share();
        fs.unlink_told(&root, b"f").await.unwrap();
        shared.set_unlinked();
        let again = fs.open_obj(&fs.attach(&shared), RW, Unnamed::Held).await.unwrap().0;
        drop(file);
        let mut back = [0; 4];
        assert_eq!(fs.read(&again, 0, &mut back).await.unwrap(), 4);
        assert_eq!(&back, b"data");
        assert_eq!(fs.ostat(&again).await.unwrap().nlink, 0);
    });
}

#[test]
fn privileges_are_dropped_when_the_kernel_says_so() {
    with_fs(async |_, fs| {
        let root = fs.root().await.unwrap();
        for (mode, left) in [(0o6755, 0o755), (0o2745, 0o2745), (0o4644, 0o644)] {
            let name = format!("{mode:o}");
            let flags = OpenFlags::CREATE | RW;
            let options = CreateOptions::default();
            let file = fs.open(&root, name.as_bytes(), flags, mode, &options).await.unwrap();
            fs.setxattr(&file, b"user.kept", b"1", XattrMode::Set).await.unwrap();
            let set = SetAttr {
                mtime: Some(SetTime::At(5)),
                drop_privileges: true,
                ..SetAttr::default()
            };
            let stat = fs.setattr(&file, &set).await.unwrap();
            assert_eq!((stat.mode & 0o7777, stat.mtime_ns), (left, 5));
            // Who looks the file up learns that it has attributes, also under a second name.
            assert!(
                fs.lookup_stat(&root, name.as_bytes()).await.unwrap().0.share().may_have_xattrs()
            );
            fs.link_obj(&file, &root, format!("{name}+").as_bytes()).await.unwrap();
            let linked = fs.lookup_stat(&root, format!("{name}+").as_bytes()).await.unwrap().0;
            assert!(linked.share().may_have_xattrs());
        }
    });
}
