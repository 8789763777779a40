//! Many clients at once: nothing is lost, nothing is doubled, no tree gets a cycle.

use crate::harness::{LAYOUTS, World};
use dfs::check::Mend;
use dfs::sys::Sys;
use dfs::{Code, CreateOptions, Credentials, Dfs, DirAnchor, OpenFlags, RenameFlags, SetAttr};
use futures_util::future::join_all;
use std::cell::Cell;
use std::collections::BTreeSet;

const NEW: OpenFlags = OpenFlags(OpenFlags::READ_WRITE.0 | OpenFlags::CREATE.0 | OpenFlags::EXCL.0);

/// Runs a test for several seeds and both layouts, with mounts by clients of their own.
fn with_clients(count: usize, seeds: u64, test: impl AsyncFn(&World, &[Dfs])) {
    for seed in 0..seeds {
        for (dir_class, file_class) in LAYOUTS {
            let world = World::new(seed, dir_class, file_class);
            world.cluster.block_on(async {
                let names = (0..count).map(|i| format!("c{i}")).collect::<Vec<_>>();
                let mounts = names.iter().map(|name| world.mount_from(name, Credentials::root()));
                test(&world, &join_all(mounts).await).await;
            });
        }
    }
}

async fn create(fs: &Dfs, dir: &dfs::Obj, name: &[u8]) -> dfs::Result<dfs::Obj> {
    fs.open(dir, name, NEW, 0o644, &CreateOptions::default()).await
}

#[test]
fn many_creators_in_one_directory() {
    with_clients(4, 3, async |_, mounts| {
        join_all(mounts.iter().enumerate().map(|(client, fs)| async move {
            let root = fs.root().await.unwrap();
            join_all((0..50).map(|i| {
                let root = root.clone();
                async move {
                    create(fs, &root, format!("f{client}.{i}").as_bytes()).await.unwrap();
                }
            }))
            .await;
        }))
        .await;
        let fs = &mounts[0];
        let root = fs.root().await.unwrap();
        let entries = fs.list(&root).await.unwrap();
        let names: BTreeSet<Vec<u8>> = entries.iter().map(|entry| entry.name.to_vec()).collect();
        let numbers: BTreeSet<u64> = entries.iter().map(|entry| entry.ino).collect();
        assert_eq!((entries.len(), names.len(), numbers.len()), (200, 200, 200));
        // Readers that share the directory see every entry once.
        let mut shared = Vec::new();
        for mut anchor in fs.split(&root, 7).await.unwrap() {
            while !anchor.is_end() {
                let again = DirAnchor::from_bytes(&anchor.to_bytes()).unwrap();
                assert_eq!(again, anchor);
                let page = fs.readdirplus(&root, &mut anchor, 9).await.unwrap();
                shared.extend(page.into_iter().map(|(entry, _)| entry.name.to_vec()));
            }
        }
        shared.sort();
        assert_eq!(shared, names.into_iter().collect::<Vec<_>>());
    });
}

#[test]
fn listings_go_on_from_short_anchors_whatever_the_names() {
    with_clients(6, 1, async |_, mounts| {
        let fs = &mounts[0];
        let root = fs.root().await.unwrap();
        let mut wanted = BTreeSet::new();
        for (i, bytes) in (1..40).map(|i| (i, 1 + i * 17 % 250)) {
            let mut name = format!("{i}-").into_bytes();
            name.resize(name.len() + bytes, b'n');
            create(fs, &root, &name).await.unwrap();
            wanted.insert(name);
        }
        for page_entries in [1, 2, 7] {
            let mut listed = Vec::new();
            let mut raw = DirAnchor::start().to_short();
            loop {
                assert!(raw.len() <= DirAnchor::SHORT_BYTES);
                let mut anchor = DirAnchor::from_short(&raw).unwrap();
                if anchor.is_end() {
                    break;
                }
                let page = fs.readdir(&root, &mut anchor, page_entries).await.unwrap();
                listed.extend(page.into_iter().map(|entry| entry.name.to_vec()));
                raw = anchor.to_short();
            }
            assert_eq!(listed.len(), wanted.len());
            assert_eq!(listed.into_iter().collect::<BTreeSet<_>>(), wanted);
        }
        // A listing can begin with any entry.
        for name in &wanted {
            let mut anchor = fs.anchor_at(&root, name).await.unwrap();
            let first = fs.readdir(&root, &mut anchor, 1).await.unwrap().remove(0);
            assert_eq!(first.name.to_vec(), *name);
        }
    });
}

