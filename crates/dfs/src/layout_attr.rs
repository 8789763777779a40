//! What files are made of, as extended attributes: `user.azekura.oclass` and the like.
//!
//! So every way in that has extended attributes shows and sets layouts, also to programs that know nothing of us.
//! A file tells its own class and chunk size, a directory those of what is made in it; only a directory's can be
//! set, and removing one goes back to what the file system has.
//!
//! Invariant: they are computed, never stored, and not listed. Programs that copy all attributes of a tree would otherwise
//! carry them to other file systems, and fail with them on files, where a layout is fixed.

use crate::flags::{Access, check_chunk_bytes};
use crate::fs::Dfs;
use crate::inode::{FileKind, Inode};
use crate::node::Obj;
use crate::xattr::XattrMode;
use async_recursion::async_recursion as boxed;
use types::{Code, Error, ObjClass, ObjType, Result, size};

/// Class of the file, or of files made in the directory.
pub const CLASS: &str = "user.azekura.oclass";
/// Class of directories made in the directory.
pub const DIR_CLASS: &str = "user.azekura.dir_oclass";
/// Chunk size of the file, or of files made in the directory, bytes.
pub const CHUNK_SIZE: &str = "user.azekura.chunk_size";
/// All of that, the object and its own class in a line of `name=value`; to be read only.
pub const LAYOUT: &str = "user.azekura.layout";
/// All of them.
pub const NAMES: [&str; 4] = [CLASS, DIR_CLASS, CHUNK_SIZE, LAYOUT];

/// One of the attributes above.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LayoutAttr {
    Class,
    DirClass,
    ChunkSize,
    Layout,
}

/// True for an extended attribute that is computed from the layout.
pub fn is_layout(name: &[u8]) -> bool {
    LayoutAttr::of(name).is_some()
}

impl LayoutAttr {
    pub fn of(name: &[u8]) -> Option<LayoutAttr> {
        let all = [
            (CLASS, LayoutAttr::Class),
            (DIR_CLASS, LayoutAttr::DirClass),
            (CHUNK_SIZE, LayoutAttr::ChunkSize),
            (LAYOUT, LayoutAttr::Layout),
        ];
        all.into_iter().find(|(known, _)| known.as_bytes() == name).map(|(_, attr)| attr)
    }

    /// The change that a value means; `None` takes away what was set.
    fn change(self, value: Option<&[u8]>) -> Result<LayoutChange> {
        let text = match value {
            None => None,
            Some(value) => {
                let text = std::str::from_utf8(value).map_err(|_| {
                    Error::inval("a class or size is text (examples: RP_2GX, 4MiB)")
                })?;
                // Some programs write the NUL, too.
                Some(text.trim_end_matches('\0').trim())
            }
        };
        let class = || text.map(str::parse::<ObjClass>).transpose();
        let mut change = LayoutChange::default();
        match self {
            LayoutAttr::Class => change.file_class = Some(class()?),
            LayoutAttr::DirClass => change.dir_class = Some(class()?),
            LayoutAttr::ChunkSize => {
                let bytes = text.map(size::parse).transpose()?;
                if let Some(bytes) = bytes {
                    types::props::check_chunk_bytes(bytes)?;
                }
                change.chunk_bytes = Some(bytes.unwrap_or(0));
            }
            LayoutAttr::Layout => {
                let text = format!("{LAYOUT} is told only; set {CLASS}, {DIR_CLASS}, {CHUNK_SIZE}");
                return Err(Error::new(Code::NotSupported, text));
            }
        }
        Ok(change)
    }
}

/// A change of what is made in a directory from now on; `None` leaves something as it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LayoutChange {
    /// Class of files; `Some(None)`: that of the file system.
    pub file_class: Option<Option<ObjClass>>,
    /// Class of directories; `Some(None)`: that of the file system.
    pub dir_class: Option<Option<ObjClass>>,
    /// Chunk size of files, bytes; `Some(0)`: that of the file system.
    pub chunk_bytes: Option<u64>,
}

impl LayoutChange {
    /// Back to what the file system has.
    pub const RESET: LayoutChange =
        LayoutChange { file_class: Some(None), dir_class: Some(None), chunk_bytes: Some(0) };
}

impl Dfs {
    /// Changes class and chunk size of what is made in a directory from now on (and in directories
    /// made in it).
    ///
    /// Errors: `NotDir`; those of [`client::Container::generate_oid`] for a class that cannot be had; `Inval` for a
    /// chunk size that is none; `NoPerm` for who does not own the directory.
    #[boxed(?Send)]
    pub async fn change_layout(&self, dir: &Obj, change: LayoutChange) -> Result<()> {
        dir.require_dir()?;
        self.require_writable()?;
        let chunk_bytes = change.chunk_bytes.map(check_chunk_bytes).transpose()?;
        let shared = &self.shared;
        // Refuses at once what every later creation would be refused for.
        for (kind, class) in [
            (ObjType::ArrayByte, change.file_class.flatten()),
            (ObjType::MultiHashed, change.dir_class.flatten()),
        ] {
            class.map(|class| shared.cont.generate_oid(kind, class, 0, 0)).transpose()?;
        }
        let found = shared.fetch_node(&dir.node).await?;
        let (location, found) = found.ok_or_else(|| Error::bare(Code::NonExist))?;
        self.check_owner(&found.inode)?;
        shared
            .update_inode(location.parent, &location.name, found, |found| {
                let old = found.inode;
                Ok(Inode {
                    file_class: change.file_class.unwrap_or(old.file_class),
                    dir_class: change.dir_class.unwrap_or(old.dir_class),
                    chunk_bytes: chunk_bytes.unwrap_or(old.chunk_bytes),
                    ..old
                })
            })
            .await
            .map(|_| ())
    }

