//! Going through the operations of a batch, counted where assertions are checked.
//!
//! Whoever asks one more thing of a batch is tempted to go through its operations once more, and in the end there are ten such passes
//! (`docs/decisions/2026-11-27-one-walk.md`). So engine and store do it by [`walk`], which `cargo xtask tidy` demands, and a test counts.

use crate::obj::Op;

/// All operations, in order. Counted in builds with debug assertions.
#[inline(always)]
pub fn walk<'o, 'a>(ops: &'o [Op<'a>]) -> std::slice::Iter<'o, Op<'a>> {
    #[cfg(debug_assertions)]
    counted::add(|counts| counts.walks += 1);
    ops.iter()
}

/// What was done by this thread.
#[cfg(debug_assertions)]
pub mod counted {
    use std::cell::Cell;

    /// How often.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct Counts {
        /// Passes over operations.
        pub walks: u64,
        /// Decoded batches, and requests, which may hold one.
        pub decodes: u64,
    }

    thread_local! {
        static COUNTS: Cell<Counts> = const { Cell::new(Counts { walks: 0, decodes: 0 }) };
    }

    pub(super) fn add(change: impl FnOnce(&mut Counts)) {
        COUNTS.with(|counts| {
            let mut changed = counts.get();
            change(&mut changed);
            counts.set(changed);
        });
    }

    /// What was counted since the last call.
    pub fn take() -> Counts {
        COUNTS.take()
    }

    /// Something was decoded.
    pub(crate) fn decoded<T>() {
        let name = std::any::type_name::<T>();
        if name.contains("obj::Request") || name.contains("obj::Batch") {
            add(|counts| counts.decodes += 1);
        }
    }
}
