//! Reading copies for mounts of this process: what `dfs::tier` asks when somebody reads a chunk that is in a tier only.
//!
//! Whoever knows the chunks' checksums gets what it asks for and no more at first, where parts are stored as they are. Reads that go on where the one
//! before ended are of a file that is read in order: what comes behind them is fetched ahead, in pieces of a part, so that the first of them need not
//! wait for the last. Encoded parts, and parts for callers who know no checksums, come whole, and are compared with their SHA-256.

mod lanes;
mod pieces;
#[cfg(test)]
mod tests;

use crate::copy::{check_fits, manifest_at, part_key_beside};
use crate::definition::Definition;
use crate::manifest::{FileManifest, PartName};
use crate::part::HEADER_BYTES;
use crate::store::{Store, start, start_if_slow};
use crate::sync::sync_file;
use dfs::tier::{CopyPiece, TierAsk, TierRecord, TierSource};
use dfs::{Dfs, Obj};
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, LocalBoxFuture, Shared};
use lanes::Lanes;
use pieces::{Fetch, Found, Held, Name, Pieces};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use types::{Code, Error, Result};

/// Manifests remembered.
const MANIFESTS_MAX: usize = 64;
/// Bytes that are fetched ahead of a file that is read in order, unless the environment says otherwise.
const AHEAD_BYTES: u64 = 64 << 20;
/// Of them so many in one request: requests cost a store more than what they carry when they are small.
const PIECE_BYTES: u64 = 4 << 20;
/// A store that has not answered after so long is one far away: to ask it for more meanwhile takes nothing from what is waited for.
const FAR: Duration = Duration::from_millis(20);
/// The variable that says both, and how many requests are on their way at a time: `SIZE`, `SIZE,PIECE` or `SIZE,PIECE,COUNT`; a size of 0: nothing
/// is fetched ahead.
const AHEAD_VARIABLE: &str = "AZEKURA_TIER_PREFETCH";

/// Finds a tier's definition by its name. Runs on a thread of its own, so it may wait.
pub type Resolve = Box<dyn Fn(&str) -> Result<Definition> + Send + Sync>;

/// Reads copies from the tiers that their records name.
#[derive(Clone)]
pub struct Source {
    inner: Arc<Inner>,
    /// It is asked by whoever; see [`Source::for_others`].
    is_for_others: bool,
}

/// A manifest's key, and the sum that a record has of it: who names a key and knows no sum may not read what others have.
type ManifestName = (String, [u8; 32]);

/// A manifest that is there or on its way.
type ManifestFetch = Shared<BoxFuture<'static, Result<Arc<FileManifest>>>>;

struct Inner {
    resolve: Resolve,
    stores: Mutex<HashMap<String, Store>>,
    manifests: Mutex<HashMap<ManifestName, ManifestFetch>>,
    pieces: Mutex<Pieces>,
    ahead_bytes: AtomicU64,
    piece_bytes: AtomicU64,
    counts: Mutex<Counts>,
}

/// What was read from tiers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize)]
pub struct Counts {
    /// Reads for which a part was there, or on its way ahead of them; and their bytes.
    pub hits: u64,
    pub hit_bytes: u64,
    /// Reads that had to wait for the store from its first byte on; and the bytes it was asked for by them.
    pub misses: u64,
    pub miss_bytes: u64,
    /// Bytes that the store was asked for before anybody wanted them.
    pub ahead_bytes: u64,
    /// Of these, those of parts that somebody wanted later.
    pub ahead_used_bytes: u64,
}

impl Counts {
    /// What came since an earlier count.
    pub fn since(self, before: Counts) -> Counts {
        Counts {
            hits: self.hits - before.hits,
            hit_bytes: self.hit_bytes - before.hit_bytes,
            misses: self.misses - before.misses,
            miss_bytes: self.miss_bytes - before.miss_bytes,
            ahead_bytes: self.ahead_bytes - before.ahead_bytes,
            ahead_used_bytes: self.ahead_used_bytes - before.ahead_used_bytes,
        }
    }
}

impl Source {
    pub fn new(resolve: Resolve) -> Source {
        let named = std::env::var(AHEAD_VARIABLE).ok();
        let (ahead, piece, lanes) = sizes(named.as_deref().unwrap_or_default());
        let inner = Inner {
            resolve,
            stores: Mutex::default(),
            manifests: Mutex::default(),
            pieces: Mutex::new(Pieces::new(lanes)),
            ahead_bytes: AtomicU64::new(ahead),
            piece_bytes: AtomicU64::new(piece),
            counts: Mutex::default(),
        };
        Source { inner: Arc::new(inner), is_for_others: false }
    }

