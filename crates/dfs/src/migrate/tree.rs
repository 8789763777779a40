//! All files of a tree, some at a time.

use super::Migrated;
use crate::dir::DirAnchor;
use crate::flags::OpenFlags;
use crate::fs::Dfs;
use crate::node::{Location, Obj};
use futures_util::stream::{self, StreamExt};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::time::Duration;
use types::{Code, Error, ObjClass, ObjType, Oid, Result};

/// Entries listed at a time.
const PAGE_ENTRIES: u32 = 512;
/// Old objects are freed ten seconds after their files have new ones: who finds no room waits for that.
const ROOM_TIME: Duration = Duration::from_secs(12);

/// How the class of files is changed.
#[derive(Clone, Debug)]
pub struct MigrateOptions {
    /// What they get.
    pub class: ObjClass,
    /// How long a file that was copied is waited for while somebody has it open or changes it.
    pub wait: Duration,
    /// Files at the same time.
    pub parallel: usize,
}

/// News of a migration.
#[derive(Debug)]
pub enum Migrating {
    /// A file was found that is to get the class.
    Found { bytes: u64 },
    /// What became of a file; of one with several names once.
    File {
        /// Seen from the start, without a leading slash; empty: the start itself.
        path: Vec<u8>,
        outcome: Result<Migrated>,
    },
    /// A directory that could not be listed.
    Dir { path: Vec<u8>, error: Error },
}

/// A name of a file, and its path.
struct Name {
    location: Location,
    path: Vec<u8>,
}

impl Dfs {
    /// Gives all files at and below `top` a class, while they are in use. What has it already is left alone, so that
    /// a migration that was interrupted goes on when it is started again. Directories keep their class; new files get
    /// that of their directory. `on_bytes` hears of each piece that was copied.
    ///
    /// Errors: `NotSupported`, `Redundancy` for a class that cannot be had; those of listing directories but `Access`,
    /// which is told. What goes wrong with a file is told, and the others go on.
    pub async fn migrate(
        &self,
        top: &Obj,
        options: &MigrateOptions,
        on_bytes: &dyn Fn(u64),
        mut tell: impl FnMut(Migrating),
    ) -> Result<()> {
        self.require_writable()?;
        // Refuses at once what every file would be refused for.
        self.shared.cont.generate_oid(ObjType::ArrayByte, options.class, 0, 0)?;
        let mut hard = BTreeMap::<Oid, Vec<Name>>::new();
        let no_room = Cell::new(false);
        let mut dirs = Vec::new();
        if top.is_dir() {
            dirs.push((top.clone(), Vec::new()));
        } else {
            top.require_regular()?;
            let name = Name { location: top.node.location(), path: Vec::new() };
            self.migrate_some(vec![vec![name]], (options, &no_room), on_bytes, &mut tell).await;
        }
        while let Some((dir, path)) = dirs.pop() {
            let mut anchor = DirAnchor::start();
            while !anchor.is_end() {
                let page = match self.read_page(&dir, &mut anchor, PAGE_ENTRIES, true).await {
                    Ok(page) => page,
                    Err(error) if matches!(error.code, Code::Access | Code::NonExist) => {
                        tell(Migrating::Dir { path: path.clone(), error });
                        break;
                    }
                    Err(error) => return Err(error),
                };
                let mut files = Vec::new();
                for (name, found) in page {
                    let path = match path.is_empty() {
                        true => name.to_vec(),
                        false => [&path[..], b"/", &name].concat(),
                    };
                    let location = Location { parent: dir.oid(), name };
                    if found.inode.is_dir() {
                        let node = self.shared.node(location, found.inode);
                        dirs.push((Obj::new(node, OpenFlags::READ), path));
                    } else if found.inode.is_regular() && found.inode.hard {
                        let names = hard.entry(found.inode.oid).or_default();
                        names.push(Name { location, path });
                    } else if found.inode.is_regular() {
                        if found.inode.oid.class()? != options.class {
                            let bytes = found.tail.map_or(0, |tail| tail.bytes_used);
                            tell(Migrating::Found { bytes });
                        }
                        files.push(vec![Name { location, path }]);
                    }
                }
                self.migrate_some(files, (options, &no_room), on_bytes, &mut tell).await;
            }
        }
        let hard = hard.into_values().collect();
        self.migrate_some(hard, (options, &no_room), on_bytes, &mut tell).await;
        Ok(())
    }

    /// Files, each by all its names. `no_room`: one has waited for room in vain.
    async fn migrate_some(
        &self,
        files: Vec<Vec<Name>>,
        (options, no_room): (&MigrateOptions, &Cell<bool>),
        on_bytes: &dyn Fn(u64),
        tell: &mut impl FnMut(Migrating),
    ) {
        let mut running = stream::iter(files)
            .map(|names| async move {
                let path = names.first().map(|name| name.path.clone()).unwrap_or_default();
                let names: Vec<Location> = names.into_iter().map(|name| name.location).collect();
                let (class, wait) = (options.class, options.wait);
                let migrate = || self.migrate_file(&names, class, wait, on_bytes);
                let is_full = |outcome: &Result<Migrated>| {
                    outcome.as_ref().is_err_and(|error| error.code == Code::NoSpace)
                };
                let mut outcome = migrate().await;
                if is_full(&outcome) && !no_room.get() {
                    // timer: what was migrated just before is about to be freed.
                    self.shared.cont.client().env().sleep(ROOM_TIME).await;
                    outcome = migrate().await;
                    no_room.set(is_full(&outcome));
                }
                Migrating::File { path, outcome }
            })
            .buffer_unordered(options.parallel.max(1));
        while let Some(told) = running.next().await {
            tell(told);
        }
    }
}