#[test]
fn one_name_has_one_maker() {
    with_clients(5, 4, async |_, mounts| {
        let won = Cell::new(0);
        let removed = Cell::new(0);
        join_all(mounts.iter().map(|fs| {
            let (won, removed) = (&won, &removed);
            async move {
                let root = fs.root().await.unwrap();
                for round in 0..10 {
                    let name = format!("n{}", round % 3).into_bytes();
                    match create(fs, &root, &name).await {
                        Ok(_) => won.set(won.get() + 1),
                        Err(error) => assert_eq!(error.code, Code::Exist),
                    }
                    match fs.unlink(&root, &name).await {
                        Ok(()) => removed.set(removed.get() + 1),
                        Err(error) => assert_eq!(error.code, Code::NonExist),
                    }
                }
            }
        }))
        .await;
        let fs = &mounts[0];
        let left = fs.list(&fs.root().await.unwrap()).await.unwrap().len();
        assert_eq!(won.get(), removed.get() + left, "each success counts once");
    });
}

#[test]
fn rename_storms_lose_and_double_nothing() {
    with_clients(4, 6, async |_, mounts| {
        let sys = Sys::new(mounts[0].clone());
        for dir in ["/a", "/b", "/c"] {
            sys.mkdir(dir.as_bytes(), 0o755).await.unwrap();
        }
        for i in 0..6 {
            sys.write_file(format!("/a/f{i}").as_bytes(), &[i; 100], 0o644).await.unwrap();
        }
        join_all(mounts.iter().map(|fs| async move {
            let sys = Sys::new(fs.clone());
            let random = || fs.container().client().env().random_u64();
            for _ in 0..40 {
                let dir = |word: u64| ["/a", "/b", "/c"][word as usize % 3];
                let from = format!("{}/f{}", dir(random()), random() % 6);
                let to = format!("{}/{}", dir(random()), from.rsplit('/').next().unwrap());
                let flags =
                    if random() % 4 == 0 { RenameFlags::EXCHANGE } else { RenameFlags::NOREPLACE };
                if let Err(error) = sys.rename(from.as_bytes(), to.as_bytes(), flags).await {
                    let harmless = matches!(error.code, Code::NonExist | Code::Exist);
                    assert!(harmless, "{from} to {to}: {error:?}");
                }
            }
        }))
        .await;
        let mut names = Vec::new();
        for dir in ["/a", "/b", "/c"] {
            for entry in sys.list(dir.as_bytes()).await.unwrap() {
                let path = [dir.as_bytes(), b"/", &entry.name].concat();
                let data = sys.read_file(&path).await.unwrap();
                assert_eq!(data, vec![entry.name[1] - b'0'; 100]);
                names.push(entry.name.to_vec());
            }
        }
        names.sort();
        assert_eq!(names, [b"f0", b"f1", b"f2", b"f3", b"f4", b"f5"]);
    });
}

#[test]
fn one_file_moves_to_one_place_and_one_place_takes_one_file() {
    with_clients(2, 4, async |_, mounts| {
        let root = mounts[0].root().await.unwrap();
        let from = mounts[0].mkdir(&root, b"from", 0o755, None).await.unwrap();
        let to = mounts[0].mkdir(&root, b"to", 0o755, None).await.unwrap();
        let unique = RenameFlags::NOREPLACE;
        for round in 0..20 {
            // Two clients take the same file to different names.
            let name = |what: &str| format!("{what}{round}").into_bytes();
            create(&mounts[0], &from, &name("f")).await.unwrap();
            let (a, b) = futures_util::future::join(
                mounts[0].rename(&from, &name("f"), &to, &name("a"), unique),
                mounts[1].rename(&from, &name("f"), &to, &name("b"), unique),
            )
            .await;
            let loser = if a.is_ok() { b } else { a };
            assert_eq!(loser.unwrap_err().code, Code::NonExist);
            // Two clients take different files to the same name.
            create(&mounts[0], &from, &name("g")).await.unwrap();
            create(&mounts[0], &from, &name("h")).await.unwrap();
            let (a, b) = futures_util::future::join(
                mounts[0].rename(&from, &name("g"), &to, &name("c"), unique),
                mounts[1].rename(&from, &name("h"), &to, &name("c"), unique),
            )
            .await;
            let loser = if a.is_ok() { b } else { a };
            assert_eq!(loser.unwrap_err().code, Code::Exist);
            assert_eq!(mounts[0].list(&from).await.unwrap().len(), round + 1, "the losers stay");
            assert_eq!(mounts[0].list(&to).await.unwrap().len(), 2 * (round + 1));
        }
        assert_eq!(mounts[0].check(Mend::Nothing).await.unwrap().findings, []);
    });
}

