//! For tests of a preload library: programs that run with it loaded.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// A program that runs longer hangs.
pub const RUN_TIME_MAX: Duration = Duration::from_secs(120);

/// The library of this file name: cargo builds it beside the tests, because it builds a crate's
/// library for them.
///
/// # Panics
///
/// When it is not there.
pub fn library(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap_or_default();
    let library = test.with_file_name(name);
    assert!(library.exists(), "{} is not there; run the tests by cargo", library.display());
    library
}

/// A program with a library loaded and none of our variables inherited.
pub fn command(program: impl AsRef<OsStr>, library: &Path) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("AZEKURA_") {
            command.env_remove(name);
        }
    }
    command.env("LD_PRELOAD", library);
    command
}

/// True when a program is installed; otherwise its test says so and passes.
pub fn has(program: &str) -> bool {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&paths).any(|dir| dir.join(program).exists());
    if !found {
        eprintln!("SKIPPED: {program} is not installed");
    }
    found
}

/// Compiles `tests/preload/c/NAME.c` of a crate into a directory, once per test process.
///
/// # Panics
///
/// When the compiler is not there, or says no.
pub fn c_program(manifest: &str, out: &str, name: &str, flags: &[&str]) -> PathBuf {
    static DONE: Mutex<Vec<(String, PathBuf)>> = Mutex::new(Vec::new());
    let mut done = DONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if let Some((_, path)) = done.iter().find(|(known, _)| known == name) {
        return path.clone();
    }
    let source = Path::new(manifest).join("tests/preload/c").join(name).with_extension("c");
    let out = Path::new(out).join(format!("{name}-{}", std::process::id()));
    let mut compiler = Command::new("cc");
    compiler.args(flags).args(["-Wall", "-Wextra", "-Wno-unused-result", "-pthread", "-o"]);
    let output = compiler.arg(&out).arg(&source).output();
    let output = output.unwrap_or_else(|error| panic!("cc: {error}"));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    done.push((name.to_string(), out.clone()));
    out
}

/// [`c_program`] of the crate whose test this is.
#[macro_export]
macro_rules! c_program {
    ($name:expr, $flags:expr) => {
        $crate::harness::c_program(
            env!("CARGO_MANIFEST_DIR"),
            env!("CARGO_TARGET_TMPDIR"),
            $name,
            $flags,
        )
    };
}

/// Starts a command with its output kept.
///
/// # Panics
///
/// When it does not start.
pub fn start(command: &mut Command) -> Child {
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"))
}

/// Waits for the end of a program.
///
/// # Panics
///
/// When it hangs; it is killed then.
pub fn finish(child: Child) -> Output {
    let pid = child.id() as libc::pid_t;
    let waiting = std::thread::spawn(move || child.wait_with_output());
    let deadline = Instant::now() + RUN_TIME_MAX;
    while !waiting.is_finished() {
        if Instant::now() > deadline {
            // SAFETY: a number; the process is ours, and not waited for before it ends.
            unsafe { libc::kill(pid, libc::SIGKILL) };
            panic!("hangs: {:?}", waiting.join());
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    match waiting.join() {
        Ok(output) => output.unwrap_or_else(|error| panic!("waiting for a program: {error}")),
        Err(_) => panic!("waiting for a program"),
    }
}

/// Panics unless a program has succeeded; returns what it said.
///
/// # Panics
///
/// See above.
pub fn succeeded(output: &Output) -> String {
    let said = String::from_utf8_lossy(&output.stdout);
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}\n{said}\n{told}", output.status);
    said.into_owned()
}
