//! Every operation that programs use, through a real mount of an in-memory file system, over both
//! transports.

mod harness;

use harness::{Mount, transports};
use std::fs;

use std::os::unix::fs::MetadataExt;

#[test]
fn files_are_made_written_and_read() {
    for transport in transports() {
        let mut mount = Mount::new(transport);
        assert_eq!(mount.session().negotiated().uring, transport == fuse::low::Transport::Uring);
        let path = mount.path("a file");
        fs::write(&path, b"some bytes").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"some bytes");
        assert_eq!(mount.tree.file("a file"), b"some bytes");
        let meta = fs::metadata(&path).unwrap();
        assert_eq!((meta.len(), meta.nlink(), meta.mode() & 0o170000), (10, 1, 0o100000));
        fs::remove_file(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap_err().kind(), std::io::ErrorKind::NotFound);
        assert_eq!(mount.end(), fuse::low::End::Unmounted);
    }
}
