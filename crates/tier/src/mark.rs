//! The mark of a directory that is a tier: a file in it that tells it from the empty directory that it is while its disk is not mounted.
//!
//! Without it a tier whose disk was not mounted was made anew on the disk below: copies went there, files were evicted, and all of it was
//! out of sight once the disk was back.
//!
//! Directories of tiers that were added before there were marks have none; they count as long as they hold something.

use std::path::Path;
use types::{Code, Error, Result};

/// The file, below the directory.
const MARK: &str = ".azekura-tier";

/// Makes a directory that is a tier from now on, if it is not there, and marks it.
pub fn make(dir: &Path) -> Result<()> {
    let mark = dir.join(MARK);
    let made = || {
        std::fs::create_dir_all(dir)?;
        let mark =
            std::fs::OpenOptions::new().write(true).create(true).truncate(false).open(&mark)?;
        mark.sync_all()?;
        std::fs::File::open(dir)?.sync_all()
    };
    match made() {
        // One that can only be read may be restored from.
        Err(_) if check(dir).is_ok() => Ok(()),
        outcome => outcome.map_err(|error| Error::io(format!("'{}'", mark.display()), error)),
    }
}

/// `Unreach` unless the directory is marked, or holds something beside `unfinished` files.
pub fn check(dir: &Path) -> Result<()> {
    if dir.join(MARK).exists() {
        return Ok(());
    }
    let holds_something = std::fs::read_dir(dir).is_ok_and(|entries| {
        entries.flatten().any(|entry| entry.file_name() != super::store::UNFINISHED)
    });
    if holds_something {
        return Ok(());
    }
    Err(Error::new(
        Code::Unreach,
        format!(
            "'{}' is missing or empty, and lacks the file {MARK} that a tier has: is its disk mounted? (if it is to be empty: mkdir -p '{}' && touch '{}')",
            dir.display(),
            dir.display(),
            dir.join(MARK).display()
        ),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_directory_is_no_tier_until_it_is_made_one() {
        let outer = tempfile::tempdir().unwrap();
        let dir = outer.path().join("disk/tier");
        let error = check(&dir).unwrap_err();
        assert!(error.code == Code::Unreach && error.to_string().contains("mounted"), "{error}");
        assert!(!dir.exists(), "to look makes nothing");
        std::fs::create_dir_all(dir.join(super::super::store::UNFINISHED)).unwrap();
        assert!(check(&dir).is_err(), "nothing was ever finished");
        make(&dir).unwrap();
        check(&dir).unwrap();
        make(&dir).unwrap();
    }

    #[test]
    fn what_has_something_was_a_tier_before_there_were_marks() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("files")).unwrap();
        check(dir.path()).unwrap();
    }
}
