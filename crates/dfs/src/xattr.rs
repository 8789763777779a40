//! Extended attributes: akeys `x:NAME` beside the inode.
//!
//! Invariant: every change of an attribute rewrites the inode (its ctime) in the same batch, so
//! a check on the inode's epoch covers the attributes too. Renames rely on it.
//!
//! A few are not kept but computed: [`crate::layout_attr`], [`crate::tier::STATE`].

use crate::acl;
use crate::conflict::retry;
use crate::entry::{Found, Place, reply_kind};
use crate::flags::Access;
use crate::fs::{Dfs, Shared, inline};
use crate::inode::{FileKind, Inode, S_ISVTX};
use crate::layout::{INODE, XATTR_PREFIX, xattr_akey};
use crate::layout_attr::LayoutAttr;
use crate::node::Obj;
use crate::tier;
use async_recursion::async_recursion as boxed;
use types::limits::{INLINE_BYTES_MAX, NAME_BYTES_MAX, XATTR_BYTES_MAX};
use types::{Code, Error, Oid, Result};
use wire::obj::{
    Cond, FetchIod, FetchWant, Fetched, ListScope, Listed, Op, OpReply, ReadCheck, ReadScope,
    UpdateIod, UpdateValue,
};

/// When an attribute may be set.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum XattrMode {
    /// In any case.
    #[default]
    Set,
    /// Only if it is not there (else `Exist`).
    Create,
    /// Only if it is there (else `NoAttr`).
    Replace,
}

/// Whether a value travels beside the message.
pub(crate) fn is_bulk(value: &[u8]) -> bool {
    value.len() >= INLINE_BYTES_MAX
}

/// Update of one attribute; a large value's bytes must follow the op in the bulk.
pub(crate) fn xattr_iod<'a>(akey: &'a [u8], value: &'a [u8], cond: Cond) -> UpdateIod<'a> {
    let value = if is_bulk(value) {
        UpdateValue::Single { bytes: value.len() as u64 }
    } else {
        UpdateValue::Inline(value)
    };
    UpdateIod { akey, cond, value }
}

/// A change of one attribute.
#[derive(Clone, Copy)]
pub(crate) enum Change<'a> {
    Set { value: &'a [u8], cond: Cond },
    Remove,
}

impl Dfs {
    /// Sets an extended attribute.
    ///
    /// Errors: `Range` for a name that is empty or over 255 bytes; `RecordTooBig` for a value
    /// over 64 KiB; `Exist` or `NoAttr` as `mode` says; `NoPerm` for `user.` attributes of what
    /// is neither file nor directory and for `trusted.` ones unless superuser; `Access`; `Inval` for a
    /// default ACL that is none; those of [`crate::layout_attr`] for its attributes.
    #[boxed(?Send)]
    pub async fn setxattr(
        &self,
        obj: &Obj,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
    ) -> Result<()> {
        if value.len() > XATTR_BYTES_MAX {
            return Err(Error::bare(Code::RecordTooBig));
        }
        if let Some(attr) = LayoutAttr::of(name) {
            return self.set_layout_attr(obj, attr, Some(value), mode).await;
        }
        if tier::is_tier_attr(name) {
            return Err(tier::told_only());
        }
        if name == acl::DEFAULT && acl::meaning(value).is_none() {
            return Err(Error::inval("the value is no ACL"));
        }
        let cond = match mode {
            XattrMode::Set => Cond::NONE,
            XattrMode::Create => Cond::AKEY_INSERT,
            XattrMode::Replace => Cond::AKEY_UPDATE,
        };
        self.change_xattr(obj, name, Change::Set { value, cond }).await
    }

    /// Removes an extended attribute. Errors: `NoAttr`, but for ACLs, of which all files have one in their permission bits; those of
    /// [`Dfs::setxattr`].
    #[boxed(?Send)]
    pub async fn removexattr(&self, obj: &Obj, name: &[u8]) -> Result<()> {
        if let Some(attr) = LayoutAttr::of(name) {
            return self.set_layout_attr(obj, attr, None, XattrMode::Set).await;
        }
        if tier::is_tier_attr(name) {
            return Err(tier::told_only());
        }
        match self.change_xattr(obj, name, Change::Remove).await {
            Err(error) if error.code == Code::NoAttr && acl::is_acl(name) => Ok(()),
            done => done,
        }
    }

