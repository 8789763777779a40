//! Requests that open and close.

use super::cache::Opening;
use super::convert;
use super::fault::{Answer, Fault};
use super::table::{Found, Inode};
use super::worker::{Worker, version_of};
use dfs::{CreateOptions, Obj, OpenFlags, Stat, Unnamed};
use fuselow::open_reply;
use fuselow::{Entry, Fh, NewNode, NodeId, OpenFlags as OpenBits, Opened, Release, Request};
use std::rc::Rc;

/// How often it is tried to open what has no name, and is closed by others all the time.
const OPEN_TRIES: u32 = 3;

/// Whose open handle keeps an object without a name for who opens it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Holder {
    Nobody,
    /// His own ([`super::replaced`]).
    Caller,
    /// That of any program of this mount.
    Any,
}

impl Worker {
    pub async fn open(&self, req: &Request, node: NodeId, bits: OpenBits) -> Answer<Opened> {
        let inode = self.inode(node)?;
        let as_of = self.volume.table.now();
        let obj = self.named(&inode);
        let cuts = bits.has(libc::O_TRUNC);
        if cuts {
            inode.touch(&self.volume.table);
        }
        let flags = convert::open_flags(bits);
        let looked_again = self.was_renewed(req, &inode);
        if inode.node() != node.0 && !looked_again {
            return Err(self.look_again(req, &inode));
        }
        let was_sent = self.was_sent(req);
        if inode.has_names_left() && !looked_again && !was_sent && !self.has_hold(req, &inode) {
            // It may have been found by one that others have given away. (Who has it held was sent before.)
            self.note_sent(req);
            return Err(Fault::Gone);
        }
        let holder = match () {
            () if self.take_hold(req, &inode) => Holder::Caller,
            // The path may lead elsewhere by now: it is looked up first, unless it cannot. Who opens what a descriptor names comes here again.
            () if looked_again || obj.is_unlinked() => Holder::Any,
            () => Holder::Nobody,
        };
        let opened = self.open_held(req, &inode, &obj, (flags, holder)).await;
        if matches!(opened, Err(Fault::Gone)) {
            self.note_replaced(req, &obj);
            if (inode.is_open() || inode.shared().is_hard()) && !looked_again {
                return Err(self.look_again(req, &inode));
            }
        }
        let (obj, stat) = opened?;
        self.learn(&inode, &obj, as_of);
        if cuts {
            inode.touch(&self.volume.table);
        } else if self.is_outdated(&inode, &stat, as_of) {
            // The path is looked up once more, and the kernel gets a file that it knows nothing of.
            self.volume.table.renew(&inode, version_of(&stat), as_of);
        }
        if cuts && bits.kill_suidgid {
            self.drop_privileges(&inode).await?;
        }
        let policy = &self.volume.options.policy;
        let keeps_size = !policy.attr_ttl.is_zero() && !policy.writes_back() && !cuts;
        if keeps_size && inode.size_told().is_some_and(|told| told != stat.size) {
            // Who opens a file sees what others wrote and closed before: also where it ends.
            self.notifier.inval_inode(node, -1, 0);
            self.notifier.flushed().await;
        }
        let is_newest = inode.opened_as(node.0);
        if !is_newest && !looked_again {
            return Err(self.look_again(req, &inode));
        }
        let flags = if is_newest {
            if cuts {
                inode.tell(version_of(&stat));
            }
            self.pages(&inode, bits, &stat, (cuts, as_of))
        } else {
            // Others changed it again, or it is what a descriptor names: what the kernel keeps of it is not looked at.
            inode.opened();
            open_reply::DIRECT_IO | open_reply::PARALLEL_DIRECT_WRITES
        };
        let fh = self.keep(inode.clone(), obj, &stat, bits);
        let policy = &self.volume.options.policy;
        if policy.attr_ttl_of(true) < policy.attr_ttl_of(false) {
            // The kernel got attributes with the name; who has the file open is told new ones.
            self.notifier.inval_attributes_now(node);
        }
        Ok(Opened { fh, flags })
    }

    /// Has the kernel look the path up again, and then open what that leads to.
    fn look_again(&self, req: &Request, inode: &Inode) -> Fault {
        self.note_renewed(req, inode);
        Fault::Gone
    }

    /// Opens an object that may have no name any more, as long as somebody has it open. Handles are of threads, and each gives its own back: where all that there were went back meanwhile, the object may be
    /// freed, and what is opened is an empty one in its place.
    async fn open_held(
        &self,
        req: &Request,
        inode: &Inode,
        obj: &Obj,
        (flags, holder): (OpenFlags, Holder),
    ) -> Answer<(Obj, Stat)> {
        for _ in 0..OPEN_TRIES {
            let then = inode.holders();
            let for_caller = holder == Holder::Caller;
            let held = for_caller || holder == Holder::Any && then.has_any();
            let unnamed = match holder {
                _ if held => Unnamed::Held,
                // It is not known which of its names the program came by: that one may lead elsewhere.
                Holder::Nobody => Unnamed::Refused,
                Holder::Any | Holder::Caller => Unnamed::Linked,
            };
            let opened = self.dfs_for(req).open_obj(obj, flags, unnamed).await;
            let (obj, stat) = opened.map_err(Fault::of_node)?;
            if stat.nlink > 0 || !held || for_caller || inode.is_held_since(then) {
                return Ok((obj, stat));
            }
        }
        Err(Fault::Gone)
    }

