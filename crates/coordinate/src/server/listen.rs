//! Opening the coordinator's sockets.

use super::config::{Listen, ServerConfig};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Mode, chmod};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with,
    sockopt,
};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use types::{Code, Error, Result};

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 4096;
/// Who may use a Unix socket, unless set: its owner.
const SOCKET_MODE: u32 = 0o600;
/// A silent peer is asked whether it is there after this time,
const KEEPALIVE_IDLE: Duration = Duration::from_secs(15);
/// again and again,
const KEEPALIVE_STEP: Duration = Duration::from_secs(5);
/// and given up after so many times. So a dead host's slots come back within half a minute.
const KEEPALIVE_COUNT: u32 = 3;
/// What was sent must be acknowledged by the peer's host within this time, milliseconds.
const SENT_TIMEOUT_MS: u32 = 30_000;

/// A socket that listens.
pub(super) struct Listener {
    pub socket: OwnedFd,
    pub listen: Listen,
}

pub(super) struct Sockets {
    pub listeners: Vec<Listener>,
    pub metrics: Option<OwnedFd>,
    pub metrics_address: Option<SocketAddr>,
    /// Unix sockets to be removed at the end.
    pub files: Vec<SocketFile>,
}

/// A Unix socket's file; removed when dropped, if it still is the one that was made.
pub(super) struct SocketFile {
    path: PathBuf,
    identity: (u64, u64),
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let now = std::fs::symlink_metadata(&self.path).map(|now| (now.dev(), now.ino()));
        if now.is_ok_and(|now| now == self.identity) {
            // When it cannot be removed, the next start finds it stale and removes it.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Opens what the configuration names.
pub(super) fn open(config: &ServerConfig) -> Result<Sockets> {
    if config.listen.is_empty() {
        return Err(Error::inval("nowhere to listen: name at least one place"));
    }
    let mut sockets =
        Sockets { listeners: Vec::new(), metrics: None, metrics_address: None, files: Vec::new() };
    for place in &config.listen {
        match place {
            Listen::Tcp(address) => {
                let (socket, address) = tcp(address)?;
                let listen = Listen::Tcp(address.to_string());
                sockets.listeners.push(Listener { socket, listen });
            }
            Listen::Unix(path) => {
                let mode = config.socket_mode.unwrap_or(SOCKET_MODE);
                let (socket, file) = unix(path, mode)?;
                sockets.files.push(file);
                sockets.listeners.push(Listener { socket, listen: place.clone() });
            }
        }
    }
    if let Some(address) = &config.metrics {
        let (socket, address) = tcp(address)?;
        (sockets.metrics, sockets.metrics_address) = (Some(socket), Some(address));
    }
    Ok(sockets)
}

fn tcp(address: &str) -> Result<(OwnedFd, SocketAddr)> {
    let doing = || format!("listening on {address}");
    let listener = TcpListener::bind(address).map_err(|error| Error::io(doing(), error))?;
    let io = |error: std::io::Error| Error::io(doing(), error);
    listener.set_nonblocking(true).map_err(io)?;
    let bound = listener.local_addr().map_err(io)?;
    let socket = OwnedFd::from(listener);
    // The library's backlog is too short for a large job whose processes all come at once.
    listen(&socket, BACKLOG).map_err(|errno| io(errno.into()))?;
    Ok((socket, bound))
}

fn unix(path: &Path, mode: u32) -> Result<(OwnedFd, SocketFile)> {
    let doing = || format!("listening on {}", path.display());
    let io = |errno: Errno| Error::io(doing(), errno.into());
    let address = SocketAddrUnix::new(path).map_err(io)?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let new = || socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).map_err(io);
    let socket = new()?;
    match bind(&socket, &address) {
        Ok(()) => {}
        Err(Errno::ADDRINUSE) => {
            // Either somebody listens there, or the file is left from one who was killed.
            let is_socket = std::fs::symlink_metadata(path)
                .is_ok_and(|there| std::os::unix::fs::FileTypeExt::is_socket(&there.file_type()));
            if !is_socket || connect(new()?, &address) != Err(Errno::CONNREFUSED) {
                return Err(Error::new(Code::Busy, format!("{}: in use already", doing())));
            }
            std::fs::remove_file(path).map_err(|error| Error::io(doing(), error))?;
            bind(&socket, &address).map_err(io)?;
        }
        Err(errno) => return Err(io(errno)),
    }
    let made = std::fs::symlink_metadata(path).map_err(|error| Error::io(doing(), error))?;
    let file = SocketFile { path: path.to_path_buf(), identity: (made.dev(), made.ino()) };
    // Nobody can connect before `listen`, so nobody comes in under the wrong mode.
    chmod(path, Mode::from_raw_mode(mode)).map_err(io)?;
    listen(&socket, BACKLOG).map_err(io)?;
    Ok((socket, file))
}

/// What makes a TCP peer's end known soon and messages leave at once. Failures are harmless: then
/// a dead peer is noticed later.
pub(super) fn tune_tcp(socket: impl AsFd) {
    let socket = socket.as_fd();
    let outcomes = [
        sockopt::set_tcp_nodelay(socket, true),
        sockopt::set_socket_keepalive(socket, true),
        sockopt::set_tcp_keepidle(socket, KEEPALIVE_IDLE),
        sockopt::set_tcp_keepintvl(socket, KEEPALIVE_STEP),
        sockopt::set_tcp_keepcnt(socket, KEEPALIVE_COUNT),
        sockopt::set_tcp_user_timeout(socket, SENT_TIMEOUT_MS),
    ];
    for error in outcomes.into_iter().filter_map(std::result::Result::err) {
        tracing::debug!("setting up a connection: {error}");
    }
}