    pub(crate) async fn change_xattr(
        &self,
        obj: &Obj,
        name: &[u8],
        change: Change<'_>,
    ) -> Result<()> {
        check_xattr_name(name)?;
        self.require_writable()?;
        let shared = &self.shared;
        let akey = xattr_akey(name);
        let done = retry(shared, async || {
            let (location, found) = shared
                .fetch_node(&obj.node)
                .await?
                .ok_or_else(|| Error::new(Code::NonExist, "the file has no name any more"))?;
            self.check_xattr(&found.inode, name, Access::WRITE)?;
            let inode = Inode {
                has_xattrs: found.inode.has_xattrs || matches!(change, Change::Set { .. }),
                ctime_ns: shared.now_ns(),
                ..found.inode
            };
            let raw = Inode { hard: false, ..inode }.encode(&found.target);
            let Place { oid, dkey } =
                shared.place_of(location.parent, &location.name, &found.inode);
            let mut batch = shared.cont.batch();
            batch.check(ReadCheck {
                unit: oid.first_unit(),
                of: ReadScope::Akey(dkey, INODE),
                seen: found.epoch,
            });
            match change {
                Change::Set { value, cond } => {
                    let iods = vec![xattr_iod(&akey, value, cond), inline(INODE, &raw)];
                    batch.op(Op::Update { unit: oid.first_unit(), dkey, cond: Cond::NONE, iods });
                    if is_bulk(value) {
                        batch.bulk_out(value);
                    }
                }
                Change::Remove => {
                    let akeys = vec![akey.as_slice().into()];
                    batch.op(Op::PunchAkeys {
                        unit: oid.first_unit(),
                        dkey,
                        cond: Cond::PUNCH,
                        akeys,
                    });
                    let iods = vec![inline(INODE, &raw)];
                    batch.op(Op::Update { unit: oid.first_unit(), dkey, cond: Cond::NONE, iods });
                }
            }
            batch.run().await?;
            obj.node.set_inode(inode);
            Ok(())
        })
        .await;
        done.map_err(|error| match error.code {
            // The only condition that can fail so is the attribute's.
            Code::NonExist if error.text.is_empty() => Error::bare(Code::NoAttr),
            _ => error,
        })
    }

    /// The value of an extended attribute. Errors: `NoAttr`, `Access`.
    #[boxed(?Send)]
    pub async fn getxattr(&self, obj: &Obj, name: &[u8]) -> Result<Vec<u8>> {
        check_xattr_name(name)?;
        if let Some(attr) = LayoutAttr::of(name) {
            return self.layout_attr(obj, attr).await;
        }
        if name == tier::STATE.as_bytes() {
            return self.tier_state_attr(obj).await;
        }
        let shared = &self.shared;
        let (location, found) = self.read_place(obj).await?;
        self.check_xattr(&found.inode, name, Access::READ)?;
        let place = shared.place_of(location.parent, &location.name, &found.inode);
        let value = shared.fetch_xattr(place, &xattr_akey(name)).await?;
        value.ok_or_else(|| Error::bare(Code::NoAttr))
    }

    /// The names of all extended attributes, in no order.
    #[boxed(?Send)]
    pub async fn listxattr(&self, obj: &Obj) -> Result<Vec<Vec<u8>>> {
        let shared = &self.shared;
        let (location, found) = self.read_place(obj).await?;
        let place = shared.place_of(location.parent, &location.name, &found.inode);
        let mut akeys = shared.list_xattrs(place).await?;
        for akey in &mut akeys {
            akey.drain(..XATTR_PREFIX.len());
        }
        akeys.retain(|name| !tier::is_tier_attr(name));
        if !self.is_privileged() {
            akeys.retain(|name| !name.starts_with(b"trusted."));
        }
        Ok(akeys)
    }

    async fn read_place(&self, obj: &Obj) -> Result<(crate::node::Location, Found)> {
        let found = self.shared.fetch_node(&obj.node).await?;
        found.ok_or_else(|| Error::new(Code::NonExist, "the file has no name any more"))
    }

    fn check_xattr(&self, inode: &Inode, name: &[u8], want: Access) -> Result<()> {
        if name.starts_with(b"user.") {
            let plain = matches!(inode.kind(), FileKind::Regular | FileKind::Directory);
            let sticky_dir = inode.is_dir() && inode.mode & S_ISVTX != 0;
            let foreign = sticky_dir && want == Access::WRITE && self.check_owner(inode).is_err();
            if !plain || foreign {
                let reads = want == Access::READ && !plain;
                return Err((if reads { Code::NoAttr } else { Code::NoPerm }).into());
            }
            return self.check_access(inode, want);
        }
        if name.starts_with(b"trusted.") && !self.is_privileged() {
            return Err((if want == Access::READ { Code::NoAttr } else { Code::NoPerm }).into());
        }
        if want == Access::READ || self.check_owner(inode).is_ok() {
            return Ok(());
        }
        // Whoever may write a file may sync it.
        match name == tier::RECORD {
            true => self.check_access(inode, want),
            false => Err(Error::bare(Code::NoPerm)),
        }
    }
}

