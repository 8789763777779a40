//! A system of real processes in a temporary directory, stopped when the test ends; trees to
//! copy, and how to compare them.

#![allow(dead_code, reason = "each test file uses a part of this")]

use serde_json::Value;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// The program under test, without the caller's environment.
pub fn azekura() -> Command {
    azekura_at(Path::new(env!("CARGO_BIN_EXE_azekura")))
}

/// Another build of it, likewise.
pub fn azekura_at(program: &Path) -> Command {
    let mut command = Command::new(program);
    for name in ["AZEKURA_SYSTEM", "AZEKURA_TOKEN_FILE", "AZEKURA_LOG"] {
        command.env_remove(name);
    }
    command.stdin(Stdio::null());
    command
}

/// A directory for a system; the system is brought down at the end, whatever happens.
pub struct System {
    /// Scratch space of the test; the system is in `s` below it.
    pub scratch: tempfile::TempDir,
}

impl System {
    /// A directory without a system.
    pub fn none() -> System {
        System { scratch: tempfile::tempdir().unwrap() }
    }

    /// The same in memory, where there is such a place: etcd gives up where a disk is slow.
    pub fn in_memory() -> System {
        let memory = Path::new("/dev/shm");
        match memory.is_dir() {
            true => System { scratch: tempfile::tempdir_in(memory).unwrap() },
            false => System::none(),
        }
    }

    /// A running system.
    pub fn up(engines: u32, targets: u32) -> System {
        let system = System::none();
        let (engines, targets) = (engines.to_string(), targets.to_string());
        system.ok(&["up", "--engines", &engines, "--targets", &targets]);
        system
    }

    /// A running system with a pool `tank` and a POSIX container `home` in it.
    pub fn with_home() -> System {
        let system = System::up(2, 2);
        system.ok(&["pool", "create", "tank", "--size", "1GiB"]);
        system.ok(&["cont", "create", "tank", "home"]);
        system
    }

    pub fn dir(&self) -> PathBuf {
        self.scratch.path().join("s")
    }

    /// A path in the scratch space.
    pub fn path(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    /// A command for this system.
    pub fn command<S: AsRef<OsStr>>(&self, args: &[S]) -> Command {
        let mut command = azekura();
        command.arg("--system").arg(self.dir()).args(args);
        command
    }

    pub fn run<S: AsRef<OsStr>>(&self, args: &[S]) -> Output {
        self.command(args).output().unwrap()
    }

    /// Runs a command that must succeed; returns what it printed.
    #[track_caller]
    pub fn ok<S: AsRef<OsStr> + std::fmt::Debug>(&self, args: &[S]) -> String {
        let output = self.run(args);
        assert!(output.status.success(), "{args:?}: {}", all_text(&output));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// The same with `--json`.
    #[track_caller]
    pub fn json(&self, args: &[&str]) -> Value {
        let mut args = args.to_vec();
        args.push("--json");
        let text = self.ok(&args);
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{args:?}: {error}: {text}"))
    }

    /// What a command prints with `--json`, whatever its exit code is.
    #[track_caller]
    pub fn json_of(&self, args: &[&str]) -> Value {
        let output = self.run(&[args, &["--json"]].concat());
        serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("{args:?}: {error}: {}", all_text(&output)))
    }

    /// Runs a command that must fail with this exit code and with all these words in its message;
    /// with `--json` too, where the same error must be on standard output.
    #[track_caller]
    pub fn fails<S: AsRef<OsStr> + std::fmt::Debug>(&self, exit: i32, words: &[&str], args: &[S]) {
        let output = self.run(args);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(exit), "{args:?}: {}", all_text(&output));
        for word in words {
            assert!(text.contains(word), "{args:?}: no '{word}' in: {text}");
        }
        let mut args: Vec<&OsStr> = args.iter().map(AsRef::as_ref).collect();
        args.push(OsStr::new("--json"));
        let output = self.run(&args);
        assert_eq!(output.status.code(), Some(exit), "{args:?}: {}", all_text(&output));
        let report: Value = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("{args:?}: {error}: {}", all_text(&output)));
        assert_eq!(report["error"]["exit"], exit, "{args:?}: {report}");
        assert!(report["error"]["message"].is_string(), "{args:?}: {report}");
    }

    /// The pids of the engines that run.
    pub fn pids(&self) -> Vec<u64> {
        let output = self.run(&["status", "--json"]);
        let status: Value = serde_json::from_slice(&output.stdout).unwrap();
        let engines = status["engines"].as_array().unwrap();
        engines.iter().filter_map(|engine| engine["pid"].as_u64()).collect()
    }
}

