//! An open tier: objects by keys.
//!
//! Requests run on threads of their own, so that whoever waits for one may be on any executor. What fails for a moment (5xx,
//! 429, connections cut) is tried again with growing pauses, for about a minute.

use crate::credentials::Credentials;
use crate::definition::{Definition, Kind};
use crate::key::Key;
use crate::manifest::PartName;
use crate::mark;
use crate::part::{self, Coding};
use async_recursion::async_recursion as boxed;
use futures_util::TryStreamExt;
use opendal::layers::{RetryLayer, TimeoutLayer};
use opendal::{ErrorKind, Operator, services};
use std::future::Future;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Component, Path, PathBuf};
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use types::{Code, Error, Result};

/// Pauses before tries after the first: 0.5 s, 1, 2, … at most 16 s, half a minute together.
const RETRIES: usize = 6;
const RETRY_PAUSE_MIN: Duration = Duration::from_millis(500);
const RETRY_PAUSE_MAX: Duration = Duration::from_secs(16);
/// A request that moves no bytes for so long is given up and tried again, unless the environment says otherwise.
const SILENCE_MAX: Duration = Duration::from_secs(60);
/// The variable that does: seconds, at least 1.
const SILENCE_VARIABLE: &str = "AZEKURA_TIER_TIMEOUT";
/// Where files of the directory back end are until they are whole; below its root.
pub(crate) const UNFINISHED: &str = ".unfinished";
/// The least that a thread may ask for of the processors.
const NICE_MAX: i32 = 19;
/// Most bytes that there is room for before they come: what is asked for is what somebody says there is.
const ROOM_MAX: u64 = 80 << 20;
/// Size of the object that a check puts and gets, bytes.
const CHECK_BYTES: usize = 8 << 20;

/// An open tier. Cheap to clone; may be used by any thread.
#[derive(Clone)]
pub struct Store {
    operator: Operator,
    /// Of the directory back end.
    dir: Option<PathBuf>,
    url: String,
    part_bytes: u64,
    coding: Coding,
    /// A request that moves no bytes for so long is given up.
    silence: Duration,
    /// Gives way to all else that wants a processor.
    is_patient: bool,
}

/// How long a request took.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Took {
    /// Until its first byte was there.
    pub first: Duration,
    /// Until its last was.
    pub all: Duration,
}

/// An object of a listing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Listed {
    pub key: String,
    pub bytes: u64,
    /// When it was last written, seconds since 1970, if the store says so.
    pub modified_s: Option<i64>,
}

/// What a check found.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize)]
pub struct Checked {
    /// Of one object of 8 MiB, bytes a second.
    pub put_bytes_s: u64,
    pub get_bytes_s: u64,
    /// Of one request for the object's facts, microseconds.
    pub stat_us: u64,
    /// The store can list; without that there is no restoring and no collecting of what is left over.
    pub lists: bool,
    /// The store tells when objects were written; else what is left over is never collected.
    pub tells_times: bool,
}

fn runtime() -> Result<&'static Runtime> {
    static RUNTIME: OnceLock<std::io::Result<Runtime>> = OnceLock::new();
    made(RUNTIME.get_or_init(|| threads("tier").build()))
}

/// Threads that get a processor when nobody else wants it.
fn patient_runtime() -> Result<&'static Runtime> {
    static RUNTIME: OnceLock<std::io::Result<Runtime>> = OnceLock::new();
    made(RUNTIME.get_or_init(|| threads("tier-patient").on_thread_start(give_way).build()))
}

fn threads(name: &str) -> tokio::runtime::Builder {
    // The one that the rest of the program uses. Whoever was first is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut threads = tokio::runtime::Builder::new_multi_thread();
    threads.worker_threads(2).thread_name(name).enable_all();
    threads
}

