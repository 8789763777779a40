//! Hard links.
//!
//! A file's first name holds its inode. With the second name the inode and the extended
//! attributes move into the file's object, once and for all; all names are then alike, and
//! each says no more than "hard-linked, this object". Making and removing such names are
//! transactions over the entry and the inode.

use crate::conflict::retry;
use crate::flags::Access;
use crate::fs::{Dfs, inline};
use crate::inode::Inode;
use crate::layout::{INODE, RECORD};
use crate::node::Obj;
use crate::xattr::xattr_iod;
use async_recursion::async_recursion as boxed;
use types::limits::{LINK_COUNT_MAX, check_name};
use types::{Code, Error, Oid, Result};
use wire::obj::{Cond, Op, ReadCheck, ReadScope};

impl Dfs {
    /// Gives the file (`parent`, `name`) a further name. Symbolic links are not followed.
    ///
    /// Errors: `NoPerm` for a directory; `LinkMax` at 65,000 names; `Exist`; `NonExist`; `Access`.
    #[boxed(?Send)]
    pub async fn link(
        &self,
        parent: &Obj,
        name: &[u8],
        new_parent: &Obj,
        new_name: &[u8],
    ) -> Result<()> {
        let dir = parent.require_dir()?;
        check_name(name)?;
        self.check_access(&dir, Access::EXECUTE)?;
        self.link_node(Some((parent.oid(), name)), None, new_parent, new_name).await
    }

    /// The same for a file that is known already: its first name, if it has none. `NonExist` when
    /// it has lost the name it was last seen under.
    #[boxed(?Send)]
    pub async fn link_obj(&self, obj: &Obj, new_parent: &Obj, new_name: &[u8]) -> Result<()> {
        self.link_open(obj, new_parent, new_name).await
    }

    /// Gives a file a further name. `from` is one it has; without, it must have had several.
    /// `wanted` is the file, if it is known.
    pub(crate) async fn link_node(
        &self,
        from: Option<(Oid, &[u8])>,
        wanted: Option<Oid>,
        new_parent: &Obj,
        new_name: &[u8],
    ) -> Result<()> {
        let new_dir = new_parent.require_dir()?;
        check_name(new_name)?;
        self.check_access(&new_dir, Access::EXECUTE)?;
        let shared = &self.shared;
        let to = new_parent.oid();
        retry(shared, async || {
            let found = match from {
                Some((dir, name)) => shared.fetch_entry(dir, name, false).await?,
                None => shared.fetch_hard(wanted.unwrap_or(Oid::NIL)).await?,
            };
            let found = found.filter(|found| wanted.is_none_or(|oid| found.inode.oid == oid));
            let found = found.ok_or_else(|| Error::bare(Code::NonExist))?;
            if found.inode.is_dir() {
                return Err(Error::new(Code::NoPerm, "a directory cannot have a second name"));
            }
            if found.inode.nlink == 0 {
                return Err(Error::new(Code::NonExist, "the file has no name any more"));
            }
            if found.inode.nlink >= LINK_COUNT_MAX {
                return Err(Error::bare(Code::LinkMax));
            }
            if let Err(error) =
                self.require_writable().and_then(|()| self.check_access(&new_dir, Access::WRITE))
            {
                let taken = shared.fetch_entry(to, new_name, false).await?.is_some();
                return Err(if taken { Code::Exist.into() } else { error });
            }
            let was_hard = found.inode.hard;
            let oid = found.inode.oid;
            let nlink = found.inode.nlink + 1;
            let record = Inode { hard: false, nlink, ctime_ns: shared.now_ns(), ..found.inode };
            let entry = Inode { hard: true, ..record };
            let (record, entry) = (record.encode(&found.target), entry.encode(b""));
            let xattrs = match from {
                Some((dir, name)) if !was_hard => {
                    shared.fetch_xattrs(shared.place_of(dir, name, &found.inode)).await?
                }
                _ => Vec::new(),
            };
            let mut batch = shared.cont.batch();
            if let Some((oid, name)) = from {
                let (of, seen) = (ReadScope::Akey(name, INODE), found.entry_epoch);
                batch.check(ReadCheck { unit: oid.first_unit(), of, seen });
            }
            if was_hard {
                batch.check(ReadCheck {
                    unit: oid.first_unit(),
                    of: ReadScope::Akey(RECORD, INODE),
                    seen: found.epoch,
                });
            } else if let Some((oid, dkey)) = from {
                let iods = vec![inline(INODE, &entry)];
                batch.op(Op::Update {
                    unit: oid.first_unit(),
                    dkey,
                    cond: Cond::DKEY_UPDATE,
                    iods,
                });
                if !xattrs.is_empty() {
                    let akeys = xattrs.iter().map(|(akey, _)| akey.as_slice().into()).collect();
                    batch.op(Op::PunchAkeys {
                        unit: oid.first_unit(),
                        dkey,
                        cond: Cond::NONE,
                        akeys,
                    });
                }
            }
            batch.op(crate::create::insert(to, new_name, &entry));
            let mut iods = vec![inline(INODE, &record)];
            iods.extend(xattrs.iter().map(|(akey, value)| xattr_iod(akey, value, Cond::NONE)));
            batch.op(Op::Update { unit: oid.first_unit(), dkey: RECORD, cond: Cond::NONE, iods });
            for (_, value) in xattrs.iter().filter(|(_, value)| crate::xattr::is_bulk(value)) {
                batch.bulk_out(value);
            }
            batch.run().await?;
            if let Some(node) = shared.open_node(oid) {
                node.set_inode(Inode { hard: true, nlink, ..found.inode });
            }
            Ok(())
        })
        .await
    }
}