    /// Makes a file and opens it; opens the one that somebody else made meanwhile.
    pub async fn create(
        &self,
        req: &Request,
        parent: NodeId,
        name: &[u8],
        new: NewNode,
        bits: OpenBits,
    ) -> Answer<(Entry, Opened)> {
        let dir = self.inode(parent)?;
        let as_of = self.volume.table.now();
        let (dfs, at) = (self.dfs_with_umask(req, new.umask), self.named(&dir));
        let flags = convert::open_flags(bits);
        let made = dfs.create_stat(&at, name, flags, new.mode & 0o7777);
        let made = self.change_names(&dir, made, |made| made.changed_ns).await?;
        let (obj, stat) = (made.obj, made.stat);
        let found = self.open_found(&obj, as_of);
        let inode = &found.inode;
        let flags = self.pages(inode, bits, &stat, (bits.has(libc::O_TRUNC), as_of));
        // The kernel checks once more whether the program may open it.
        let attr_ttl = self.volume.options.policy.attr_ttl_of(inode.holders().has_several());
        let fh = self.keep(inode.clone(), obj, &stat, bits);
        let entry = Entry { attr_ttl, ..self.entry(found, &stat, as_of) };
        Ok((entry, Opened { fh, flags }))
    }

    /// Makes and opens a file without a name.
    pub async fn tmpfile(
        &self,
        req: &Request,
        parent: NodeId,
        new: NewNode,
        bits: OpenBits,
    ) -> Answer<(Entry, Opened)> {
        let dir = self.inode(parent)?;
        let as_of = self.volume.table.now();
        let (dfs, at) = (self.dfs_with_umask(req, new.umask), self.named(&dir));
        let flags = convert::open_flags(bits);
        let options = CreateOptions::default();
        let obj = dfs.tmpfile(&at, flags, new.mode & 0o7777, &options).await?;
        let stat = dfs.ostat(&obj).await?;
        let found = self.open_found(&obj, as_of);
        let flags = self.pages(&found.inode, bits, &stat, (false, as_of));
        let fh = self.keep(found.inode.clone(), obj, &stat, bits);
        Ok((self.entry(found, &stat, as_of), Opened { fh, flags }))
    }

    /// The node of what was made and opened, with a lookup and a handle more.
    fn open_found(&self, obj: &Obj, as_of: u64) -> Found {
        loop {
            let found = self.learn_of(&obj.share(), as_of);
            if found.inode.opened_as(found.node) {
                return found;
            }
            self.volume.table.forget(found.node, 1);
        }
    }

    /// How the kernel shall treat the pages of a file that was opened, and cut or not, by somebody who began at `as_of`.
    fn pages(&self, inode: &Inode, bits: OpenBits, stat: &Stat, (cuts, as_of): (bool, u64)) -> u32 {
        let unchanged = self.tell(inode, stat) && !cuts;
        let pages = self.volume.options.policy.pages(Opening {
            append: bits.has(libc::O_APPEND),
            o_direct: bits.has(libc::O_DIRECT),
            unchanged,
        });
        // Where a program has it open here the kernel cannot be given another size: what it appended would go where others have written.
        // What programs here have written since it was asked for is nobody else's.
        let ends_elsewhere = bits.has(libc::O_APPEND)
            && inode.unchanged_since(as_of)
            && inode.size_told() != Some(stat.size);
        let mut flags = 0;
        if pages.direct || ends_elsewhere {
            flags |= open_reply::DIRECT_IO | open_reply::PARALLEL_DIRECT_WRITES;
        }
        if pages.keep {
            flags |= open_reply::KEEP_CACHE;
        }
        // What was written is written, so that `close` is about locks alone.
        if self.volume.options.local_locks && !self.volume.options.policy.writes_back() {
            flags |= open_reply::NOFLUSH;
        }
        flags
    }

    /// The last descriptor of a file is closed.
    pub async fn release(self: &Rc<Self>, fh: Fh, release: Release) {
        let Some(file) = self.volume.files.remove(fh.0) else { return };
        let _releasing = file.inode.releasing();
        file.inode.stays_open(&file.closing);
        self.unlock_closed(&file, release.lock_owner.filter(|_| release.flock_unlock)).await;
        // The space of what has no name comes back now, not with the next request.
        let at_once = file.inode.shared().is_unlinked() && !file.inode.is_open();
        let thread = file.thread;
        drop(file);
        if thread == self.thread {
            self.let_go(fh.0, at_once);
        } else {
            self.volume.mail.send(thread, move |worker| worker.let_go(fh.0, at_once));
        }
    }
}
