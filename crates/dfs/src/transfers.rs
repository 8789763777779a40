//! Several transfers at a time, of which none is left behind.
//!
//! Who drops a request that is on its way does not know whether, or when, it takes effect. One that writes to an object which is given up after that
//! makes it anew, and nothing names it: a migration that met a full pool left such objects for good.

use futures_util::stream::{FuturesUnordered, StreamExt};
use types::Result;

/// Does `work` with all items, at most `count_max` at a time. After the first error, which is told, nothing more is begun; in any case the call is over
/// when all that was begun is.
pub(crate) async fn all_begun<T, W: Future<Output = Result<()>>>(
    items: impl IntoIterator<Item = T>,
    count_max: usize,
    work: impl Fn(T) -> W,
) -> Result<()> {
    let mut items = items.into_iter();
    let mut under_way = FuturesUnordered::new();
    let mut outcome = Ok(());
    loop {
        while outcome.is_ok()
            && under_way.len() < count_max
            && let Some(item) = items.next()
        {
            under_way.push(work(item));
        }
        match under_way.next().await {
            Some(done) => outcome = outcome.and(done),
            None => return outcome,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};
    use types::{Code, Error};

    /// Ends after so many looks.
    async fn after(looks: u32) {
        let mut left = looks;
        std::future::poll_fn(|cx| match left {
            0 => Poll::Ready(()),
            _ => {
                left -= 1;
                cx.waker().wake_by_ref();
                Poll::Pending
            }
        })
        .await;
    }

    /// How many were begun, ended, and at work at most, of twenty of which one fails, and what was told.
    fn run(fails: Option<u32>, count_max: usize) -> (u32, u32, u32, Result<()>) {
        let (begun, ended, most) = (Cell::new(0u32), Cell::new(0), Cell::new(0));
        let outcome = {
            let work = |number: u32| {
                let (begun, ended, most) = (&begun, &ended, &most);
                async move {
                    begun.set(begun.get() + 1);
                    most.set(most.get().max(begun.get() - ended.get()));
                    after(number * 7 % 5).await;
                    ended.set(ended.get() + 1);
                    match fails == Some(number) {
                        true => Err(Error::bare(Code::NoSpace)),
                        false => Ok(()),
                    }
                }
            };
            let mut all = pin!(all_begun(0..20, count_max, work));
            let mut cx = Context::from_waker(Waker::noop());
            loop {
                if let Poll::Ready(outcome) = all.as_mut().poll(&mut cx) {
                    break outcome;
                }
            }
        };
        (begun.get(), ended.get(), most.get(), outcome)
    }

    #[test]
    fn what_was_begun_is_over() {
        for count_max in [1, 3, 4] {
            let (begun, ended, most, outcome) = run(None, count_max);
            assert_eq!((begun, ended, most, outcome), (20, 20, count_max as u32, Ok(())));
            for fails in [0, 5, 6, 19] {
                let (begun, ended, _, outcome) = run(Some(fails), count_max);
                assert_eq!(outcome.unwrap_err().code, Code::NoSpace);
                assert_eq!(begun, ended, "{fails}, {count_max} at a time");
                assert!(begun > fails && begun < fails + 2 + 2 * count_max as u32, "{begun}");
            }
        }
    }
}
