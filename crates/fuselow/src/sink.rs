//! Where a file system puts the entries of a directory.

use super::abi::{Dirent, Pod, bytes_of};
use super::{Entry, FileKind};

/// Takes entries of one `readdir` until the program's buffer is full.
///
/// `offset` is what the kernel will ask to continue *after* that entry: any number but 0.
/// When a push returns false the entry was not taken: stop, and begin with it next time.
pub struct DirSink<'a> {
    room: &'a mut [u8],
    used: usize,
    plus: bool,
}

impl<'a> DirSink<'a> {
    pub(crate) fn new(room: &'a mut [u8], plus: bool) -> DirSink<'a> {
        DirSink { room, used: 0, plus }
    }

    /// Whether entries come with attributes: then use [`DirSink::push_plus`] only, otherwise
    /// [`DirSink::push`] only.
    pub fn is_plus(&self) -> bool {
        self.plus
    }

    pub fn bytes_left(&self) -> usize {
        self.room.len() - self.used
    }

    /// True when nothing was taken yet.
    pub fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// How many entries with names of `name_bytes` still fit: for asking for a page of them.
    pub fn entries_left(&self, name_bytes: usize) -> usize {
        self.bytes_left() / self.entry_bytes(name_bytes)
    }

    fn entry_bytes(&self, name_bytes: usize) -> usize {
        let plus = if self.plus { size_of::<super::abi::EntryOut>() } else { 0 };
        (plus + size_of::<Dirent>() + name_bytes).next_multiple_of(8)
    }

    /// Adds an entry without attributes.
    ///
    /// # Panics
    /// When the kernel asked for attributes.
    pub fn push(&mut self, ino: u64, kind: FileKind, offset: u64, name: &[u8]) -> bool {
        assert!(!self.plus, "readdirplus wants attributes");
        self.put(None, ino, kind, offset, name)
    }

    /// Adds an entry with attributes. If it is taken, and the node is not 0, the node's lookup
    /// count has risen by one; for `.` and `..` give node 0, and for a name whose attributes are
    /// not known too (the kernel will look it up).
    ///
    /// # Panics
    /// When the kernel did not ask for attributes.
    pub fn push_plus(&mut self, entry: &Entry, kind: FileKind, offset: u64, name: &[u8]) -> bool {
        assert!(self.plus, "readdir wants no attributes");
        self.put(Some(entry), entry.attr.ino, kind, offset, name)
    }

    fn put(
        &mut self,
        entry: Option<&Entry>,
        ino: u64,
        kind: FileKind,
        offset: u64,
        name: &[u8],
    ) -> bool {
        let bytes = self.entry_bytes(name.len());
        if bytes > self.bytes_left() {
            return false;
        }
        let end = self.used + bytes;
        if let Some(entry) = entry {
            self.append(&entry.for_kernel());
        }
        self.append(&Dirent { ino, off: offset, namelen: name.len() as u32, kind: kind.dirent() });
        self.room[self.used..self.used + name.len()].copy_from_slice(name);
        self.room[self.used + name.len()..end].fill(0);
        self.used = end;
        true
    }

    fn append<T: Pod>(&mut self, value: &T) {
        let raw = bytes_of(value);
        self.room[self.used..self.used + raw.len()].copy_from_slice(raw);
        self.used += raw.len();
    }

    pub(crate) fn used(&self) -> usize {
        self.used
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::{EntryOut, take};

    #[test]
    fn entries_are_padded_and_stop_at_the_end() {
        let mut room = [0xff; 24 + 8 + 24 + 16 + 31];
        let mut sink = DirSink::new(&mut room, false);
        assert!(sink.push(7, FileKind::Regular, 1, b"a"));
        assert!(sink.push(8, FileKind::Directory, 2, b"nine byte"));
        assert!(!sink.push(9, FileKind::Regular, 3, b"12345678"));
        let used = sink.used();
        assert_eq!(used, 24 + 8 + 24 + 16);
        let (dirent, rest) = take::<Dirent>(&room).unwrap();
        assert_eq!(dirent, Dirent { ino: 7, off: 1, namelen: 1, kind: 8 });
        assert_eq!(&rest[..8], b"a\0\0\0\0\0\0\0");
        let (dirent, rest) = take::<Dirent>(&rest[8..]).unwrap();
        assert_eq!(dirent, Dirent { ino: 8, off: 2, namelen: 9, kind: 4 });
        assert_eq!(&rest[..16], b"nine byte\0\0\0\0\0\0\0");
    }

    #[test]
    fn entries_with_attributes_begin_with_them() {
        let mut room = [0xff; 512];
        let mut sink = DirSink::new(&mut room, true);
        let mut entry = Entry::negative(std::time::Duration::from_millis(1500));
        entry.attr.ino = 5;
        assert_eq!(sink.entries_left(4), 3);
        assert!(sink.push_plus(&entry, FileKind::Symlink, 9, b"link"));
        assert_eq!(sink.used(), 128 + 24 + 8);
        let (head, rest) = take::<EntryOut>(&room).unwrap();
        assert_eq!((head.entry_valid, head.entry_valid_nsec), (1, 500_000_000));
        let (dirent, _) = take::<Dirent>(rest).unwrap();
        assert_eq!(dirent, Dirent { ino: 5, off: 9, namelen: 4, kind: 10 });
    }
}
