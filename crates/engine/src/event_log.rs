//! The file in which an engine keeps its events: lines of text, each with a checksum of its own.
//!
//! ```text
//! 1f2e3d4c {"number":7,"time_ns":…,"count":1,"code":"target-down","target":3,"what":"…"}
//! ```
//!
//! The checksum is CRC-32C of what follows the space, in hexadecimal. A line that fails it, or was cut short by a crash, is passed
//! over. There are two files, the newer part and the part before; when the newer one is full it becomes the part before. So what
//! is kept is bounded, whatever happens.
//!
//! A thread of its own writes and syncs: a device that hangs holds up nobody, and then events are missing in the file only.

use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use types::{Error, PoolId, Rank, Result, TargetId};
use wire::event::Event;

/// A file is full with this, bytes.
const FILE_BYTES_MAX: u64 = 512 << 10;
/// What is read of a file at most, from its end: somebody else may have written there.
const READ_BYTES_MAX: u64 = 4 * FILE_BYTES_MAX;
/// Events on their way to the file.
const QUEUE_MAX: usize = 1024;

/// An event as it is kept. Further fields of later versions are passed over.
#[derive(Serialize, Deserialize)]
struct EventDf {
    number: u64,
    time_ns: u64,
    count: u32,
    code: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    engine: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    target: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pool: Option<u32>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    object: String,
    what: String,
}

/// A line of the file, its end included.
pub fn line(event: &Event) -> String {
    let kept = EventDf {
        number: event.number,
        time_ns: event.time_ns,
        count: event.count,
        code: event.code.clone(),
        engine: event.engine.map(|rank| rank.0),
        target: event.target.map(|target| target.0),
        pool: event.pool.map(|pool| pool.0),
        object: event.object.clone(),
        what: event.what.clone(),
    };
    let text = serde_json::to_string(&kept).expect("an event has text keys only");
    format!("{:08x} {text}\n", wire::header::crc(text.as_bytes()))
}

fn event(line: &[u8]) -> Option<Event> {
    let (sum, text) = line.split_at_checked(9)?;
    if sum != format!("{:08x} ", wire::header::crc(text)).as_bytes() {
        return None;
    }
    let kept: EventDf = serde_json::from_slice(text).ok()?;
    Some(Event {
        number: kept.number,
        time_ns: kept.time_ns,
        count: kept.count,
        code: kept.code,
        engine: kept.engine.map(Rank),
        target: kept.target.map(TargetId),
        pool: kept.pool.map(PoolId),
        object: kept.object,
        what: kept.what,
    })
}

/// The events of a file, and how many lines of it say nothing.
pub fn read_lines(bytes: &[u8]) -> (Vec<Event>, usize) {
    let (mut events, mut bad) = (Vec::new(), 0);
    for line in bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        match event(line) {
            Some(event) => events.push(event),
            None => bad += 1,
        }
    }
    (events, bad)
}

fn paths(dir: &Path) -> (PathBuf, PathBuf) {
    (dir.join("events.log"), dir.join("events.log.1"))
}

fn read_end(path: &Path) -> Result<Vec<u8>> {
    let failed = |error| Error::io(format!("reading {}", path.display()), error);
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed(error)),
    };
    let bytes = file.metadata().map_err(failed)?.len();
    file.seek(SeekFrom::Start(bytes.saturating_sub(READ_BYTES_MAX))).map_err(failed)?;
    let mut content = Vec::new();
    file.take(READ_BYTES_MAX).read_to_end(&mut content).map_err(failed)?;
    Ok(content)
}

/// The events that are kept in an engine's directory, by number. Lines that say nothing are passed over.
///
/// Errors: `Io` when a file is there and cannot be read.
pub fn read_dir(dir: &Path) -> Result<Vec<Event>> {
    let (newer, before) = paths(dir);
    let mut all = Vec::new();
    for path in [before, newer] {
        let (events, bad) = read_lines(&read_end(&path)?);
        if bad > 0 {
            tracing::warn!("{}: {bad} lines say nothing and are passed over", path.display());
        }
        all.extend(events);
    }
    all.sort_by_key(|event| event.number);
    all.dedup_by_key(|event| event.number);
    Ok(all)
}

/// The way to the file; what was given is on the device when this has been dropped.
pub(crate) struct Writer {
    queue: Option<SyncSender<String>>,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    /// Begins to write below an engine's directory.
    pub fn start(dir: &Path) -> Result<Writer> {
        let (queue, lines) = sync_channel(QUEUE_MAX);
        let mut log = Log::open(dir)?;
        let thread = std::thread::Builder::new()
            .name("azk-events".into())
            .spawn(move || write_all(&mut log, &lines))
            .map_err(|error| Error::io("starting the thread for events", error))?;
        Ok(Writer { queue: Some(queue), thread: Some(thread) })
    }