fn made(made: &'static std::io::Result<Runtime>) -> Result<&'static Runtime> {
    made.as_ref().map_err(|error| Error::new(Code::Io, format!("starting threads: {error}")))
}

/// Has the calling thread run when no other wants its processor.
pub fn give_way() {
    // Where that is refused it runs as the others do.
    let _ = rustix::process::nice(NICE_MAX);
}

impl Store {
    /// [`Store::open`] of a place that becomes a tier: a directory is made and marked.
    pub fn found(definition: &Definition) -> Result<Store> {
        definition.check()?;
        let place = definition.place()?;
        if place.kind == Kind::Fs {
            mark::make(Path::new(&place.root))?;
        }
        Store::open(definition)
    }

    /// Opens the place that a definition names. Asks nobody yet.
    ///
    /// Errors: those of [`Definition::check`] and [`Credentials::read`]; `Access` when the store needs credentials and
    /// there are none; `Unreach` when it is a directory whose disk seems not to be mounted.
    pub fn open(definition: &Definition) -> Result<Store> {
        definition.check()?;
        // Builders make clients, which want to know whose cryptography they use.
        runtime()?;
        let place = definition.place()?;
        let secrets = match &definition.credentials {
            Some(file) => Credentials::read(file)?,
            None => Credentials::from_env(place.kind == Kind::Gcs)?,
        };
        let key = definition.key_file.as_deref().map(Key::read).transpose()?;
        let coding = Coding { level: definition.zstd_level, key };
        let need = |secret: &Option<String>, name: &str| {
            secret.clone().ok_or_else(|| {
                Error::new(
                    Code::Access,
                    format!("'{}' needs {name}: give the tier --credentials FILE", definition.url),
                )
            })
        };
        let endpoint = definition.endpoint.as_deref();
        let mut dir = None;
        let opened = match place.kind {
            Kind::Fs => {
                let root = PathBuf::from(&place.root);
                // The back end makes what is not there.
                mark::check(&root)?;
                let unfinished = root.join(UNFINISHED);
                let builder = services::Fs::default()
                    .root(&place.root)
                    .atomic_write_dir(&unfinished.to_string_lossy());
                dir = Some(root);
                Operator::new(builder).map(|made| made.finish())
            }
            Kind::S3 => {
                let mut builder = services::S3::default()
                    .bucket(&place.bucket)
                    .root(&place.root)
                    .region(definition.region.as_deref().unwrap_or("us-east-1"))
                    .access_key_id(&need(&secrets.access_key_id, "access_key_id")?)
                    .secret_access_key(&need(&secrets.secret_access_key, "secret_access_key")?)
                    .disable_config_load()
                    .disable_ec2_metadata();
                if let Some(endpoint) = endpoint {
                    builder = builder.endpoint(endpoint);
                }
                if let Some(token) = &secrets.session_token {
                    builder = builder.session_token(token);
                }
                if definition.virtual_host {
                    builder = builder.enable_virtual_host_style();
                }
                Operator::new(builder).map(|made| made.finish())
            }
            Kind::Swift => {
                let builder = services::Swift::default()
                    .endpoint(endpoint.unwrap_or_default())
                    .container(&place.bucket)
                    .root(&place.root)
                    .token(&need(&secrets.token, "token")?);
                Operator::new(builder).map(|made| made.finish())
            }
            Kind::Azblob => {
                let builder = services::Azblob::default()
                    .endpoint(endpoint.unwrap_or_default())
                    .container(&place.bucket)
                    .root(&place.root)
                    .account_name(&need(&secrets.access_key_id, "access_key_id")?)
                    .account_key(&need(&secrets.secret_access_key, "secret_access_key")?);
                Operator::new(builder).map(|made| made.finish())
            }
            Kind::Gcs => {
                let mut builder = services::Gcs::default()
                    .bucket(&place.bucket)
                    .root(&place.root)
                    // Nothing but what was named: no other account that this machine may have.
                    .disable_config_load()
                    .disable_vm_metadata();
                builder = match (&secrets.service_account, &secrets.token) {
                    (Some(account), _) => builder.credential(account.as_base64()),
                    (None, token) => {
                        builder.token(need(token, "a service account's key, or token")?)
                    }
                };
                if let Some(endpoint) = endpoint {
                    builder = builder.endpoint(endpoint);
                }
                Operator::new(builder).map(|made| made.finish())
            }
            Kind::Webdav => {
                let at = format!("https://{}", place.bucket);
                let mut builder =
                    services::Webdav::default().endpoint(endpoint.unwrap_or(&at)).root(&place.root);
                if let (Some(user), Some(password)) =
                    (&secrets.access_key_id, &secrets.secret_access_key)
                {
                    builder = builder.username(user).password(password);
                }
                Operator::new(builder).map(|made| made.finish())
            }
        };
        let operator = opened.map_err(|error| told(&error, &definition.url))?;
        let named = std::env::var(SILENCE_VARIABLE).ok().and_then(|text| text.parse().ok());
        let silence = named.map_or(SILENCE_MAX, |seconds: u64| Duration::from_secs(seconds.max(1)));
        let patience = TimeoutLayer::new().with_timeout(silence).with_io_timeout(silence);
        let again = RetryLayer::new()
            .with_max_times(RETRIES)
            .with_min_delay(RETRY_PAUSE_MIN)
            .with_max_delay(RETRY_PAUSE_MAX)
            .with_jitter()
            .with_notify(Quiet);
        let operator = operator.layer(patience).layer(again);
        Ok(Store {
            operator,
            dir,
            url: definition.url.clone(),
            part_bytes: definition.part_bytes,
            coding,
            silence,
            is_patient: false,
        })
    }

    /// The same, for work that nobody waits for: what it costs in computing is done when nobody else wants the processor.
    pub fn patient(&self) -> Store {
        Store { is_patient: true, ..self.clone() }
    }

    fn runtime(&self) -> Result<&'static Runtime> {
        if self.is_patient { patient_runtime() } else { runtime() }
    }

    /// Size of the parts that files are cut in, bytes.
    pub fn part_bytes(&self) -> u64 {
        self.part_bytes
    }

    /// Parts are stored as they are, unless they were put when the tier was another.
    pub(crate) fn is_plain(&self) -> bool {
        self.coding.level.is_none() && self.coding.key.is_none()
    }

    /// Puts an object; when this returns the store has confirmed that it has it.
    #[boxed]
    pub async fn put(&self, key: String, bytes: Vec<u8>) -> Result<()> {
        let (operator, dir) = (self.operator.clone(), self.dir.clone());
        if let Some(dir) = dir.clone() {
            // It may have been unmounted since this was opened.
            let checked = self.runtime()?.spawn_blocking(move || mark::check(&dir)).await;
            checked.map_err(ended)??;
        }
        self.run(key.clone(), async move {
            operator.write(&key, bytes).await?;
            if let Some(dir) = dir {
                // A directory confirms nothing by itself.
                let synced = tokio::task::spawn_blocking(move || sync_below(&dir, &key)).await;
                let failed = |error: String| opendal::Error::new(ErrorKind::Unexpected, error);
                synced
                    .map_err(|error| failed(error.to_string()))?
                    .map_err(|error| failed(error.to_string()))?;
            }
            Ok(())
        })
        .await
    }

    /// Puts a part of these bytes, encoded as the tier's parts are, and returns its name.
    pub async fn put_part(&self, key: String, bytes: Vec<u8>) -> Result<PartName> {
        let coding = self.coding.clone();
        let encoded = self.runtime()?.spawn_blocking(move || part::encode(&bytes, &coding, key));
        let (raw, name) = encoded.await.map_err(ended)??;
        self.put(name.key.clone(), raw).await?;
        Ok(name)
    }

    /// The bytes of a part, which are those that were put under this name.
    ///
    /// Errors: those of [`part::decode`], and of the store.
    pub async fn get_part(&self, name: &PartName) -> Result<Vec<u8>> {
        let raw = self.get(&name.key).await?;
        let (key, of) = (self.coding.key.clone(), name.clone());
        let decoded = self.runtime()?.spawn_blocking(move || part::decode(raw, &of, key.as_ref()));
        decoded.await.map_err(ended)?.map_err(|error| error.context(format!("'{}'", name.key)))
    }

    /// All bytes of an object. `NonExist` when there is none.
    #[boxed]
    pub async fn get(&self, key: &str) -> Result<Vec<u8>> {
        if let Some(bytes) = self.get_directly(key, 0, u64::MAX).await {
            return Ok(bytes);
        }
        let (operator, of) = (self.operator.clone(), key.to_string());
        self.run(key.to_string(), async move { Ok(operator.read(&of).await?.to_vec()) }).await
    }

    /// Bytes of an object, from an offset on. `Csum` when others than so many come.
    #[boxed]
    pub async fn get_range(&self, key: &str, from: u64, count: u64) -> Result<Vec<u8>> {
        self.get_range_timed(key, from, count).await.map(|(bytes, _)| bytes)
    }

    /// The same, and how long it took if there was a way to go.
    #[boxed]
    pub(crate) async fn get_range_timed(
        &self,
        key: &str,
        from: u64,
        count: u64,
    ) -> Result<(Vec<u8>, Option<Took>)> {
        let (bytes, took) = match self.get_directly(key, from, count).await {
            Some(bytes) => (bytes, None),
            None => {
                let (operator, of) = (self.operator.clone(), key.to_string());
                let (bytes, took) = self
                    .run(key.to_string(), async move { stream(&operator, &of, from, count).await })
                    .await?;
                (bytes, Some(took))
            }
        };
        match bytes.len() as u64 == count {
            true => Ok((bytes, took)),
            false => Err(Error::new(
                Code::Csum,
                format!(
                    "'{}' gave {} bytes of '{key}'; it was asked for {count}",
                    self.url,
                    bytes.len()
                ),
            )),
        }
    }

    /// Bytes of a file of a directory, as many of them as there are. `None` for all else, and where that fails: the operator tries again, and knows how to
    /// say why.
    async fn get_directly(&self, key: &str, from: u64, count: u64) -> Option<Vec<u8>> {
        let dir = self.dir.as_ref()?;
        // Keys come from the store itself, which may be anybody's.
        let is_below = |part: Component<'_>| matches!(part, Component::Normal(_));
        if !Path::new(key).components().all(is_below) {
            return None;
        }
        let path = dir.join(key);
        let runtime = self.runtime().ok()?;
        let read = runtime.spawn_blocking(move || read_file(&path, from, count));
        let waiting = {
            let _clock = runtime.enter();
            tokio::time::timeout(self.silence, read)
        };
        waiting.await.ok()?.ok()?.ok()
    }

    /// Removes an object; no error when there is none.
    #[boxed]
    pub async fn delete(&self, key: &str) -> Result<()> {
        let (operator, of) = (self.operator.clone(), key.to_string());
        self.run(key.to_string(), async move { operator.delete(&of).await }).await
    }

    /// All objects below a prefix, which ends in `/`, in no order.
    #[boxed]
    pub async fn list(&self, prefix: &str) -> Result<Vec<Listed>> {
        let (operator, of) = (self.operator.clone(), prefix.to_string());
        let listed = self.run(prefix.to_string(), async move {
            let mut lister = operator.lister_with(&of).recursive(true).await?;
            let mut found = Vec::new();
            while let Some(entry) = lister.try_next().await? {
                let mut facts = entry.metadata().clone();
                if !facts.is_file() {
                    continue;
                }
                if facts.last_modified().is_none() {
                    facts = operator.stat(entry.path()).await?;
                }
                found.push(Listed {
                    key: entry.path().to_string(),
                    bytes: facts.content_length(),
                    modified_s: facts.last_modified().map(|at| at.into_inner().as_second()),
                });
            }
            Ok(found)
        });
        match listed.await {
            // Nothing was ever put there.
            Err(error) if error.code == Code::NonExist => Ok(Vec::new()),
            outcome => outcome,
        }
    }

    /// Removes files of a directory back end that were never finished and are at least so old; with `dry_run` only counts.
    /// Returns how many, and their bytes. Stores drop such things themselves.
    pub fn remove_unfinished(&self, age: Duration, dry_run: bool) -> Result<(u64, u64)> {
        let (mut count, mut bytes) = (0, 0);
        let Some(dir) = &self.dir else { return Ok((0, 0)) };
        let dir = dir.join(UNFINISHED);
        let failed = |error| Error::io(format!("'{}'", dir.display()), error);
        let entries = match std::fs::read_dir(&dir) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok((0, 0)),
            other => other.map_err(failed)?,
        };
        for entry in entries {
            let entry = entry.map_err(failed)?;
            // It may be finished just now.
            let Ok(meta) = entry.metadata() else { continue };
            let is_old = meta.modified().ok().and_then(|at| at.elapsed().ok());
            if meta.is_file() && is_old.is_some_and(|passed| passed >= age) {
                if !dry_run {
                    std::fs::remove_file(entry.path()).map_err(failed)?;
                }
                count += 1;
                bytes += meta.len();
            }
        }
        Ok((count, bytes))
    }

    /// What time it is by the store's clock, seconds since 1970, if the store says so: ages of objects are told by it and no other, for ours may be
    /// another. Puts an object of that key, and removes it.
    pub async fn clock_s(&self, key: &str) -> Result<Option<i64>> {
        self.put(key.to_string(), b"clock".to_vec()).await?;
        let (operator, of) = (self.operator.clone(), key.to_string());
        let facts = self.run(key.to_string(), async move { operator.stat(&of).await }).await;
        self.delete(key).await?;
        Ok(facts?.last_modified().map(|at| at.into_inner().as_second()))
    }

    /// Puts, gets, looks at, lists and removes an object, and measures that. `Csum` when other bytes come back.
    #[boxed]
    pub async fn check(&self, key: &str) -> Result<Checked> {
        let mut state = 0x9e37_79b9_7f4a_7c15u64;
        let bytes: Vec<u8> = std::iter::repeat_with(|| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as u8
        })
        .take(CHECK_BYTES)
        .collect();
        let rate = |since: Instant| (CHECK_BYTES as f64 / since.elapsed().as_secs_f64()) as u64;
        let begin = Instant::now();
        self.put(key.to_string(), bytes.clone()).await?;
        let put_bytes_s = rate(begin);
        let begin = Instant::now();
        let got = self.get(key).await?;
        let get_bytes_s = rate(begin);
        let (operator, of) = (self.operator.clone(), key.to_string());
        let begin = Instant::now();
        self.run(key.to_string(), async move { operator.stat(&of).await }).await?;
        let stat_us = begin.elapsed().as_micros() as u64;
        let prefix = key.rsplit_once('/').map_or(String::new(), |(dir, _)| format!("{dir}/"));
        let listed = self.list(&prefix).await;
        self.delete(key).await?;
        if got != bytes {
            return Err(Error::new(
                Code::Csum,
                format!("'{}' gives back other bytes than were put there", self.url),
            ));
        }
        let found = listed.ok().and_then(|all| all.into_iter().find(|one| one.key == key));
        let tells_times = found.as_ref().is_some_and(|one| one.modified_s.is_some());
        Ok(Checked { put_bytes_s, get_bytes_s, stat_us, lists: found.is_some(), tells_times })
    }

    async fn run<T: Send + 'static>(
        &self,
        key: String,
        request: impl Future<Output = opendal::Result<T>> + Send + 'static,
    ) -> Result<T> {
        let done = self.runtime()?.spawn(request).await;
        done.map_err(ended)?.map_err(|error| told(&error, &format!("{} at '{key}'", self.url)))
    }
}

