//! An administrator who gives all files of a tree another class while clients make, rename, link and remove them. Nobody sees anything of it: what has a
//! name is what had it before, and no object is left that nothing names.

use super::clients::{Worker, open};
use super::run::Run;
use dfs::OpenFlags;
use dfs::migrate::{MigrateOptions, Migrated, Migrating};
use env::Env;
use std::rc::Rc;
use std::time::Duration;
use types::{Code, ObjClass, Result};

/// How long a file is waited for that is being changed.
const WAIT: Duration = Duration::from_millis(500);
/// Files at a time.
const PARALLEL: usize = 3;

impl Run {
    /// All files get a class, of those that the cluster has room for. One migration at a time.
    pub(super) async fn migrate_files(self: &Rc<Self>, env: &Env) {
        if self.is_migrating.replace(true) {
            return;
        }
        let classes = match self.settings.class_alone {
            "S1" => &["S1", "SX", "S2"][..],
            "RP_2G1" => &["RP_2G1", "RP_2GX", "RP_2G2"],
            "RP_3G1" => &["RP_3G1", "RP_3GX", "RP_3G2"],
            class => &[class, "RP_4GX"],
        };
        let class = classes[env.random_u64() as usize % classes.len()];
        match self.migrated(class).await {
            Ok(count) => {
                self.migrated.set(self.migrated.get() + count);
                self.note(|| format!("{count} files have class {class} now"));
            }
            Err(error) => {
                self.note(|| format!("migrating to {class}: {error}"));
                // A directory or a pool that cannot be had for now.
                let is_trouble = matches!(
                    error.code,
                    Code::NonExist | Code::Busy | Code::Redundancy | Code::TxRestart
                );
                if !is_trouble && let Err(error) = self.bear(error) {
                    self.wrong.borrow_mut().get_or_insert(format!("migrating: {error}"));
                }
            }
        }
        self.is_migrating.set(false);
    }

    async fn migrated(self: &Rc<Self>, class: &str) -> Result<u64> {
        let class: ObjClass = class.parse()?;
        let client = self.cluster.client_within("migrator", Duration::from_secs(5));
        let site = Worker::new(self.clone(), u32::MAX, open(&client).await?).try_mount().await?;
        let top = site.fs.lookup(b"/", OpenFlags::READ).await?;
        let options = MigrateOptions { class, wait: WAIT, parallel: PARALLEL };
        let mut count = 0;
        let tell = |told: Migrating| match told {
            Migrating::File { outcome: Ok(Migrated::Done), .. } => count += 1,
            told => self.note(|| format!("{told:?}")),
        };
        site.fs.migrate(&top, &options, &|_| {}, tell).await?;
        Ok(count)
    }
}
