//! Who asks.
//!
//! Where the kernel checks permissions (the default), user and group matter for what is made
//! only. Where it does not, the mode bits are checked here, and then the further groups of the
//! process matter too; the kernel does not send them, so they are read from `/proc`.

use dfs::Credentials;
use fuselow::Request;

/// The caller of a request. `checked`: the kernel has checked permissions.
pub fn credentials(req: &Request, checked: bool, umask: u32) -> Credentials {
    let groups = if checked || req.uid() == 0 {
        Vec::new()
    } else {
        let mut groups = req.groups().to_vec();
        groups.extend(process_groups(req.pid()));
        groups
    };
    Credentials { uid: req.uid(), gid: req.gid(), groups, umask }
}

/// Supplementary groups of a thread; none when it is gone or of another pid name space.
fn process_groups(pid: u32) -> Vec<u32> {
    if pid == 0 {
        return Vec::new();
    }
    match std::fs::read_to_string(format!("/proc/{pid}/status")) {
        Ok(status) => parse_groups(&status),
        Err(error) => {
            tracing::debug!("the groups of thread {pid} are not known: {error}");
            Vec::new()
        }
    }
}

fn parse_groups(status: &str) -> Vec<u32> {
    let line = status.lines().find_map(|line| line.strip_prefix("Groups:"));
    line.map(|line| line.split_whitespace().filter_map(|word| word.parse().ok()).collect())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_found_in_a_status_file() {
        assert_eq!(parse_groups("Name:\tx\nGroups:\t4 24 1000 \nNStgid:\t1\n"), [4, 24, 1000]);
        assert!(parse_groups("Name:\tGroups: 7\nGroups:\t\n").is_empty());
        assert!(parse_groups("").is_empty());
        // A thread sees itself.
        let own = process_groups(std::process::id());
        let told = rustix::process::getgroups().unwrap();
        assert_eq!(own.len(), told.len());
    }
}
