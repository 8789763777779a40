//! Transactions: several operations that take effect together.
//!
//! What a transaction has gathered is plain data of the process, so its operations may run in
//! any context: some with an event of one queue, some with none.

use crate::cont::ContHandle;
use crate::ctypes::{daos_event_t, daos_handle_t};
use crate::errno::{DER_ALREADY, Sign};
use crate::event::{fail, launch, settle};
use crate::guard::{self, User};
use crate::handle;
use client::{Container, SharedTx, Tx};
use std::sync::Arc;
use types::{Code, Epoch, Error, Result};

/// `DAOS_TF_RDONLY`: the transaction only reads.
const TF_RDONLY: u64 = 1;
/// `DAOS_TF_ZERO_COPY`: the caller leaves its memory alone until the commit. We copy all the same.
const TF_ZERO_COPY: u64 = 2;

/// An open transaction.
pub struct TxHandle {
    cont: Arc<ContHandle>,
    shared: SharedTx,
    /// The snapshot it reads; zero: the present.
    at: Epoch,
}

impl TxHandle {
    /// The transaction of a call on `cont`; `None` for `DAOS_TX_NONE`. `Inval` when it belongs
    /// to another container; `TxRestart` or `BadHandle` when it is over.
    pub fn of(th: daos_handle_t, cont: &ContHandle) -> Result<Option<Arc<TxHandle>>> {
        if th.cookie == 0 {
            return Ok(None);
        }
        let tx = handle::get::<TxHandle>(th.cookie)?;
        if tx.cont.info.uuid != cont.info.uuid {
            return Err(Error::inval("the transaction belongs to another container"));
        }
        tx.shared.must_be_open()?;
        Ok(Some(tx))
    }

    /// The transaction as a container's client takes part in it.
    pub fn attach(&self, cont: &Container) -> Tx {
        Tx::attach(cont, &self.shared)
    }

    /// The container as the transaction `tx` shows it.
    pub fn look(tx: &Option<Arc<TxHandle>>, cont: &Container) -> Container {
        match tx {
            Some(tx) if tx.at != Epoch::ZERO => cont.at_epoch(tx.at),
            _ => cont.clone(),
        }
    }
}

/// Opens a transaction on a container. With `DAOS_TF_RDONLY` it takes no writes.
///
/// # Safety
/// `th` is good for writing until completion; `ev` is NULL or an event.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_tx_open(
    coh: daos_handle_t,
    th: *mut daos_handle_t,
    flags: u64,
    ev: *mut daos_event_t,
) -> i32 {
    let th = User(th);
    settle(ev, Sign::Der, move || {
        if flags & !(TF_RDONLY | TF_ZERO_COPY) != 0 {
            return Err(Error::inval(format!("the flags {flags:#x} are not of a transaction")));
        }
        if th.0.is_null() {
            return Err(guard::null());
        }
        let cont = ContHandle::of(coh)?;
        let shared = SharedTx::new(flags & TF_RDONLY != 0);
        let tx = Arc::new(TxHandle { cont, shared, at: Epoch::ZERO });
        th.set(daos_handle_t { cookie: handle::add(tx)? });
        Ok(())
    })
}

/// Makes the writes of a transaction take effect together.
///
/// `-DER_TX_RESTART` when something it read has changed: `daos_tx_restart` and do it again.
/// `-DER_EXIST`, `-DER_NONEXIST` when a condition of a write does not hold. `-DER_ALREADY` when it
/// is committed.
///
/// # Safety
/// `ev` is NULL or an event.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_tx_commit(th: daos_handle_t, ev: *mut daos_event_t) -> i32 {
    let tx = match handle::get::<TxHandle>(th.cookie) {
        Ok(tx) if ev.is_null() && tx.shared.committed_at().is_some() => return -DER_ALREADY,
        Ok(tx) => tx,
        Err(error) => return fail(ev, Sign::Der, error),
    };
    launch(ev, Sign::Der, move |local| async move {
        let cont = tx.cont.mirror(&local)?;
        if tx.shared.committed_at().is_some() {
            return Err(Error::new(Code::NoPerm, "the transaction is committed"));
        }
        if tx.at != Epoch::ZERO {
            // What a snapshot shows does not change: there is nothing to check.
            return tx.shared.must_be_open();
        }
        tx.attach(&cont).commit().await.map(|_| ())
    })
}

/// Opens a transaction that reads what a snapshot shows; it takes no writes. `-DER_NONEXIST` when
/// there is no snapshot at `epoch`.
///
/// # Safety
/// `th` is good for writing until completion; `ev` is NULL or an event.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_tx_open_snap(
    coh: daos_handle_t,
    epoch: u64,
    th: *mut daos_handle_t,
    ev: *mut daos_event_t,
) -> i32 {
    let arguments = guard::catch(|| {
        if th.is_null() {
            return Err(guard::null());
        }
        ContHandle::of(coh)
    });
    let cont = match arguments {
        Ok(cont) => cont,
        Err(error) => return fail(ev, Sign::Der, error),
    };
    let th = User(th);
    launch(ev, Sign::Der, move |local| async move {
        let name = wire::control::SnapName::Epoch(Epoch(epoch));
        let at = cont.mirror(&local)?.at_snapshot(&name).await?.at();
        let tx = Arc::new(TxHandle { cont, shared: SharedTx::new(true), at });
        th.set(daos_handle_t { cookie: handle::add(tx)? });
        Ok(())
    })
}

/// Gives up the writes. The handle is still to be closed.
///
/// # Safety
/// `ev` is NULL or an event.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_tx_abort(th: daos_handle_t, ev: *mut daos_event_t) -> i32 {
    settle(ev, Sign::Der, move || handle::get::<TxHandle>(th.cookie)?.shared.abort())
}

/// Closes a transaction; one that was not committed is given up.
///
/// # Safety
/// `ev` is NULL or an event.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_tx_close(th: daos_handle_t, ev: *mut daos_event_t) -> i32 {
    settle(ev, Sign::Der, move || handle::remove::<TxHandle>(th.cookie).map(|_| ()))
}

/// Begins a transaction anew after `-DER_TX_RESTART`. `-DER_NO_PERM` when it is committed.
///
/// # Safety
/// `ev` is NULL or an event.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_tx_restart(th: daos_handle_t, ev: *mut daos_event_t) -> i32 {
    settle(ev, Sign::Der, move || handle::get::<TxHandle>(th.cookie)?.shared.restart())
}

/// The epoch at which a transaction was committed. `-DER_UNINIT` before that.
///
/// # Safety
/// `epoch` is NULL or good for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_tx_hdl2epoch(th: daos_handle_t, epoch: *mut u64) -> i32 {
    guard::daos(|| {
        let tx = handle::get::<TxHandle>(th.cookie)?;
        let committed = tx.shared.committed_at();
        let at = committed.ok_or_else(|| Error::new(Code::Closed, "it is not committed"))?;
        // SAFETY: the caller's promise.
        unsafe { guard::put(epoch, at.0) }
    })
}
