//! The C API, source-compatible with DAOS's: pools, containers, objects, files, events.
//!
//! One shared object holds every symbol; `libdaos`, `libdfs`, `libduns`, `libgurt` and
//! `libdaos_common` are names for it. Headers are in `include/`.
//!
//! How a call runs: arguments are checked, handles looked up in the process-wide table
//! ([`handle`]), and a future of the `client` or `dfs` crate runs in a context ([`ctx`]): the
//! calling thread's, to its end, when no event was given; the event queue's, later, when one was
//! ([`event`]). There is no helper thread.
//!
//! Invariants:
//! - No pointer of ours goes out as a handle: every handle is a number of the table, so one that
//!   was closed gives an error, never a crash.
//! - No panic crosses into C ([`guard`]).
//! - `daos_*` functions give 0 or a negative DAOS error, `dfs_*` and `duns_*` 0 or an `errno`.
//! - Memory that C gave for an operation is touched only between its launch and its completion.

mod acl;
pub mod array;
pub mod attr;
pub mod cont;
pub mod cont_prop;
pub mod ctx;
pub mod ctypes;
pub mod dfs;
pub mod duns;
pub mod errno;
mod errtext;
pub mod event;
pub mod fuzz;
pub mod global;
pub mod guard;
pub mod gurt;
pub mod handle;
pub mod init;
pub mod kv;
pub mod mgmt;
mod nosys;
pub mod obj;
pub mod oclass;
pub mod oit;
pub mod pool;
pub mod pool_list;
pub mod prop;
pub mod prop_map;
mod rebuild;
pub mod sgl;
pub mod snap;
pub mod tse;
pub mod tx;
mod version;

/// Log lines of the crates below go to stderr when `AZEKURA_LOG` asks for them.
pub(crate) fn log_setup() {
    let Ok(filter) = std::env::var("AZEKURA_LOG") else { return };
    // The program may have set up its own.
    let _ = tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::new(filter))
        .with_writer(std::io::stderr)
        .with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr()))
        .try_init();
}
