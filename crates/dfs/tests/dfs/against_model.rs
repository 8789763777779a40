//! Random operations on the file system and on the naive tree: same answers, same tree.

use crate::harness::{LAYOUTS, World};
use dfs::check::Mend;
use dfs::find::Query;
use dfs::{Code, CreateOptions, Credentials, Dfs, Obj, OpenFlags, RenameFlags, SetAttr, XattrMode};
use model::namespace::{Ino, Kind, Namespace, ROOT, Rename};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

/// One random operation; numbers pick among what there is.
#[derive(Clone, Debug)]
enum Step {
    Create { dir: usize, name: usize },
    Mkdir { dir: usize, name: usize },
    Symlink { dir: usize, name: usize },
    Link { dir: usize, name: usize, to: usize, new: usize },
    Unlink { dir: usize, name: usize },
    Rmdir { dir: usize, name: usize },
    Rename { dir: usize, name: usize, to: usize, new: usize, how: u8 },
    Write { file: usize, offset: usize, bytes: usize },
    Truncate { file: usize, size: usize },
    Read { file: usize },
    Chmod { dir: usize, name: usize, mode: u32 },
    Xattr { file: usize, name: u8, set: bool },
    Close { file: usize },
    List { dir: usize },
}

const NAMES: usize = 5;

fn step() -> impl Strategy<Value = Step> {
    let dir = 0..6usize;
    let name = 0..NAMES;
    let file = 0..8usize;
    prop_oneof![
        4 => (dir.clone(), name.clone()).prop_map(|(dir, name)| Step::Create { dir, name }),
        4 => (dir.clone(), name.clone()).prop_map(|(dir, name)| Step::Mkdir { dir, name }),
        1 => (dir.clone(), name.clone()).prop_map(|(dir, name)| Step::Symlink { dir, name }),
        3 => (dir.clone(), name.clone(), dir.clone(), name.clone())
            .prop_map(|(dir, name, to, new)| Step::Link { dir, name, to, new }),
        3 => (dir.clone(), name.clone()).prop_map(|(dir, name)| Step::Unlink { dir, name }),
        2 => (dir.clone(), name.clone()).prop_map(|(dir, name)| Step::Rmdir { dir, name }),
        8 => (dir.clone(), name.clone(), dir.clone(), name.clone(), 0..4u8)
            .prop_map(|(dir, name, to, new, how)| Step::Rename { dir, name, to, new, how }),
        4 => (file.clone(), 0..14_000usize, 1..6000usize)
            .prop_map(|(file, offset, bytes)| Step::Write { file, offset, bytes }),
        2 => (file.clone(), 0..14_000usize).prop_map(|(file, size)| Step::Truncate { file, size }),
        3 => file.clone().prop_map(|file| Step::Read { file }),
        2 => (dir.clone(), name, 0..0o1000u32)
            .prop_map(|(dir, name, mode)| Step::Chmod { dir, name, mode }),
        2 => (file.clone(), 0..3u8, any::<bool>())
            .prop_map(|(file, name, set)| Step::Xattr { file, name, set }),
        1 => file.prop_map(|file| Step::Close { file }),
        1 => dir.prop_map(|dir| Step::List { dir }),
    ]
}

fn name(number: usize) -> Vec<u8> {
    format!("n{number}").into_bytes()
}

/// The real thing and the model, side by side.
struct Pair {
    fs: Dfs,
    tree: Namespace,
    /// Directories ever made, removed ones too; the root first.
    dirs: Vec<(Obj, Ino)>,
    files: Vec<(Obj, Ino)>,
}

impl Pair {
    fn dir(&self, number: usize) -> (Obj, Ino) {
        self.dirs[number % self.dirs.len()].clone()
    }

    fn file(&self, number: usize) -> Option<(Obj, Ino)> {
        let count = self.files.len();
        (count > 0).then(|| self.files[number % count].clone())
    }

