//! Global handles: a mount or an open object as plain bytes, to be sent to another process.
//!
//! They hold no state of any server: they work after the sender closed its own, and for a
//! file that was renamed or removed meanwhile they do what a path would. The receiver opens the
//! container itself; importing a mount asks nobody, importing a file registers an open handle.
//!
//! | mount | bytes | object | bytes |
//! |---|---|---|---|
//! | magic `AZM1` | 4 | magic `AZO1` | 4 |
//! | container | 16 | container | 16 |
//! | mount flags | 4 | open flags | 4 |
//! | superblock record | rest | parent | 16 |
//! | | | length of the name, name | 2, n |
//! | | | inode record | rest |

use crate::cred::Credentials;
use crate::flags::{MountFlags, OpenFlags};
use crate::fs::Dfs;
use crate::inode::Inode;
use crate::layout::Superblock;
use crate::node::{Location, Obj};
use crate::share::SharedObj;
use crate::tier::Known;
use async_recursion::async_recursion as boxed;
use client::Container;
use types::{Error, Key, Oid, Result};
use wire::obj::Op;

const MOUNT_MAGIC: &[u8; 4] = b"AZM1";
const OBJ_MAGIC: &[u8; 4] = b"AZO1";

/// Takes pieces off the front of a handle.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, bytes: usize) -> Result<&'a [u8]> {
        let (piece, rest) = self.0.split_at_checked(bytes).ok_or_else(malformed)?;
        self.0 = rest;
        Ok(piece)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        self.take(N)?.try_into().map_err(|_| malformed())
    }

    /// Magic and container, which must be `cont`.
    fn head(&mut self, magic: &[u8; 4], cont: &[u8; 16]) -> Result<()> {
        if self.take(4)? != magic {
            return Err(malformed());
        }
        if self.take(16)? != cont {
            return Err(Error::inval("the global handle belongs to another container"));
        }
        Ok(())
    }
}

fn malformed() -> Error {
    Error::inval("these bytes are no global handle of this version")
}

impl Dfs {
    /// The mount as bytes.
    pub fn to_global(&self) -> Vec<u8> {
        let mut raw = MOUNT_MAGIC.to_vec();
        raw.extend_from_slice(self.container().info().uuid.as_bytes());
        raw.extend_from_slice(&self.flags().0.to_le_bytes());
        raw.extend_from_slice(&self.superblock().encode());
        raw
    }

    /// A mount from bytes, on the same container opened here. Asks nobody.
    pub fn from_global(cont: &Container, raw: &[u8], cred: Credentials) -> Result<Dfs> {
        let mut reader = Reader(raw);
        reader.head(MOUNT_MAGIC, cont.info().uuid.as_bytes())?;
        let flags = MountFlags(u32::from_le_bytes(reader.array()?));
        Ok(Dfs::with_superblock(cont, flags, cred, Superblock::decode(reader.0)?, Known::default()))
    }

    /// An open object as bytes.
    pub fn obj_to_global(&self, obj: &Obj) -> Vec<u8> {
        obj.share().to_global(self.container().info().uuid.into_bytes())
    }

    /// An open object from bytes; `flags` replace those it was opened with. `Inval` for bytes of
    /// another container or version.
    #[boxed(?Send)]
    pub async fn obj_from_global(&self, raw: &[u8], flags: Option<OpenFlags>) -> Result<Obj> {
        let uuid = self.shared.cont.info().uuid.into_bytes();
        let shared = SharedObj::from_global(uuid, raw)?;
        let obj = self.attach_open(&shared).await?;
        Ok(Obj { flags: flags.unwrap_or(obj.flags), ..obj })
    }

    /// [`Dfs::attach`], with an open handle of its own registered for a regular file: for another
    /// process, which may keep the file open longer than whoever described it.
    #[boxed(?Send)]
    pub async fn attach_open(&self, described: &SharedObj) -> Result<Obj> {
        let shared = &self.shared;
        let inode = described.inode;
        let opens = inode.is_regular() && !described.flags.has(OpenFlags::PATH);
        if opens {
            let mut batch = shared.cont.batch();
            batch.op(Op::Open { unit: inode.oid.first_unit() });
            batch.run().await?;
        }
        let node = shared.node(described.location.clone(), inode);
        if opens {
            node.add_handle();
        }
        Ok(Obj::new(node, described.flags))
    }
}

impl SharedObj {
    /// As bytes for another process, like [`Dfs::obj_to_global`]; `cont` is the container's uuid.
    pub fn to_global(&self, cont: [u8; 16]) -> Vec<u8> {
        let mut raw = OBJ_MAGIC.to_vec();
        raw.extend_from_slice(&cont);
        raw.extend_from_slice(&self.flags.0.to_le_bytes());
        raw.extend_from_slice(&self.location.parent.to_bytes());
        raw.extend_from_slice(&(self.location.name.len() as u16).to_le_bytes());
        raw.extend_from_slice(&self.location.name);
        raw.extend_from_slice(&self.inode.encode(b""));
        raw
    }

    /// The inverse. `Inval` for bytes of another container or version.
    pub fn from_global(cont: [u8; 16], raw: &[u8]) -> Result<SharedObj> {
        let mut reader = Reader(raw);
        reader.head(OBJ_MAGIC, &cont)?;
        let flags = OpenFlags(u32::from_le_bytes(reader.array()?));
        let parent = Oid::from_bytes(reader.array()?);
        let name_bytes = u16::from_le_bytes(reader.array()?);
        let name = Key::new(reader.take(name_bytes as usize)?);
        let inode = Inode::decode(reader.0)?.0;
        Ok(SharedObj::new(Location { parent, name }, inode, flags))
    }
}
