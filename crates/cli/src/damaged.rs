//! Whose damaged data are, by path: the file systems of the containers concerned are searched for the objects.

use crate::fs::remote::Remote;
use crate::output::warn_line;
use crate::scrub::TargetScrub;
use crate::session::Session;
use crate::url::Url;
use dfs::find::Query;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use types::{ContId, ContLayout, Oid, Result};
use wire::control::{ContInfo, Name, OpenMode};

/// An object with damaged data.
#[derive(Serialize)]
pub struct DamagedObject {
    #[serde(skip)]
    cont: ContId,
    #[serde(skip)]
    oid: Oid,
    /// Label or UUID.
    container: String,
    object: String,
    /// URLs of what it is; none: it has no name, or its container no file system.
    paths: Vec<String>,
}

/// The objects of which places of damage are known.
pub fn objects(
    session: &Session,
    pool: &client::Pool,
    targets: &[TargetScrub],
) -> Vec<DamagedObject> {
    let mut by_cont: BTreeMap<ContId, BTreeSet<Oid>> = BTreeMap::new();
    for holder in targets.iter().flat_map(TargetScrub::holders) {
        by_cont.entry(holder.cont).or_default().insert(holder.unit.object);
    }
    if by_cont.is_empty() {
        return Vec::new();
    }
    let conts = match pool.client().block_on(pool.cont_list()) {
        Ok(conts) => conts,
        Err(error) => {
            warn_line(format_args!("azekura: paths are not shown: {error}"));
            Vec::new()
        }
    };
    let mut all = Vec::new();
    for (cont, oids) in by_cont {
        let info = conts.iter().find(|info| info.id == cont);
        let name = info.map_or_else(|| cont.to_string(), name_of);
        let is_posix = |info: &&ContInfo| info.props.layout == ContLayout::Posix;
        let mut paths = match info.filter(is_posix).map(|info| paths(session, pool, info, &oids)) {
            Some(Err(error)) => {
                warn_line(format_args!("azekura: container {name}: paths are not shown: {error}"));
                BTreeMap::new()
            }
            Some(Ok(paths)) => paths,
            None => BTreeMap::new(),
        };
        all.extend(oids.into_iter().map(|oid| DamagedObject {
            cont,
            oid,
            container: name.clone(),
            object: oid.to_string(),
            paths: paths.remove(&oid).unwrap_or_default(),
        }));
    }
    all
}

/// The first path of an object, as far as one was found.
pub fn path_of(all: &[DamagedObject], cont: ContId, oid: Oid) -> Option<&str> {
    let found = all.iter().find(|object| (object.cont, object.oid) == (cont, oid));
    found.and_then(|object| object.paths.first()).map(String::as_str)
}

fn name_of(info: &ContInfo) -> String {
    if info.label.is_empty() { info.uuid.to_string() } else { info.label.clone() }
}

/// Looks at every name of a container.
fn paths(
    session: &Session,
    pool: &client::Pool,
    info: &ContInfo,
    oids: &BTreeSet<Oid>,
) -> Result<BTreeMap<Oid, Vec<String>>> {
    let label = Name::Label(pool.info().label.clone());
    let pool = if pool.info().label.is_empty() { pool.name() } else { label };
    let url = Url { pool, cont: Name::parse(&name_of(info)), path: b"/".to_vec() };
    let remote = Remote::open(session, &url, OpenMode::ReadOnly)?;
    let mut found: BTreeMap<Oid, Vec<String>> = BTreeMap::new();
    let mut keep = |path: &[u8], oid: Oid| {
        if oids.contains(&oid) {
            found.entry(oid).or_default().push(url.with_path(path.to_vec()).to_string());
        }
    };
    let root = remote.lookup(b"/", false)?;
    keep(b"/", root.oid());
    let query = Query { with_stat: true, ..Query::default() };
    let search = remote.dfs().find(&root, &query, |found| {
        if let Some(stat) = &found.stat {
            keep(&[b"/", &found.path[..]].concat(), stat.oid);
        }
        Ok(())
    });
    remote.wait(b"/", search)?;
    for paths in found.values_mut() {
        paths.sort();
    }
    Ok(found)
}
