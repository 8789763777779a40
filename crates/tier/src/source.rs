//! Reading copies for mounts of this process: what `dfs::tier` asks when somebody reads a chunk that is in a tier only.
//!
//! Whoever knows the chunks' checksums gets what it asks for and no more at first, where parts are stored as they are. Reads that go on where the one
//! before ended are of a file that is read in order: what comes behind them is fetched ahead, in pieces of a part, so that the first of them need not
//! wait for the last. Encoded parts, and parts for callers who know no checksums, come whole, and are compared with their SHA-256.

mod pieces;
#[cfg(test)]
mod tests;

use crate::copy::{check_fits, manifest_of, part_key_beside};
use crate::definition::Definition;
use crate::manifest::{FileManifest, PartName};
use crate::part::HEADER_BYTES;
use crate::store::{Store, start};
use crate::sync::sync_file;
use dfs::tier::{CopyPiece, TierAsk, TierSource};
use dfs::{Dfs, Obj};
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, LocalBoxFuture};
use pieces::{Fetch, Found, Held, Name, Pieces};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Semaphore;
use types::{Code, Error, Result};

/// Manifests remembered.
const MANIFESTS_MAX: usize = 64;
/// Bytes that are fetched ahead of a file that is read in order, unless the environment says otherwise.
const AHEAD_BYTES: u64 = 64 << 20;
/// Of them so many in one request: requests cost a store more than what they carry when they are small.
const PIECE_BYTES: u64 = 4 << 20;
/// The variable that says both, `SIZE` or `SIZE,PIECE`; 0: nothing is fetched ahead.
const AHEAD_VARIABLE: &str = "AZEKURA_TIER_PREFETCH";

/// Finds a tier's definition by its name. Runs on a thread of its own, so it may wait.
pub type Resolve = Box<dyn Fn(&str) -> Result<Definition> + Send + Sync>;

/// Reads copies from the tiers that their records name.
#[derive(Clone)]
pub struct Source(Arc<Inner>);

/// A manifest's key, and the sum that a record has of it: who names a key and knows no sum may not read what others have.
type ManifestName = (String, [u8; 32]);

