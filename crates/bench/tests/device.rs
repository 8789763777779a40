//! The modelled storage target mounted for real, where this machine has FUSE and lets us use it:
//! data come back, names behave, what does not fit the model is refused. Time is not looked at.

// Here for want of a program of its own: each costs a link.
mod scale;

use bench::ioc::device::{Mount, Params, check_fuse};
use std::fs::{self, File};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use types::{Code, Error};

/// As fast as the model allows, with small pieces so that little data make many requests.
fn fast() -> Params {
    Params {
        rate_bytes_per_s: 4 << 30,
        client_bytes_per_s: 4 << 30,
        seek_ns: 2_000,
        piece_bytes: 8 << 10,
        merge_bytes: 64 << 10,
        window_bytes: 64 << 10,
        queue_bytes: 96 << 10,
    }
}

/// Mounts, or says why this machine cannot.
fn mount(dir: &Path, targets: u32, store: Option<&Path>) -> Option<Mount> {
    if let Err(error) = check_fuse() {
        println!("SKIPPED: {error}");
        return None;
    }
    match Mount::start(dir, &fast(), targets, store) {
        Ok(mount) => Some(mount),
        Err(Error { code: Code::NoPerm, text }) => {
            println!("SKIPPED: {text}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn noise(seed: u64, bytes: usize) -> Vec<u8> {
    (0..bytes as u64).map(|at| types::hash::mix2(seed, at) as u8).collect()
}

#[test]
fn data_of_many_writers_come_back() {
    let dir = tempfile::tempdir().unwrap();
    let store = tempfile::tempdir().unwrap();
    for store in [None, Some(store.path())] {
        let Some(mount) = mount(dir.path(), 2, store) else { return };
        std::thread::scope(|scope| {
            for writer in 0..6u64 {
                let path = dir.path().join(format!("t{}/file{writer}", writer % 2));
                scope.spawn(move || {
                    let mut file = File::create(&path).unwrap();
                    // Two calls, neither a multiple of a piece.
                    let data = noise(writer, 300_001);
                    let (first, second) = data.split_at(70_003);
                    file.write_all(first).unwrap();
                    file.write_all(second).unwrap();
                    file.sync_all().unwrap();
                });
            }
        });
        for writer in 0..6u64 {
            let path = dir.path().join(format!("t{}/file{writer}", writer % 2));
            assert!(fs::read(&path).unwrap() == noise(writer, 300_001), "file {writer}");
        }
        let done = mount.done();
        assert_eq!(done.len(), 2);
        for target in done {
            // Written once, read once.
            assert_eq!(target.bytes, 2 * 3 * 300_001);
            assert!(target.runs >= target.seeks && target.seeks > 0 && target.busy_ns > 0);
        }
        drop(mount);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "still mounted");
    }
}

#[test]
fn files_behave_like_files() {
    let dir = tempfile::tempdir().unwrap();
    let Some(mount) = mount(dir.path(), 1, None) else { return };
    let t0 = dir.path().join("t0");
    fs::create_dir(t0.join("sub")).unwrap();
    let path = t0.join("sub/file");
    fs::write(&path, b"0123456789").unwrap();
    let mut file = File::options().append(true).open(&path).unwrap();
    file.write_all(b"abc").unwrap();
    drop(file);
    let mut file = File::options().read(true).write(true).open(&path).unwrap();
    file.write_all_at(b"tail", 20_000).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 20_004);
    let mut text = Vec::new();
    file.seek(SeekFrom::Start(8)).unwrap();
    file.read_to_end(&mut text).unwrap();
    assert_eq!(
        (&text[..6], text.len(), &text[19_992 - 4..]),
        (&b"89abc\0"[..], 19_996, &b"\0\0\0\0tail"[..])
    );
    file.set_len(4).unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"0123");
    fs::rename(&path, t0.join("moved")).unwrap();
    assert_eq!(fs::metadata(&path).unwrap_err().kind(), ErrorKind::NotFound);
    fs::remove_dir(t0.join("sub")).unwrap();
    // Without a name it lives on while it is open.
    fs::remove_file(t0.join("moved")).unwrap();
    file.write_all_at(b"x", 0).unwrap();
    let mut one = [0];
    file.read_exact_at(&mut one, 0).unwrap();
    assert_eq!(one, *b"x");
    drop(file);
    assert_eq!(fs::read_dir(&t0).unwrap().count(), 0);
    // Nothing belongs to no target.
    let refused = fs::write(dir.path().join("stray"), b"").unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::PermissionDenied);
    drop(mount);
}

#[test]
fn what_cannot_be_mounted_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let code = |params: &Params, count: u32, at: &Path| {
        Mount::start(at, params, count, None).err().map(|error| error.code)
    };
    let bad = Params { piece_bytes: 1, ..fast() };
    assert_eq!(code(&bad, 1, dir.path()), Some(Code::Inval));
    assert_eq!(code(&fast(), 0, dir.path()), Some(Code::Inval));
    if mount(dir.path(), 1, None).is_some() {
        assert_eq!(code(&fast(), 1, &dir.path().join("none")), Some(Code::NonExist));
    }
}
