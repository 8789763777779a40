//! Names that are about to be looked up, asked for together with the one that is.
//!
//! Whoever goes through numbered files (`part-0007`, `file.mdtest.3.41`, `img_000123.jpg`) looks them up one after the other: each name is known before
//! it is asked for. After some in order the next ones are asked for with them, as many as were of use before, and twice as many (the statahead of
//! Lustre, by patterns of names).
//!
//! Invariants:
//! - What was looked up ahead is told once, for [`LIFE`] at most and no longer than the kernel may keep it: what other nodes do is seen as late as with
//!   the kernel's own cache, and no later.
//! - What this mount has done since is seen: nothing is told of a directory whose names, nor of a file that, changed through the mount since the
//!   question began.
//! - Who changes names looks up names, too (`rm`): nothing is asked for ahead unless the names stay as they are.

use super::table::{Inode, Table};
use dfs::{SharedObj, Stat};
use foldhash::HashMap;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::time::Duration;
use types::Key;

/// How long what was looked up ahead is good: whoever asks in order is back long before.
pub const LIFE: Duration = Duration::from_millis(50);
/// So many names in order before others are asked for.
const IN_ORDER_MIN: u32 = 4;
/// Four times as many after it was of no use, up to this.
const IN_ORDER_MAX: u32 = 4096;
/// Names asked for together: at first, and at most.
const WINDOW_MIN: u32 = 4;
const WINDOW_MAX: u32 = 32;
/// Directories and patterns in mind, of all threads.
const RUNS_MAX: usize = 64;
/// Longer numbers are none.
const DIGITS_MAX: usize = 18;

/// A name with a number in it: the last one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Numbered<'a> {
    before: &'a [u8],
    number: u64,
    digits: usize,
    after: &'a [u8],
}

impl<'a> Numbered<'a> {
    fn parse(name: &'a [u8]) -> Option<Numbered<'a>> {
        let end = name.iter().rposition(u8::is_ascii_digit)? + 1;
        let start =
            name[..end].iter().rposition(|byte| !byte.is_ascii_digit()).map_or(0, |at| at + 1);
        let digits = &name[start..end];
        if digits.len() > DIGITS_MAX {
            return None;
        }
        let number = std::str::from_utf8(digits).ok()?.parse().ok()?;
        let (before, after) = (&name[..start], &name[end..]);
        Some(Numbered { before, number, digits: digits.len(), after })
    }

    /// The name with another number, with as many digits at least.
    fn with(&self, number: u64) -> Key {
        let mut name = self.before.to_vec();
        name.extend_from_slice(format!("{number:0digits$}", digits = self.digits).as_bytes());
        name.extend_from_slice(self.after);
        Key::new(&name)
    }
}

/// What was found of a name.
pub struct Known {
    pub shared: SharedObj,
    pub stat: Stat,
    /// The last change of the table before it was asked for.
    pub as_of: u64,
    /// When it was asked for, nanoseconds since 1970.
    pub asked_ns: u64,
}

/// Names of a directory that differ in a number.
#[derive(PartialEq, Eq, Hash)]
struct Pattern {
    dir: u64,
    before: Box<[u8]>,
    after: Box<[u8]>,
}

/// Names looked up in order.
struct Run {
    last: u64,
    /// How many in order.
    length: u32,
    /// The last change of the table when the last one was looked up.
    as_of: u64,
    /// How many in order it takes before others are asked for.
    needed: u32,
    /// How many are asked for together next time.
    window: u32,
    /// With their numbers, in ascending order.
    found: VecDeque<(u64, Known)>,
    /// Which look it was, of all.
    used: u64,
}

impl Run {
    fn new(number: u64, as_of: u64, used: u64) -> Run {
        let (needed, window) = (IN_ORDER_MIN, WINDOW_MIN);
        Run { last: number, length: 1, as_of, needed, window, found: VecDeque::new(), used }
    }

    /// The next one is the first.
    fn begin_anew(&mut self) {
        (self.length, self.window) = (0, WINDOW_MIN);
        self.found.clear();
    }

