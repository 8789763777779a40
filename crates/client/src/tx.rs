//! Transactions over several objects and targets, serializable.
//!
//! Optimistic: reads note the epochs they saw, writes wait; the commit checks that nothing read
//! has changed and applies all writes at one epoch. A lost conflict is `TxRestart`: restart and
//! run the whole transaction again. As in DAOS, reads do not see the transaction's own writes.

use crate::cont::Container;
use std::cell::{Cell, RefCell};
use types::{Code, Epoch, Error, Oid, Result, TargetId};
use wire::obj::{Op, ReadCheck, ReadScope};

/// An open transaction.
pub struct Tx {
    cont: Container,
    state: Cell<State>,
    read_only: bool,
    checks: RefCell<Vec<(TargetId, Vec<u8>)>>,
    writes: RefCell<Vec<Write>>,
}

struct Write {
    target: TargetId,
    op: Vec<u8>,
    data: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Open,
    Committed,
    Failed,
    Aborted,
}

impl Tx {
    /// Opens a transaction on a container. With `read_only`, writes are refused.
    pub fn open(cont: &Container, read_only: bool) -> Tx {
        Tx {
            cont: cont.clone(),
            state: Cell::new(State::Open),
            read_only,
            checks: RefCell::new(Vec::new()),
            writes: RefCell::new(Vec::new()),
        }
    }

    fn must_be_open(&self) -> Result<()> {
        match self.state.get() {
            State::Open => Ok(()),
            State::Failed => Err(Error::new(Code::TxRestart, "the transaction must be restarted")),
            State::Committed | State::Aborted => {
                Err(Error::new(Code::BadHandle, "the transaction is over"))
            }
        }
    }

    /// Keeps a write for the commit; the data is copied.
    pub(crate) fn add(&self, target: TargetId, op: &Op<'_>, data: &[&[u8]]) -> Result<()> {
        self.must_be_open()?;
        if self.read_only {
            return Err(Error::new(Code::ReadOnly, "the transaction is read-only"));
        }
        let write = Write { target, op: wire::encode(op), data: data.concat() };
        self.writes.borrow_mut().push(write);
        Ok(())
    }

    /// Notes what a read saw.
    pub(crate) fn saw(&self, target: TargetId, oid: Oid, of: ReadScope<'_>, seen: Epoch) {
        let check = wire::encode(&ReadCheck { oid, of, seen });
        self.checks.borrow_mut().push((target, check));
    }

    /// Makes the writes take effect together.
    ///
    /// Errors: `TxRestart` when something read has changed or another transaction was in the
    /// way; conditions of the writes fail with their own codes and leave the transaction failed.
    pub async fn commit(&self) -> Result<Epoch> {
        self.must_be_open()?;
        self.state.set(State::Failed);
        let checks = self.checks.take();
        let writes = self.writes.take();
        let mut batch = self.cont.batch();
        for write in &writes {
            batch.op_at(write.target, wire::decode(&write.op)?);
            batch.bulk_out(&write.data);
        }
        for (target, check) in &checks {
            batch.check_at(*target, wire::decode(check)?);
        }
        if batch.is_empty() {
            self.state.set(State::Committed);
            return Ok(Epoch::ZERO);
        }
        let result = batch.run().await?;
        self.state.set(State::Committed);
        Ok(result.epoch)
    }

    /// Gives up the writes.
    pub fn abort(&self) -> Result<()> {
        if self.state.get() == State::Committed {
            return Err(Error::new(Code::NoPerm, "the transaction is committed"));
        }
        self.checks.take();
        self.writes.take();
        self.state.set(State::Aborted);
        Ok(())
    }

    /// Begins anew after `TxRestart` (or at any time before a commit succeeded).
    pub fn restart(&self) -> Result<()> {
        if self.state.get() == State::Committed {
            return Err(Error::new(Code::NoPerm, "the transaction is committed"));
        }
        self.checks.take();
        self.writes.take();
        self.state.set(State::Open);
        Ok(())
    }
}
