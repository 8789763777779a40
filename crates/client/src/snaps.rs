//! Snapshots of a container: making, listing, destroying, looking at one, rolling back to one.

use crate::client::unexpected;
use crate::cont::Container;
use crate::pool::Pool;
use async_recursion::async_recursion as boxed;
use types::{Code, Epoch, Error, Result};
use wire::control::{ControlReply, ControlRequest, Name, SnapInfo, SnapName};

impl Pool {
    /// Makes a snapshot of a container; an empty name is none.
    ///
    /// It shows everything acknowledged before the call, and nothing that begins after it.
    /// `Exist` when the name is taken, `Busy` while another is being made.
    #[boxed(?Send)]
    pub async fn snap_create(&self, cont: &Name, name: &str) -> Result<SnapInfo> {
        let (pool, cont, name) = (self.name(), cont.clone(), name.to_string());
        let request = ControlRequest::SnapCreate { pool, cont, name };
        match self.client().control(&request).await? {
            ControlReply::Snap(snap) => Ok(snap),
            _ => Err(unexpected()),
        }
    }

    /// The snapshots of a container, oldest first, and to which it is being rolled back.
    #[boxed(?Send)]
    pub async fn snap_list(&self, cont: &Name) -> Result<(Vec<SnapInfo>, Option<Epoch>)> {
        let request = ControlRequest::SnapList(self.name(), cont.clone());
        match self.client().control(&request).await? {
            ControlReply::Snaps { snaps, rolling_back } => Ok((snaps, rolling_back)),
            _ => Err(unexpected()),
        }
    }

    /// Removes a snapshot. The space that only it needs comes back in the background.
    #[boxed(?Send)]
    pub async fn snap_destroy(&self, cont: &Name, snap: &SnapName) -> Result<()> {
        let (pool, cont, snap) = (self.name(), cont.clone(), snap.clone());
        let request = ControlRequest::SnapDestroy { pool, cont, snap };
        self.client().control(&request).await.map(|_| ())
    }

    /// Makes a container what a snapshot shows; with `force` even while it is open. What came
    /// after the snapshot is lost, except to later snapshots. Nobody can use the container
    /// meanwhile. May be called again to wait for one that is under way.
    #[boxed(?Send)]
    pub async fn roll_back(&self, cont: &Name, snap: &SnapName, force: bool) -> Result<()> {
        let (pool, cont, snap) = (self.name(), cont.clone(), snap.clone());
        let request = ControlRequest::Rollback { pool, cont, snap, force };
        self.client().control(&request).await.map(|_| ())
    }
}

impl Container {
    /// The container as a snapshot shows it, to read only.
    ///
    /// `NonExist` when it has no such snapshot.
    #[boxed(?Send)]
    pub async fn at_snapshot(&self, snap: &SnapName) -> Result<Container> {
        let (snaps, _) = self.pool().snap_list(&self.name()).await?;
        let found = snaps.iter().find(|one| match snap {
            SnapName::Epoch(epoch) => one.epoch == *epoch,
            SnapName::Name(name) => one.name == *name,
        });
        let found = found.ok_or_else(|| {
            Error::new(Code::NonExist, format!("the container has no snapshot '{snap}'"))
        })?;
        Ok(self.at_epoch(found.epoch))
    }
}