    /// The same for callers whose records nobody here has read: they get nothing before the manifest has shown that they know its sum.
    pub fn for_others(&self) -> Source {
        Source { is_for_others: true, ..self.clone() }
    }

    /// Says how many bytes are fetched ahead of a file that is read in order; 0: none.
    pub fn set_ahead_bytes(&self, bytes: u64) {
        self.inner.ahead_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Says how many bytes of them come in one request.
    pub fn set_piece_bytes(&self, bytes: u64) {
        self.inner.piece_bytes.store(bytes.max(1), Ordering::Relaxed);
    }

    /// Says how many of these requests are on their way at a time; none: as many as it takes.
    pub fn set_lanes(&self, lanes: Option<usize>) {
        *self.pieces() = Pieces::new(lanes);
    }

    /// What was read so far.
    pub fn counts(&self) -> Counts {
        *lock(&self.inner.counts)
    }

    /// Forgets what is in memory of files' copies.
    pub fn drop_parts(&self) {
        self.pieces().clear();
        lock(&self.inner.manifests).clear();
    }

    /// The tier of that name, opened once.
    pub(crate) async fn store(&self, tier: &str) -> Result<Store> {
        if let Some(store) = lock(&self.inner.stores).get(tier) {
            return Ok(store.clone());
        }
        let (inner, name) = (self.inner.clone(), tier.to_string());
        let (send, receive) = tokio::sync::oneshot::channel();
        std::thread::spawn(move || {
            let opened = (inner.resolve)(&name).and_then(|definition| Store::open(&definition));
            // Whoever asked may have gone.
            let _ = send.send(opened);
        });
        let opened = receive.await.map_err(|_| Error::new(Code::Io, "a tier was not opened"))?;
        let opened = opened.map_err(|error| error.context(format!("tier '{tier}'")))?;
        lock(&self.inner.stores).insert(tier.to_string(), opened.clone());
        Ok(opened)
    }

    fn pieces(&self) -> MutexGuard<'_, Pieces> {
        lock(&self.inner.pieces)
    }

    /// The manifest that a record names, if it is here.
    fn known_manifest(&self, record: &TierRecord) -> Option<Arc<FileManifest>> {
        let name = (record.manifest.clone(), record.manifest_sum);
        let fetch = lock(&self.inner.manifests).get(&name).cloned();
        fetch.and_then(|fetch| fetch.peek()?.as_ref().ok().cloned())
    }

    /// The same, of the store if it is not; those who want it at the same time share its way.
    async fn manifest(&self, store: &Store, record: &TierRecord) -> Result<Arc<FileManifest>> {
        let name = (record.manifest.clone(), record.manifest_sum);
        let fetch = {
            let mut manifests = lock(&self.inner.manifests);
            if manifests.len() >= MANIFESTS_MAX && !manifests.contains_key(&name) {
                manifests.clear();
            }
            let begin = || {
                let (store, (key, sum)) = (store.clone(), name.clone());
                let fetch = async move { manifest_at(&store, &key, &sum).await.map(Arc::new) };
                fetch.boxed().shared()
            };
            manifests.entry(name.clone()).or_insert_with(begin).clone()
        };
        let manifest = fetch.await.inspect_err(|_| {
            // The next one asks the store again.
            lock(&self.inner.manifests).remove(&name);
        })?;
        check_fits(&manifest, record)?;
        Ok(manifest)
    }