#[test]
fn directories_that_move_at_once_never_make_a_cycle() {
    with_clients(4, 8, async |_, mounts| {
        let sys = Sys::new(mounts[0].clone());
        let root = mounts[0].root().await.unwrap();
        for name in [&b"a"[..], b"b", b"c", b"d"] {
            mounts[0].mkdir(&root, name, 0o755, None).await.unwrap();
        }
        let dirs = ["/a", "/b", "/c", "/d"];
        let mut handles = Vec::new();
        for fs in mounts {
            let open = dirs.iter().map(|path| fs.lookup(path.as_bytes(), OpenFlags::READ));
            let mut open: Vec<_> =
                join_all(open).await.into_iter().map(|dir| dir.unwrap()).collect();
            open.push(fs.root().await.unwrap());
            handles.push(open);
        }
        join_all(mounts.iter().zip(&handles).map(|(fs, dirs)| async move {
            let random = || fs.container().client().env().random_u64() as usize;
            for _ in 0..25 {
                let (from, to) = (&dirs[random() % 5], &dirs[random() % 5]);
                let name = &[b"abcd"[random() % 4]][..];
                match fs.rename(from, name, to, name, RenameFlags::NOREPLACE).await {
                    Ok(()) => {}
                    Err(error) => assert!(
                        matches!(error.code, Code::NonExist | Code::Exist | Code::Inval),
                        "{error:?}"
                    ),
                }
            }
        }))
        .await;
        // A cycle would hang off the root and so not be seen from there.
        let report = mounts[0].check(Mend::Nothing).await.unwrap();
        assert_eq!(report.findings, []);
        assert_eq!((report.dir_count, report.entry_count), (5, 4));
        drop(sys);
    });
}

#[test]
fn of_two_moves_that_would_make_a_cycle_one_fails() {
    with_clients(2, 4, async |_, mounts| {
        let root = mounts[0].root().await.unwrap();
        let a = mounts[0].mkdir(&root, b"a", 0o755, None).await.unwrap();
        let b = mounts[0].mkdir(&root, b"b", 0o755, None).await.unwrap();
        for _ in 0..20 {
            let none = RenameFlags::NONE;
            let (first, second) = futures_util::future::join(
                mounts[0].rename(&root, b"a", &b, b"a", none),
                mounts[1].rename(&root, b"b", &a, b"b", none),
            )
            .await;
            let (loser, parent, name) = match (first, second) {
                (Ok(()), Err(error)) => (error, &b, b"a"),
                (Err(error), Ok(())) => (error, &a, b"b"),
                other => panic!("exactly one must win: {other:?}"),
            };
            assert_eq!(loser.code, Code::Inval);
            mounts[0].rename(parent, name, &root, name, none).await.unwrap();
        }
        assert_eq!(mounts[0].check(Mend::Nothing).await.unwrap().findings, []);
    });
}

#[test]
fn hard_link_counts_survive_a_crowd() {
    with_clients(4, 4, async |_, mounts| {
        let sys = Sys::new(mounts[0].clone());
        sys.write_file(b"/f", b"x", 0o644).await.unwrap();
        join_all(mounts.iter().enumerate().map(|(client, fs)| async move {
            let sys = Sys::new(fs.clone());
            for i in 0..8 {
                let path = format!("/l{client}.{i}");
                sys.link(b"/f", path.as_bytes()).await.unwrap();
                if i % 2 == 0 {
                    sys.unlink(path.as_bytes()).await.unwrap();
                } else {
                    sys.chmod(path.as_bytes(), 0o600 + client as u32).await.unwrap();
                }
            }
        }))
        .await;
        assert_eq!(sys.stat(b"/f").await.unwrap().nlink, 17);
        assert_eq!(mounts[0].check(Mend::Nothing).await.unwrap().findings, []);
    });
}

