//! A system in this process and mounts of it, for tests with real programs.

#![allow(dead_code, reason = "each test file uses a part of this")]

#[path = "../../../fuselow/tests/harness/uring.rs"]
pub mod uring;

use client::{Client, Container};
use dfs::{Credentials, Dfs, FormatOptions, MountFlags};
use fuse::mount::Mount;
use fuse::options::Options;
use fuselow::Transport;
use sim::LocalSystem;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use types::{Code, ContLayout, Durability};
use wire::control::{Name, OpenMode, SnapName};

/// Engines in this process, with a pool `p` and a file system in its container `c`.
pub struct System {
    pub local: LocalSystem,
    /// The container as a library user has it open.
    cont: Option<Container>,
    client: Client,
    /// How mounts of it get requests from the kernel.
    pub transport: Transport,
    /// Mounts reach it as one that is elsewhere.
    pub is_far: bool,
}

/// False, said loudly, where nothing can be mounted.
pub fn can_mount() -> bool {
    let device = std::fs::OpenOptions::new().read(true).write(true).open("/dev/fuse");
    if let Err(error) = &device {
        eprintln!("SKIPPED: nothing is mounted in this test: /dev/fuse: {error}");
    }
    device.is_ok()
}

/// A system for each transport that can be tested here; none, said loudly, where nothing can be
/// mounted.
pub fn systems(durability: Durability) -> impl Iterator<Item = System> {
    let transports = if can_mount() { uring::transports() } else { Vec::new() };
    transports.into_iter().map(move |transport| {
        println!("over {transport:?}");
        System { transport, ..System::start(durability) }
    })
}

impl System {
    /// One engine of two targets, and an empty file system.
    pub fn start(durability: Durability) -> System {
        let local = LocalSystem::start(1, 2).unwrap();
        let client = local.client(false).unwrap();
        let cont = local.container(&client, durability, ContLayout::Posix).unwrap();
        client.block_on(Dfs::format(&cont, &FormatOptions::default())).unwrap();
        System { local, cont: Some(cont), client, transport: Transport::Auto, is_far: false }
    }

    /// The file system as a program sees it that uses the library.
    pub fn dfs(&self) -> Dfs {
        let cont = self.cont.as_ref().unwrap();
        self.client.block_on(Dfs::mount(cont, MountFlags::NONE, Credentials::root())).unwrap()
    }

    /// Runs something on the library's thread.
    pub fn block_on<T>(&self, work: impl Future<Output = T>) -> T {
        self.client.block_on(work)
    }

    /// Makes a snapshot of the container.
    pub fn snapshot(&self, name: &str) {
        let cont = self.cont.as_ref().unwrap();
        self.client.block_on(cont.pool().snap_create(&cont.name(), name)).unwrap();
    }

    /// Destroys it.
    #[allow(dead_code)] // not every test needs it
    pub fn destroy_snapshot(&self, name: &str) {
        let cont = self.cont.as_ref().unwrap();
        let name = SnapName::parse(name);
        self.client.block_on(cont.pool().snap_destroy(&cont.name(), &name)).unwrap();
    }

    /// Mounts the container with options as `mount -o` takes them.
    pub fn mount(&self, options: &str) -> Mounted {
        let dir = tempfile::tempdir().unwrap();
        let mut parsed = Options { threads: 2, transport: self.transport, ..Options::default() };
        parsed.apply(options).unwrap();
        let mut connect = self.local.options(self.is_far);
        connect.timeout = parsed.patience();
        let read_only = parsed.read_only || parsed.snapshot.is_some();
        let mode = if read_only { OpenMode::ReadOnly } else { OpenMode::ReadWrite };
        let dfs = loop {
            let dfs = Client::connect(connect.clone()).and_then(|client| {
                client.block_on(async {
                    let pool = client.pool_open(&Name::Label("p".into()), mode).await?;
                    let mut cont = pool.cont_open(&Name::Label("c".into()), mode).await?;
                    if let Some(name) = &parsed.snapshot {
                        cont = cont.at_snapshot(&SnapName::parse(name)).await?;
                    }
                    Dfs::mount(&cont, MountFlags::NONE, Credentials::root()).await
                })
            });
            match dfs {
                // The patience a test asks for is for its engines that are gone, not for a slow machine.
                Err(error) if error.code == Code::TimedOut => {}
                other => break other.unwrap(),
            }
        };
        let mount = Mount::start(dfs, dir.path(), "azk://p/c".into(), &parsed).unwrap();
        if parsed.transport != Transport::Auto {
            let uring = parsed.transport == Transport::Uring;
            assert_eq!(mount.session().negotiated().uring, uring);
        }
        Mounted { mount: Some(mount), dir }
    }
}

/// A mount, gone with the value.
pub struct Mounted {
    mount: Option<Mount>,
    dir: tempfile::TempDir,
}

impl Mounted {
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn mount(&self) -> &Mount {
        self.mount.as_ref().unwrap()
    }

    /// Runs a shell script in the mounted directory; its output. It must succeed.
    #[track_caller]
    pub fn sh(&self, script: &str) -> String {
        let output = self.shell(script).output().unwrap();
        assert!(
            output.status.success(),
            "{script}\n{}\n{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// A shell in the mounted directory, which is ended after some minutes: then it hangs.
    pub fn shell(&self, script: &str) -> Command {
        let mut command = Command::new("timeout");
        command.args(["-k", "5", "180", "sh", "-euc", script]);
        command.current_dir(self.dir()).stdin(Stdio::null());
        command.env("LC_ALL", "C");
        command
    }

    /// Unmounts; nobody may use it any more, but for a moment: processes that another test starts
    /// have copies of all descriptors until they execute their program.
    pub fn unmount(mut self) {
        let mount = self.mount.take().unwrap();
        eventually("nobody uses the mount", || match mount.session().unmount(false) {
            Err(error) if error.code == Code::Busy => false,
            other => {
                other.unwrap();
                true
            }
        });
        mount.wait();
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // Whatever still uses it is none of ours: the session goes all the same.
        drop(self.mount.take());
    }
}

/// Waits until something is so, for at most a minute.
#[track_caller]
pub fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = std::time::Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(std::time::Instant::now() < end, "never happened: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
