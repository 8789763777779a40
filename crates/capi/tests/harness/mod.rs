//! Compiles C programs against the headers and the built library, and runs them, with a live
//! system or without.

#![allow(dead_code, reason = "each test file uses a part of this")]

use sim::LocalSystem;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use types::Durability;
use wire::control::ControlRequest;

/// Names under which programs link the library.
const NAMES: [&str; 7] = [
    "libazekura.so.0",
    "libazekura.so",
    "libdaos.so",
    "libdfs.so",
    "libduns.so",
    "libgurt.so",
    "libdaos_common.so",
];

/// What a program is compiled as.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Language {
    /// GNU C11.
    C,
    /// GNU C++17.
    Cpp,
    /// GNU C11 with address, leak and undefined-behaviour sanitizers.
    Sanitized,
}

fn crate_dir() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A directory with the built library under all its names.
pub fn library_dir() -> &'static Path {
    static DIR: OnceLock<tempfile::TempDir> = OnceLock::new();
    DIR.get_or_init(|| {
        // Cargo puts the shared object beside the tests' binaries before it runs them.
        let deps = std::env::current_exe().unwrap().parent().unwrap().to_path_buf();
        let built = [deps.join("libazekura.so"), deps.parent().unwrap().join("libazekura.so")]
            .into_iter()
            .find(|path| path.exists())
            .expect("cargo builds libazekura.so with the tests");
        let dir = tempfile::tempdir().unwrap();
        for name in NAMES {
            std::os::unix::fs::symlink(&built, dir.path().join(name)).unwrap();
        }
        dir
    })
    .path()
}

/// Compiles `tests/c/NAME.c` into a directory; warnings are errors.
pub fn compile(name: &str, language: Language, into: &Path) -> PathBuf {
    let source = crate_dir().join("tests/c").join(format!("{name}.c"));
    let program = into.join(format!("{name}-{language:?}"));
    let mut command = match language {
        Language::Cpp => {
            let mut command = Command::new("c++");
            command.args(["-x", "c++", "-std=gnu++17"]);
            command
        }
        _ => {
            let mut command = Command::new("cc");
            command.arg("-std=gnu11");
            command
        }
    };
    if language == Language::Sanitized {
        command.args(["-fsanitize=address,undefined", "-fno-omit-frame-pointer"]);
    }
    let libraries = library_dir();
    command
        .args(["-g", "-O1", "-pthread", "-Wall", "-Wextra", "-Werror"])
        .arg("-I")
        .arg(crate_dir().join("include"))
        .arg("-I")
        .arg(crate_dir().join("tests/c"))
        .arg(&source)
        .arg("-o")
        .arg(&program)
        .arg("-L")
        .arg(libraries)
        .arg(format!("-Wl,-rpath,{}", libraries.display()))
        .args(["-ldaos", "-ldfs", "-lduns", "-lgurt", "-ldaos_common", "-luuid"]);
    let output = command.output().expect("a C compiler is installed");
    assert!(output.status.success(), "{name} as {language:?}: {}", text(&output));
    program
}

/// Compiles and runs a program that needs no system, in every language.
pub fn run_alone(name: &str) {
    let dir = tempfile::tempdir().unwrap();
    for language in [Language::C, Language::Cpp, Language::Sanitized] {
        let program = compile(name, language, dir.path());
        let mut command = Command::new(&program);
        command.env_remove("AZEKURA_SYSTEM").stdin(Stdio::null());
        check(name, language, command.output().unwrap());
    }
}

/// A running system with a pool `tank` that C programs find by `AZEKURA_SYSTEM`.
pub struct System {
    system: LocalSystem,
    pub scratch: tempfile::TempDir,
}

impl System {
    /// Two engines with two targets each; data go when an engine stops.
    pub fn start() -> System {
        System::start_with(Durability::Memory)
    }

    /// [`System::start`] with a pool of some durability.
    pub fn start_with(durability: Durability) -> System {
        System::start_of(2, 2, durability)
    }

    /// [`System::start_with`] of so many engines, with so many targets each.
    pub fn start_of(engines: usize, targets: usize, durability: Durability) -> System {
        let system = LocalSystem::start(engines, targets).unwrap();
        let client = system.client(false).unwrap();
        let request = ControlRequest::PoolCreate {
            placement: types::PlacementRule::default(),
            label: "tank".into(),
            bytes: 1 << 30,
            scm_percent: 20,
            durability,
            targets: Vec::new(),
        };
        client.block_on(client.pool_create(request)).unwrap();
        System { system, scratch: tempfile::tempdir().unwrap() }
    }

    pub fn engines(&mut self) -> &mut LocalSystem {
        &mut self.system
    }

    /// Operations, and bytes that came and went, of a job at all targets.
    pub fn job(&self, name: &str) -> [u64; 3] {
        self.system.job(name).unwrap()
    }

    /// A command that finds the system.
    pub fn command(&self, program: &Path) -> Command {
        let options = self.system.options(false);
        let socket = options.system.engines.iter().find_map(|address| match address {
            transport::Address::Unix(path) => Some(format!("unix:{}", path.display())),
            _ => None,
        });
        let mut command = Command::new(program);
        command
            .env("AZEKURA_SYSTEM", socket.expect("engines have a socket"))
            .env_remove("AZEKURA_TOKEN_FILE")
            .current_dir(self.scratch.path())
            .stdin(Stdio::null());
        command
    }

    /// Compiles a program and runs it, as C, C++ and with sanitizers; arguments: the pool, a
    /// name for things that no other run uses, and `arguments`.
    pub fn run(&self, name: &str, arguments: &[&str]) {
        for language in [Language::C, Language::Cpp, Language::Sanitized] {
            let program = compile(name, language, self.scratch.path());
            let unique = format!("{name}-{language:?}").to_lowercase();
            let mut command = self.command(&program);
            command.args(["tank", &unique]).args(arguments);
            check(name, language, command.output().unwrap());
        }
    }
}

/// What a program printed.
pub fn text(output: &Output) -> String {
    format!(
        "{}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

/// Fails the test with what the program printed unless it ended well.
#[track_caller]
pub fn check(name: &str, language: Language, output: Output) {
    assert!(output.status.success(), "{name} as {language:?}: {}", text(&output));
}
