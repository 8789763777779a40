//! Work beside the connections that a clean stop waits for.

use env::Signal;
use std::cell::Cell;
use std::rc::Rc;

/// How much of it there is.
#[derive(Default)]
pub(crate) struct InProgress {
    count: Cell<usize>,
    ended: Signal,
}

/// One piece of it, until it is dropped.
pub(crate) struct Piece(Rc<InProgress>);

impl Drop for Piece {
    fn drop(&mut self) {
        self.0.count.set(self.0.count.get() - 1);
        self.0.ended.notify();
    }
}

impl InProgress {
    pub fn begin(self: &Rc<Self>) -> Piece {
        self.count.set(self.count.get() + 1);
        Piece(self.clone())
    }

    pub fn count(&self) -> usize {
        self.count.get()
    }

    /// Ends when there is none.
    pub async fn none(&self) {
        self.ended.until(|| self.count.get() == 0).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use env::SimWorld;
    use std::time::Duration;

    /// A stop looked each millisecond. It ends with the last piece, also with one that began after it had begun to wait.
    #[test]
    fn a_stop_ends_with_the_last_piece() {
        let world = SimWorld::new(1);
        let env = world.node("a");
        world.block_on(async {
            let work: Rc<InProgress> = Rc::default();
            work.none().await;
            let (first, own, all) = (work.begin(), env.clone(), work.clone());
            let ended: Rc<Cell<u32>> = Rc::default();
            let counted = ended.clone();
            env.spawn(async move {
                own.sleep(Duration::from_millis(3)).await;
                let second = all.begin();
                counted.set(1);
                drop(first);
                own.sleep(Duration::from_millis(4)).await;
                counted.set(2);
                drop(second);
            });
            work.none().await;
            assert_eq!((work.count(), ended.get()), (0, 2));
        });
        world.clear();
    }
}