    /// Sets one of the attributes, or with no value takes away what was set.
    pub(crate) async fn set_layout_attr(
        &self,
        obj: &Obj,
        attr: LayoutAttr,
        value: Option<&[u8]>,
        mode: XattrMode,
    ) -> Result<()> {
        if !obj.is_dir() {
            let text = "class and chunk size are fixed when a file is made; set them on a directory and copy the file \
                        into it";
            return Err(Error::new(Code::NotSupported, text));
        }
        let change = attr.change(value)?;
        if mode == XattrMode::Create {
            // There is always a value.
            return Err(Error::bare(Code::Exist));
        }
        self.change_layout(obj, change).await
    }

    /// The value of one of the attributes. Errors: `NoAttr` where it has no meaning, `Access`.
    pub(crate) async fn layout_attr(&self, obj: &Obj, attr: LayoutAttr) -> Result<Vec<u8>> {
        let found = self.shared.fetch_node(&obj.node).await?;
        // A file without a name has its layout all the same.
        let inode = found.map_or_else(|| obj.node.inode(), |(_, found)| found.inode);
        let is_dir = match inode.kind() {
            FileKind::Directory => true,
            FileKind::Regular if attr != LayoutAttr::DirClass => false,
            _ => return Err(Error::bare(Code::NoAttr)),
        };
        self.check_access(&inode, Access::READ)?;
        let (shared, class) = (&self.shared, inode.oid.class()?);
        let (chunk, superblock) = (shared.chunk_bytes_of(&inode), &shared.superblock);
        let of_files = inode.file_class.unwrap_or(superblock.file_class);
        let of_dirs = inode.dir_class.unwrap_or(superblock.dir_class);
        let text = match attr {
            LayoutAttr::Class if is_dir => of_files.to_string(),
            LayoutAttr::Class => class.to_string(),
            LayoutAttr::DirClass => of_dirs.to_string(),
            LayoutAttr::ChunkSize => chunk.to_string(),
            LayoutAttr::Layout => {
                shared.cont.learn(inode.oid).await;
                let groups = shared.cont.layout(inode.oid)?.group_count();
                let members = class.scheme.members();
                let within = match is_dir {
                    true => format!(" file_oclass={of_files} dir_oclass={of_dirs}"),
                    false => match self.reaches_beyond(obj).await? {
                        Some((bytes, beyond)) => format!(" first_part={bytes} beyond={beyond}"),
                        None => String::new(),
                    },
                };
                format!(
                    "oid={} oclass={class} groups={groups} copies={members}{within} chunk_size={chunk}",
                    inode.oid
                )
            }
        };
        Ok(text.into_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_known_and_no_other() {
        for name in NAMES {
            assert!(is_layout(name.as_bytes()), "{name}");
        }
        for name in ["user.azekura.", "user.azekura.oclass2", "azekura.oclass", ""] {
            assert!(!is_layout(name.as_bytes()), "{name}");
        }
    }

    #[test]
    fn values_are_read_and_nonsense_is_refused() {
        let change = |name: &str, value: Option<&str>| {
            LayoutAttr::of(name.as_bytes()).unwrap().change(value.map(str::as_bytes))
        };
        let none = LayoutChange::default();
        let class = "RP_2GX".parse().unwrap();
        let file = LayoutChange { file_class: Some(Some(class)), ..none };
        assert_eq!(change(CLASS, Some("rp_2gx\n\0")).unwrap(), file);
        let dir = LayoutChange { dir_class: Some(None), ..none };
        assert_eq!(change(DIR_CLASS, None).unwrap(), dir);
        let chunk = LayoutChange { chunk_bytes: Some(4 << 20), ..none };
        assert_eq!(change(CHUNK_SIZE, Some("4MiB")).unwrap(), chunk);
        for (name, bad) in [(CLASS, ""), (CLASS, "RP_9G1"), (CHUNK_SIZE, "0"), (CHUNK_SIZE, "5000")]
        {
            assert_eq!(change(name, Some(bad)).unwrap_err().code, Code::Inval, "{name} {bad}");
        }
        assert!(LayoutAttr::Class.change(Some(b"\xff")).is_err());
        assert_eq!(change(LAYOUT, Some("x")).unwrap_err().code, Code::NotSupported);
        assert_eq!(change(LAYOUT, None).unwrap_err().code, Code::NotSupported);
    }
}
