//! A raw device or file as a tiny file system (names only, no nested directories to speak of).
use std::path::Path;
use std::rc::Rc;

use env::{Disk, Env, Lock};
use types::Result;

/// Opens `path` as a raw volume; `None` when it is a directory or missing.
pub(crate) async fn open_raw(
    _env: &Env,
    _disk: &Rc<dyn Disk>,
    _path: &Path,
    _note: &str,
) -> Result<Option<(Rc<dyn Disk>, Box<dyn Lock>)>> {
    Ok(None)
}

/// Decodes a table.
pub(crate) fn decode_table(_raw: &[u8]) -> Result<()> {
    Ok(())
}
