//! Making a container's content again from a store alone.

use crate::copy::{parallel, part_bytes};
use crate::manifest::{
    EntryKind, FileManifest, TreeEntry, from_base64, from_hex, from_text, to_text,
};
use crate::store::Store;
use async_recursion::async_recursion as boxed;
use dfs::sys::Sys;
use dfs::{CreateOptions, Dfs, Obj, OpenFlags, SetAttr, SetTime, XattrMode};
use futures_util::StreamExt;
use std::collections::HashMap;
use types::{Code, Error, Result};

/// What was made again.
#[derive(Clone, PartialEq, Eq, Debug, Default, serde::Serialize)]
pub struct Restored {
    pub directories: u64,
    pub files: u64,
    pub links: u64,
    pub bytes: u64,
    /// Files that had no copy when the tree was written; they are not there.
    pub missing: u64,
    /// Files whose copies are damaged or lost, with what is wrong; they are not there.
    pub damaged: Vec<String>,
}

/// Makes all entries of a tree in an empty file system. Owners are kept where the caller may give files away.
///
/// Errors: `NotEmpty` for a file system with entries. A file whose copy is damaged is named, and the others are restored: nothing that
/// differs is written as if it were whole.
#[boxed(?Send)]
pub async fn restore(
    fs: &Dfs,
    store: &Store,
    entries: &[TreeEntry],
    progress: &dyn Fn(u64),
) -> Result<Restored> {
    let sys = Sys::new(fs.clone());
    if !sys.list(b"/").await?.is_empty() {
        return Err(Error::new(Code::NotEmpty, "a container is restored into an empty one"));
    }
    let mut restored = Restored::default();
    let mut names: HashMap<&str, Vec<u8>> = HashMap::new();
    let mut directories = Vec::new();
    for entry in entries {
        let path = from_text(&entry.path)?;
        let named = |error: Error| error.context(String::from_utf8_lossy(&path));
        match entry.kind {
            EntryKind::Directory => {
                if path != b"/" {
                    sys.mkdir(&path, 0o700).await.map_err(named)?;
                    restored.directories += 1;
                }
                directories.push((path, entry));
            }
            EntryKind::Symlink => {
                let target = from_text(entry.target.as_deref().unwrap_or_default())?;
                sys.symlink(&target, &path).await.map_err(named)?;
                set_attributes(&sys, &path, entry).await.map_err(named)?;
                restored.links += 1;
            }
            EntryKind::File => {
                let first = entry.object.as_deref().and_then(|object| names.get(object));
                if let Some(first) = first {
                    sys.link(first, &path).await.map_err(named)?;
                    continue;
                }
                let made = async {
                    let Some(manifest) = manifest_of(store, entry).await? else { return Ok(None) };
                    write(&sys, &path, store, &manifest, progress).await?;
                    Ok::<_, Error>(Some(manifest.size))
                };
                match made.await {
                    Ok(Some(bytes)) => restored.bytes += bytes,
                    Ok(None) => {
                        restored.missing += 1;
                        continue;
                    }
                    Err(error) if matches!(error.code, Code::Csum | Code::NonExist) => {
                        restored.damaged.push(named(error).to_string());
                        continue;
                    }
                    Err(error) => return Err(named(error)),
                }
                set_attributes(&sys, &path, entry).await.map_err(named)?;
                restored.files += 1;
                if let Some(object) = &entry.object {
                    names.insert(object, path);
                }
            }
        }
    }
    // What is made in a directory changes its mtime.
    for (path, entry) in directories.iter().rev() {
        set_attributes(&sys, path, entry).await?;
    }
    Ok(restored)
}

/// Makes one file of a tree, under another path or its own; returns its bytes.
///
/// Errors: `NonExist` when the tree has no such file, or no copy of it; `Exist`; those of [`restore`].
#[boxed(?Send)]
pub async fn restore_file(
    fs: &Dfs,
    store: &Store,
    entries: &[TreeEntry],
    path: &[u8],
    to: &[u8],
    progress: &dyn Fn(u64),
) -> Result<u64> {
    let wanted = to_text(path);
    let entry = entries.iter().find(|entry| entry.path == wanted);
    let entry = entry.filter(|entry| entry.kind == EntryKind::File).ok_or_else(|| {
        Error::new(Code::NonExist, format!("the tier describes no file '{wanted}'"))
    })?;
    let manifest = manifest_of(store, entry).await?.ok_or_else(|| {
        Error::new(Code::NonExist, format!("'{wanted}' had no copy when it was described"))
    })?;
    let sys = Sys::new(fs.clone());
    write(&sys, to, store, &manifest, progress).await?;
    let attributes = set_attributes(&sys, to, entry).await;
    if attributes.is_err() {
        sys.unlink(to).await?;
    }
    attributes.map(|()| manifest.size)
}

async fn manifest_of(store: &Store, entry: &TreeEntry) -> Result<Option<FileManifest>> {
    let (Some(key), Some(sum)) = (&entry.manifest, &entry.manifest_sha256) else {
        return Ok(None);
    };
    let sum = from_hex(sum).ok_or_else(|| Error::new(Code::Csum, "a tree has a damaged sum"))?;
    FileManifest::decode(&store.get(key).await?, Some(&sum)).map(Some)
}

/// Makes a file with the bytes that a manifest names; on an error it is not there: half a file would look like a whole one.
async fn write(
    sys: &Sys,
    path: &[u8],
    store: &Store,
    manifest: &FileManifest,
    progress: &dyn Fn(u64),
) -> Result<()> {
    let flags = OpenFlags::READ_WRITE | OpenFlags::CREATE | OpenFlags::EXCL;
    let file = sys.open(path, flags, 0o600, &CreateOptions::default()).await?;
    let written = write_parts(sys, &file, store, manifest, progress).await;
    drop(file);
    if written.is_err() {
        sys.unlink(path).await?;
    }
    written
}

async fn write_parts(
    sys: &Sys,
    file: &Obj,
    store: &Store,
    manifest: &FileManifest,
    progress: &dyn Fn(u64),
) -> Result<()> {
    let mut at = 0;
    let parts = futures_util::stream::iter(&manifest.parts);
    let mut parts =
        parts.map(|part| part_bytes(store, part)).buffered(parallel(manifest.part_bytes));
    while let Some(bytes) = parts.next().await {
        let bytes = bytes?;
        sys.fs().write(file, at, &bytes).await?;
        at += bytes.len() as u64;
        progress(bytes.len() as u64);
    }
    Ok(())
}

async fn set_attributes(sys: &Sys, path: &[u8], entry: &TreeEntry) -> Result<()> {
    let (fs, is_link) = (sys.fs(), entry.kind == EntryKind::Symlink);
    let obj = sys.lookup(path, false).await?;
    for (name, value) in &entry.xattrs {
        let (name, value) = (from_text(name)?, from_base64(value)?);
        fs.setxattr(&obj, &name, &value, XattrMode::Set).await?;
    }
    let owner = SetAttr { uid: Some(entry.uid), gid: Some(entry.gid), ..SetAttr::default() };
    match fs.setattr(&obj, &owner).await {
        // Only the superuser gives files away.
        Err(error) if error.code == Code::NoPerm => {}
        outcome => drop(outcome?),
    }
    let mode = (!is_link).then_some(entry.mode);
    let mtime = Some(SetTime::At(entry.mtime_ns));
    fs.setattr(&obj, &SetAttr { mode, mtime, ..SetAttr::default() }).await.map(|_| ())
}
