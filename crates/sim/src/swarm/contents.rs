//! Data of the files that have names: written and read through handles, while others rename, link and remove them, give them another
//! class, and roll all back. No write of an open file is lost, and who opens it again, by whatever name, is shown the last one.

use super::clients::Worker;
use super::names::{NameAnswer, NameCall, Site, Spot};
use dfs::{CreateOptions, Obj, OpenFlags};
use std::time::Duration;
use types::{Code, Error, Result};

/// Who has opened something and is heard of no more for two seconds holds it no more: what it goes on to write may go with a file that was removed, or
/// got another class, meanwhile. So what took longer than this counts as not answered.
const HELD_TIME: Duration = Duration::from_millis(1_500);
/// Bytes of a file's data, by its permission bits: small, inline, and too large for either.
const DATA_BYTES: [usize; 3] = [8, 3_000, 70_000];
/// Where they lie, a chunk apart.
const CHUNK_BYTES: u64 = 1 << 20;

/// Permission bits of what is open.
fn bits(file: &Obj) -> u32 {
    file.mode() & 0o7777
}

fn place_of(mode: u32) -> (u64, usize) {
    (u64::from(mode / 3 % 3) * CHUNK_BYTES, DATA_BYTES[mode as usize % DATA_BYTES.len()])
}

impl Worker {
    /// Opens a file if there is one, and reads or writes its data.
    pub(super) async fn use_data(&self, site: &Site, at: Spot) -> Result<()> {
        let history = self.run.names();
        let looked = history.invoke(self.number, NameCall::Look(at));
        let began = self.env.now();
        let flags = OpenFlags::READ_WRITE;
        let file = match self.open_file(site, at, flags).await {
            Ok(file) => file,
            Err(error) if error.code == Code::NonExist => {
                history.answer(looked, NameAnswer::Failed(error.code));
                return Ok(());
            }
            Err(error) => return self.run.bear(error),
        };
        let mode = bits(&file);
        history.answer(looked, NameAnswer::Found { mode, is_dir: file.is_dir() });
        if file.is_dir() {
            return Ok(());
        }
        let (asked, done) = match self.below(2) {
            0 => {
                let asked = history.invoke(self.number, NameCall::Read(mode));
                (asked, self.read_data(site, &file).await.map(NameAnswer::Data))
            }
            _ => {
                let value = self.run.new_value();
                let asked = history.invoke(self.number, NameCall::Write(mode, value));
                let (offset, count) = place_of(mode);
                let bytes: Vec<u8> = value.to_le_bytes().into_iter().cycle().take(count).collect();
                let written = site.fs.write(&file, offset, &bytes).await;
                (asked, written.map(|_| NameAnswer::Done))
            }
        };
        let is_late = self.env.now().saturating_sub(began) > HELD_TIME;
        // One without an answer may arrive when the file was closed, removed and freed.
        if is_late || done.is_err() {
            self.run.late_writes.set(self.run.late_writes.get() + 1);
        }
        match done {
            Ok(_) if is_late => Ok(()),
            Ok(answer) => {
                history.answer(asked, answer);
                Ok(())
            }
            Err(error) => {
                let text = format!("data of {at:?}, {mode:o}: {error}");
                self.run.bear(Error::new(error.code, text))
            }
        }
    }

    /// The data of a file that is there.
    pub(super) async fn data_at(&self, site: &Site, at: Spot) -> Result<u64> {
        let file = self.open_file(site, at, OpenFlags::READ).await?;
        self.read_data(site, &file).await
    }

    async fn open_file(&self, site: &Site, at: Spot, flags: OpenFlags) -> Result<Obj> {
        let (dir, options) = (site.dir(at), CreateOptions::default());
        site.fs.open(dir, &at.name(), flags, 0, &options).await
    }

    async fn read_data(&self, site: &Site, file: &Obj) -> Result<u64> {
        let (offset, count) = place_of(bits(file));
        let mut bytes = vec![0; count];
        let read = site.fs.read(file, offset, &mut bytes).await?;
        let first = bytes.first_chunk().map_or(0, |raw| u64::from_le_bytes(*raw));
        let whole = first.to_le_bytes().into_iter().cycle();
        if (read != 0 && read != count) || !whole.take(count).eq(bytes.iter().copied()) {
            let text = format!("file {:o}: {read} bytes that nobody wrote", bits(file));
            return Err(Error::new(Code::Csum, text));
        }
        Ok(first)
    }
}
