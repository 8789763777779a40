//! Frames out of a byte stream.
//!
//! Invariant: what was read of an unfinished frame is kept between polls, so the future that
//! drives a [`FrameReader`] may be dropped at any time.

use crate::ledger::{Account, Charge};
use crate::stream::Stream;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use types::{Code, Error, Result};
use wire::header::{FLAG_DEFERRED_BULK, FLAG_REMOTE_BULK};
use wire::{HEADER_BYTES, Header};

/// A body takes this much at first and doubles: memory is taken as bytes arrive, not as a header
/// promises them.
const BODY_BYTES_FIRST: usize = 64 << 10;
/// Bytes thrown away at once.
const DISCARD_BYTES: usize = 4096;

/// Bulk bytes that follow a frame in the stream.
pub(crate) fn streamed_bulk_bytes(header: &Header) -> usize {
    let elsewhere = FLAG_REMOTE_BULK | FLAG_DEFERRED_BULK;
    if header.flags & elsewhere != 0 { 0 } else { header.bulk_bytes as usize }
}

/// A header and its body.
pub(crate) type Frame = (Header, Vec<u8>);

pub(crate) struct FrameReader {
    raw: [u8; HEADER_BYTES],
    raw_fill: usize,
    header: Option<Header>,
    body: Vec<u8>,
    body_fill: usize,
    discard: usize,
    account: Option<Arc<Account>>,
    /// What the frame takes that is being read.
    charge: Charge,
}

impl FrameReader {
    /// A reader of frames that an engine counts in `account`, or nobody.
    pub fn new(account: Option<Arc<Account>>) -> FrameReader {
        FrameReader {
            charge: Charge::new(account.clone()),
            account,
            raw: [0; HEADER_BYTES],
            raw_fill: 0,
            header: None,
            body: Vec::new(),
            body_fill: 0,
            discard: 0,
        }
    }

    /// Throws away the next `bytes` of the stream before the next frame.
    pub fn discard(&mut self, bytes: usize) {
        self.discard += bytes;
    }

    /// What the frame read last takes.
    pub fn take_charge(&mut self) -> Charge {
        std::mem::replace(&mut self.charge, Charge::new(self.account.clone()))
    }

    /// The next header and its body, checked; the streamed bulk is still in the stream. `None` when
    /// the peer has closed between frames.
    pub fn poll_frame(
        &mut self,
        stream: &Stream,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<Frame>>> {
        while self.discard > 0 {
            let mut waste = [0; DISCARD_BYTES];
            let room = self.discard.min(DISCARD_BYTES);
            match ready!(stream.poll_read(cx, &mut waste[..room]))? {
                0 => return Poll::Ready(Ok(None)),
                count => self.discard -= count,
            }
        }
        if self.raw_fill == 0
            && let Some(account) = &self.account
        {
            ready!(account.poll_room(cx));
        }
        while self.raw_fill < HEADER_BYTES {
            match ready!(stream.poll_read(cx, &mut self.raw[self.raw_fill..]))? {
                0 if self.raw_fill == 0 => return Poll::Ready(Ok(None)),
                0 => return Poll::Ready(Err(cut_short())),
                count => self.raw_fill += count,
            }
        }
        let header = match self.header {
            Some(header) => header,
            None => {
                let header = Header::decode(&self.raw)?;
                self.header = Some(header);
                self.body_fill = 0;
                header
            }
        };
        let body_bytes = header.body_bytes as usize;
        while self.body_fill < body_bytes {
            if self.body_fill == self.body.len() {
                let more = self.body_fill.max(BODY_BYTES_FIRST).min(body_bytes - self.body_fill);
                self.charge.add(more);
                self.body.resize(self.body_fill + more, 0);
            }
            match ready!(stream.poll_read(cx, &mut self.body[self.body_fill..]))? {
                0 => return Poll::Ready(Err(cut_short())),
                count => self.body_fill += count,
            }
        }
        self.raw_fill = 0;
        self.header = None;
        let body = std::mem::take(&mut self.body);
        header.check_body(&body)?;
        Poll::Ready(Ok(Some((header, body))))
    }
}

fn cut_short() -> Error {
    Error::new(Code::Closed, "the connection broke inside a frame")
}