struct Inner {
    resolve: Resolve,
    stores: Mutex<HashMap<String, Store>>,
    manifests: Mutex<HashMap<ManifestName, Arc<FileManifest>>>,
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
        let (ahead, piece) = sizes(named.as_deref().unwrap_or_default());
        Source(Arc::new(Inner {
            resolve,
            stores: Mutex::default(),
            manifests: Mutex::default(),
            pieces: Mutex::default(),
            ahead_bytes: AtomicU64::new(ahead),
            piece_bytes: AtomicU64::new(piece),
            counts: Mutex::default(),
        }))
    }

    /// Says how many bytes are fetched ahead of a file that is read in order; 0: none.
    pub fn set_ahead_bytes(&self, bytes: u64) {
        self.0.ahead_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Says how many bytes of them come in one request.
    pub fn set_piece_bytes(&self, bytes: u64) {
        self.0.piece_bytes.store(bytes.max(1), Ordering::Relaxed);
    }

    /// What was read so far.
    pub fn counts(&self) -> Counts {
        *lock(&self.0.counts)
    }

    /// Forgets what is in memory of files' copies.
    pub fn drop_parts(&self) {
        *lock(&self.0.pieces) = Pieces::default();
        lock(&self.0.manifests).clear();
    }

    /// The tier of that name, opened once.
    pub(crate) async fn store(&self, tier: &str) -> Result<Store> {
        if let Some(store) = lock(&self.0.stores).get(tier) {
            return Ok(store.clone());
        }
        let (inner, name) = (self.0.clone(), tier.to_string());
        let (send, receive) = tokio::sync::oneshot::channel();
        std::thread::spawn(move || {
            let opened = (inner.resolve)(&name).and_then(|definition| Store::open(&definition));
            // Whoever asked may have gone.
            let _ = send.send(opened);
        });
        let opened = receive.await.map_err(|_| Error::new(Code::Io, "a tier was not opened"))?;
        let opened = opened.map_err(|error| error.context(format!("tier '{tier}'")))?;
        lock(&self.0.stores).insert(tier.to_string(), opened.clone());
        Ok(opened)
    }

    async fn manifest(&self, store: &Store, ask: &TierAsk) -> Result<Arc<FileManifest>> {
        let record = &ask.record;
        let name = (record.manifest.clone(), record.manifest_sum);
        let known = lock(&self.0.manifests).get(&name).cloned();
        if let Some(manifest) = known {
            check_fits(&manifest, record)?;
            return Ok(manifest);
        }
        let manifest = Arc::new(manifest_of(store, record).await?);
        let mut manifests = lock(&self.0.manifests);
        if manifests.len() >= MANIFESTS_MAX {
            manifests.clear();
        }
        manifests.insert(name, manifest.clone());
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
        let manifest = self.manifest(&store, &ask).await?;
        let part = manifest.parts.get(at).ok_or_else(short)?;
        let from = at as u64 * record.part_bytes;
        let whole = from..from + part.bytes;
        if end > whole.end {
            return Err(short());
        }
        let file = &record.manifest;
        let is_mine = guess.is_some_and(|key| key == part.key);
        // One request asks for so much of it.
        let in_pieces = !is_whole && part.encoding.is_none();
        let most = match in_pieces {
            true => self.piece_bytes(range.count),
            false => record.part_bytes,
        };
        let (lanes, ahead, here) = {
            let mut pieces = lock(&self.0.pieces);
            let wanted = if in_pieces { read.clone() } else { whole.clone() };
            let here = pieces.find(file, &wanted, Some(&part.key));
            let got_end = here.as_ref().map_or(wanted.end, |found| found.end);
            let (ahead, lanes) = pieces.reading(file, &read, got_end, most, self.ahead_bytes());
            (lanes, ahead, here)
        };
        let (name, fetch, is_hit) = match here {
            Some(Found { name, fetch, end, was_ahead }) => {
                if is_mine {
                    self.count_miss(range.count);
                } else {
                    let mut counts = lock(&self.0.counts);
                    counts.hits += 1;
                    counts.hit_bytes += range.count;
                    counts.ahead_used_bytes += if was_ahead { end - name.1 } else { 0 };
                }
                (name, fetch, !is_mine)
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
                lock(&self.0.pieces).remove(&name);
                let piece = if in_pieces { read } else { whole.clone() };
                self.begin(&store, file, part, &whole, piece.clone(), None)
                    .1
                    .await
                    .map(|bytes| (piece.start, bytes))
            }
            outcome => outcome.map(|bytes| (name.1, bytes)),
        };
        match outcome {
            Ok((from, bytes)) => Ok(CopyPiece { from, bytes }),
            Err(error) => {
                // The next one asks the store again.
                lock(&self.0.pieces).remove_within(file, &whole);
                Err(error)
            }
        }
    }

    /// Begins to get a range from where its part is in most cases, while nobody knows yet: the manifest is not there. Whoever waits for the
    /// first bytes does not wait for one after the other. Returns the key they come from.
    fn guess(&self, store: &Store, ask: &TierAsk, at: usize) -> Option<String> {
        let (record, range) = (&ask.record, ask.range);
        let name = (record.manifest.clone(), record.manifest_sum);
        if !store.is_plain() || lock(&self.0.manifests).contains_key(&name) {
            return None;
        }
        let within = range.index % record.part_bytes;
        let left = record.size.saturating_sub(range.index - within);
        let part_bytes = record.part_bytes.min(left);
        if within == 0 && range.count >= part_bytes {
            // What is here of a whole part was compared with its sum, which the manifest has.
            return None;
        }
        let key = part_key_beside(&record.manifest, at)?;
        let start = HEADER_BYTES as u64 + within;
        let wanted = range.index..range.index + range.count;
        let mut pieces = lock(&self.0.pieces);
        if pieces.find(&record.manifest, &wanted, None).is_some() {
            return None;
        }
        let (store, of, count) = (store.clone(), key.clone(), range.count);
        let fetch = async move { store.get_range(&of, start, count).await.map(Arc::new) };
        let name = (record.manifest.clone(), range.index);
        let held = Held::new(fetch.boxed().shared(), key.clone(), wanted.end, false);
        self.keep(&mut pieces, name, held);
        Some(key)
    }

    fn ahead_bytes(&self) -> u64 {
        self.0.ahead_bytes.load(Ordering::Relaxed)
    }

    /// The most of a part that one request asks for, in units of what callers ask for.
    fn piece_bytes(&self, unit: u64) -> u64 {
        let unit = unit.max(1);
        (self.0.piece_bytes.load(Ordering::Relaxed) / unit).max(1) * unit
    }

    fn count_miss(&self, bytes: u64) {
        let mut counts = lock(&self.0.counts);
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
            let here = lock(&self.0.pieces).end_of(file, at);
            if let Some(end) = here.filter(|_| piece != whole) {
                at = end;
                continue;
            }
            at = piece.end;
            if here.is_none() {
                lock(&self.0.counts).ahead_bytes += piece.end - piece.start;
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
        lanes: Option<Arc<Semaphore>>,
    ) -> (Name, Fetch) {
        let (store, part, is_ahead) = (store.clone(), part.clone(), lanes.is_some());
        let key = part.key.clone();
        let (is_all, start_in) = (piece == *whole, piece.start - whole.start);
        let count = piece.end - piece.start;
        let fetch = async move {
            let _lane = match &lanes {
                Some(lanes) => lanes.acquire().await.ok(),
                None => None,
            };
            let bytes = match is_all {
                true => store.get_part(&part).await,
                false => store.get_range(&part.key, HEADER_BYTES as u64 + start_in, count).await,
            };
            bytes.map(Arc::new)
        };
        let (name, fetch) = ((file.to_string(), piece.start), fetch.boxed().shared());
        let mut pieces = lock(&self.0.pieces);
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

/// What is fetched before anybody asks for it.
struct Ahead {
    /// From here on in the file.
    next: u64,
    bytes: u64,
    /// In pieces of at most so many bytes; none: in whole parts.
    most: Option<u64>,
    /// What each piece waits for.
    lanes: Arc<Semaphore>,
}

/// Where a piece ends that begins somewhere in a part: pieces end at multiples of their size.
fn piece_end(at: u64, part: &Range<u64>, most: u64) -> u64 {
    let next = (at - part.start) / most + 1;
    next.checked_mul(most)
        .and_then(|within| within.checked_add(part.start))
        .map_or(part.end, |end| end.min(part.end))
}

/// How much is fetched ahead and how much of that in one request, as the environment has it.
fn sizes(text: &str) -> (u64, u64) {
    let (ahead, piece) = text.split_once(',').unwrap_or((text, ""));
    let size = |text: &str| types::size::parse(text.trim()).ok();
    let piece = size(piece).filter(|piece| *piece > 0);
    (size(ahead).unwrap_or(AHEAD_BYTES), piece.unwrap_or(PIECE_BYTES))
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