/// Waits for a future of this crate where there is no client that would run it.
///
/// Errors: `Io` where there can be no threads.
pub fn wait<T>(future: impl Future<Output = T>) -> Result<T> {
    Ok(runtime()?.block_on(future))
}

/// Has a future run whether somebody waits for it or not.
pub(crate) fn start(future: impl Future<Output = impl Send + 'static> + Send + 'static) {
    // Without threads whoever waits for it runs it.
    if let Ok(runtime) = runtime() {
        runtime.spawn(future);
    }
}

/// Has a future run if another one has not come to its end after a while.
pub(crate) fn start_if_slow(
    first: impl Future<Output = impl Send + 'static> + Send + 'static,
    pause: Duration,
    then: impl Future<Output = ()> + Send + 'static,
) {
    start(async move {
        if tokio::time::timeout(pause, first).await.is_err() {
            then.await;
        }
    });
}

/// Bytes of an object as they come, from an offset on; more than were asked for only if the store gives more.
async fn stream(
    operator: &Operator,
    key: &str,
    from: u64,
    count: u64,
) -> opendal::Result<(Vec<u8>, Took)> {
    let begin = Instant::now();
    let mut coming = operator.reader(key).await?.into_stream(from..from + count).await?;
    let (mut bytes, mut first) = (Vec::with_capacity(count.min(ROOM_MAX) as usize), None);
    while bytes.len() as u64 <= count
        && let Some(some) = coming.try_next().await?
    {
        first.get_or_insert_with(|| begin.elapsed());
        some.for_each(|some| bytes.extend_from_slice(&some));
    }
    let all = begin.elapsed();
    Ok((bytes, Took { first: first.unwrap_or(all), all }))
}