    async fn step(&mut self, step: &Step) {
        let fs = self.fs.clone();
        match *step {
            Step::Create { dir, name: n } => {
                let (obj, ino) = self.dir(dir);
                let flags = OpenFlags::READ_WRITE | OpenFlags::CREATE | OpenFlags::EXCL;
                let options = CreateOptions::default();
                let real = fs.open(&obj, &name(n), flags, 0o644, &options).await;
                let model = self.tree.make(ino, &name(n), Kind::File(Vec::new()), 0o644);
                let real = same(real, &model, step);
                self.files.extend(real.zip(model.ok()));
            }
            Step::Mkdir { dir, name: n } => {
                let (obj, ino) = self.dir(dir);
                let real = fs.mkdir(&obj, &name(n), 0o755, None).await;
                let model = self.tree.make(ino, &name(n), Kind::Dir(BTreeMap::new()), 0o755);
                let real = same(real, &model, step);
                self.dirs.extend(real.zip(model.ok()));
            }
            Step::Symlink { dir, name: n } => {
                let (obj, ino) = self.dir(dir);
                let real = fs.symlink(&obj, &name(n), b"target").await.map(|_| ());
                let kind = Kind::Symlink(b"target".to_vec());
                same(real, &self.tree.make(ino, &name(n), kind, 0o777).map(|_| ()), step);
            }
            Step::Link { dir, name: n, to, new } => {
                let ((from_obj, from), (to_obj, to)) = (self.dir(dir), self.dir(to));
                let real = fs.link(&from_obj, &name(n), &to_obj, &name(new)).await;
                same(real, &self.tree.link(from, &name(n), to, &name(new)), step);
            }
            Step::Unlink { dir, name: n } => {
                let (obj, ino) = self.dir(dir);
                let real = fs.unlink(&obj, &name(n)).await;
                same(real, &self.tree.unlink(ino, &name(n)), step);
            }
            Step::Rmdir { dir, name: n } => {
                let (obj, ino) = self.dir(dir);
                let real = fs.rmdir(&obj, &name(n)).await;
                same(real, &self.tree.rmdir(ino, &name(n)), step);
            }
            Step::Rename { dir, name: n, to, new, how } => {
                let ((from_obj, from), (to_obj, to)) = (self.dir(dir), self.dir(to));
                let (flags, how) = match how {
                    0 => (RenameFlags::NOREPLACE, Rename::NoReplace),
                    1 => (RenameFlags::EXCHANGE, Rename::Exchange),
                    _ => (RenameFlags::NONE, Rename::Replace),
                };
                let real = fs.rename(&from_obj, &name(n), &to_obj, &name(new), flags).await;
                same(real, &self.tree.rename(from, &name(n), to, &name(new), how), step);
            }
            Step::Write { file, offset, bytes } => {
                let Some((obj, ino)) = self.file(file) else { return };
                let data: Vec<u8> = (0..bytes).map(|i| (offset + i * 7) as u8 | 1).collect();
                fs.write(&obj, offset as u64, &data).await.unwrap();
                self.tree.write(ino, offset, &data);
            }
            Step::Truncate { file, size } => {
                let Some((obj, ino)) = self.file(file) else { return };
                fs.truncate(&obj, size as u64).await.unwrap();
                self.tree.truncate(ino, size);
            }
            Step::Read { file } => {
                let Some((obj, ino)) = self.file(file) else { return };
                self.compare_file(&obj, ino).await;
            }
            Step::Chmod { dir, name: n, mode } => {
                let (obj, ino) = self.dir(dir);
                let found = self.tree.lookup(ino, &name(n));
                if let Ok(found) = found
                    && matches!(self.tree.node(found).unwrap().kind, Kind::Symlink(_))
                {
                    return;
                }
                same(fs.chmod(&obj, &name(n), mode).await, &found.map(|_| ()), step);
                if let Ok(node) = found {
                    self.tree.node_mut(node).unwrap().mode = mode;
                }
            }
            Step::Xattr { file, name: n, set } => {
                let Some((obj, ino)) = self.file(file) else { return };
                let node = self.tree.node_mut(ino).unwrap();
                if node.nlink == 0 {
                    return;
                }
                let akey = vec![b'u', b'0' + n];
                if set {
                    let value = vec![n; 1 + n as usize * 3000];
                    fs.setxattr(&obj, &akey, &value, XattrMode::Set).await.unwrap();
                    node.xattrs.insert(akey, value);
                } else {
                    let model = node.xattrs.remove(&akey).map(|_| ()).ok_or(Code::NoAttr);
                    same(fs.removexattr(&obj, &akey).await, &model, step);
                }
            }
            Step::Close { file } => {
                if !self.files.is_empty() {
                    let at = file % self.files.len();
                    self.files.swap_remove(at);
                }
            }
            Step::List { dir } => {
                let (obj, ino) = self.dir(dir);
                let mut real: Vec<Vec<u8>> =
                    fs.list(&obj).await.unwrap().iter().map(|entry| entry.name.to_vec()).collect();
                real.sort();
                let model = self.tree.list(ino).unwrap_or_default();
                let model: Vec<Vec<u8>> = model.into_iter().map(|(name, _)| name).collect();
                assert_eq!(real, model, "{step:?}");
            }
        }
    }

