//! Reading copies for mounts of this process: what `dfs::tier` asks when somebody reads a chunk that is in a tier only.
//!
//! Reads that go on where the one before ended are of a file that is read in order: they get whole parts, and the parts behind
//! them are fetched ahead. Others get the range they ask for and no more, where parts are stored as they are: the
//! chunks in it have checksums of their own in the pool.

use crate::copy::{manifest_of, part_key_beside};
use crate::definition::Definition;
use crate::manifest::FileManifest;
use crate::part::HEADER_BYTES;
use crate::store::{Store, start};
use crate::sync::sync_file;
use dfs::tier::{TierAsk, TierSource};
use dfs::{Dfs, Obj};
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, LocalBoxFuture, Shared};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use types::{Code, Error, Result};

/// Manifests remembered.
const MANIFESTS_MAX: usize = 64;
/// Files of which is remembered where they were read.
const FILES_MAX: usize = 4096;
/// Bytes that are fetched ahead of a file that is read in order, unless the environment says otherwise.
const AHEAD_BYTES: u64 = 64 << 20;
/// The variable that does, a size; 0: nothing is fetched ahead.
const AHEAD_VARIABLE: &str = "AZEKURA_TIER_PREFETCH";
/// Reads so near each other, in any order, are one reading in order: several threads do it.
const NEAR_BYTES: u64 = 8 << 20;

/// Finds a tier's definition by its name. Runs on a thread of its own, so it may wait.
pub type Resolve = Box<dyn Fn(&str) -> Result<Definition> + Send + Sync>;

/// A part that is there or on its way.
type Fetch = Shared<BoxFuture<'static, Result<Arc<Vec<u8>>>>>;

/// Reads copies from the tiers that their records name.
#[derive(Clone)]
pub struct Source(Arc<Inner>);

struct Inner {
    resolve: Resolve,
    stores: Mutex<HashMap<String, Store>>,
    manifests: Mutex<HashMap<String, Arc<FileManifest>>>,
    parts: Mutex<Parts>,
    ahead_bytes: AtomicU64,
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

/// Parts in memory, and where files were read last.
#[derive(Default)]
struct Parts {
    by_name: HashMap<(String, usize), Held>,
    bytes: u64,
    /// Grows with each use.
    clock: u64,
    /// By manifest: where the last read ended.
    ends: HashMap<String, u64>,
}

struct Held {
    fetch: Fetch,
    bytes: u64,
    used: u64,
    /// Nobody has wanted it yet.
    is_ahead: bool,
}

impl Parts {
    /// Notes a read of a part; true if it goes on with what was read before, and then all of the part counts as read.
    fn goes_on(&mut self, manifest: &str, read: Range<u64>, part: Range<u64>) -> bool {
        let end = self.ends.get(manifest).copied();
        if self.ends.len() >= FILES_MAX && end.is_none() {
            self.ends.clear();
        }
        let near = NEAR_BYTES.max(part.end - part.start);
        let before = end.filter(|end| read.start <= end + NEAR_BYTES && *end <= read.start + near);
        let end = before.map_or(read.end, |end| end.max(part.end));
        self.ends.insert(manifest.to_string(), end);
        before.is_some()
    }

    /// A part that is here, used once more; and whether it had been fetched ahead and this is the first use.
    fn get(&mut self, name: &(String, usize)) -> Option<(Fetch, bool)> {
        self.clock += 1;
        let held = self.by_name.get_mut(name)?;
        held.used = self.clock;
        Some((held.fetch.clone(), std::mem::take(&mut held.is_ahead)))
    }

    /// Keeps a part; those least recently used go while there are more than `bytes_max` bytes.
    fn insert(&mut self, name: (String, usize), held: Held, bytes_max: u64) {
        self.clock += 1;
        self.bytes += held.bytes;
        if let Some(old) = self.by_name.insert(name, Held { used: self.clock, ..held }) {
            self.bytes -= old.bytes;
        }
        while self.bytes > bytes_max && self.by_name.len() > 1 {
            let oldest = self.by_name.iter().min_by_key(|(_, held)| held.used);
            let Some(name) = oldest.map(|(name, _)| name.clone()) else { break };
            self.remove(&name);
        }
    }

