//! What a session is asked for, and what was agreed on with the kernel.

use super::init::PAGE_BYTES;

/// How requests come and replies go.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Transport {
    /// io_uring where the kernel offers it, otherwise `/dev/fuse`.
    #[default]
    Auto,
    /// `/dev/fuse`.
    Dev,
    /// io_uring; the session fails to start where the kernel does not offer it.
    Uring,
}

/// How the mount looks to the system.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MountOptions {
    /// What `df` and `/proc/mounts` show as the device, for example `azk://pool/cont`.
    pub source: String,
    /// The file system's type is shown as `fuse.` and this.
    pub subtype: String,
    pub read_only: bool,
    /// Let users other than the one who mounts in. Those who are not root need `user_allow_other`
    /// in `/etc/fuse.conf`.
    pub allow_other: bool,
    /// The kernel checks permissions by mode, owner and group.
    pub default_permissions: bool,
    /// Unmount when the server dies, by a watching `fusermount3`.
    pub auto_unmount: bool,
    /// Heed device files. Root only.
    pub dev: bool,
    /// Heed set-user-id. Root only.
    pub suid: bool,
    /// Refuse to run programs.
    pub noexec: bool,
    /// Do not keep access times: the kernel sends none.
    pub noatime: bool,
    /// Largest read request, bytes; at least a page. `None`: as large as writes.
    pub max_read_bytes: Option<u32>,
    /// Mount over a directory that is not empty.
    pub nonempty: bool,
}

impl Default for MountOptions {
    fn default() -> MountOptions {
        MountOptions {
            source: "azekura".into(),
            subtype: "azekura".into(),
            read_only: false,
            allow_other: false,
            default_permissions: false,
            auto_unmount: false,
            dev: false,
            suid: false,
            noexec: false,
            noatime: false,
            max_read_bytes: None,
            nonempty: false,
        }
    }
}

/// What a session is asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Config {
    pub mount: MountOptions,
    /// Worker threads; 0: one per CPU, at most eight, and one alone where `/dev/fuse` is served on two CPUs.
    pub threads: usize,
    pub transport: Transport,
    /// Largest write request, bytes. The kernel's limit (`fs.fuse.max_pages_limit`, by default
    /// 1 MiB) is observed.
    pub max_write_bytes: u32,
    /// Written pages stay in the kernel's cache and come later: for one writer only.
    pub writeback_cache: bool,
    /// The kernel drops cached pages only when told ([`super::Notifier::inval_inode`]); otherwise
    /// when size or modification time have changed.
    pub explicit_inval_data: bool,
    /// The kernel keeps targets of symbolic links.
    pub cache_symlinks: bool,
    /// Directories are listed with attributes.
    pub readdirplus: bool,
    /// `fcntl` and `flock` locks come to the file system; otherwise they are good on this host
    /// only.
    pub locks: bool,
    /// The file system clears set-user-id and set-group-id on writes, truncation and chown;
    /// otherwise the kernel does, with more requests.
    pub kill_privileges: bool,
    /// POSIX ACLs as extended attributes, checked by the kernel; implies `default_permissions`.
    pub posix_acl: bool,
    /// The file system applies the umask ([`super::NewNode::umask`]), as default ACLs demand.
    pub umask_by_file_system: bool,
    /// Read-ahead of the kernel, bytes; `None`: as it is set up (usually 128 KiB). More than that
    /// needs root.
    pub readahead_bytes: Option<u32>,
    /// Entries that each io_uring queue starts with; more are added when they are in use. Each
    /// has as much address space as the largest request, and as much memory as it has used.
    pub uring_entries: u16,
    /// Reads and writes that the kernel starts on its own at a time (read-ahead, direct
    /// asynchronous I/O).
    pub max_background: u16,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            mount: MountOptions::default(),
            threads: 0,
            transport: Transport::Auto,
            max_write_bytes: 1 << 20,
            writeback_cache: false,
            explicit_inval_data: false,
            cache_symlinks: false,
            readdirplus: true,
            locks: true,
            kill_privileges: false,
            posix_acl: false,
            umask_by_file_system: false,
            readahead_bytes: None,
            uring_entries: 64,
            max_background: 128,
        }
    }
}

impl Config {
    /// Number of worker threads.
    pub fn thread_count(&self) -> usize {
        match self.threads {
            0 => {
                let cpus = std::thread::available_parallelism().map_or(1, |count| count.get());
                threads_for(cpus, self.expects_uring())
            }
            count => count,
        }
    }

    /// The kernel offers io_uring, as far as can be told before it is asked.
    fn expects_uring(&self) -> bool {
        let offers = || std::fs::read(URING_SWITCH).is_ok_and(|text| text.starts_with(b"Y"));
        match self.transport {
            Transport::Dev => false,
            Transport::Uring => true,
            Transport::Auto => offers(),
        }
    }
}

/// Whether the kernel has FUSE over io_uring on.
const URING_SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";

/// Threads of a mount on a machine that its programs use, too. On two CPUs a second thread at `/dev/fuse` takes more from the programs, and
/// from an engine of the machine, than it gives ([why](../../../docs/decisions/2026-11-30-targets-by-cores.md)); with io_uring
/// each CPU has a queue of its own.
fn threads_for(cpus: usize, with_uring: bool) -> usize {
    if cpus <= 2 && !with_uring { 1 } else { cpus.min(8) }
}

/// What was agreed on with the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Negotiated {
    /// Minor version of protocol 7.
    pub minor: u32,
    /// Largest write request, bytes.
    pub max_write_bytes: u32,
    /// Pages of the largest request.
    pub max_pages: u16,
    /// Requests come over io_uring.
    pub uring: bool,
    /// Written pages are cached.
    pub writeback_cache: bool,
    /// The kernel drops cached pages only when told.
    pub explicit_inval_data: bool,
    /// Directories are listed with attributes.
    pub readdirplus: bool,
    /// Locks come to the file system.
    pub locks: bool,
    /// The file system clears set-user-id and set-group-id.
    pub kill_privileges: bool,
    /// POSIX ACLs are checked by the kernel.
    pub posix_acl: bool,
    /// The file system applies the umask.
    pub umask_by_file_system: bool,
    /// Open and release are not sent once `open` has answered `ENOSYS`.
    pub zero_message_open: bool,
    /// Requests that make files bring the caller's group that matters ([`super::Request::groups`]).
    pub create_groups: bool,
    /// The entries of directories may be expired instead of removed.
    pub expire_entries: bool,
    pub(crate) setxattr_ext: bool,
}

impl Negotiated {
    /// Largest data part of a request or reply, bytes.
    pub fn payload_bytes_max(&self) -> usize {
        (usize::from(self.max_pages) * PAGE_BYTES)
            .max(self.max_write_bytes as usize)
            .max(super::abi::READ_BUFFER_MIN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_cpus_have_one_thread_at_the_device() {
        for (cpus, at_device, with_uring) in [(1, 1, 1), (2, 1, 2), (4, 4, 4), (64, 8, 8)] {
            assert_eq!(
                (threads_for(cpus, false), threads_for(cpus, true)),
                (at_device, with_uring)
            );
        }
        let config = Config { threads: 3, ..Config::default() };
        assert_eq!(config.thread_count(), 3);
    }
}
