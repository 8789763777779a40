//! The coordinated side of an experiment: a coordinator of its own, and the variables that make a
//! process load the preload library and ask it.

use super::child::Program;
use super::limit::Limit;
use super::trace::{Trace, read_trace};
use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Command;
use types::{Code, Error, Result};

/// File name of the preload library.
const LIBRARY: &str = "libazekura_ioc.so";

/// A running coordinator.
pub struct Coordination {
    program: Program,
    preload: PathBuf,
    address: OsString,
    trace: PathBuf,
}

impl Coordination {
    /// Starts a coordinator with a limit for the writers of each target; `binary` is the
    /// `azekura` command, `preload` the preload library, sockets and trace go to `scratch`.
    pub fn start(binary: &Path, preload: &Path, scratch: &Path, limit: Limit) -> Result<Self> {
        let socket = scratch.join("coordinator.sock");
        let trace = scratch.join("trace.jsonl");
        for old in [&socket, &trace] {
            match std::fs::remove_file(old) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(Error::io(format!("removing {}", old.display()), error));
                }
                _ => {}
            }
        }
        let mut command = Command::new(binary);
        let mut address = OsString::from("unix:");
        address.push(&socket);
        command.args(["ioc", "serve", "--max-writers", &limit.to_string()]);
        command.arg("--listen").arg(&address).arg("--trace").arg(&trace);
        let mut program = Program::start("the coordinator", &mut command)?;
        // It says where it listens once it does.
        let mut line = String::new();
        let count = BufReader::new(program.output()?)
            .read_line(&mut line)
            .map_err(|error| Error::io("listening to the coordinator", error))?;
        if count == 0 {
            return Err(program.ended());
        }
        Ok(Coordination { program, preload: preload.to_path_buf(), address, trace })
    }

    /// What the environment of a process must say, whose files all belong to one target.
    pub fn variables(&self, target: u32, min_bytes: u64) -> Vec<(&'static str, OsString)> {
        vec![
            ("LD_PRELOAD", self.preload.clone().into_os_string()),
            // No file of the machine's changes what is measured.
            ("AZEKURA_IOC_CONFIG", OsString::new()),
            ("AZEKURA_IOC", self.address.clone()),
            ("AZEKURA_IOC_TARGET", format!("name:t{target}").into()),
            ("AZEKURA_IOC_MIN_SIZE", min_bytes.to_string().into()),
            ("AZEKURA_IOC_JOB", "bench".into()),
        ]
    }

    /// Ends the coordinator; what it granted.
    pub fn finish(self) -> Result<Trace> {
        self.program.finish()?;
        read_trace(&self.trace)
    }
}

/// The preload library of this installation or build: beside the program, or in `../lib`. For
/// programs in `target/*/deps` (tests) the directory above counts too.
pub fn find_library(binary: &Path) -> Result<PathBuf> {
    let dir = binary.parent().unwrap_or(Path::new("."));
    let places = [dir.to_path_buf(), dir.join("../lib"), dir.join("../lib64"), dir.join("..")];
    let found = places.iter().map(|place| place.join(LIBRARY)).find(|path| path.is_file());
    found.ok_or_else(|| {
        let looked: Vec<String> = places.iter().map(|place| place.display().to_string()).collect();
        let text = format!("{LIBRARY} not found in {}; name it with --library", looked.join(", "));
        Error::new(Code::NonExist, text)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_is_found_where_it_is_installed_or_built() {
        let root = tempfile::tempdir().unwrap();
        let binary = root.path().join("bin/azekura");
        for place in ["bin", "lib", "lib64"] {
            let error = find_library(&binary).unwrap_err();
            assert!(error.to_string().contains("--library"));
            let dir = root.path().join(place);
            std::fs::create_dir_all(root.path().join("bin")).unwrap();
            std::fs::create_dir_all(&dir).unwrap();
            std::fs::write(dir.join(LIBRARY), "").unwrap();
            let found = find_library(&binary).unwrap();
            assert_eq!(found.canonicalize().unwrap(), dir.join(LIBRARY).canonicalize().unwrap());
            std::fs::remove_file(dir.join(LIBRARY)).unwrap();
        }
    }
}
