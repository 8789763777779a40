//! Files without a name (`O_TMPFILE`), and giving an open file a name.
//!
//! A file without a name is an orphan from the start: it goes with its last open handle, or with
//! its client. Its inode is known to its handles only, until it gets its name; then the entry is
//! made and the object kept, in one transaction.

use crate::conflict::retry;
use crate::create::insert;
use crate::flags::{Access, CreateOptions, OpenFlags};
use crate::fs::Dfs;
use crate::inode::{Inode, S_IFREG};
use crate::node::{Location, Obj};
use crate::walk::Step;
use async_recursion::async_recursion as boxed;
use types::limits::check_name;
use types::{Code, Error, Key, Result};
use wire::obj::Op;

impl Dfs {
    /// Makes and opens a file without a name, which [`Dfs::link_open`] may give one; else it goes
    /// when it is closed. `parent` says who may, and where a name would be.
    ///
    /// Errors: `Inval` unless it is opened for writing; `NotDir`; `Access`; `ReadOnly`.
    #[boxed(?Send)]
    pub async fn tmpfile(
        &self,
        parent: &Obj,
        flags: OpenFlags,
        mode: u32,
        options: &CreateOptions,
    ) -> Result<Obj> {
        parent.require_dir()?;
        if !flags.has(OpenFlags::WRITE) {
            return Err(Error::inval("a file without a name is opened for writing"));
        }
        let at = Step::of(parent);
        self.require_writable()?;
        self.check_access(&at.inode, Access::WRITE | Access::EXECUTE)?;
        let shared = &self.shared;
        let class = options.class.or(at.inode.file_class).unwrap_or(shared.superblock.file_class);
        // Where its name will be is not known; of an unstriped directory this is the place.
        let (hint, _) = shared.cont.hint_near(shared.cont.unit_of(at.oid, b"").await?, class)?;
        let oid = shared.file_oid(class, hint).await?;
        let mut inode = self.new_inode(&at, oid, S_IFREG | mode & 0o7777);
        inode.chunk_bytes = self.chunk_of_new(&at, options)?;
        self.inherit_alone(&at, mode, &mut inode).await?;
        let mut batch = shared.cont.batch();
        batch.op(Op::Open { unit: oid.first_unit() });
        batch.op(Op::PunchUnlessOpen { unit: oid.first_unit() });
        batch.run().await?;
        let node = shared.node(Location { parent: at.oid, name: Key::new(b"") }, inode);
        node.add_handle();
        node.set_nameless();
        Ok(Obj::new(node, flags.without(OpenFlags::CREATE | OpenFlags::EXCL)))
    }

    /// Gives an open file a further name, or its first (`linkat` with `AT_EMPTY_PATH`).
    ///
    /// Errors: those of [`Dfs::link`]; `NonExist` for a file that has lost its last name.
    #[boxed(?Send)]
    pub async fn link_open(&self, file: &Obj, new_parent: &Obj, new_name: &[u8]) -> Result<()> {
        let shared = &self.shared;
        if !file.node.is_unlinked() {
            let found = shared.fetch_node(&file.node).await?;
            let (location, found) = found.ok_or_else(|| Error::bare(Code::NonExist))?;
            let entry = shared.entry_value(location.parent, &location.name).await?;
            let is_there = entry.is_some_and(|entry| entry.inode.oid == file.oid());
            let from = is_there.then_some((location.parent, &location.name[..]));
            return self.link_node(from, Some(found.inode.oid), new_parent, new_name).await;
        }
        if !file.node.is_nameless() {
            return Err(Error::new(Code::NonExist, "the file has no name any more"));
        }
        let new_dir = new_parent.require_dir()?;
        check_name(new_name)?;
        self.require_writable()?;
        self.check_access(&new_dir, Access::WRITE | Access::EXECUTE)?;
        let oid = file.oid();
        let made = retry(shared, async || {
            let inode = Inode { nlink: 1, ctime_ns: shared.now_ns(), ..file.node.inode() };
            let raw = inode.encode(b"");
            let mut batch = shared.cont.batch();
            batch.op(insert(new_parent.oid(), new_name, &raw));
            batch.op(Op::Adopt { unit: oid.first_unit() });
            batch.run().await?;
            Ok(inode)
        })
        .await?;
        let location = Location { parent: new_parent.oid(), name: Key::new(new_name) };
        file.node.set_named(location, made);
        Ok(())
    }
}
