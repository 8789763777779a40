//! Which processes of this host serve a system, to count their CPU time.
//!
//! The kernel tells who listens on a Unix socket, so no pid file has to be trusted.

use crate::place::Where;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use transport::Address;
use types::Result;

/// Process ids of the engines of this host that serve `place`; none for a POSIX directory.
/// Engines that cannot be asked are left out.
pub fn local_pids(place: &Where) -> Result<Vec<u32>> {
    let Where::Dfs { system, .. } = place else { return Ok(Vec::new()) };
    let address = crate::backend::system_address(system)?;
    let mut pids: Vec<u32> = address.engines.iter().filter_map(listener_pid).collect();
    pids.sort_unstable();
    pids.dedup();
    Ok(pids)
}

/// Process id of the engine behind one address, if it is on this host.
fn listener_pid(address: &Address) -> Option<u32> {
    let Address::Unix(path) = address else { return None };
    let stream = UnixStream::connect(path).ok()?;
    let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut bytes = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: `peer` and `bytes` are valid places of the sizes given; the descriptor is open.
    let failed = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &mut bytes,
        )
    };
    (failed == 0 && peer.pid > 0).then_some(peer.pid as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_names_the_listener() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let _listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        assert_eq!(listener_pid(&Address::Unix(path)), Some(std::process::id()));
        assert_eq!(listener_pid(&Address::Unix(dir.path().join("none"))), None);
        assert_eq!(listener_pid(&Address::Tcp("127.0.0.1:1".into())), None);
    }
}
