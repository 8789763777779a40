//! Times of directories whose names lead to something else.

use crate::harness::with_fs;
use dfs::RenameFlags;
use dfs::sys::Sys;
use std::time::Duration;

async fn put(sys: &Sys, path: &str, data: &[u8]) {
    sys.write_file(path.as_bytes(), data, 0o644).await.unwrap();
}

/// The set of a directory's names is the same after a rename in place of one of them, and so were its times.
#[test]
fn a_directory_of_which_a_name_leads_to_something_else_has_new_times() {
    with_fs(async |_, fs| {
        let sys = Sys::new(fs.clone());
        let env = fs.container().client().env().clone();
        for dir in [&b"/from"[..], b"/to", b"/from/empty", b"/to/empty"] {
            sys.mkdir(dir, 0o755).await.unwrap();
        }
        for file in ["/from/a", "/from/b", "/to/a", "/to/b", "/c", "/d"] {
            put(&sys, file, b"data").await;
        }
        let (plain, swap) = (RenameFlags::NONE, RenameFlags::EXCHANGE);
        let steps = [
            ("/from/a /to/a", plain, "/from /to"),
            ("/from/empty /to/empty", plain, "/from /to"),
            ("/from/b /to/b", swap, "/from /to"),
            ("/to/a /to/b", swap, "/to"),
            ("/from/b /c", plain, "/from /"),
            ("/c /d", swap, "/"),
        ];
        for (names, flags, dirs) in steps {
            let (from, to) = names.split_once(' ').unwrap();
            let dirs: Vec<&str> = dirs.split(' ').collect();
            let mut before = Vec::new();
            for dir in &dirs {
                before.push(sys.stat(dir.as_bytes()).await.unwrap());
            }
            env.sleep(Duration::from_secs(1)).await;
            sys.rename(from.as_bytes(), to.as_bytes(), flags).await.unwrap();
            for (dir, before) in dirs.iter().zip(&before) {
                let after = sys.stat(dir.as_bytes()).await.unwrap();
                assert!(after.mtime_ns > before.mtime_ns, "{dir}: {names}");
                assert!(after.ctime_ns > before.ctime_ns, "{dir}: {names}");
                assert_eq!((after.mode, after.nlink > 0), (before.mode, true));
            }
            // The next change of names counts again.
            env.sleep(Duration::from_secs(1)).await;
            let dir = dirs[0].as_bytes();
            let seen = sys.stat(dir).await.unwrap();
            let new = format!("{}/new", dirs[0]);
            put(&sys, &new, b"").await;
            assert!(sys.stat(dir).await.unwrap().mtime_ns > seen.mtime_ns);
            sys.unlink(new.as_bytes()).await.unwrap();
        }
        // Onto another name of the same file: nothing is done.
        sys.link(b"/d", b"/to/d").await.unwrap();
        let before = sys.stat(b"/to").await.unwrap();
        env.sleep(Duration::from_secs(1)).await;
        sys.rename(b"/d", b"/to/d", RenameFlags::NONE).await.unwrap();
        assert_eq!(sys.stat(b"/to").await.unwrap().mtime_ns, before.mtime_ns);
        assert_eq!(fs.check(dfs::check::Mend::Nothing).await.unwrap().findings, []);
    });
}