    /// Bytes of the part that a range is in, at least those of the range, and all of the part for a caller who knows no sums.
    async fn read_some(&self, ask: TierAsk, is_whole: bool) -> Result<CopyPiece> {
        let (record, range) = (&ask.record, ask.range);
        let short = || Error::new(Code::Csum, "a file's copy is shorter than its record says");
        let end = range.index.checked_add(range.count).ok_or_else(short)?;
        let read = range.index..end;
        let at = usize::try_from(range.index / record.part_bytes).map_err(|_| short())?;
        let store = self.store(&record.tier).await?;
        let guess = if is_whole { None } else { self.guess(&store, &ask, at) };
        if let Some(guess) = guess.as_ref().filter(|guess| guess.is_first)
            && let Some(piece) = self.guessed(&store, record, &read, guess).await?
        {
            return Ok(piece);
        }
        let manifest = self.manifest(&store, record).await?;
        let part = manifest.parts.get(at).ok_or_else(short)?;
        let from = at as u64 * record.part_bytes;
        let whole = from..from + part.bytes;
        if end > whole.end {
            return Err(short());
        }
        let file = &record.manifest;
        let is_mine = guess.as_ref().is_some_and(|guess| guess.key == part.key && guess.is_new);
        // One request asks for so much of it.
        let in_pieces = !is_whole && part.encoding.is_none();
        let most = match in_pieces {
            true => self.piece_bytes(range.count),
            false => record.part_bytes,
        };
        let (lanes, ahead, here) = {
            let mut pieces = self.pieces();
            if let Some(wrong) = guess.filter(|guess| guess.key != part.key) {
                pieces.remove_of(&wrong.name, &wrong.key);
            }
            let wanted = if in_pieces { read.clone() } else { whole.clone() };
            let here = pieces.find(file, &wanted, Some(&part.key));
            let got_end = here.as_ref().map_or(wanted.end, |found| found.end);
            let (ahead, lanes) = pieces.reading(file, &read, got_end, most, self.ahead_bytes());
            (lanes, ahead, here)
        };
        let (name, fetch, is_hit) = match here {
            Some(found) => {
                match is_mine {
                    true => self.count_miss(found.end - found.name.1),
                    false => self.count_hit(range.count, &found),
                }
                (found.name, found.fetch, !is_mine)
            }
            None => {
                let piece = match (in_pieces, ahead > 0) {
                    (true, true) => range.index..piece_end(range.index, &whole, most).max(end),
                    (true, false) => read.clone(),
                    (false, _) => whole.clone(),
                };
                self.count_miss(piece.end - piece.start);
                let (name, fetch) = self.begin(&store, file, part, &whole, piece, None);
                (name, fetch, false)
            }
        };
        if ahead > 0 {
            let most = in_pieces.then_some(most);
            let ahead = Ahead { next: read.end, bytes: ahead, most, lanes };
            self.fetch_ahead(&store, &ask, &manifest, ahead);
        }
        let outcome = match fetch.await {
            // That may be long ago: now somebody waits for it, and the store is asked again.
            Err(_) if is_hit || is_mine => {
                self.pieces().remove(&name);
                let piece = if in_pieces { read } else { whole.clone() };
                self.begin(&store, file, part, &whole, piece.clone(), None)
                    .1
                    .await
                    .map(|bytes| (piece.start, bytes))
            }
            outcome => outcome.map(|bytes| (name.1, bytes)),
        };
        match outcome {
            Ok((from, bytes)) => Ok(CopyPiece::new(from, bytes)),
            Err(error) => {
                // The next one asks the store again.
                self.pieces().remove_within(file, &whole);
                Err(error)
            }
        }
    }

    /// Bytes of a part for somebody who has time: nothing else is fetched, and nothing kept.
    async fn read_patiently(&self, ask: TierAsk) -> Result<CopyPiece> {
        let (record, range) = (&ask.record, ask.range);
        let short = || Error::new(Code::Csum, "a file's copy is shorter than its record says");
        let end = range.index.checked_add(range.count).ok_or_else(short)?;
        let at = usize::try_from(range.index / record.part_bytes).map_err(|_| short())?;
        let store = self.store(&record.tier).await?.patient();
        let manifest = self.manifest(&store, record).await?;
        let part = manifest.parts.get(at).ok_or_else(short)?;
        let from = at as u64 * record.part_bytes;
        if end > from + part.bytes {
            return Err(short());
        }
        if part.encoding.is_some() || self.is_for_others {
            return Ok(CopyPiece::new(from, Arc::new(store.get_part(part).await?)));
        }
        let start = HEADER_BYTES as u64 + (range.index - from);
        let bytes = store.get_range(&part.key, start, range.count).await?;
        Ok(CopyPiece::new(range.index, Arc::new(bytes)))
    }

    /// Begins to get a range from where its part is in most cases, while nobody knows yet: the manifest is not there. Whoever waits for the
    /// first bytes does not wait for one after the other.
    fn guess(&self, store: &Store, ask: &TierAsk, at: usize) -> Option<Guess> {
        let (record, range) = (&ask.record, ask.range);
        if !store.is_plain() || self.known_manifest(record).is_some() {
            return None;
        }
        let file = &record.manifest;
        let from = range.index - range.index % record.part_bytes;
        let whole = from..record.size.min(from.checked_add(record.part_bytes)?);
        let read = range.index..range.index.checked_add(range.count)?;
        let key = part_key_beside(file, at)?;
        let most = self.piece_bytes(range.count);
        let mut pieces = self.pieces();
        let is_first = !self.is_for_others && !pieces.is_read(file);
        if let Some(found) = pieces.find(file, &read, Some(&key)) {
            return Some(Guess {
                key,
                name: found.name,
                fetch: found.fetch,
                is_new: false,
                is_first,
            });
        }
        let goes_on = self.ahead_bytes() > 0 && pieces.goes_on(file, &read, most);
        let piece = match goes_on && read.start < whole.end {
            true => read.start..piece_end(read.start, &whole, most).max(read.end),
            false => read,
        };
        if piece.start == whole.start && piece.end >= whole.end {
            // What is here of a whole part was compared with its sum, which the manifest has.
            return None;
        }
        let start = HEADER_BYTES as u64 + (piece.start - whole.start);
        let (store, of, count) = (store.clone(), key.clone(), piece.end - piece.start);
        let fetch = async move { store.get_range(&of, start, count).await.map(Arc::new) };
        let (name, fetch) = ((file.clone(), piece.start), fetch.boxed().shared());
        let held = Held::new(fetch.clone(), key.clone(), piece.end, false);
        self.keep(&mut pieces, name.clone(), held);
        Some(Guess { key, name, fetch, is_new: true, is_first })
    }

