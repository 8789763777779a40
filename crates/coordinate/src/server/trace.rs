//! The trace: one JSON line for each grant and each end of a request.
//!
//! Lines are made by the loop and written by a thread of their own, so that a slow disk (it may be the
//! very one that is coordinated) never delays a grant. When that thread falls behind by
//! [`BATCHES_MAX`] turns of the loop, lines are lost and counted.

use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use types::{Error, Result};

/// Turns of the loop whose lines may wait to be written.
const BATCHES_MAX: usize = 4096;

/// What a line is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum What {
    /// A request was let in.
    Grant,
    Completed,
    /// It was completed without having been let in.
    Unasked,
    /// It was given up.
    Cancelled,
    /// Its client is gone.
    Gone,
    /// It held its slots for too long.
    Overheld,
}

/// A line. Times are microseconds; moments are counted from 1970-01-01 in UTC.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    pub what: What,
    pub time_us: u64,
    pub group: String,
    pub job: String,
    pub host: String,
    pub pid: u32,
    /// Its MPI rank.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rank: Option<u32>,
    /// The connection and the client's number for the request.
    pub client: u64,
    /// See `client`.
    pub id: u64,
    /// `write` or `read`.
    pub kind: String,
    /// Bytes asked for; at the end of a completed request, bytes transferred.
    pub bytes: u64,
    pub targets: Vec<String>,
    /// How long it waited, or had waited.
    pub wait_us: u64,
    /// How long it was in, as the coordinator saw it; at ends only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_us: Option<u64>,
    /// How long the transfer took, as the client measured; at completions only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub io_us: Option<u64>,
}

/// Writes lines to a file.
pub(super) struct Writer {
    /// Lines of this turn.
    text: String,
    lines: u64,
    channel: Option<SyncSender<String>>,
    thread: Option<JoinHandle<()>>,
    /// Lines lost.
    pub lost: u64,
}

impl Writer {
    /// Opens the file for appending.
    pub fn start(path: &Path) -> Result<Writer> {
        let doing = || format!("opening the trace {}", path.display());
        let file = File::options().append(true).create(true).open(path);
        let file = file.map_err(|error| Error::io(doing(), error))?;
        let (sender, receiver) = sync_channel(BATCHES_MAX);
        let thread = std::thread::Builder::new()
            .name("azk-ioc-trace".into())
            .spawn(move || write_all(file, &receiver))
            .map_err(|error| Error::io(doing(), error))?;
        let (text, lines, lost) = (String::new(), 0, 0);
        Ok(Writer { text, lines, channel: Some(sender), thread: Some(thread), lost })
    }

    /// Adds a line to this turn's.
    pub fn add(&mut self, line: &Line) {
        match serde_json::to_string(line) {
            Ok(json) => {
                self.text += &json;
                self.text.push('\n');
                self.lines += 1;
            }
            Err(error) => tracing::error!("a line of the trace: {error}"),
        }
    }

    /// Hands this turn's lines over.
    pub fn end_turn(&mut self) {
        let Some(channel) = &self.channel else { return };
        if self.lines == 0 {
            return;
        }
        match channel.try_send(std::mem::take(&mut self.text)) {
            Ok(()) => {}
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => self.lost += self.lines,
        }
        self.lines = 0;
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.end_turn();
        self.channel = None;
        if let Some(thread) = self.thread.take() {
            // It only ends by running out of lines, or by failing to write, which it has told.
            let _ = thread.join();
        }
    }
}

fn write_all(mut file: File, lines: &Receiver<String>) {
    while let Ok(text) = lines.recv() {
        if let Err(error) = file.write_all(text.as_bytes()) {
            tracing::error!("the trace ends here: {error}");
            return;
        }
    }
}