    fn remove(&mut self, name: &(String, usize)) {
        if let Some(old) = self.by_name.remove(name) {
            self.bytes -= old.bytes;
        }
    }
}

impl Source {
    pub fn new(resolve: Resolve) -> Source {
        let named = std::env::var(AHEAD_VARIABLE).ok();
        let named = named.and_then(|text| types::size::parse(&text).ok());
        Source(Arc::new(Inner {
            resolve,
            stores: Mutex::default(),
            manifests: Mutex::default(),
            parts: Mutex::default(),
            ahead_bytes: AtomicU64::new(named.unwrap_or(AHEAD_BYTES)),
            counts: Mutex::default(),
        }))
    }

    /// Says how many bytes are fetched ahead of a file that is read in order; 0: none.
    pub fn set_ahead_bytes(&self, bytes: u64) {
        self.0.ahead_bytes.store(bytes, Ordering::Relaxed);
    }

    /// What was read so far.
    pub fn counts(&self) -> Counts {
        *lock(&self.0.counts)
    }

    /// Forgets what is in memory of files' copies.
    pub fn drop_parts(&self) {
        *lock(&self.0.parts) = Parts::default();
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
        if let Some(manifest) = lock(&self.0.manifests).get(&record.manifest).cloned() {
            return Ok(manifest);
        }
        let manifest = Arc::new(manifest_of(store, record).await?);
        let mut manifests = lock(&self.0.manifests);
        if manifests.len() >= MANIFESTS_MAX {
            manifests.clear();
        }
        manifests.insert(record.manifest.clone(), manifest.clone());
        Ok(manifest)
    }

    /// Bytes of the part that a range is in, at least those of the range; and where they begin in the file.
    async fn read_around(&self, ask: TierAsk, is_whole: bool) -> Result<(u64, Vec<u8>)> {
        let (record, range) = (&ask.record, ask.range);
        let store = self.store(&record.tier).await?;
        let guess = if is_whole { None } else { self.guess(&store, &ask) };
        let (manifest, guessed) = match guess {
            // Whoever waits for the first bytes does not wait for one after the other.
            Some((key, bytes)) => {
                let (manifest, bytes) = futures_util::join!(self.manifest(&store, &ask), bytes);
                (manifest?, bytes.ok().map(|bytes| (key, bytes)))
            }
            None => (self.manifest(&store, &ask).await?, None),
        };
        let short = || Error::new(Code::Csum, "a file's copy is shorter than its record says");
        let at = usize::try_from(range.index / record.part_bytes).map_err(|_| short())?;
        let part = manifest.parts.get(at).ok_or_else(short)?;
        let from = at as u64 * record.part_bytes;
        let end = range.index.checked_add(range.count).ok_or_else(short)?;
        if end > from + part.bytes {
            return Err(short());
        }
        let (read, of) = (range.index..end, from..from + part.bytes);
        let goes_on = lock(&self.0.parts).goes_on(&record.manifest, read, of);
        let name = (record.manifest.clone(), at);
        let here = lock(&self.0.parts).get(&name);
        if goes_on {
            self.fetch_ahead(&store, &ask, &manifest, at + 1);
        }
        if let Some((fetch, was_ahead)) = here {
            {
                let mut counts = lock(&self.0.counts);
                counts.hits += 1;
                counts.hit_bytes += range.count;
                counts.ahead_used_bytes += if was_ahead { part.bytes } else { 0 };
            }
            if let Ok(bytes) = fetch.await {
                return Ok((from, bytes.to_vec()));
            }
            // That may be long ago: now somebody waits for it, and the store is asked again.
            lock(&self.0.parts).remove(&name);
        }
        let is_plain = part.encoding.is_none();
        if !is_whole && !goes_on && is_plain && range.count < part.bytes {
            self.count_miss(range.count);
            if let Some((_, bytes)) = guessed.filter(|(key, _)| *key == part.key) {
                return Ok((range.index, bytes));
            }
            let start = HEADER_BYTES as u64 + (range.index - from);
            return Ok((range.index, store.get_range(&part.key, start, range.count).await?));
        }
        self.count_miss(part.bytes);
        match self.begin(&store, &ask, &manifest, at, false).await {
            Ok(bytes) => Ok((from, bytes.to_vec())),
            Err(error) => {
                // The next one asks the store again.
                lock(&self.0.parts).remove(&name);
                Err(error)
            }
        }
    }

    /// Bytes of a range, got from where its part is in most cases, while nobody knows yet: the manifest is not there. With the key they come from.
    fn guess<'a>(
        &self,
        store: &'a Store,
        ask: &TierAsk,
    ) -> Option<(String, impl Future<Output = Result<Vec<u8>>> + use<'a>)> {
        let (record, range) = (&ask.record, ask.range);
        if !store.is_plain() || lock(&self.0.manifests).contains_key(&record.manifest) {
            return None;
        }
        let at = usize::try_from(range.index / record.part_bytes).ok()?;
        let key = part_key_beside(&record.manifest, at)?;
        let start = HEADER_BYTES as u64 + range.index % record.part_bytes;
        let (of, count) = (key.clone(), range.count);
        Some((key, async move { store.get_range(&of, start, count).await }))
    }