impl Drop for System {
    fn drop(&mut self) {
        if self.dir().join("setup.toml").exists() {
            let output = self.run(&["down", "--wait", "10"]);
            if !output.status.success() {
                eprintln!("azekura down: {}", all_text(&output));
            }
        }
        if std::thread::panicking() {
            for index in 0..4 {
                let log = self.dir().join(format!("engine{index}/engine.log"));
                if let Ok(text) = fs::read_to_string(log) {
                    let lines: Vec<&str> = text.lines().collect();
                    let tail = &lines[lines.len().saturating_sub(20)..];
                    eprintln!("--- engine {index}:\n{}", tail.join("\n"));
                }
            }
        }
    }
}

/// Everything a command printed.
pub fn all_text(output: &Output) -> String {
    format!(
        "{}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

/// Bytes that differ everywhere and from seed to seed.
pub fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        bytes.extend_from_slice(&next());
    }
    bytes.truncate(length);
    bytes
}

/// Everything that a copy must keep of an entry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    mode: u32,
    mtime: (i64, i64),
    content: Content,
}

#[derive(Clone, PartialEq, Eq)]
enum Content {
    Directory,
    Link(Vec<u8>),
    /// Content, and the first path of the same file if it has several names.
    File(Vec<u8>, Option<Vec<u8>>),
}

impl std::fmt::Debug for Content {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Content::Directory => write!(f, "directory"),
            Content::Link(target) => write!(f, "link to {}", target.escape_ascii()),
            Content::File(bytes, first) => {
                write!(f, "file of {} bytes, same as {first:?}", bytes.len())
            }
        }
    }
}

/// All of a tree, by path below its root; the root itself is the empty path.
pub fn tree(root: &Path) -> BTreeMap<Vec<u8>, Entry> {
    let mut entries = BTreeMap::new();
    let mut names: BTreeMap<(u64, u64), Vec<u8>> = BTreeMap::new();
    let mut todo = vec![root.to_path_buf()];
    while let Some(path) = todo.pop() {
        let meta = fs::symlink_metadata(&path).unwrap();
        let below = path.strip_prefix(root).unwrap().as_os_str().as_bytes().to_vec();
        let is_link = meta.file_type().is_symlink();
        let content = if is_link {
            Content::Link(fs::read_link(&path).unwrap().as_os_str().as_bytes().to_vec())
        } else if meta.is_dir() {
            let mut found: Vec<PathBuf> =
                fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()).collect();
            // The last one is looked at first: in order of names.
            found.sort_by(|a, b| b.cmp(a));
            todo.extend(found);
            Content::Directory
        } else {
            let mut first = None;
            if meta.nlink() > 1 {
                let name = names.entry((meta.dev(), meta.ino())).or_insert_with(|| below.clone());
                first = Some(name.clone());
            }
            Content::File(fs::read(&path).unwrap(), first)
        };
        // Linux gives every symbolic link the mode 0777.
        let mode = if is_link { 0 } else { meta.permissions().mode() & 0o7777 };
        let mtime = (meta.mtime(), meta.mtime_nsec());
        entries.insert(below, Entry { mode, mtime, content });
    }
    entries
}