    /// The first bytes of a file, from where they are in most cases. Whoever asked knows their checksum, and the manifest is for who goes on; so it is asked
    /// for only while a store far away is waited for. `None`: they are not there.
    async fn guessed(
        &self,
        store: &Store,
        record: &TierRecord,
        read: &Range<u64>,
        guess: &Guess,
    ) -> Result<Option<CopyPiece>> {
        let (source, of, named) = (self.clone(), store.clone(), record.clone());
        // Who needs it is told what is wrong with it.
        let ask_more = async move { drop(source.manifest(&of, &named).await) };
        start_if_slow(guess.fetch.clone(), FAR, ask_more);
        let file = &record.manifest;
        match guess.fetch.clone().await {
            Ok(bytes) => {
                let mut pieces = self.pieces();
                let most = self.piece_bytes(read.end - read.start);
                let found = pieces.find(file, read, Some(&guess.key));
                pieces.reading(file, read, read.end, most, 0);
                drop(pieces);
                match found.filter(|_| !guess.is_new) {
                    Some(found) => self.count_hit(read.end - read.start, &found),
                    None => self.count_miss(bytes.len() as u64),
                }
                Ok(Some(CopyPiece::new(guess.name.1, bytes)))
            }
            Err(error) => {
                self.pieces().remove_of(&guess.name, &guess.key);
                match error.code {
                    // That was waited for long enough.
                    Code::Unreach | Code::Busy => Err(error),
                    _ => Ok(None),
                }
            }
        }
    }

    fn ahead_bytes(&self) -> u64 {
        self.inner.ahead_bytes.load(Ordering::Relaxed)
    }

    /// The most of a part that one request asks for, in units of what callers ask for.
    fn piece_bytes(&self, unit: u64) -> u64 {
        let unit = unit.max(1);
        (self.inner.piece_bytes.load(Ordering::Relaxed) / unit).max(1) * unit
    }

    fn count_hit(&self, bytes: u64, found: &Found) {
        let mut counts = lock(&self.inner.counts);
        counts.hits += 1;
        counts.hit_bytes += bytes;
        counts.ahead_used_bytes += if found.was_ahead { found.end - found.name.1 } else { 0 };
    }

    fn count_miss(&self, bytes: u64) {
        let mut counts = lock(&self.inner.counts);
        counts.misses += 1;
        counts.miss_bytes += bytes;
    }

    /// Begins to fetch what is not here of what comes next.
    fn fetch_ahead(&self, store: &Store, ask: &TierAsk, manifest: &FileManifest, ahead: Ahead) {
        let Ahead { next, bytes, most, lanes } = ahead;
        let (file, part_bytes) = (&ask.record.manifest, ask.record.part_bytes);
        let upto = next.saturating_add(bytes);
        let mut at = next;
        while let Some(part) = manifest.parts.get((at / part_bytes) as usize) {
            let from = at / part_bytes * part_bytes;
            let whole = from..from + part.bytes;
            if at >= whole.end {
                break;
            }
            let piece = match most.filter(|_| part.encoding.is_none()) {
                Some(most) => at..piece_end(at, &whole, most),
                None => whole.clone(),
            };
            // One, if anything is fetched ahead at all.
            if piece.end > upto && at > next {
                break;
            }
            let here = self.pieces().end_of(file, at);
            if let Some(end) = here.filter(|_| piece != whole) {
                at = end;
                continue;
            }
            at = piece.end;
            if here.is_none() {
                lock(&self.inner.counts).ahead_bytes += piece.end - piece.start;
                // Nobody waits for it.
                drop(self.begin(store, file, part, &whole, piece, Some(lanes.clone())));
            }
        }
    }