    fn count_miss(&self, bytes: u64) {
        let mut counts = lock(&self.0.counts);
        counts.misses += 1;
        counts.miss_bytes += bytes;
    }

    /// Begins to fetch the parts from `next` on that are not here.
    fn fetch_ahead(&self, store: &Store, ask: &TierAsk, manifest: &FileManifest, next: usize) {
        let mut left = self.0.ahead_bytes.load(Ordering::Relaxed);
        for (at, part) in manifest.parts.iter().enumerate().skip(next) {
            // One part, if anything is fetched ahead at all.
            if left == 0 || (part.bytes > left && at > next) {
                break;
            }
            left = left.saturating_sub(part.bytes);
            let name = (ask.record.manifest.clone(), at);
            if !lock(&self.0.parts).by_name.contains_key(&name) {
                lock(&self.0.counts).ahead_bytes += part.bytes;
                // Nobody waits for it.
                drop(self.begin(store, ask, manifest, at, true));
            }
        }
    }

    /// Begins to fetch a part.
    fn begin(
        &self,
        store: &Store,
        ask: &TierAsk,
        manifest: &FileManifest,
        at: usize,
        is_ahead: bool,
    ) -> Fetch {
        let (store, part) = (store.clone(), manifest.parts[at].clone());
        let bytes = part.bytes;
        let fetch = async move { store.get_part(&part).await.map(Arc::new) }.boxed().shared();
        // It goes on whether somebody waits for it or not.
        start(fetch.clone());
        let held = Held { fetch: fetch.clone(), bytes, used: 0, is_ahead };
        let bytes_max = 2 * self.0.ahead_bytes.load(Ordering::Relaxed) + bytes;
        let name = (ask.record.manifest.clone(), at);
        lock(&self.0.parts).insert(name, held, bytes_max);
        fetch
    }
}

impl TierSource for Source {
    fn read(&self, ask: TierAsk) -> BoxFuture<'static, Result<Vec<u8>>> {
        let source = self.clone();
        async move { source.read_around(ask, true).await.map(|(_, bytes)| bytes) }.boxed()
    }

    fn read_around(&self, ask: TierAsk) -> BoxFuture<'static, Result<(u64, Vec<u8>)>> {
        let source = self.clone();
        async move { source.read_around(ask, false).await }.boxed()
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

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(bytes: u64) -> Held {
        let fetch = async { Ok(Arc::new(Vec::new())) }.boxed().shared();
        Held { fetch, bytes, used: 0, is_ahead: true }
    }

    fn name(at: usize) -> (String, usize) {
        ("m".into(), at)
    }

    #[test]
    fn what_was_least_recently_used_goes_first() {
        let mut parts = Parts::default();
        for at in 0..3 {
            parts.insert(name(at), held(10), 30);
        }
        assert!(parts.get(&name(0)).unwrap().1, "fetched ahead, and used for the first time");
        assert!(!parts.get(&name(0)).unwrap().1);
        parts.insert(name(3), held(10), 30);
        assert!(parts.get(&name(1)).is_none() && parts.get(&name(0)).is_some());
        assert_eq!(parts.bytes, 30);
        // One that is larger than all there may be is alone.
        parts.insert(name(4), held(100), 30);
        assert_eq!((parts.bytes, parts.by_name.len()), (100, 1));
        parts.insert(name(4), held(5), 30);
        parts.remove(&name(4));
        assert_eq!((parts.bytes, parts.by_name.len()), (0, 0));
    }

    #[test]
    fn reading_in_order_is_told_from_reading_about() {
        let mut parts = Parts::default();
        let mut read = |file: &str, from: u64, to: u64| {
            let part = from / 100 * 100;
            parts.goes_on(file, from << 20..to << 20, part << 20..(part + 100) << 20)
        };
        assert!(!read("m", 0, 1), "the first read may be the only one");
        assert!(read("m", 1, 2));
        assert!(read("m", 50, 51), "another thread, in the same part");
        assert!(read("m", 100, 101), "the next part");
        assert!(!read("m", 500, 501));
        assert!(!read("m", 300, 301));
        assert!(read("m", 301, 302));
        assert!(!read("other", 301, 302));
    }
}
