//! Running programs with the library loaded, against an engine in this process.

use preload::harness::RUN_TIME_MAX;
use sim::LocalSystem;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};
use types::{ContLayout, Durability};
use wire::control::{Name, OpenMode};

/// Where the files appear in programs. Nothing is there in the kernel.
pub const PREFIX: &str = "/azekura-intercept-test";

fn library() -> PathBuf {
    preload::harness::library("libazekura_intercept.so")
}

/// The one system of this test process, with a file system in it.
fn system() -> &'static Mutex<LocalSystem> {
    static SYSTEM: OnceLock<Mutex<LocalSystem>> = OnceLock::new();
    SYSTEM.get_or_init(|| {
        let system = LocalSystem::start(1, 2).unwrap();
        let client = system.client(false).unwrap();
        let cont = system.container(&client, Durability::Memory, ContLayout::Posix).unwrap();
        let options = dfs::FormatOptions { mode: 0o777, uid: 0, gid: 0 };
        client.block_on(dfs::Dfs::format(&cont, &options)).unwrap();
        Mutex::new(system)
    })
}

fn address() -> String {
    let system = system().lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let engines = system.options(false).system.engines;
    let unix = engines.iter().find_map(|engine| match engine {
        transport::Address::Unix(path) => Some(path.display().to_string()),
        _ => None,
    });
    format!("unix:{}", unix.unwrap())
}

/// A directory on the prefix and one of the kernel's, both a test's own.
pub struct Place {
    /// On the prefix.
    pub azk: String,
    /// The kernel's.
    pub tmp: tempfile::TempDir,
}

impl Place {
    pub fn new(name: &str) -> Place {
        let azk = format!("{PREFIX}/{name}");
        let place = Place { azk, tmp: tempfile::tempdir().unwrap() };
        place.run(place.command("mkdir").arg(&place.azk));
        place
    }

    /// The kernel's directory.
    pub fn dir(&self) -> &Path {
        self.tmp.path()
    }

    /// A program with the library loaded.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = preload::harness::command(program, &library());
        command
            .current_dir(self.dir())
            .env("AZEKURA_SYSTEM", address())
            .env("AZEKURA_INTERCEPT", format!("azk://p/c={PREFIX}"))
            .env("D", &self.azk)
            .env("T", self.dir())
            .env("HOME", self.dir())
            .env("LC_ALL", "C")
            .env_remove("PYTHONDONTWRITEBYTECODE");
        command
    }

    /// Runs a program to its end, which must be a success.
    pub fn run(&self, command: &mut Command) -> String {
        preload::harness::succeeded(&finish(command))
    }

    /// Runs a script of bash; `$D` is the directory on the prefix, `$T` the kernel's.
    pub fn bash(&self, script: &str) -> String {
        self.run(self.command("bash").args(["-e", "-u", "-o", "pipefail", "-c", script]))
    }

    /// The same script on the prefix and on the kernel's file system, each in a directory called
    /// `w`; what they say must be equal.
    pub fn compare(&self, script: &str) {
        let script = |dir: &str| format!("mkdir {dir}/w; cd {dir}/w\n{script}");
        let ours = self.bash(&script("$D"));
        let mut plain = Command::new("bash");
        plain
            .current_dir(self.dir())
            .env("T", self.dir())
            .env("HOME", self.dir())
            .env("LC_ALL", "C");
        plain.env_remove("PYTHONDONTWRITEBYTECODE");
        plain.args(["-e", "-u", "-o", "pipefail", "-c", &script("$T")]);
        let kernel = self.run(&mut plain);
        let clean = |text: String, dir: &str| text.replace(dir, "DIR");
        let kernel = clean(kernel, &self.dir().display().to_string());
        assert_eq!(clean(ours, &self.azk), kernel);
    }
}

/// A mount of the same file system, served by this process; gone with the value.
pub struct Mounted {
    // Before its directory.
    _mount: fuse::mount::Mount,
    dir: tempfile::TempDir,
}

impl Mounted {
    /// Mounts with options as `mount -o` takes them. None, said loudly, where that is not possible.
    pub fn new(options: &str) -> Option<Mounted> {
        let device = std::fs::OpenOptions::new().read(true).write(true).open("/dev/fuse");
        if let Err(error) = device {
            eprintln!("SKIPPED: nothing is mounted in this test: /dev/fuse: {error}");
            return None;
        }
        let mut parsed = fuse::options::Options { threads: 2, ..Default::default() };
        parsed.apply(options).unwrap();
        let connect = {
            let system = system().lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            system.options(false)
        };
        let client = client::Client::connect(connect).unwrap();
        let read_only = parsed.read_only;
        let mode = if read_only { OpenMode::ReadOnly } else { OpenMode::ReadWrite };
        let flags = if read_only { dfs::MountFlags::READ_ONLY } else { dfs::MountFlags::NONE };
        let fs = client.block_on(async {
            let pool = client.pool_open(&Name::Label("p".into()), mode).await.unwrap();
            let cont = pool.cont_open(&Name::Label("c".into()), mode).await.unwrap();
            dfs::Dfs::mount(&cont, flags, dfs::Credentials::root()).await.unwrap()
        });
        let dir = tempfile::tempdir().unwrap();
        let mount = fuse::mount::Mount::start(fs, dir.path(), "azk://p/c".into(), &parsed).unwrap();
        Some(Mounted { _mount: mount, dir })
    }

    pub fn dir(&self) -> &Path {
        self.dir.path()
    }
}

/// Operations, and bytes that came and went, of a job at all targets.
pub fn job(name: &str) -> [u64; 3] {
    system().lock().unwrap_or_else(|poisoned| poisoned.into_inner()).job(name).unwrap()
}

/// Waits until the servers hold no file without a name; other tests have some for a while.
pub fn eventually_no_orphans() {
    let connect = {
        let system = system().lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        system.options(false)
    };
    let client = client::Client::connect(connect).unwrap();
    client.block_on(async {
        let pool = client.pool_open(&Name::Label("p".into()), OpenMode::ReadWrite).await.unwrap();
        let cont = pool.cont_open(&Name::Label("c".into()), OpenMode::ReadWrite).await.unwrap();
        let deadline = Instant::now() + RUN_TIME_MAX;
        loop {
            let mut left = 0;
            for target in &pool.map().targets {
                left += cont.list_orphans(target.id, None, 999).await.unwrap().units.len();
            }
            if left == 0 {
                return;
            }
            assert!(Instant::now() < deadline, "{left} files without a name are never freed");
            client.env().sleep(Duration::from_millis(20)).await;
        }
    });
}

/// Runs a program to its end.
pub fn finish(command: &mut Command) -> Output {
    preload::harness::finish(preload::harness::start(command.stdin(Stdio::null())))
}

/// Compiles a program of this directory's `c/`, once per test process: with fortified functions,
/// as distributions build.
pub fn c_program(name: &str) -> PathBuf {
    preload::c_program!(name, &["-O2", "-D_FORTIFY_SOURCE=2", "-D_GNU_SOURCE"])
}

/// Runs a program of `c/` on a directory of its own.
pub fn run_c(name: &str) {
    let place = Place::new(name);
    let program = c_program(name);
    place.run(place.command(program).arg(&place.azk).arg(place.dir()));
}