impl Shared {
    /// An entry, and the akeys of the extended attributes that are kept in it, in one request; two
    /// for a file with several names.
    pub async fn fetch_entry_with_xattrs(
        &self,
        dir: Oid,
        name: &[u8],
    ) -> Result<Option<(Found, Vec<Vec<u8>>)>> {
        let mut batch = self.cont.batch();
        batch.op(Op::FetchLink { unit: dir.first_unit(), dkey: name, akey: INODE, open: false });
        let scope = ListScope::Akeys { dkey: name };
        let (unit, count_max, bytes_max) = (dir.first_unit(), 1024, 256 << 10);
        batch.op(Op::List { unit, scope, anchor: b"", count_max, bytes_max });
        let result = batch.run().await?;
        let replies = result.replies()?;
        let Some(found) = Found::from_link_reply(replies.first())? else {
            return Ok(None);
        };
        if found.inode.hard {
            let found = match self.fetch_record(found).await? {
                Some(found) => Some(found),
                // It may have got another object meanwhile.
                None => self.fetch_entry(dir, name, false).await?,
            };
            return Ok(found.map(|found| (found, Vec::new())));
        }
        let akeys = match replies.get(1) {
            Some(OpReply::Listed { items, anchor: b"", .. }) => xattr_akeys(items).collect(),
            // More than one request tells. The inode's epoch still covers what comes later.
            Some(OpReply::Listed { .. }) => {
                self.list_xattrs(Place { oid: dir, dkey: name }).await?
            }
            _ => return Err(reply_kind()),
        };
        Ok(Some((found, akeys)))
    }

    /// Akeys of the extended attributes at a place.
    pub async fn list_xattrs(&self, place: Place<'_>) -> Result<Vec<Vec<u8>>> {
        let mut akeys = Vec::new();
        let mut anchor: Vec<u8> = Vec::new();
        loop {
            let mut batch = self.cont.batch();
            let scope = ListScope::Akeys { dkey: place.dkey };
            let (unit, count_max, bytes_max) = (place.oid.first_unit(), 1024, 256 << 10);
            batch.op(Op::List { unit, scope, anchor: &anchor, count_max, bytes_max });
            let result = batch.run().await?;
            let replies = result.replies()?;
            let Some(OpReply::Listed { items, anchor: next, .. }) = replies.first() else {
                return Err(reply_kind());
            };
            akeys.extend(xattr_akeys(items));
            if next.is_empty() {
                return Ok(akeys);
            }
            anchor = next.to_vec();
        }
    }

    /// One attribute by its akey.
    pub(crate) async fn fetch_xattr(
        &self,
        place: Place<'_>,
        akey: &[u8],
    ) -> Result<Option<Vec<u8>>> {
        let mut room = vec![0; XATTR_BYTES_MAX];
        let mut batch = self.cont.batch();
        let want = FetchWant::Single {
            bytes_max: room.len() as u64,
            inline_bytes_max: INLINE_BYTES_MAX as u32,
        };
        batch.op(Op::Fetch {
            unit: place.oid.first_unit(),
            dkey: place.dkey,
            cond: Cond::NONE,
            iods: vec![FetchIod { akey, want }],
        });
        batch.bulk_in(&mut room);
        let result = batch.run().await?;
        let replies = result.replies()?;
        let Some(OpReply::Fetched(iods)) = replies.first() else {
            return Err(reply_kind());
        };
        match iods.first().map(|iod| &iod.value) {
            Some(Fetched::Absent) => Ok(None),
            Some(Fetched::Inline(value)) => Ok(Some(value.to_vec())),
            Some(Fetched::Single { bytes, in_bulk: true }) if *bytes <= room.len() as u64 => {
                room.truncate(*bytes as usize);
                Ok(Some(room))
            }
            _ => Err(reply_kind()),
        }
    }

    /// All attributes at a place: akey and value.
    pub async fn fetch_xattrs(&self, place: Place<'_>) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let akeys = self.list_xattrs(place).await?;
        self.fetch_xattrs_of(place, akeys).await
    }

    /// Attributes at a place by their akeys.
    pub async fn fetch_xattrs_of(
        &self,
        place: Place<'_>,
        akeys: Vec<Vec<u8>>,
    ) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let mut all = Vec::new();
        for akey in akeys {
            if let Some(value) = self.fetch_xattr(place, &akey).await? {
                all.push((akey, value));
            }
        }
        Ok(all)
    }
}

/// The extended attributes among listed akeys.
fn xattr_akeys(items: &[Listed<'_>]) -> impl Iterator<Item = Vec<u8>> {
    items.iter().filter_map(|item| match item {
        Listed::Key { key } if key.starts_with(XATTR_PREFIX) => Some(key.to_vec()),
        _ => None,
    })
}

fn check_xattr_name(name: &[u8]) -> Result<()> {
    if name.is_empty() || name.len() > NAME_BYTES_MAX || name.contains(&0) {
        return Err(Error::new(Code::Range, "an attribute's name has 1 to 255 bytes, none NUL"));
    }
    Ok(())
}
