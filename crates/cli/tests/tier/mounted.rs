//! What a store describes as a directory: without a pool, and by its URL without a system.

use super::*;
use std::io::ErrorKind;

/// A mount point that is given back, whatever happens.
struct Mounted(PathBuf);

impl Mounted {
    /// Mounts with these options; `None`, and a word to whoever reads the tests' output, where nothing can be mounted.
    fn with(system: &System, name: &str, options: &[&str]) -> Option<Mounted> {
        if let Err(error) = std::fs::OpenOptions::new().read(true).write(true).open("/dev/fuse") {
            eprintln!("SKIPPED: nothing is mounted in this test: /dev/fuse: {error}");
            return None;
        }
        let dir = system.path(name);
        std::fs::create_dir(&dir).unwrap();
        system.ok(&[&["tier", "mount", dir.to_str().unwrap()], options].concat());
        Some(Mounted(dir))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = harness::azekura().arg("umount").arg(&self.0).output();
    }
}

#[test]
fn a_store_is_mounted_by_its_url_without_any_system() {
    let system = system();
    let tree = system.path("tree");
    harness::make_tree(&tree);
    system.ok(&["fs", "mkdir", &format!("{HOME}/t")]);
    system.ok(&["fs", "cp", "-r", &format!("{}/.", tree.display()), &format!("{HOME}/t/")]);
    let data = noise(40, 20 * MIB + 3);
    put(&system, "large", &data);
    system.ok(&["fs", "set-attr", &format!("{HOME}/large"), "user.colour=blue"]);
    system.ok(&["fs", "tier", "sync", HOME]);
    let snapshot = system.json(&["tier", "snapshot", "create", HOME]);
    put(&system, "large", b"small now");
    put(&system, "never synced", b"x");
    system.ok(&["fs", "tier", "evict", HOME]);

    // Another machine, which has the store and nothing else.
    let other = System::none();
    let url = format!("fs://{}", store(&system).display());
    let Some(mounted) = Mounted::with(&other, "mnt", &["--from", &url]) else { return };
    let at = |name: &str| mounted.0.join(name);
    harness::assert_same_tree(&tree, &at("t"));
    assert!(std::fs::read(at("large")).unwrap() == data, "as of the last sync of the root");
    let file = std::fs::File::open(at("large")).unwrap();
    let mut some = vec![0; 3 * MIB];
    file.read_exact_at(&mut some, 15 * MIB as u64 + 1).unwrap();
    assert!(some == data[15 * MIB + 1..18 * MIB + 1]);
    let mut value = [0; 16];
    let bytes = rustix::fs::getxattr(at("large"), "user.colour", &mut value[..]).unwrap();
    assert_eq!(value[..bytes], *b"blue");
    assert!(!at("never synced").exists());
    for refused in [
        std::fs::write(at("large"), "x").unwrap_err(),
        std::fs::write(at("new"), "x").unwrap_err(),
        std::fs::remove_file(at("large")).unwrap_err(),
        std::fs::create_dir(at("dir")).unwrap_err(),
    ] {
        assert_eq!(refused.kind(), ErrorKind::ReadOnlyFilesystem, "{refused}");
    }
    drop((file, mounted));

    // What differs is never shown. The other parts are.
    let part = objects(&store(&system), ".000001.part");
    let part = part.iter().find(|part| std::fs::metadata(part).unwrap().len() > 8 << 20).unwrap();
    let mut bytes = std::fs::read(part).unwrap();
    bytes[5 * MIB] ^= 1;
    std::fs::write(part, &bytes).unwrap();
    let name = snapshot["snapshot"].as_str().unwrap();
    let of = ["--from", "cold", "--cont", "home", "--snapshot", name];
    let mounted = Mounted::with(&system, "mnt", &of).unwrap();
    let file = std::fs::File::open(mounted.0.join("large")).unwrap();
    assert_eq!(file.metadata().unwrap().len(), data.len() as u64, "as the snapshot has it");
    let mut some = vec![0; MIB];
    file.read_exact_at(&mut some, 17 * MIB as u64).unwrap();
    assert!(some == data[17 * MIB..18 * MIB]);
    file.read_exact_at(&mut some, 9 * MIB as u64).unwrap_err();
    bytes[5 * MIB] ^= 1;
    std::fs::write(part, &bytes).unwrap();
    file.read_exact_at(&mut some, 9 * MIB as u64).unwrap();
    assert!(some == data[9 * MIB..10 * MIB]);
    drop((file, mounted));

    let dir = system.path("mnt");
    let dir = dir.to_str().unwrap();
    let mount = ["tier", "mount", dir, "--from"];
    system.fails(3, &["no container 'x'"], &[&mount[..], &[&url, "--cont", "x"]].concat());
    system.fails(3, &["no tier 'x'"], &[&mount[..], &["x"]].concat());
    system.fails(2, &["go with a URL"], &[&mount[..], &["cold", "--region", "x"]].concat());
    let missing = format!("fs://{}", system.path("nothing").display());
    system.fails(6, &["missing or empty"], &[&mount[..], &[&missing]].concat());
}

#[test]
fn a_bucket_is_mounted_and_read() {
    let (system, s3) = with_s3();
    system.ok(&["tier", "attach", "s3", HOME]);
    let data = noise(41, 9 * MIB);
    put(&system, "a", &data);
    system.ok(&["fs", "tier", "sync", HOME]);
    let other = System::none();
    let keys = system.path("keys");
    let place = ["--from", "s3://bucket/some/prefix", "--endpoint", &s3.endpoint];
    let options = [&place[..], &["--credentials", keys.to_str().unwrap()]].concat();
    let Some(mounted) = Mounted::with(&other, "mnt", &options) else { return };
    s3.state().faults.extend([503, 429]);
    assert!(std::fs::read(mounted.0.join("a")).unwrap() == data);
}