    /// Has an event written soon.
    pub fn write(&self, event: &Event) {
        let Some(queue) = &self.queue else { return };
        if let Err(TrySendError::Full(_)) = queue.try_send(line(event)) {
            tracing::warn!("the file of events is not written: its device does not answer");
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        drop(self.queue.take());
        if let Some(thread) = self.thread.take() {
            // It has nothing to tell.
            let _ = thread.join();
        }
    }
}

fn write_all(log: &mut Log, lines: &Receiver<String>) {
    let mut has_failed = false;
    while let Ok(first) = lines.recv() {
        let mut text = first;
        // What came meanwhile is synced with it.
        while let Ok(more) = lines.try_recv() {
            text += &more;
        }
        match log.append(&text) {
            Ok(()) => has_failed = false,
            // Said once, not for each event.
            Err(error) if !has_failed => {
                tracing::warn!("events: {error}");
                has_failed = true;
            }
            Err(_) => {}
        }
    }
}

struct Log {
    dir: PathBuf,
    file: File,
    bytes: u64,
}

impl Log {
    fn open(dir: &Path) -> Result<Log> {
        let (path, _) = paths(dir);
        let failed = |error| Error::io(format!("opening {}", path.display()), error);
        let mut file =
            OpenOptions::new().create(true).append(true).read(true).open(&path).map_err(failed)?;
        let mut bytes = file.metadata().map_err(failed)?.len();
        // What a crash has cut short must not spoil what follows.
        let mut last = [b'\n'];
        if bytes > 0 {
            file.seek(SeekFrom::End(-1))
                .and_then(|_| file.read_exact(&mut last))
                .map_err(failed)?;
        }
        if last != [b'\n'] {
            file.write_all(b"\n").map_err(failed)?;
            bytes += 1;
        }
        Ok(Log { dir: dir.to_path_buf(), file, bytes })
    }

    fn append(&mut self, text: &str) -> Result<()> {
        let (path, before) = paths(&self.dir);
        let failed = |error| Error::io(format!("writing {}", path.display()), error);
        if self.bytes >= FILE_BYTES_MAX {
            std::fs::rename(&path, &before).map_err(failed)?;
            *self = Log::open(&self.dir)?;
        }
        self.bytes += text.len() as u64;
        self.file.write_all(text.as_bytes()).map_err(failed)?;
        self.file.sync_data().map_err(failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sample(number: u64) -> Event {
        Event {
            number,
            time_ns: 5,
            count: 2,
            code: "target-down".into(),
            engine: None,
            target: Some(TargetId(3)),
            pool: Some(PoolId(1)),
            object: String::new(),
            what: "a \"disk\"\nhas gone \u{1f4a5}".into(),
        }
    }

    /// Frozen: an engine must read what an earlier version of it has written.
    #[test]
    fn lines_are_those_of_the_format() {
        let text = line(&sample(7));
        assert_eq!(
            text,
            "f08271d7 {\"number\":7,\"time_ns\":5,\"count\":2,\"code\":\"target-down\",\"target\":3,\"pool\":1,\
             \"what\":\"a \\\"disk\\\"\\nhas gone \u{1f4a5}\"}\n"
        );
        assert_eq!(read_lines(text.as_bytes()), (vec![sample(7)], 0));
        // A later version may say more.
        let more =
            "{\"number\":1,\"time_ns\":2,\"count\":3,\"code\":\"x\",\"what\":\"y\",\"more\":[4]}";
        let more = format!("{:08x} {more}", wire::header::crc(more.as_bytes()));
        let (events, bad) = read_lines(more.as_bytes());
        assert_eq!((events[0].number, events[0].known(), bad), (1, None, 0));
    }

    proptest! {
        #[test]
        fn damage_costs_the_lines_that_have_it(at in 0usize..600, byte: u8) {
            let text: String = (1..=5).map(|number| line(&sample(number))).collect();
            let mut bytes = text.into_bytes();
            let at = at % bytes.len();
            let is_same = bytes[at] == byte;
            bytes[at] = byte;
            let (events, bad) = read_lines(&bytes);
            prop_assert!(is_same || events.len() < 5);
            // A changed end of a line costs two, or halves one.
            prop_assert!(events.len() >= 3 && bad <= 2);
            for event in &events {
                prop_assert_eq!(event, &sample(event.number));
            }
        }
    }

    #[test]
    fn what_is_written_is_there_after_a_restart_and_is_bounded() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(read_dir(dir.path()).unwrap(), []);
        let writer = Writer::start(dir.path()).unwrap();
        (1..=3).for_each(|number| writer.write(&sample(number)));
        drop(writer);
        let numbers = |dir: &Path| -> Vec<u64> {
            read_dir(dir).unwrap().iter().map(|event| event.number).collect()
        };
        assert_eq!(numbers(dir.path()), [1, 2, 3]);
        // A crash in the middle of a line.
        let (path, before) = paths(dir.path());
        let whole = std::fs::read(&path).unwrap();
        std::fs::write(&path, &whole[..whole.len() - 5]).unwrap();
        let mut log = Log::open(dir.path()).unwrap();
        log.append(&line(&sample(4))).unwrap();
        assert_eq!(numbers(dir.path()), [1, 2, 4]);
        let per_file = FILE_BYTES_MAX / line(&sample(1000)).len() as u64;
        for number in 5..3 * per_file {
            log.append(&line(&sample(number))).unwrap();
        }
        let size = |path: &Path| std::fs::metadata(path).unwrap().len();
        assert!(size(&path) + size(&before) <= 2 * FILE_BYTES_MAX + 400);
        let kept = numbers(dir.path());
        assert_eq!(kept.last(), Some(&(3 * per_file - 1)));
        // Later lines are longer: their numbers have more digits.
        assert!(kept.len() as u64 >= per_file * 9 / 10, "{} of {per_file}", kept.len());
        assert!(kept.windows(2).all(|two| two[0] + 1 == two[1]));
    }
}
