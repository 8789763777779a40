//! Numbered files that are looked up in order: names are asked for ahead, and nobody can tell but by the time it takes.

use crate::system::{Mounted, System, systems};
use env::Rng;
use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::MetadataExt;
use std::time::Duration;
use types::Durability;

/// Longer than the kernel keeps names and attributes here.
const FORGOTTEN: Duration = Duration::from_millis(25);

fn asked(mounted: &Mounted, work: impl FnOnce()) -> u64 {
    let before = mounted.mount().volume().request_count();
    work();
    mounted.mount().volume().request_count() - before
}

/// How many questions it takes to look at 200 names in order, at best of many tries: what was asked for is good for a short time only, so a machine that
/// stands still for longer asks again. And that names in no order are asked for one by one.
fn asked_in_order(system: &System, names: &[String], enough: u64) -> u64 {
    let look = |mounted: &Mounted, number: usize| {
        assert_eq!(fs::metadata(mounted.path(&names[number])).unwrap().len(), number as u64);
    };
    let mut least = u64::MAX;
    for _ in 0..50 {
        let mounted = system.mount("cache=metadata,noatime");
        let in_order = asked(&mounted, || (0..200).for_each(|at| look(&mounted, at)));
        let anyhow =
            asked(&mounted, || (200..400).for_each(|at| look(&mounted, 200 + at * 77 % 200)));
        assert!(anyhow >= 190, "{anyhow} questions for 200 names in no order");
        mounted.unmount();
        least = least.min(in_order);
        if least <= enough {
            break;
        }
    }
    least
}

#[test]
fn numbered_files_are_asked_for_together() {
    for mut system in systems(Durability::Memory) {
        let names: Vec<String> = (0..400).map(|number| format!("part-{number:04}.dat")).collect();
        let maker = system.mount("");
        for (number, name) in names.iter().enumerate() {
            fs::write(maker.path(name), vec![7; number]).unwrap();
        }
        maker.unmount();
        for is_far in [false, true] {
            system.is_far = is_far;
            let count = asked_in_order(&system, &names, 30);
            assert!(count <= 30, "{count} questions for 200 names in order, far: {is_far}");
        }

        // Where nothing may be kept nothing is asked for before it is wanted.
        let mounted = system.mount("cache=none,noatime");
        let look = |number: usize| fs::metadata(mounted.path(&names[number])).unwrap();
        let each = asked(&mounted, || (0..200).for_each(|at| _ = look(at)));
        assert!(each >= 200, "{each} questions for 200 names");
        mounted.unmount();
    }
}

/// Files that are elsewhere than their entries, as half of those are whose directory has become large: nothing was told of them ahead, so that each was two questions.
#[test]
fn numbered_files_that_are_elsewhere_are_asked_for_together_too() {
    for system in systems(Durability::Memory) {
        let maker = system.mount("");
        let names: Vec<String> = (0..400).map(|number| format!("kept/{number}")).collect();
        fs::create_dir(maker.path("kept")).unwrap();
        for (number, name) in names.iter().enumerate() {
            // Each in a directory of its own, which are on all targets.
            let made = maker.path(&format!("made-{number}"));
            fs::create_dir(&made).unwrap();
            fs::write(made.join("file"), vec![7; number]).unwrap();
            fs::rename(made.join("file"), maker.path(name)).unwrap();
        }
        maker.unmount();
        let count = asked_in_order(&system, &names, 60);
        assert!(count <= 60, "{count} questions for 200 names in order");
    }
}

/// What there should be: names, and sizes and numbers of names of what they stand for.
#[derive(Default)]
struct Model {
    names: BTreeMap<u64, u64>,
    files: HashMap<u64, (u64, u64)>,
    made: u64,
}

impl Model {
    fn make(&mut self, name: u64) {
        self.remove(name);
        self.made += 1;
        self.names.insert(name, self.made);
        self.files.insert(self.made, (0, 1));
    }

    fn remove(&mut self, name: u64) {
        if let Some(file) = self.names.remove(&name) {
            self.files.get_mut(&file).unwrap().1 -= 1;
        }
    }