/// Fails with the first difference of two trees.
#[track_caller]
pub fn assert_same_tree(a: &Path, b: &Path) {
    let (a, b) = (tree(a), tree(b));
    for (path, entry) in &a {
        assert_eq!(Some(entry), b.get(path), "{}", path.escape_ascii());
    }
    assert_eq!(a.len(), b.len(), "entries beyond those of the original");
}

/// A tree with one of each kind of thing that a copy may get wrong.
pub fn make_tree(root: &Path) {
    let at = |name: &str| root.join(name);
    fs::create_dir_all(at("deep/er/and/deeper")).unwrap();
    fs::create_dir_all(at("empty")).unwrap();
    for (seed, (name, length)) in [
        ("nothing", 0),
        ("one", 1),
        ("page", 4096),
        ("chunk", 1 << 20),
        ("chunk+1", (1 << 20) + 1),
        ("deep/er/piece", 4 << 20),
        ("deep/er/and/pieces", (9 << 20) + 17),
        ("deep/er/and/deeper/file", 70_000),
        (".hidden", 5),
        ("name with spaces, ümläuts and \\backslash", 33),
    ]
    .into_iter()
    .enumerate()
    {
        fs::write(at(name), noise(seed as u64, length)).unwrap();
    }
    fs::write(root.join(OsStr::from_bytes(b"not utf-8 \xff\xfe")), "x").unwrap();
    fs::write(at(&"n".repeat(255)), "longest name").unwrap();
    // A hole at the start, one in the middle, one at the end.
    let sparse = fs::File::create(at("sparse")).unwrap();
    use std::os::unix::fs::FileExt;
    sparse.write_all_at(b"island", 5 << 20).unwrap();
    sparse.set_len(12 << 20).unwrap();
    fs::write(at("zeros"), vec![0; 100_000]).unwrap();
    std::os::unix::fs::symlink("deep/er/piece", at("link")).unwrap();
    std::os::unix::fs::symlink("../nowhere", at("empty/dangling")).unwrap();
    std::os::unix::fs::symlink("..", at("deep/up")).unwrap();
    fs::hard_link(at("chunk"), at("deep/same-as-chunk")).unwrap();
    fs::hard_link(at("chunk"), at("zz-same-as-chunk")).unwrap();
    for index in 0..60 {
        fs::write(at(&format!("deep/{index:03}")), noise(1000 + index, index as usize * 37))
            .unwrap();
    }
    let chmod = |name: &str, mode| {
        fs::set_permissions(at(name), fs::Permissions::from_mode(mode)).unwrap();
    };
    chmod("one", 0o400);
    chmod("page", 0o6755);
    chmod("deep/er", 0o1777);
    chmod("empty", 0o500);
    // Times of the last century and of the next, with nanoseconds.
    for (name, seconds, nanos) in
        [("one", -1_000_000_000, 1), ("page", 4_000_000_000, 999_999_999), ("deep", 7, 0)]
    {
        set_mtime(&at(name), seconds, nanos);
    }
}

pub fn set_mtime(path: &Path, seconds: i64, nanos: i64) {
    use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, UTIME_OMIT};
    let times = Timestamps {
        last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        last_modification: Timespec { tv_sec: seconds, tv_nsec: nanos },
    };
    rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

/// Waits until some engine has told of an event with this code; the first one.
pub fn until_event(system: &System, code: &str) -> Value {
    loop {
        if let Some(event) = system.json(&["system", "events", "--code", code]).get(0) {
            return event.clone();
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
}

/// Waits until `pool health` says all this of the pool; its exit code then.
pub fn until_health(system: &System, parts: &[&str]) -> Option<i32> {
    loop {
        let output = system.run(&["pool", "health", "tank", "--json"]);
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        let summary = report[0]["summary"].as_str().unwrap();
        if parts.iter().all(|part| summary.contains(part)) {
            return output.status.code();
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
}