    fn was_of_no_use(&mut self) {
        self.begin_anew();
        self.needed = (self.needed * 4).min(IN_ORDER_MAX);
    }
}

/// What to do for a name.
pub enum Look {
    /// It was asked for before.
    Known(Box<Known>),
    /// These are to be asked for together; the first is the name itself.
    Together(Vec<Key>),
    /// Nothing but it is to be asked for.
    Alone,
}

#[derive(Default)]
struct Runs {
    of: HashMap<Pattern, Run>,
    looks: u64,
}

/// What all threads of a mount look up ahead.
#[derive(Default)]
pub struct Ahead(Mutex<Runs>);

impl Ahead {
    /// A name of a directory is looked up, at `now_ns`. What was found is good for `life`.
    pub fn look(
        &self,
        dir: &Inode,
        name: &[u8],
        table: &Table,
        (now_ns, life): (u64, Duration),
    ) -> Look {
        let Some(place) = Numbered::parse(name) else { return Look::Alone };
        let as_of = table.now();
        let mut runs = self.0.lock();
        runs.looks += 1;
        let used = runs.looks;
        let pattern =
            Pattern { dir: dir.number(), before: place.before.into(), after: place.after.into() };
        let Some(run) = runs.of.get_mut(&pattern) else {
            runs.make_room();
            runs.of.insert(pattern, Run::new(place.number, as_of, used));
            return Look::Alone;
        };
        let is_next = run.last.checked_add(1) == Some(place.number);
        if !is_next || !dir.names_unchanged_since(run.as_of) {
            run.begin_anew();
        }
        (run.last, run.as_of, run.used) = (place.number, as_of, used);
        run.length = run.length.saturating_add(1);
        while run.found.front().is_some_and(|(number, _)| *number < place.number) {
            run.found.pop_front();
        }
        match run.found.pop_front_if(|(number, _)| *number == place.number) {
            Some((_, known)) if is_good(&known, table, now_ns, life) => {
                Look::Known(Box::new(known))
            }
            // Too slow, or too much happens meanwhile.
            Some(_) => {
                run.was_of_no_use();
                Look::Alone
            }
            None if run.found.is_empty() && run.length >= run.needed => {
                let window = run.window;
                run.window = (window * 2).min(WINDOW_MAX);
                let numbers = place.number..place.number.saturating_add(window.into());
                Look::Together(numbers.map(|number| place.with(number)).collect())
            }
            // It is one of those that are not told, or not there.
            None => Look::Alone,
        }
    }

    /// Takes what was found of names of a directory that [`Look::Together`] named, and gives back what `name` is, the first of them; `None` when that
    /// is not known.
    pub fn found(
        &self,
        dir: u64,
        name: &[u8],
        found: Vec<(Key, SharedObj, Stat)>,
        (as_of, asked_ns): (u64, u64),
    ) -> Option<Known> {
        let place = Numbered::parse(name)?;
        let mut own = None;
        let mut others = Vec::with_capacity(found.len());
        for (key, shared, stat) in found {
            let known = Known { shared, stat, as_of, asked_ns };
            match Numbered::parse(&key) {
                Some(at) if at.number == place.number => own = Some(known),
                Some(at) => others.push((at.number, known)),
                None => {}
            }
        }
        others.sort_unstable_by_key(|(number, _)| *number);
        let pattern = Pattern { dir, before: place.before.into(), after: place.after.into() };
        if let Some(run) = self.0.lock().of.get_mut(&pattern)
            && run.last >= place.number
        {
            match others.is_empty() {
                true => run.was_of_no_use(),
                false => (run.found, run.needed) = (others.into(), IN_ORDER_MIN),
            }
        }
        own
    }
}

/// It was asked for not long ago, and has not changed through this mount since. Of the names [`Run::as_of`] tells.
fn is_good(known: &Known, table: &Table, now_ns: u64, life: Duration) -> bool {
    let age_ns = now_ns.checked_sub(known.asked_ns);
    age_ns.is_some_and(|age_ns| u128::from(age_ns) < life.as_nanos())
        && table.unchanged_since(known.shared.oid().lo, known.as_of)
}

impl Runs {
    /// Makes room for another pattern.
    fn make_room(&mut self) {
        if self.of.len() < RUNS_MAX {
            return;
        }
        // Half of them, so that it is rare.
        let mut all: Vec<u64> = self.of.values().map(|run| run.used).collect();
        let (_, middle, _) = all.select_nth_unstable(RUNS_MAX / 2);
        let middle = *middle;
        self.of.retain(|_, run| run.used >= middle);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_number_of_a_name_counts() {
        let next = |name: &[u8]| {
            let place = Numbered::parse(name)?;
            Some(place.with(place.number + 1).to_vec())
        };
        for (name, expected) in [
            (&b"file.mdtest.3.41"[..], Some(&b"file.mdtest.3.42"[..])),
            (b"img_000099.jpg", Some(b"img_000100.jpg")),
            (b"9", Some(b"10")),
            (b"part-0999", Some(b"part-1000")),
            (b"a1b2c.tar.gz", Some(b"a1b3c.tar.gz")),
            (b"\xff7\xfe", Some(b"\xff8\xfe")),
            (b"readme", None),
            (b"1234567890123456789", None),
            (b"999999999999999999", Some(b"1000000000000000000")),
        ] {
            assert_eq!(next(name).as_deref(), expected, "{}", String::from_utf8_lossy(name));
        }
    }
}