    fn of(&self, name: u64) -> Option<(u64, u64)> {
        self.names.get(&name).map(|file| self.files[file])
    }
}

/// One change through the mount, where it is possible.
fn change(mounted: &Mounted, model: &mut Model, rng: &Rng, name: u64, other: u64) {
    let path = |name: u64| mounted.path(&format!("f{name}"));
    let is_there = model.of(name).is_some();
    match rng.below(6) {
        0 => {
            File::create(path(name)).unwrap();
            match model.names.get(&name) {
                Some(file) => model.files.get_mut(file).unwrap().0 = 0,
                None => model.make(name),
            }
        }
        1 if is_there => {
            fs::remove_file(path(name)).unwrap();
            model.remove(name);
        }
        2 if is_there => {
            let mut file = File::options().append(true).open(path(name)).unwrap();
            file.write_all(&[1; 10]).unwrap();
            drop(file);
            model.files.get_mut(&model.names[&name]).unwrap().0 += 10;
        }
        3 if is_there => {
            File::options().write(true).open(path(name)).unwrap().set_len(3).unwrap();
            model.files.get_mut(&model.names[&name]).unwrap().0 = 3;
        }
        4 if is_there && name != other && model.names.get(&name) != model.names.get(&other) => {
            fs::rename(path(name), path(other)).unwrap();
            model.remove(other);
            let file = model.names.remove(&name).unwrap();
            model.names.insert(other, file);
        }
        5 if is_there && model.of(other).is_none() => {
            fs::hard_link(path(name), path(other)).unwrap();
            let file = model.names[&name];
            model.names.insert(other, file);
            model.files.get_mut(&file).unwrap().1 += 1;
        }
        _ => {}
    }
}

/// Files are looked up in order while others of them are made, removed, renamed, linked, written and cut by the same mount: each look tells what
/// was done before it.
#[test]
fn what_this_mount_does_is_seen_whoever_looked_ahead() {
    const NAMES: u64 = 60;
    for mut system in systems(Durability::Memory) {
        for seed in 0..4 {
            system.is_far = seed % 2 == 1;
            let rng = Rng::new(seed);
            let mounted = system.mount("cache=metadata,attr_timeout=0.01,entry_timeout=0.01");
            let mut model = Model::default();
            for name in 0..NAMES {
                // Half of them are elsewhere than their entries.
                let dir = mounted.path(&format!("d{seed}-{name}"));
                fs::create_dir(&dir).unwrap();
                fs::write(dir.join("f"), "").unwrap();
                fs::rename(dir.join("f"), mounted.path(&format!("f{name}"))).unwrap();
                model.make(name);
            }
            // Written with no look at a name.
            let open = |name: u64| {
                let file = File::options().append(true).open(mounted.path(&format!("f{name}")));
                (model.names[&name], file.unwrap())
            };
            let open: Vec<(u64, File)> = (0..NAMES).step_by(4).map(open).collect();
            for sweep in 0..40 {
                std::thread::sleep(FORGOTTEN);
                let first = rng.below(NAMES - 10);
                for name in first..NAMES {
                    if rng.below(12) == 0 {
                        let near = (name + rng.below(8)).min(NAMES - 1);
                        change(&mounted, &mut model, &rng, near, rng.below(NAMES));
                    }
                    if rng.below(3) == 0 {
                        let (file, handle) = &open[rng.below(open.len() as u64) as usize];
                        let mut handle = handle;
                        handle.write_all(&[2; 5]).unwrap();
                        model.files.get_mut(file).unwrap().0 += 5;
                    }
                    let told = match fs::symlink_metadata(mounted.path(&format!("f{name}"))) {
                        Ok(told) => Some((told.len(), told.nlink())),
                        Err(error) if error.kind() == ErrorKind::NotFound => None,
                        Err(error) => panic!("seed {seed}, sweep {sweep}, f{name}: {error}"),
                    };
                    assert_eq!(told, model.of(name), "seed {seed}, sweep {sweep}, f{name}");
                }
            }
            drop(open);
            for name in model.names.keys() {
                fs::remove_file(mounted.path(&format!("f{name}"))).unwrap();
            }
            mounted.unmount();
        }
    }
}
