//! Listings of the entries that fit a condition.
//!
//! The condition is looked at here, on whole pages of entries with their attributes, which come
//! with one request per target: what DAOS sends to its servers as a pipeline.

use super::dir::{anchor_of, listing_of, put_entry, set_anchor};
use super::mount::MountHandle;
use super::names::id_of;
use super::obj::ObjHandle;
use super::{bad_handle, cookie_of, dfs_obj_t, dfs_t, now, pointer_of};
use crate::ctypes::{daos_anchor_t, daos_obj_id_t, dfs_predicate_t};
use crate::{guard, handle};
use ::dfs::{DirEntry, FileKind, Stat};
use std::sync::Arc;
use types::Error;

/// A condition for listings, as C names it.
#[allow(non_camel_case_types)]
pub enum dfs_pipeline_t {}

/// `DFS_FILTER_*`.
const BY_NAME: u64 = 1 << 1;
const BY_AGE: u64 = 1 << 2;
const DIRS_TOO: u64 = 1 << 3;
/// Entries asked for at a time at most.
const ENTRIES_MAX: u32 = 1024;

/// A condition: of the name, the age, or both.
struct Condition {
    /// Pattern of the name: `%` is any text, `_` any byte, `\` takes the next as it is.
    name: Option<Vec<u8>>,
    /// Changed after this, seconds since 1970.
    newer: Option<i64>,
    /// Directories must fit too; else they all do, so that callers can go down into them.
    dirs_too: bool,
}

impl Condition {
    fn fits(&self, entry: &DirEntry, stat: Option<&Stat>) -> bool {
        if entry.kind == FileKind::Directory && !self.dirs_too {
            return true;
        }
        self.name.as_ref().is_none_or(|pattern| is_like(pattern, &entry.name))
            && self.newer.is_none_or(|limit| {
                stat.is_some_and(|stat| stat.ctime_ns.div_euclid(1_000_000_000) > limit)
            })
    }
}

/// SQL's LIKE over bytes.
fn is_like(pattern: &[u8], text: &[u8]) -> bool {
    let (mut at, mut seen) = (0, 0);
    // Where to go on when what follows the last `%` does not fit.
    let mut again: Option<(usize, usize)> = None;
    loop {
        let step = match pattern.get(at) {
            Some(b'%') => {
                again = Some((at + 1, seen));
                at += 1;
                continue;
            }
            Some(b'_') if seen < text.len() => Some(1),
            Some(b'\\') if at + 1 < pattern.len() => {
                (text.get(seen) == Some(&pattern[at + 1])).then_some(2)
            }
            Some(byte) => (*byte != b'_' && text.get(seen) == Some(byte)).then_some(1),
            None if seen == text.len() => return true,
            None => None,
        };
        match (step, again) {
            (Some(bytes), _) => {
                at += bytes;
                seen += 1;
            }
            (None, Some((after, from))) if from < text.len() => {
                again = Some((after, from + 1));
                (at, seen) = (after, from + 1);
            }
            (None, _) => return false,
        }
    }
}

/// Makes a condition: `DFS_FILTER_NAME` for a name like `dp_name` (`%` any text, `_` any byte),
/// `DFS_FILTER_NEWER` for a change after `dp_newer`; with neither all fits. Directories always fit
/// unless `DFS_FILTER_INCLUDE_DIRS`.
///
/// # Safety
/// `dpipe` is good for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dfs_pipeline_create(
    dfs: *mut dfs_t,
    pred: dfs_predicate_t,
    flags: u64,
    dpipe: *mut *mut dfs_pipeline_t,
) -> i32 {
    guard::posix(|| {
        MountHandle::of(dfs)?;
        if flags & !(BY_NAME | BY_AGE | DIRS_TOO) != 0 {
            return Err(Error::inval(format!("unknown bits in the flags {flags:#x}")));
        }
        if dpipe.is_null() {
            return Err(guard::null());
        }
        let name = pred.dp_name.iter().map(|c| *c as u8).take_while(|byte| *byte != 0).collect();
        let condition = Condition {
            name: (flags & BY_NAME != 0).then_some(name),
            newer: (flags & BY_AGE != 0).then_some(pred.dp_newer),
            dirs_too: flags & DIRS_TOO != 0,
        };
        let cookie = handle::add(Arc::new(condition))?;
        // SAFETY: the caller's promise.
        unsafe { guard::put(dpipe, pointer_of(cookie)) }
    })
}

/// Frees a condition; NULL is none.
///
/// # Safety
/// None is needed: `dpipe` is a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dfs_pipeline_destroy(dpipe: *mut dfs_pipeline_t) -> i32 {
    guard::posix(|| {
        if dpipe.is_null() {
            return Ok(());
        }
        handle::remove::<Condition>(cookie_of(dpipe)).map(|_| ()).map_err(bad_handle)
    })
}

