//! For which job a process asks, where it asks for several: a mount, for whoever uses it.
//!
//! What a future asks while it runs in [`for_job`] is counted for that job. Nothing is sent for it but a number; what the number stands for
//! is told before, once for each connection, and again when the number is used for another job. Tasks that such
//! a future starts are not of the job: they may go on for others.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use types::map::HashMap;
use wire::job::NAMED_JOBS_MAX;

thread_local! {
    static CURRENT: Cell<Option<Rc<str>>> = const { Cell::new(None) };
}

/// Runs what asks for a job; without one, for that of the connection.
pub async fn for_job<F: Future>(mut job: Option<Rc<str>>, work: F) -> F::Output {
    let mut work = pin!(work);
    poll_fn(|cx| {
        let _current = Current::set(&mut job);
        work.as_mut().poll(cx)
    })
    .await
}

/// The job that is asked for now, if it is not that of the connection.
pub fn current_job() -> Option<Rc<str>> {
    let mut current = None;
    exchange(&mut current);
    let job = current.clone();
    exchange(&mut current);
    job
}

/// Puts back what there was, also when the work panics.
struct Current<'a>(&'a mut Option<Rc<str>>);

impl<'a> Current<'a> {
    fn set(job: &'a mut Option<Rc<str>>) -> Current<'a> {
        let current = Current(job);
        exchange(current.0);
        current
    }
}

impl Drop for Current<'_> {
    fn drop(&mut self) {
        exchange(self.0);
    }
}

/// Exchanges the job that is asked for; nothing in a thread that is ending, where there is none.
fn exchange(job: &mut Option<Rc<str>>) {
    let _ = CURRENT.try_with(|current| *job = current.replace(job.take()));
}

/// Which number stands for which job on a connection.
#[derive(Default)]
pub(crate) struct Numbers {
    known: RefCell<HashMap<Rc<str>, u8>>,
    /// By number, from 1 on.
    names: RefCell<Vec<Rc<str>>>,
    /// The number that the next unknown job takes over, once all are used.
    next: Cell<usize>,
}

impl Numbers {
    /// The number of the job that is asked for now; 0: that of the connection. `tell` is called first with a number that
    /// is to stand for another job from now on; where it fails the number is 0.
    pub fn current(&self, tell: impl FnOnce(u8, &str) -> bool) -> u8 {
        let mut current = None;
        exchange(&mut current);
        let number = current.as_ref().map_or(0, |job| self.number_of(job, tell));
        exchange(&mut current);
        number
    }

    fn number_of(&self, job: &Rc<str>, tell: impl FnOnce(u8, &str) -> bool) -> u8 {
        if let Some(number) = self.known.borrow().get(job) {
            return *number;
        }
        let mut names = self.names.borrow_mut();
        let at = if names.len() < NAMED_JOBS_MAX { names.len() } else { self.next.get() };
        let number = at as u8 + 1;
        if !tell(number, job) {
            return 0;
        }
        let mut known = self.known.borrow_mut();
        match names.get_mut(at) {
            Some(name) => {
                known.remove(name);
                *name = job.clone();
                self.next.set((at + 1) % NAMED_JOBS_MAX);
            }
            None => names.push(job.clone()),
        }
        known.insert(job.clone(), number);
        number
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    fn number(numbers: &Numbers, job: &str, told: &RefCell<Vec<(u8, String)>>) -> u8 {
        let asked = async {
            numbers.current(|number, name| {
                told.borrow_mut().push((number, name.to_string()));
                true
            })
        };
        for_job(Some(job.into()), asked).now_or_never().unwrap()
    }

    /// Preloaded libraries give locks back when a thread ends, after its variables.
    #[test]
    fn a_thread_that_is_ending_asks_for_its_connection() {
        struct Last(Numbers);
        impl Drop for Last {
            fn drop(&mut self) {
                assert_eq!(self.0.current(|_, _| true), 0);
            }
        }
        thread_local! {
            static LAST: Last = Last(Numbers::default());
        }
        let ended = std::thread::spawn(|| {
            // Made before the other variable, so it goes after it.
            LAST.with(|_| ());
            for_job(Some("a".into()), async {}).now_or_never().unwrap();
        });
        ended.join().unwrap();
    }

    #[test]
    fn a_job_has_its_number_only_while_its_work_runs() {
        let (numbers, told) = (Numbers::default(), RefCell::default());
        let none = || numbers.current(|_, _| panic!("there is no job"));
        assert_eq!(none(), 0);
        assert_eq!(number(&numbers, "a", &told), 1);
        assert_eq!(none(), 0);
        assert_eq!((number(&numbers, "b", &told), number(&numbers, "a", &told)), (2, 1));
        assert_eq!(*told.borrow(), [(1, "a".to_string()), (2, "b".to_string())]);
        // One within the other, and one that panics.
        let inner = for_job(Some("b".into()), async { numbers.current(|_, _| false) });
        let outer = for_job(Some("a".into()), async {
            let inner = inner.await;
            (inner, numbers.current(|_, _| false))
        });
        assert_eq!(outer.now_or_never(), Some((2, 1)));
        let failing = for_job(Some("a".into()), async { panic!("expected") });
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            failing.now_or_never();
        }));
        assert!(caught.is_err());
        assert_eq!(none(), 0);
    }

    /// What cannot be told is the connection's own.
    #[test]
    fn numbers_are_used_again_and_told_again() {
        let (numbers, told) = (Numbers::default(), RefCell::default());
        let refused = for_job(Some("x".into()), async { numbers.current(|_, _| false) });
        assert_eq!(refused.now_or_never(), Some(0));
        for at in 0..NAMED_JOBS_MAX {
            assert_eq!(number(&numbers, &at.to_string(), &told) as usize, at + 1);
        }
        assert_eq!(told.borrow().len(), NAMED_JOBS_MAX);
        assert_eq!(number(&numbers, "late", &told), 1);
        assert_eq!(number(&numbers, "1", &told), 2);
        assert_eq!(number(&numbers, "0", &told), 2, "it is told anew");
        let all = told.borrow();
        assert_eq!(all[NAMED_JOBS_MAX..], [(1, "late".to_string()), (2, "0".to_string())]);
    }
}
