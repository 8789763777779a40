//! Connections to engines near by are not paced.
//!
//! BBR, which some systems have for all their connections, sends no faster than the rate that it has measured. Between requests there is
//! nothing to measure, and small ones come first: what is large then goes out at a rate that those showed, and it takes many of them to find out
//! that there is more (measured: docs/decisions/2026-11-27-pacing.md). Between machine rooms, where packets are lost, BBR is what keeps a link full, and stays.
//!
//! A connection that was paced once goes on being so with any other algorithm. So it begins without, and gets the system's when
//! the other end proves to be far.

use rustix::net::sockopt;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

/// Round trips in a machine room are shorter, by far.
const NEAR_MAX: Duration = Duration::from_millis(2);
/// What any process may have, in this order.
const UNPACED: [&str; 2] = ["cubic", "reno"];

/// What a socket had before pacing was taken off it; `None` where there was none.
pub(crate) struct Unpaced(Option<String>);

impl Unpaced {
    /// Takes pacing off a socket that is not connected yet. Those that a listener accepts have what it has.
    pub fn of(fd: impl AsFd) -> Unpaced {
        Unpaced::instead_of("bbr", fd.as_fd())
    }

    fn instead_of(paced: &str, fd: impl AsFd) -> Unpaced {
        let name = sockopt::tcp_congestion(&fd).ok().filter(|name| name.starts_with(paced));
        // Where none may be had it is as the system wants it.
        let is_off = name.is_some()
            && UNPACED.iter().any(|other| sockopt::set_tcp_congestion(&fd, other).is_ok());
        Unpaced(name.filter(|_| is_off))
    }

    /// Gives a connection what the system wants, if its other end is far.
    pub fn restore_if_far(&self, fd: impl AsFd) {
        self.restore_beyond(NEAR_MAX, fd);
    }

    fn restore_beyond(&self, near_max: Duration, fd: impl AsFd) {
        let Some(name) = &self.0 else { return };
        if round_trip(&fd).is_some_and(|time| time > near_max) {
            // Fails only on a socket that is closed already; reading tells.
            let _ = sockopt::set_tcp_congestion(&fd, name);
        }
    }
}

/// How long a round trip takes, by what the kernel has seen of the connection so far: its opening at least.
fn round_trip(fd: impl AsFd) -> Option<Duration> {
    // SAFETY: all bytes zero are a value of a struct of integers.
    let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
    let mut bytes = size_of::<libc::tcp_info>() as libc::socklen_t;
    // SAFETY: an open descriptor, and memory of as many bytes as are said, of which the kernel writes no more.
    let failed = unsafe {
        libc::getsockopt(
            fd.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            (&raw mut info).cast(),
            &mut bytes,
        )
    };
    (failed == 0 && info.tcpi_rtt > 0).then(|| Duration::from_micros(info.tcpi_rtt.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    /// "reno", which every kernel has and every process may have, stands for what paces.
    #[test]
    fn only_far_connections_get_it_back() {
        let name = |fd: &TcpStream| sockopt::tcp_congestion(fd).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        sockopt::set_tcp_congestion(&listener, "reno").unwrap();
        let unpaced = Unpaced::instead_of("reno", &listener);
        let address = listener.local_addr().unwrap();
        let _client = TcpStream::connect(address).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        if name(&accepted) == "reno" {
            eprintln!("SKIPPED: this kernel has nothing but reno");
            return;
        }
        assert!(round_trip(&accepted).is_some_and(|time| time < Duration::from_secs(10)));
        unpaced.restore_beyond(Duration::from_secs(10), &accepted);
        assert_ne!(name(&accepted), "reno");
        unpaced.restore_beyond(Duration::ZERO, &accepted);
        assert_eq!(name(&accepted), "reno");

        // Others stay as they are.
        let unpaced = Unpaced::instead_of("another", &accepted);
        assert_eq!(name(&accepted), "reno");
        unpaced.restore_beyond(Duration::ZERO, &accepted);
        assert_eq!(name(&accepted), "reno");
    }
}
