//! User attributes: names and bytes that mean nothing to us.
//!
//! All attributes of a request change together or none does. What one pool or container holds is
//! limited, so that all of it fits one answer.

use super::Service;
use crate::keys;
use crate::records::ContDf;
use crate::store::{Attempts, Tx};
use std::collections::BTreeMap;
use types::{Code, Error, PoolId, Result, limits};
use wire::control::{ControlReply, Subject};

const NAME_BYTES_MAX: usize = 255;
const VALUE_BYTES_MAX: usize = 64 << 10;
/// Names and values of one pool or container together, bytes: half a message, which leaves
/// room for lengths.
const TOTAL_BYTES_MAX: usize = limits::BODY_BYTES_MAX / 2;

impl Service {
    pub(super) async fn set_attrs(
        &self,
        subject: &Subject,
        attrs: BTreeMap<String, Option<Vec<u8>>>,
    ) -> Result<ControlReply> {
        for (name, value) in &attrs {
            check(name, value.as_deref())?;
        }
        let mut attempts = Attempts::new();
        loop {
            attempts.next()?;
            let (prefix, name, mut tx, cont) = self.attrs_of(subject).await?;
            let mut held: BTreeMap<String, usize> = self
                .store
                .raw(&prefix)
                .await?
                .into_iter()
                .map(|(name, value)| (name, value.len()))
                .collect();
            for (attr, value) in &attrs {
                let key = format!("{prefix}{attr}");
                match value {
                    Some(value) => {
                        held.insert(attr.clone(), value.len());
                        tx = tx.put_raw(key, value.clone());
                    }
                    None => {
                        if held.remove(attr).is_none() {
                            return Err(Error::new(
                                Code::NoAttr,
                                format!("'{name}' has no attribute '{attr}' to remove"),
                            ));
                        }
                        tx = tx.delete(key);
                    }
                }
            }
            check_total(held.iter().map(|(name, bytes)| name.len() + bytes).sum())?;
            if self.store.commit(tx).await? {
                if let Some((pool, cont)) = cont {
                    self.note_times(pool, &cont, false, true).await;
                }
                return Ok(ControlReply::Done);
            }
        }
    }

    pub(super) async fn get_attrs(&self, subject: &Subject) -> Result<ControlReply> {
        let (prefix, ..) = self.attrs_of(subject).await?;
        Ok(ControlReply::Attrs(self.store.raw(&prefix).await?.into_iter().collect()))
    }

    /// Where the subject's attributes are, how to call it, and a transaction that fails when the
    /// subject or another's change of its attributes gets in between. And the container, if it is one.
    async fn attrs_of(
        &self,
        subject: &Subject,
    ) -> Result<(String, String, Tx, Option<(PoolId, ContDf)>)> {
        match subject {
            // Two changes that come together are one after the other: each is of names of its own.
            Subject::System => {
                Ok((keys::SYSTEM_ATTRS.to_string(), "the system".to_string(), Tx::new(), None))
            }
            Subject::Pool(pool) => {
                let pool = self.ready_pool(pool).await?;
                let prefix = keys::pool_attrs(pool.record.id);
                // Written back unchanged: its new revision is what makes two changes collide.
                Ok((prefix, pool.record.name(), Tx::new().replace(&pool), None))
            }
            Subject::Cont(pool, cont) => {
                let pool = self.ready_pool(pool).await?;
                let cont = self.ready_cont(&pool.record, cont).await?;
                let prefix = keys::cont_attrs(pool.record.id, cont.record.id);
                // A pool that is being destroyed takes nothing new.
                let tx = Tx::new().expect(&pool).replace(&cont);
                Ok((prefix, cont.record.name(), tx, Some((pool.record.id, cont.record))))
            }
        }
    }
}

/// Checks the first attributes of something new.
pub(super) fn check_new(attrs: &BTreeMap<String, Vec<u8>>) -> Result<()> {
    for (name, value) in attrs {
        check(name, Some(value))?;
    }
    check_total(attrs.iter().map(|(name, value)| name.len() + value.len()).sum())
}

fn check(name: &str, value: Option<&[u8]>) -> Result<()> {
    if name.is_empty() || name.len() > NAME_BYTES_MAX {
        return Err(Error::inval(format!(
            "attribute name of {} bytes; give 1 to {NAME_BYTES_MAX}",
            name.len()
        )));
    }
    match value {
        Some(value) if value.len() > VALUE_BYTES_MAX => Err(Error::inval(format!(
            "attribute '{name}' of {} bytes is over the limit of {VALUE_BYTES_MAX}",
            value.len()
        ))),
        _ => Ok(()),
    }
}

fn check_total(bytes: usize) -> Result<()> {
    if bytes > TOTAL_BYTES_MAX {
        return Err(Error::new(
            Code::NoSpace,
            format!(
                "attributes would take {bytes} bytes together, over the limit of {TOTAL_BYTES_MAX}; \
                 remove some"
            ),
        ));
    }
    Ok(())
}