/// A file that lost the name it was opened under, but has or had others, is changed through its
/// handles by all of them at once: a change that lost the race looked for the file under the old
/// name, and failed with `NonExist`.
#[test]
fn attributes_of_a_file_without_its_first_name_are_changed_by_a_crowd() {
    with_clients(4, 4, async |_, mounts| {
        let sys = Sys::new(mounts[0].clone());
        for last_name_goes in [false, true] {
            sys.write_file(b"/f", b"x", 0o644).await.unwrap();
            sys.link(b"/f", b"/g").await.unwrap();
            let open = mounts.iter().map(|fs| fs.lookup(b"/f", OpenFlags::READ_WRITE));
            let open = futures_util::future::try_join_all(open).await.unwrap();
            sys.unlink(b"/f").await.unwrap();
            if last_name_goes {
                sys.unlink(b"/g").await.unwrap();
            }
            join_all(mounts.iter().zip(&open).enumerate().map(|(client, (fs, file))| async move {
                for i in 0..8 {
                    let mode = Some(0o600 + 8 * client as u32 + i);
                    let set = SetAttr { mode, ..SetAttr::default() };
                    let stat = fs.setattr(file, &set).await.unwrap();
                    assert_eq!(Some(stat.mode & 0o777), mode);
                    fs.touch_atime(file).await.unwrap();
                }
            }))
            .await;
            let modes = open.iter().zip(mounts).map(|(file, fs)| fs.ostat(file));
            let stats = join_all(modes).await;
            let nlink = if last_name_goes { 0 } else { 1 };
            for stat in stats {
                let stat = stat.unwrap();
                assert_eq!(stat.nlink, nlink);
                assert_eq!(stat.mode & 0o7, 7, "the last change of one of them stays");
            }
            if !last_name_goes {
                sys.unlink(b"/g").await.unwrap();
            }
        }
    });
}

/// A directory takes the place of another one that is removed at the same time. That it was gone for one part of the transaction said more than what had changed for another
/// one, and the source, which is there all the time, was said not to exist.
#[test]
fn a_directory_takes_the_place_of_one_that_goes() {
    with_clients(2, 6, async |_, mounts| {
        let [one, other] = mounts else { panic!("two mounts") };
        let (root, others_root) = (one.root().await.unwrap(), other.root().await.unwrap());
        for round in 0..40 {
            let names = [format!("from{round}"), format!("to{round}")];
            let [from, to] = names.each_ref().map(|name| name.as_bytes());
            for name in [from, to] {
                one.mkdir(&root, name, 0o755, None).await.unwrap();
            }
            let (moved, removed) = futures_util::future::join(
                one.rename(&root, from, &root, to, RenameFlags::NONE),
                other.rmdir(&others_root, to),
            )
            .await;
            moved.unwrap_or_else(|error| panic!("round {round}: {error}"));
            removed.unwrap_or_else(|error| panic!("round {round}: {error}"));
            // What was removed is the old one or the new one.
            let there = one.lookup(format!("/{}", names[1]).as_bytes(), OpenFlags::READ).await;
            assert!(there.is_ok() || there.is_err_and(|error| error.code == Code::NonExist));
        }
    });
}

#[test]
fn removing_and_filling_a_directory_race_to_one_winner() {
    with_clients(3, 8, async |_, mounts| {
        let made = Cell::new(0);
        join_all(mounts.iter().enumerate().map(|(client, fs)| {
            let made = &made;
            async move {
                let root = fs.root().await.unwrap();
                for _ in 0..12 {
                    if client == 0 {
                        match fs.rmdir(&root, b"d").await {
                            Ok(()) => {}
                            Err(error) => {
                                assert!(matches!(error.code, Code::NonExist | Code::NotEmpty))
                            }
                        }
                        match fs.unlink(&root, b"x").await {
                            Err(error) => assert_eq!(error.code, Code::NonExist),
                            Ok(()) => panic!("nobody makes x in the root"),
                        }
                        continue;
                    }
                    let dir = match fs.mkdir(&root, b"d", 0o755, None).await {
                        Ok(dir) => dir,
                        Err(error) => {
                            assert_eq!(error.code, Code::Exist);
                            match fs.lookup(b"/d", OpenFlags::READ).await {
                                Ok(dir) => dir,
                                Err(error) => {
                                    assert_eq!(error.code, Code::NonExist);
                                    continue;
                                }
                            }
                        }
                    };
                    match create(fs, &dir, format!("x{client}").as_bytes()).await {
                        Ok(_) => {
                            made.set(made.get() + 1);
                            fs.unlink(&dir, format!("x{client}").as_bytes()).await.unwrap();
                        }
                        Err(error) => assert_eq!(error.code, Code::NonExist),
                    }
                }
            }
        }))
        .await;
        assert!(made.get() > 0);
        assert_eq!(mounts[0].check(Mend::Nothing).await.unwrap().findings, []);
    });
}