    /// Begins to fetch a piece of a part, or all of it; what is fetched ahead waits for one of the file's lanes.
    fn begin(
        &self,
        store: &Store,
        file: &str,
        part: &PartName,
        whole: &Range<u64>,
        piece: Range<u64>,
        lanes: Option<Arc<Lanes>>,
    ) -> (Name, Fetch) {
        let (store, part, is_ahead) = (store.clone(), part.clone(), lanes.is_some());
        let key = part.key.clone();
        let (is_all, start_in) = (piece == *whole, piece.start - whole.start);
        let count = piece.end - piece.start;
        let fetch = async move {
            let lane = match &lanes {
                Some(lanes) => lanes.enter().await,
                None => None,
            };
            let start = HEADER_BYTES as u64 + start_in;
            let (bytes, took) = match is_all {
                true => (store.get_part(&part).await?, None),
                false => store.get_range_timed(&part.key, start, count).await?,
            };
            if let Some(lanes) = &lanes {
                lanes.leave(lane, took);
            }
            Ok::<_, Error>(Arc::new(bytes))
        };
        let (name, fetch) = ((file.to_string(), piece.start), fetch.boxed().shared());
        let mut pieces = self.pieces();
        if is_all {
            // What is here of it was compared with nothing.
            pieces.remove_within(file, whole);
        }
        self.keep(&mut pieces, name.clone(), Held::new(fetch.clone(), key, piece.end, is_ahead));
        (name, fetch)
    }

    /// Keeps what is on its way, which goes on whether somebody waits for it or not.
    fn keep(&self, pieces: &mut Pieces, name: Name, held: Held) {
        start(held.fetch());
        pieces.insert(name, held, 2 * self.ahead_bytes());
    }
}

/// Bytes of a file that come from where its parts are in most cases.
struct Guess {
    /// That they come from.
    key: String,
    name: Name,
    fetch: Fetch,
    /// They were not on their way already.
    is_new: bool,
    /// Nothing of the file was read yet, and whoever asks may have them as soon as they are there.
    is_first: bool,
}

/// What is fetched before anybody asks for it.
struct Ahead {
    /// From here on in the file.
    next: u64,
    bytes: u64,
    /// In pieces of at most so many bytes; none: in whole parts.
    most: Option<u64>,
    /// What each piece waits for.
    lanes: Arc<Lanes>,
}

/// Where a piece ends that begins somewhere in a part: pieces end at multiples of their size.
fn piece_end(at: u64, part: &Range<u64>, most: u64) -> u64 {
    let next = (at - part.start) / most + 1;
    next.checked_mul(most)
        .and_then(|within| within.checked_add(part.start))
        .map_or(part.end, |end| end.min(part.end))
}

/// How much is fetched ahead, how much of that in one request, and how many of these at a time, as the environment has it.
fn sizes(text: &str) -> (u64, u64, Option<usize>) {
    let mut words = text.split(',').map(str::trim);
    let mut size = || words.next().and_then(|text| types::size::parse(text).ok());
    let (ahead, piece) = (size(), size().filter(|piece| *piece > 0));
    let lanes = words.next().and_then(|text| text.parse().ok()).filter(|lanes| *lanes > 0);
    (ahead.unwrap_or(AHEAD_BYTES), piece.unwrap_or(PIECE_BYTES), lanes)
}

impl TierSource for Source {
    fn read(&self, ask: TierAsk) -> BoxFuture<'static, Result<Vec<u8>>> {
        let source = self.clone();
        async move { source.read_some(ask, true).await.map(|piece| take(piece.bytes)) }.boxed()
    }

    fn read_around(&self, ask: TierAsk) -> BoxFuture<'static, Result<CopyPiece>> {
        let source = self.clone();
        async move { source.read_some(ask, false).await }.boxed()
    }

    fn read_alone(&self, ask: TierAsk) -> BoxFuture<'static, Result<CopyPiece>> {
        let source = self.clone();
        async move { source.read_patiently(ask).await }.boxed()
    }

    fn announce(&self, record: &TierRecord, from: u64) {
        self.pieces().announce(&record.manifest, from);
    }

    fn sync<'a>(
        &'a self,
        fs: &'a Dfs,
        file: &'a Obj,
        tier: &'a str,
    ) -> LocalBoxFuture<'a, Result<()>> {
        async move {
            let store = self.store(tier).await?;
            sync_file(fs, file, &store, tier, &|_| {}).await.map(|_| ())
        }
        .boxed_local()
    }
}

/// The bytes, copied only where somebody else has them, too.
fn take(bytes: Arc<Vec<u8>>) -> Vec<u8> {
    Arc::try_unwrap(bytes).unwrap_or_else(|shared| shared.to_vec())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
