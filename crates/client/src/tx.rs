//! Transactions over several objects and targets, serializable.
//!
//! Optimistic: reads note the epochs they saw, writes wait; the commit checks that nothing read
//! has changed and applies all writes at one epoch. A lost conflict is `TxRestart`: restart and
//! run the whole transaction again. As in DAOS, reads do not see the transaction's own writes.

use crate::cont::Container;
use async_recursion::async_recursion as boxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use types::{Code, Epoch, Error, Result, Unit};
use wire::obj::{Op, ReadCheck, ReadScope};

/// A transaction: its writes take effect together when it is committed, or not at all.
pub struct Tx {
    cont: Container,
    shared: SharedTx,
}

/// What a transaction has gathered so far: plain data, so that several clients of one process
/// can take part in it, one after the other.
#[derive(Clone)]
pub struct SharedTx(Arc<Mutex<Gathered>>);

struct Gathered {
    state: TxState,
    read_only: bool,
    checks: Vec<Vec<u8>>,
    writes: Vec<Write>,
    committed_at: Epoch,
}

struct Write {
    op: Vec<u8>,
    data: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum TxState {
    Open,
    Committed,
    Failed,
    Aborted,
}

impl SharedTx {
    /// A new transaction, bound to no client yet.
    pub fn new(read_only: bool) -> SharedTx {
        SharedTx(Arc::new(Mutex::new(Gathered {
            state: TxState::Open,
            read_only,
            checks: Vec::new(),
            writes: Vec::new(),
            committed_at: Epoch::ZERO,
        })))
    }

    fn lock(&self) -> MutexGuard<'_, Gathered> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `TxRestart` after a failed commit, `BadHandle` when it was committed or aborted.
    pub fn must_be_open(&self) -> Result<()> {
        self.lock().must_be_open()
    }

    /// Epoch of the commit; `None` before it.
    pub fn committed_at(&self) -> Option<Epoch> {
        let gathered = self.lock();
        (gathered.state == TxState::Committed).then_some(gathered.committed_at)
    }

    /// Gives up the writes.
    pub fn abort(&self) -> Result<()> {
        self.leave(TxState::Aborted)
    }

    /// Begins anew after `TxRestart` (or at any time before a commit succeeded).
    pub fn restart(&self) -> Result<()> {
        self.leave(TxState::Open)
    }

    fn leave(&self, state: TxState) -> Result<()> {
        let mut gathered = self.lock();
        if gathered.state == TxState::Committed {
            return Err(Error::new(Code::NoPerm, "the transaction is committed"));
        }
        gathered.checks.clear();
        gathered.writes.clear();
        gathered.state = state;
        Ok(())
    }
}

impl Gathered {
    fn must_be_open(&self) -> Result<()> {
        match self.state {
            TxState::Open => Ok(()),
            TxState::Failed => {
                Err(Error::new(Code::TxRestart, "the transaction must be restarted"))
            }
            TxState::Committed | TxState::Aborted => {
                Err(Error::new(Code::BadHandle, "the transaction is over"))
            }
        }
    }
}

impl Tx {
    /// Opens a transaction on a container. With `read_only`, writes are refused.
    pub fn open(cont: &Container, read_only: bool) -> Tx {
        Tx::attach(cont, &SharedTx::new(read_only))
    }

    /// Takes part in a transaction with this container's client.
    pub fn attach(cont: &Container, shared: &SharedTx) -> Tx {
        Tx { cont: cont.clone(), shared: shared.clone() }
    }

    /// What other clients of this process need to take part.
    pub fn shared(&self) -> &SharedTx {
        &self.shared
    }

    /// Keeps a write to the unit that the op names for the commit; the data is copied.
    pub(crate) fn add(&self, op: &Op<'_>, data: &[&[u8]]) -> Result<()> {
        let mut gathered = self.shared.lock();
        gathered.must_be_open()?;
        if gathered.read_only {
            return Err(Error::new(Code::ReadOnly, "the transaction is read-only"));
        }
        let write = Write { op: wire::encode(op), data: data.concat() };
        gathered.writes.push(write);
        Ok(())
    }

    /// Notes what a read of a unit saw.
    pub(crate) fn saw(&self, unit: Unit, of: ReadScope<'_>, seen: Epoch) {
        let check = wire::encode(&ReadCheck { unit, of, seen });
        self.shared.lock().checks.push(check);
    }

    /// Makes the writes take effect together.
    ///
    /// Errors: `TxRestart` when something read has changed or another transaction was in the
    /// way; conditions of the writes fail with their own codes and leave the transaction failed.
    #[boxed(?Send)]
    pub async fn commit(&self) -> Result<Epoch> {
        let (checks, writes) = {
            let mut gathered = self.shared.lock();
            gathered.must_be_open()?;
            // Until the answer says otherwise.
            gathered.state = TxState::Failed;
            (std::mem::take(&mut gathered.checks), std::mem::take(&mut gathered.writes))
        };
        let mut batch = self.cont.batch();
        for write in &writes {
            batch.op_of_unit(wire::decode(&write.op)?);
            batch.bulk_out(&write.data);
        }
        for check in &checks {
            batch.check_of_unit(wire::decode(check)?);
        }
        let epoch = if batch.is_empty() { Epoch::ZERO } else { batch.run().await?.epoch };
        let mut gathered = self.shared.lock();
        gathered.state = TxState::Committed;
        gathered.committed_at = epoch;
        Ok(epoch)
    }

    /// Gives up the writes.
    pub fn abort(&self) -> Result<()> {
        self.shared.abort()
    }

    /// Begins anew after `TxRestart` (or at any time before a commit succeeded).
    pub fn restart(&self) -> Result<()> {
        self.shared.restart()
    }
}
