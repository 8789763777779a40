//! Work for a particular thread.
//!
//! Any thread takes any request, but the open handle that the engines count belongs to one client
//! of the system and so to one thread, which has to give it back. Other threads send work there.

use super::Worker;
use futures_channel::mpsc;
use futures_util::StreamExt;
use std::rc::Rc;

type Letter = Box<dyn FnOnce(Rc<Worker>) + Send>;

/// The letter boxes of all threads.
pub struct Mail {
    boxes: Vec<mpsc::UnboundedSender<Letter>>,
}

/// One thread's letters, to be read there.
pub struct Letters(mpsc::UnboundedReceiver<Letter>);

impl Mail {
    /// Boxes for `threads` threads.
    pub fn new(threads: usize) -> (Mail, Vec<Letters>) {
        let pairs = (0..threads).map(|_| mpsc::unbounded());
        let (boxes, letters): (Vec<_>, Vec<_>) = pairs.unzip();
        (Mail { boxes }, letters.into_iter().map(Letters).collect())
    }

    /// Runs something on a thread, some time. A thread that has ended keeps nothing that would
    /// need it.
    pub fn send(&self, thread: usize, work: impl FnOnce(Rc<Worker>) + Send + 'static) {
        if let Some(letter_box) = self.boxes.get(thread) {
            let _ = letter_box.unbounded_send(Box::new(work));
        }
    }
}

impl Letters {
    /// Reads letters until the mount ends.
    pub async fn read(mut self, worker: Rc<Worker>) {
        while let Some(letter) = self.0.next().await {
            letter(worker.clone());
        }
    }
}
