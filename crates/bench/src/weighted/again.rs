//! Reading what was read: on slow devices the second time comes out of the engines' memory.

use super::{CLASS, MIB, TRANSFER_BYTES};
use crate::backend::{Backend, DfsBackend, NewFile};
use crate::place::Where;
use std::time::Instant;
use types::{Code, Error, Result};

/// Bytes of the file, in units.
const FILE_UNITS: u64 = 32;
/// The file.
const NAME: &str = "again";

/// Bandwidths of a first and a second reading of a file that was just written, MiB/s.
///
/// Errors: those of the files, and `Csum` when what is read is not what was written.
pub(super) fn twice(place: &Where, unit_bytes: u64, round: u32) -> Result<(f64, f64)> {
    let Where::Dfs { dir, .. } = place else { return Err(Error::inval("no file system")) };
    let mut files = DfsBackend::connect(place)?;
    if round == 1 {
        files.make_dir(dir, Some(CLASS.parse()?))?;
    }
    let path = format!("{dir}/{NAME}");
    let bytes = FILE_UNITS * unit_bytes;
    let new = NewFile { class: Some(CLASS.parse()?), ..NewFile::default() };
    let file = files.create(&path, &new)?;
    let data = vec![round as u8; TRANSFER_BYTES];
    let mut memory = vec![0; TRANSFER_BYTES];
    let steps = || (0..bytes).step_by(TRANSFER_BYTES);
    let length = |offset: u64| (bytes - offset).min(TRANSFER_BYTES as u64) as usize;
    for offset in steps() {
        files.write_at(&file, offset, &data[..length(offset)])?;
    }
    files.sync(&file)?;
    let mut read = || -> Result<f64> {
        let begun = Instant::now();
        for offset in steps() {
            let wanted = length(offset);
            let count = files.read_at(&file, offset, &mut memory[..wanted])?;
            if count != wanted || memory[..wanted] != data[..wanted] {
                let text = format!("{path} holds something else at {offset}");
                return Err(Error::new(Code::Csum, text));
            }
        }
        Ok(bytes as f64 / MIB as f64 / begun.elapsed().as_secs_f64().max(1e-9))
    };
    let both = (read()?, read()?);
    files.remove(&path)?;
    Ok(both)
}
