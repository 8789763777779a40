//! Several names of a directory looked up together.

use crate::attr::{Stat, stat_from};
use crate::entry::Found;
use crate::flags::{Access, OpenFlags};
use crate::fs::Dfs;
use crate::layout::INODE;
use crate::node::{Location, Obj};
use crate::page::Told;
use crate::share::SharedObj;
use async_recursion::async_recursion as boxed;
use futures_util::future::try_join_all;
use types::limits::check_name;
use types::{Error, Key, Oid, Result};
use wire::obj::{Op, Tail};

impl Dfs {
    /// What these names of a directory stand for, with attributes, by one request to each target that holds some of them, and
    /// another one where files are elsewhere than their entries: files of one name of which one target knows all there is to tell, links and the like. Others are
    /// left out, as are names that are not there. In no order.
    #[boxed(?Send)]
    pub async fn lookup_together(
        &self,
        parent: &Obj,
        names: &[Key],
    ) -> Result<Vec<(Key, SharedObj, Stat)>> {
        let dir = parent.require_dir()?;
        self.check_access(&dir, Access::EXECUTE)?;
        let (shared, oid) = (&self.shared, parent.oid());
        let mut places = Vec::with_capacity(names.len());
        for name in names {
            check_name(name)?;
            places.push((shared.cont.unit_of(oid, name).await?, name));
        }
        let asked = shared.cont.lots(places)?.into_iter().map(|lot| async move {
            let mut batch = shared.cont.batch();
            for &(unit, name) in &lot {
                batch.op(Op::FetchLink { unit, dkey: name, akey: INODE, open: false });
            }
            batch.may_ask_members();
            let result = batch.run().await?;
            let mut told = Vec::with_capacity(lot.len());
            for ((_, name), reply) in lot.iter().zip(result.replies()?) {
                let found = Found::from_link_reply(Some(&reply))?;
                told.extend(found.map(|found| ((*name).clone(), found)));
            }
            Ok::<_, Error>(told)
        });
        let mut found: Vec<(Key, Found)> =
            try_join_all(asked).await?.into_iter().flatten().collect();
        found.retain(|(_, found)| {
            let inode = found.inode;
            !inode.hard && !inode.is_dir() && shared.returns.borrow().pending(inode.oid).is_none()
        });
        let mut elsewhere: Vec<&mut Found> =
            found.iter_mut().map(|(_, found)| found).filter(|found| found.needs_shards()).collect();
        if !elsewhere.is_empty() {
            let oids: Vec<Oid> = elsewhere.iter().map(|found| found.inode.oid).collect();
            let tails = shared.cont.tails_of_first(&oids).await?;
            elsewhere.iter_mut().zip(tails).for_each(|(found, tail)| found.tail = tail);
        }
        let told =
            found.into_iter().filter(|(_, found)| !found.needs_shards()).map(|(name, found)| {
                let inode = found.inode;
                let tail = found.tail.filter(|_| inode.is_regular()).unwrap_or_default();
                let tail = match inode.is_regular() {
                    true => Tail { end: shared.array(&inode).size_from_tail(&tail), ..tail },
                    false => tail,
                };
                let stat = stat_from(&found, &Told { tail, ..Told::empty() });
                let location = Location { parent: oid, name: name.clone() };
                (name, SharedObj::new(location, inode, OpenFlags::PATH), stat)
            });
        Ok(told.collect())
    }
}