/// Bytes of a file from an offset on, fewer where it ends.
fn read_file(path: &Path, from: u64, count: u64) -> std::io::Result<Vec<u8>> {
    let mut file = std::fs::File::open(path)?;
    let left = file.metadata()?.len().saturating_sub(from);
    file.seek(SeekFrom::Start(from))?;
    let mut bytes = Vec::with_capacity(left.min(count).min(ROOM_MAX) as usize);
    file.take(count).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// A task that did not get to its end.
fn ended(error: tokio::task::JoinError) -> Error {
    Error::new(Code::Io, format!("a request: {error}"))
}

/// Retries are counted by nobody, and not shown.
struct Quiet;

impl opendal::layers::RetryInterceptor for Quiet {
    fn intercept(&self, _: opendal::layers::RetryEvent<'_>) {}
}

/// Has a file and its name on stable storage.
fn sync_below(dir: &Path, key: &str) -> std::io::Result<()> {
    let path = dir.join(key);
    std::fs::File::open(&path)?.sync_all()?;
    for above in path.ancestors().skip(1) {
        std::fs::File::open(above)?.sync_all()?;
        if above == dir {
            break;
        }
    }
    Ok(())
}

/// An error of the store in our words. Its own text goes with it but for its context, which has headers.
fn told(error: &opendal::Error, what: &str) -> Error {
    let code = match error.kind() {
        // Not as if something in it were not there: nothing is known of what was.
        ErrorKind::ConfigInvalid if error.message().contains("NoSuchBucket") => Code::Unreach,
        ErrorKind::NotFound => Code::NonExist,
        ErrorKind::PermissionDenied => Code::Access,
        ErrorKind::ConfigInvalid => Code::Inval,
        ErrorKind::Unsupported => Code::NotSupported,
        ErrorKind::RateLimited => Code::Busy,
        _ if error.is_temporary() || error.is_persistent() => Code::Unreach,
        _ => Code::Io,
    };
    Error::new(code, format!("{what}: {}: {}", error.kind(), error.message()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::future::FutureExt;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_bucket_is_in_the_path_or_in_the_name_of_the_host() {
        let dir = tempfile::tempdir().unwrap();
        let keys = dir.path().join("keys");
        std::fs::write(&keys, "access_key_id = \"id\"\nsecret_access_key = \"hush\"\n").unwrap();
        std::fs::set_permissions(&keys, std::fs::Permissions::from_mode(0o600)).unwrap();
        for (virtual_host, at) in [
            (false, "https://s3.example.org/bucket/some/prefix/a/b?"),
            (true, "https://bucket.s3.example.org/some/prefix/a/b?"),
        ] {
            let definition = Definition {
                url: "s3://bucket/some/prefix".into(),
                endpoint: Some("https://s3.example.org".into()),
                region: Some("eu-test-1".into()),
                virtual_host,
                credentials: Some(keys.clone()),
                part_bytes: crate::PART_BYTES_DEFAULT,
                zstd_level: None,
                key_file: None,
            };
            let store = Store::open(&definition).unwrap();
            let signed = store.operator.presign_read("a/b", Duration::from_secs(60));
            let signed = runtime().unwrap().block_on(signed).unwrap().uri().to_string();
            assert!(signed.starts_with(at) && signed.contains("eu-test-1"), "{signed}");
            assert!(!signed.contains("hush"), "{signed}");
        }
    }

    #[test]
    fn a_directory_is_a_store() {
        let dir = tempfile::tempdir().unwrap();
        let definition = Definition {
            url: format!("fs://{}", dir.path().display()),
            endpoint: None,
            region: None,
            virtual_host: false,
            credentials: None,
            part_bytes: crate::PART_BYTES_DEFAULT,
            zstd_level: None,
            key_file: None,
        };
        let store = Store::found(&definition).unwrap();
        let wait = |what: futures_util::future::BoxFuture<'_, Result<()>>| {
            runtime().unwrap().block_on(what).unwrap();
        };
        wait(
            async {
                store.put("a/b/c".into(), b"bytes".to_vec()).await?;
                assert_eq!(store.get("a/b/c").await?, b"bytes");
                let listed = store.list("a/").await?;
                assert_eq!(listed.len(), 1);
                assert_eq!((listed[0].key.as_str(), listed[0].bytes), ("a/b/c", 5));
                assert!(listed[0].modified_s.is_some_and(|at| at > 1_600_000_000));
                assert_eq!(store.list("none/").await?, []);
                store.delete("a/b/c").await?;
                store.delete("a/b/c").await?;
                assert_eq!(store.get("a/b/c").await.unwrap_err().code, Code::NonExist);
                let checked = store.check("check/x").await?;
                assert!(checked.lists && checked.tells_times && checked.put_bytes_s > 0);
                // Its disk is unmounted, and what is below it shows.
                std::fs::remove_dir_all(dir.path()).unwrap();
                std::fs::create_dir(dir.path()).unwrap();
                let refused = store.put("a/b/c".into(), b"bytes".to_vec()).await.unwrap_err();
                assert_eq!(refused.code, Code::Unreach);
                assert!(!dir.path().join("a").exists(), "{refused}");
                Ok(())
            }
            .boxed(),
        );
    }
}
