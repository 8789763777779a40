//! What POSIX (and Linux, where POSIX leaves it open) demands of a file system, one case per rule.
//!
//! A case is a name and a short script ([`script`] tells the language). Scripts run against a
//! [`System`]: the calls of a file system, by path. There are two: [`LibcSystem`] makes system
//! calls in a directory, of a mount, under a preload library, or of the machine's own file
//! system, which checks the suite itself; [`DfsSystem`] calls `dfs`.
//!
//! [`run`] gives each case a directory of its own. What a system lacks it says itself
//! ([`System::lacks`]); such cases are skipped, and listed.

mod cases;
mod dfs_system;
mod libc_system;
mod script;
mod system;

pub use cases::all;
pub use dfs_system::{DfsSystem, Wait};
pub use libc_system::LibcSystem;
pub use script::run_script;
pub use system::{
    Attrs, Errno, Fd, LockAsked, LockWanted, NewTime, OpenHow, Outcome, System, Times, User,
};

/// One rule of POSIX, as a script that a system follows or not.
#[derive(Clone, Debug)]
pub struct Case {
    /// Group and rule.
    pub name: String,
    /// What of a system it needs beside the plain calls; empty: nothing.
    pub needs: &'static [&'static str],
    pub script: String,
}

/// What became of the cases.
#[derive(Debug, Default)]
pub struct Report {
    pub passed: usize,
    /// Names of those that did not, with what went wrong.
    pub failed: Vec<(String, String)>,
    /// Names of those not run, with what the system lacks.
    pub skipped: Vec<(String, String)>,
}

impl Report {
    /// Panics with all failures, if there are any; tells of what was skipped.
    pub fn demand(&self, what: &str) {
        for (name, lacks) in &self.skipped {
            eprintln!("SKIPPED on {what}: {name}: no {lacks}");
        }
        let failed: Vec<String> =
            self.failed.iter().map(|(name, why)| format!("  {name}: {why}")).collect();
        let count = failed.len();
        assert!(failed.is_empty(), "{count} rules broken on {what}:\n{}", failed.join("\n"));
    }
}

/// Runs all cases whose names contain `filter`.
pub fn run(system: &mut dyn System, filter: &str) -> Report {
    let mut report = Report::default();
    for (number, case) in all().into_iter().enumerate() {
        if !case.name.contains(filter) {
            continue;
        }
        if let Some(lack) = case.needs.iter().find(|need| system.lacks(need)) {
            report.skipped.push((case.name, lack.to_string()));
            continue;
        }
        match run_script(system, &format!("case{number}"), &case.script) {
            Ok(()) => report.passed += 1,
            Err(why) => report.failed.push((case.name, why)),
        }
    }
    report
}