    async fn compare_file(&self, obj: &Obj, ino: Ino) {
        let node = self.tree.node(ino).unwrap();
        let Kind::File(expected) = &node.kind else { panic!("an open file is a file") };
        let mut back = vec![0; 25_000];
        let read = self.fs.read(obj, 0, &mut back).await.unwrap();
        assert_eq!(read, expected.len());
        assert!(back[..read] == expected[..], "contents differ");
        let stat = self.fs.ostat(obj).await.unwrap();
        assert_eq!(stat.size as usize, expected.len());
    }

    /// Everything the tree holds, compared by path, by a fresh client, and then checked.
    async fn compare_all(&self, other: &Dfs) {
        let mut found = BTreeMap::new();
        let query = Query { with_stat: true, parallel: 4, ..Query::default() };
        let root = other.root().await.unwrap();
        other
            .find(&root, &query, |item| {
                let path = [b"/", &item.path[..]].concat();
                assert!(found.insert(path, item.stat.unwrap()).is_none(), "listed twice");
                Ok(())
            })
            .await
            .unwrap();
        let expected = self.tree.paths();
        assert_eq!(
            found.keys().collect::<Vec<_>>(),
            expected
                .iter()
                .map(|(path, _)| path)
                .collect::<BTreeSet<_>>()
                .into_iter()
                .collect::<Vec<_>>()
        );
        let mut numbers: BTreeMap<Ino, u64> = BTreeMap::new();
        for (path, ino) in &expected {
            let (stat, node) = (&found[path], self.tree.node(*ino).unwrap());
            assert_eq!(stat.nlink, self.tree.link_count(*ino), "{}", path.escape_ascii());
            assert_eq!(stat.mode & 0o7777, node.mode);
            assert_eq!(*numbers.entry(*ino).or_insert(stat.ino), stat.ino, "one file, one number");
            let nofollow = OpenFlags::READ | OpenFlags::NOFOLLOW;
            match &node.kind {
                Kind::Dir(_) => assert!(stat.is_dir()),
                Kind::Symlink(target) => assert_eq!(stat.size, target.len() as u64),
                Kind::File(_) => {
                    let obj = other.lookup(path, nofollow).await.unwrap();
                    let Kind::File(bytes) = &node.kind else { continue };
                    let mut back = vec![0; bytes.len() + 1];
                    assert_eq!(other.read(&obj, 0, &mut back).await.unwrap(), bytes.len());
                    assert!(back[..bytes.len()] == bytes[..]);
                    let names: BTreeSet<Vec<u8>> =
                        other.listxattr(&obj).await.unwrap().into_iter().collect();
                    assert_eq!(names, node.xattrs.keys().cloned().collect());
                    for (name, value) in &node.xattrs {
                        assert_eq!(&other.getxattr(&obj, name).await.unwrap(), value);
                    }
                }
            }
        }
    }
}

/// Success for success, code for code.
fn same<T>(real: dfs::Result<T>, model: &Result<impl Sized, Code>, step: &Step) -> Option<T> {
    match (real, model) {
        (Ok(value), Ok(_)) => Some(value),
        (Err(error), Err(code)) => {
            assert_eq!(error.code, *code, "{step:?}: {error}");
            None
        }
        (Ok(_), Err(code)) => panic!("{step:?} should fail with {code:?}"),
        (Err(error), Ok(_)) => panic!("{step:?} should succeed: {error:?}"),
    }
}

fn run(seed: u64, layout: (&str, &str), steps: &[Step]) {
    let world = World::new(seed, layout.0, layout.1);
    world.cluster.block_on(async {
        let fs = world.mount(Credentials::root()).await;
        let root = fs.root().await.unwrap();
        let mut pair = Pair {
            fs: fs.clone(),
            tree: Namespace::new(),
            dirs: vec![(root, ROOT)],
            files: Vec::new(),
        };
        for step in steps {
            pair.step(step).await;
        }
        let other = world.mount_from("other", Credentials::root()).await;
        // While names of a directory move it does not tell its link count.
        fs.container().client().env().sleep(std::time::Duration::from_secs(5)).await;
        pair.compare_all(&other).await;
        // With everything closed, nothing may be left over.
        pair.files.clear();
        fs.setattr(&pair.dirs[0].0, &SetAttr::default()).await.unwrap();
        fs.sync();
        fs.container().client().env().sleep(std::time::Duration::from_secs(5)).await;
        let report = other.check(Mend::Nothing).await.unwrap();
        assert_eq!(report.findings, []);
        assert_eq!(report.entry_count as usize, pair.tree.paths().len());
    });
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, max_shrink_iters: 4000, ..ProptestConfig::default() })]

    #[test]
    fn random_operations_agree(
        seed: u64, layout in 0..LAYOUTS.len(), steps in prop::collection::vec(step(), 1..120),
    ) {
        run(seed, LAYOUTS[layout], &steps);
    }
}
