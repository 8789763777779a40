//! Tasks that wait for something to happen, by what it is about: who makes it happen wakes these, and nobody else.

use env::Env;
use futures_channel::oneshot;
use std::cell::RefCell;
use std::hash::Hash;
use std::time::Duration;
use types::map::HashMap;

/// Those who wait, by what for. Woken or not, they look again: it may not concern them, or be over already.
pub(crate) struct Waiters<K>(RefCell<HashMap<K, Vec<oneshot::Sender<()>>>>);

impl<K> Default for Waiters<K> {
    fn default() -> Waiters<K> {
        Waiters(RefCell::default())
    }
}

/// One that waits: it is forgotten when it does so no more.
struct Place<'a, K: Hash + Eq> {
    waiters: &'a Waiters<K>,
    of: K,
}

impl<K: Hash + Eq> Drop for Place<'_, K> {
    fn drop(&mut self) {
        let mut all = self.waiters.0.borrow_mut();
        if let Some(waiting) = all.get_mut(&self.of) {
            waiting.retain(|sender| !sender.is_canceled());
            if waiting.is_empty() {
                all.remove(&self.of);
            }
        }
    }
}

impl<K: Hash + Eq + Clone> Waiters<K> {
    /// Ends when those who wait for `of` are woken, and after `limit` at the latest.
    pub async fn wait(&self, env: &Env, of: K, limit: Duration) {
        // The receiver goes before its place.
        let place = Place { waiters: self, of };
        let (sender, woken) = oneshot::channel();
        self.0.borrow_mut().entry(place.of.clone()).or_default().push(sender);
        let _ = env.timeout(limit, woken).await;
    }

    /// The same without a limit.
    pub async fn wait_long(&self, of: K) {
        let place = Place { waiters: self, of };
        let (sender, woken) = oneshot::channel();
        self.0.borrow_mut().entry(place.of.clone()).or_default().push(sender);
        let _ = woken.await;
    }

    /// Lets those go on who wait for `of`.
    pub fn wake(&self, of: &K) {
        let waiting = self.0.borrow_mut().remove(of);
        for waiting in waiting.into_iter().flatten() {
            // A receiver that is gone gave up waiting.
            let _ = waiting.send(());
        }
    }

    /// Lets all go on.
    pub fn wake_all(&self) {
        for waiting in self.0.take().into_values().flatten() {
            let _ = waiting.send(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use env::SimWorld;
    use std::cell::Cell;
    use std::rc::Rc;

    /// One decision woke everybody who waited for any; and who had given up waiting stayed among them.
    #[test]
    fn who_waits_for_something_else_sleeps_on() {
        let world = SimWorld::new(1);
        let env = world.node("a");
        world.block_on(async {
            let waiters: Rc<Waiters<u32>> = Rc::default();
            let woken: Rc<[Cell<u32>; 3]> = Rc::default();
            for at in 0..6 {
                let (waiters, woken, of) = (waiters.clone(), woken.clone(), at % 3);
                let own = env.clone();
                env.spawn(async move {
                    waiters.wait(&own, of, Duration::from_secs(60)).await;
                    woken[of as usize].set(woken[of as usize].get() + 1);
                });
            }
            let pause = || env.sleep(Duration::from_millis(1));
            let counts = || woken.each_ref().map(Cell::get);
            pause().await;
            waiters.wake(&1);
            pause().await;
            assert_eq!(counts(), [0, 2, 0]);
            // Nobody is left that waits for it.
            waiters.wake(&1);
            waiters.wait(&env, 0, Duration::from_millis(1)).await;
            assert_eq!(waiters.0.borrow().get(&0).map(Vec::len), Some(2), "one gave up");
            waiters.wait(&env, 7, Duration::from_millis(1)).await;
            assert_eq!(waiters.0.borrow().len(), 2);
            waiters.wake_all();
            pause().await;
            assert_eq!((counts(), waiters.0.borrow().len()), ([2, 2, 2], 0));
        });
        world.clear();
    }
}
