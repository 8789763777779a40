//! Files, files by path, and paths that lead to containers, as C programs see them, against a live
//! system.

use crate::harness;
#[test]
fn files() {
    let system = harness::System::start();
    for program in ["dfs", "dfs_list", "dfs_share", "dfs_connect"] {
        system.run(program, &[]);
    }
}

#[test]
fn files_by_path() {
    harness::System::start().run("dfs_sys", &[]);
}

#[test]
fn paths_that_lead_to_containers() {
    let system = harness::System::start();
    let path = std::ffi::CString::new(system.scratch.path().as_os_str().as_encoded_bytes());
    let path = path.expect("no NUL in a path");
    let (name, value) = (c"user.azk-test".as_ptr(), c"".as_ptr().cast());
    // SAFETY: NUL-terminated strings and no bytes.
    let keeps_attributes = unsafe { libc::setxattr(path.as_ptr(), name, value, 0, 0) } == 0;
    if keeps_attributes {
        system.run("duns", &[]);
    } else {
        eprintln!("no extended attributes in {}: only addresses", system.scratch.path().display());
        system.run("duns", &["addresses-only"]);
    }
}
