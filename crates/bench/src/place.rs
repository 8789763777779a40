//! Where a benchmark runs.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::PathBuf;

/// The file system and directory that a benchmark works in.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum Where {
    /// A POSIX container, through the `dfs` library.
    Dfs {
        /// The system, in one of the forms of [`client::SystemAddress::parse`]; empty: the one
        /// that [`client::SystemAddress::discover`] finds.
        system: String,
        /// Label or UUID of the pool.
        pool: String,
        /// Label or UUID of the container.
        cont: String,
        /// Absolute path of a directory in it; made when it is missing.
        dir: String,
        /// Use TCP even where shared memory would do.
        #[serde(default)]
        tcp_only: bool,
    },
    /// A directory of the operating system, through POSIX calls; made when it is missing.
    Posix(PathBuf),
    /// The same, by processes that have these variables in their environment (a preloaded
    /// library, for one).
    PosixWith { dir: PathBuf, variables: Vec<(String, String)> },
}

impl Where {
    /// The same file system, another directory in it: `name` below this one.
    pub fn join(&self, name: &str) -> Where {
        match self {
            Where::Dfs { system, pool, cont, dir, tcp_only } => Where::Dfs {
                system: system.clone(),
                pool: pool.clone(),
                cont: cont.clone(),
                dir: format!("{}/{name}", dir.trim_end_matches('/')),
                tcp_only: *tcp_only,
            },
            Where::Posix(dir) => Where::Posix(dir.join(name)),
            Where::PosixWith { dir, variables } => {
                Where::PosixWith { dir: dir.join(name), variables: variables.clone() }
            }
        }
    }

    /// What the environment of a process that works here must have.
    pub(crate) fn variables(&self) -> &[(String, String)] {
        match self {
            Where::PosixWith { variables, .. } => variables,
            Where::Dfs { .. } | Where::Posix(_) => &[],
        }
    }
}

impl fmt::Display for Where {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Where::Dfs { pool, cont, dir, .. } => {
                write!(f, "azk://{pool}/{cont}/{}", dir.trim_start_matches('/'))
            }
            Where::Posix(dir) | Where::PosixWith { dir, .. } => write!(f, "{}", dir.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn joining_keeps_the_file_system() {
        let place = Where::Dfs {
            system: String::new(),
            pool: "p".into(),
            cont: "c".into(),
            dir: "/".into(),
            tcp_only: true,
        };
        assert_eq!(place.join("a").join("b").to_string(), "azk://p/c/a/b");
        assert!(matches!(place.join("a"), Where::Dfs { tcp_only: true, .. }));
        assert_eq!(Where::Posix("/x".into()).join("y"), Where::Posix("/x/y".into()));
    }
}
