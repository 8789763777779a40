//! Frames out of a byte stream.
//!
//! Invariant: what was read of an unfinished frame is kept between polls, so the future that
//! drives a [`FrameReader`] may be dropped at any time.

use crate::stream::Stream;
use std::task::{Context, Poll, ready};
use types::{Code, Error, Result};
use wire::header::{FLAG_DEFERRED_BULK, FLAG_REMOTE_BULK};
use wire::{HEADER_BYTES, Header};

/// Bytes thrown away at once.
const DISCARD_BYTES: usize = 4096;

/// Bulk bytes that follow a frame in the stream.
pub(crate) fn streamed_bulk_bytes(header: &Header) -> usize {
    let elsewhere = FLAG_REMOTE_BULK | FLAG_DEFERRED_BULK;
    if header.flags & elsewhere != 0 { 0 } else { header.bulk_bytes as usize }
}

/// A header and its body.
pub(crate) type Frame = (Header, Vec<u8>);

/// Assembles frames.
pub(crate) struct FrameReader {
    raw: [u8; HEADER_BYTES],
    raw_fill: usize,
    header: Option<Header>,
    body: Vec<u8>,
    body_fill: usize,
    discard: usize,
}

impl FrameReader {
    pub fn new() -> FrameReader {
        FrameReader {
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
                self.body = vec![0; header.body_bytes as usize];
                self.body_fill = 0;
                header
            }
        };
        while self.body_fill < self.body.len() {
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