/// `dfs_readdir` of the entries that fit. `oids` and `csizes` (or NULL) get their ids and chunk
/// sizes, `*nr_scanned` how many entries were looked at.
///
/// # Safety
/// Arrays that are not NULL have room for `*nr`; the others are good for reading and writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dfs_readdir_with_filter(
    dfs: *mut dfs_t,
    obj: *mut dfs_obj_t,
    dpipe: *mut dfs_pipeline_t,
    anchor: *mut daos_anchor_t,
    nr: *mut u32,
    dirs: *mut libc::dirent,
    oids: *mut daos_obj_id_t,
    csizes: *mut u64,
    nr_scanned: *mut u64,
) -> i32 {
    now(async |local| {
        let here = ObjHandle::of_mount(dfs, obj)?.here(local)?;
        let condition = handle::get::<Condition>(cookie_of(dpipe)).map_err(bad_handle)?;
        // SAFETY: the caller's promise.
        let (anchor, nr) = unsafe { listing_of(anchor, nr) }?;
        let mut scanned = 0;
        let mut count = 0;
        if *nr > 0 {
            if dirs.is_null() {
                return Err(guard::null());
            }
            let mut at = anchor_of(anchor)?;
            let with_stat = condition.newer.is_some() || !csizes.is_null();
            while count < *nr && !at.is_end() {
                let room = (*nr - count).min(ENTRIES_MAX);
                let page: Vec<(DirEntry, Option<Stat>)> = if with_stat {
                    let page = here.fs.readdirplus(&here.obj, &mut at, room).await?;
                    page.into_iter().map(|(entry, stat)| (entry, Some(stat))).collect()
                } else {
                    let page = here.fs.readdir(&here.obj, &mut at, room).await?;
                    page.into_iter().map(|entry| (entry, None)).collect()
                };
                scanned += page.len() as u64;
                for (entry, stat) in &page {
                    if !condition.fits(entry, stat.as_ref()) {
                        continue;
                    }
                    let to = count as usize;
                    // SAFETY: a page has no more entries than there is room for.
                    unsafe {
                        put_entry(dirs.add(to), entry);
                        if !oids.is_null() {
                            oids.add(to).write(id_of(entry.oid));
                        }
                        if !csizes.is_null() {
                            let own = stat.as_ref().map_or(0, |stat| stat.chunk_bytes);
                            let default = here.fs.superblock().chunk_bytes as u64;
                            csizes.add(to).write(if own == 0 { default } else { own });
                        }
                    }
                    count += 1;
                }
            }
            set_anchor(anchor, &at);
        }
        *nr = count;
        guard::User(nr_scanned).set(scanned);
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::is_like;

    #[test]
    fn patterns_fit_as_in_sql() {
        for (pattern, text, fits) in [
            ("abc", "abc", true),
            ("abc", "abcd", false),
            ("a%c", "ac", true),
            ("a%c", "abbbc", true),
            ("a%c", "abbbd", false),
            ("%.01", "f.01", true),
            ("%.01", "f.011", false),
            ("%a%b%", "xxaxxbxx", true),
            ("%a%b%", "xxbxxaxx", false),
            ("_b_", "abc", true),
            ("_b_", "ab", false),
            ("", "", true),
            ("", "a", false),
            ("%", "", true),
            ("a\\%", "a%", true),
            ("a\\%", "ab", false),
            ("a\\_%", "a_b", true),
            ("%_", "", false),
            ("%%x", "yyx", true),
        ] {
            assert_eq!(is_like(pattern.as_bytes(), text.as_bytes()), fits, "{pattern} {text}");
        }
    }

    /// The same by recursion.
    fn is_like_slowly(pattern: &[u8], text: &[u8]) -> bool {
        match pattern {
            [] => text.is_empty(),
            [b'%', rest @ ..] => (0..=text.len()).any(|at| is_like_slowly(rest, &text[at..])),
            [b'\\', byte, rest @ ..] => {
                text.first() == Some(byte) && is_like_slowly(rest, &text[1..])
            }
            [b'_', rest @ ..] => !text.is_empty() && is_like_slowly(rest, &text[1..]),
            [byte, rest @ ..] => text.first() == Some(byte) && is_like_slowly(rest, &text[1..]),
        }
    }

    #[test]
    fn as_the_recursive_definition_says_for_every_short_case() {
        let letters = b"ab%_\\";
        let texts: Vec<Vec<u8>> = words(b"ab", 5);
        for pattern in words(letters, 4) {
            for text in &texts {
                let wanted = is_like_slowly(&pattern, text);
                assert_eq!(is_like(&pattern, text), wanted, "{pattern:?} {text:?}");
            }
        }
    }

    fn words(letters: &[u8], bytes_max: usize) -> Vec<Vec<u8>> {
        let mut all = vec![Vec::new()];
        let mut from = 0;
        for _ in 0..bytes_max {
            let to = all.len();
            for at in from..to {
                for letter in letters {
                    let mut word = all[at].clone();
                    word.push(*letter);
                    all.push(word);
                }
            }
            from = to;
        }
        all
    }
}
