//! An open file of ours, as this process knows it: what the kernel calls an open file
//! description. Descriptors that `dup` makes share one.

use crate::about::About;
use crate::config::{self, Prefix};
use crate::head::{Head, Locked, Page};
use crate::mount::Mount;
use crate::{inside, table};
use dfs::{Dfs, FileKind, Obj, OpenFlags, SharedObj};
use parking_lot::Mutex;
use perthread::{Ctx, Local};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, AtomicU64, Ordering};
use types::Result;

/// Number of the next open file. Those of mounts' mirrors are below [`FIRST`].
static NEXT: AtomicU64 = AtomicU64::new(FIRST);
/// Least number of an open file.
pub const FIRST: u64 = 1 << 32;

/// An open file, directory or other object.
pub struct Open {
    /// Its number in this process, never used again.
    pub id: u64,
    pub prefix: &'static Prefix,
    pub cont: [u8; 16],
    kind: FileKind,
    known: Mutex<SharedObj>,
    version: AtomicU64,
    /// Path below the prefix, as opened or as renamed by this process since.
    path: Mutex<Vec<u8>>,
    /// The context that holds what the servers count.
    home: Mutex<Option<Arc<Ctx>>>,
    /// Where the state is: `own`, or a page.
    head: AtomicPtr<Head>,
    own: Box<Head>,
    page: Mutex<Option<Page>>,
    /// Descriptor of the page, to be found without a lock by a child that `fork` makes; -1: none.
    page_fd: AtomicI32,
    /// Inode number of the page; 0: none.
    page_inode: AtomicU64,
    /// This process is among those for whom the servers hold the description's locks, as of that
    /// time in [`crate::head::TIMES`] when it came to be locked; 0: it is not.
    pub joined: AtomicU32,
    /// Position of `getdents64`.
    pub listing: Mutex<Option<crate::listing::Listing>>,
}

/// An open file in a context.
struct Here {
    obj: Obj,
    version: Cell<u64>,
    // After the object: it gives back through it what the servers count.
    mount: Rc<Mount>,
}

impl Open {
    /// For an object just opened in a context, which holds what the servers count.
    pub fn new(mount: &Mount, path: Vec<u8>, obj: &Obj, status: u32) -> Arc<Open> {
        let head = Box::new(Head::new(status));
        Arc::new(Open {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            prefix: mount.prefix,
            cont: mount.fs().container().info().uuid.into_bytes(),
            kind: obj.kind(),
            known: Mutex::new(obj.share()),
            version: AtomicU64::new(0),
            path: Mutex::new(path),
            home: Mutex::new(None),
            head: AtomicPtr::new(std::ptr::from_ref(&*head).cast_mut()),
            own: head,
            page: Mutex::new(None),
            page_fd: AtomicI32::new(-1),
            page_inode: AtomicU64::new(0),
            joined: AtomicU32::new(0),
            listing: Mutex::new(None),
        })
    }

    /// From a page that another process, or this one before `fork` or `exec`, has made.
    pub fn adopt(page: Page, about: &About) -> Option<Arc<Open>> {
        let config = config::get()?;
        let prefix = config.prefixes.iter().find(|prefix| prefix.url() == about.url)?;
        let known = SharedObj::from_global(about.cont, &about.object).ok()?;
        let own = Box::new(Head::new(0));
        let head = AtomicPtr::new(std::ptr::from_ref(page.head()).cast_mut());
        Some(Arc::new(Open {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            prefix,
            cont: about.cont,
            kind: known.kind(),
            known: Mutex::new(known),
            version: AtomicU64::new(0),
            path: Mutex::new(about.path.clone()),
            home: Mutex::new(None),
            head,
            own,
            page_fd: AtomicI32::new(fd_of(&page)),
            page_inode: AtomicU64::new(page.inode()),
            page: Mutex::new(Some(page)),
            joined: AtomicU32::new(0),
            listing: Mutex::new(None),
        }))
    }

    /// What kind of object it is.
    pub fn kind(&self) -> FileKind {
        self.kind
    }

    /// Path below the prefix.
    pub fn path(&self) -> Vec<u8> {
        self.path.lock().clone()
    }

    /// What is known of the object.
    pub fn known(&self) -> SharedObj {
        self.known.lock().clone()
    }

    /// Tells other contexts, and processes to come, what has become of the object.
    pub fn set_known(&self, known: SharedObj) {
        *self.known.lock() = known;
        self.version.fetch_add(1, Ordering::Release);
    }

    /// A rename moved it, or a directory above it.
    pub fn set_path(&self, path: Vec<u8>) {
        *self.path.lock() = path;
    }

    /// Remembers who holds what the servers count, and what it made.
    pub fn settle(&self, ctx: Arc<Ctx>, local: &Local, mount: &Rc<Mount>, obj: Obj) {
        let version = Cell::new(self.version.load(Ordering::Acquire));
        local.keep(self.id, Rc::new(Here { obj, version, mount: mount.clone() }));
        *self.home.lock() = Some(ctx);
    }

    /// The state, for one look at flags.
    pub fn head(&self) -> &Head {
        // SAFETY: either `own` or in the page, both of which live as long as this.
        unsafe { &*self.head.load(Ordering::Acquire) }
    }

    /// The state, held.
    pub fn lock(&self) -> Locked<'_> {
        loop {
            let head = self.head();
            let locked = head.lock();
            if std::ptr::eq(head, self.head()) {
                return locked;
            }
        }
    }

    /// Moves the state where other processes can share it. The descriptor that stands for it, if
    /// it had none before.
    pub fn publish(&self) -> Result<Option<OwnedFd>> {
        let mut page = self.page.lock();
        if page.is_some() {
            return Ok(None);
        }
        let about = About {
            url: self.prefix.url(),
            path: self.path(),
            cont: self.cont,
            object: self.known().to_global(self.cont),
        };
        let held = self.own.lock();
        let (made, fd) = Page::create(&self.own, &about, table::keep_for_children)?;
        self.page_fd.store(fd_of(&made), Ordering::Release);
        self.page_inode.store(made.inode(), Ordering::Release);
        self.head.store(std::ptr::from_ref(made.head()).cast_mut(), Ordering::Release);
        drop(held);
        *page = Some(made);
        Ok(Some(fd))
    }

    /// Descriptor of its page, this library's own; -1: none.
    pub fn page_fd(&self) -> RawFd {
        self.page_fd.load(Ordering::Acquire)
    }

    /// Inode number of its page; 0: none. Equal for equal descriptions only.
    pub fn page_inode(&self) -> u64 {
        self.page_inode.load(Ordering::Acquire)
    }

    /// The process has no descriptor of it any more. True when no other process has one either.
    pub fn leave(&self) -> bool {
        let mut page = self.page.lock();
        match page.as_mut() {
            None => true,
            Some(page) => {
                self.page_fd.store(-1, Ordering::Release);
                page.leave()
            }
        }
    }

    /// A descriptor by which another process gets it through a socket.
    pub fn name_for_others(&self) -> Option<OwnedFd> {
        self.page.lock().as_ref()?.name()
    }

    /// True when other processes may have it.
    pub fn is_shared(&self) -> bool {
        !std::ptr::eq(self.head(), &raw const *self.own)
    }

    /// The object in a context, made or brought up to date when needed.
    fn here(self: &Arc<Open>, local: &Rc<Local>) -> Result<(Dfs, Obj)> {
        if let Some(here) = local.mirrored::<Here>(self.id) {
            let fs = here.mount.fs();
            let version = self.version.load(Ordering::Acquire);
            if version != here.version.get() {
                fs.refresh(&here.obj, &self.known());
                here.version.set(version);
            }
            return Ok((fs, here.obj.clone()));
        }
        let mount = Mount::of(local, self.prefix)?;
        let fs = mount.fs();
        let mut home = self.home.lock();
        let is_held = home.as_ref().is_some_and(|ctx| ctx.is_current());
        let obj = if is_held {
            fs.attach(&self.known())
        } else {
            // Inherited: the servers count this process's own handle too.
            let obj = local.client.block_on(fs.attach_open(&self.known()))?;
            *home = Some(local.ctx()?);
            obj
        };
        drop(home);
        let version = Cell::new(self.version.load(Ordering::Acquire));
        local.keep(self.id, Rc::new(Here { obj: obj.clone(), version, mount }));
        Ok((fs, obj))
    }

    /// The object in a context.
    pub fn object(self: &Arc<Open>, local: &Rc<Local>) -> Result<Obj> {
        self.here(local).map(|(_, obj)| obj)
    }

    /// Runs an operation on the object in this thread's context. The thread must be inside.
    pub fn run<T>(
        self: &Arc<Open>,
        operation: impl AsyncFnOnce(&Dfs, &Obj) -> Result<T>,
    ) -> Result<T> {
        debug_assert!(inside::is_inside());
        let ctx = Ctx::of_thread()?;
        let held = ctx.lock();
        let local = held.local();
        let (fs, obj) = self.here(local)?;
        local.client.clone().block_on(operation(&fs, &obj))
    }

    /// Keeps for the whole process the flags that this context has seen of the object.
    pub fn learn(&self, obj: &Obj) {
        let flags = self.known().flags();
        self.set_known(obj.share().with_flags(flags));
    }

    /// Flags to read and write with: of the opening, and `O_APPEND` as it is now.
    pub fn flags(&self) -> OpenFlags {
        let opened = self.known.lock().flags().without(OpenFlags::APPEND);
        let status = self.head().status.load(Ordering::Relaxed);
        if status & libc::O_APPEND as u32 != 0 { opened | OpenFlags::APPEND } else { opened }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let Some(home) = self.home.lock().take().filter(|ctx| ctx.is_current()) else { return };
        let is_unlinked = self.head().marks.load(Ordering::Relaxed) & crate::head::UNLINKED != 0;
        if self.is_shared() && is_unlinked {
            // Another process may have it and not have asked for it yet; without a handle of
            // ours the file would be gone. It goes with this process.
            return;
        }
        let id = self.id;
        let elsewhere = Ctx::of_thread().is_ok_and(|ctx| !Arc::ptr_eq(&ctx, &home));
        home.defer(move |local| {
            local.forget(id);
            // Its own thread may have no further request to tell it with.
            if elsewhere {
                local.client.flush();
            }
        });
    }
}

/// Makes every open file of the process one that other processes can share. Before `fork`, and
/// before a program is executed.
pub fn publish_all() {
    for (fd, open) in table::all() {
        match open.publish() {
            Ok(Some(made)) => {
                for other in table::numbers_of(&open) {
                    table::replace_kernel_file(other, made.as_fd());
                }
            }
            Ok(None) => {}
            Err(error) => crate::report::log(
                crate::report::Level::Warn,
                format_args!("descriptor {fd} cannot be handed to other processes: {error}"),
            ),
        }
    }
}

fn fd_of(page: &Page) -> RawFd {
    page.file().map_or(-1, |file| file.as_raw_fd())
}

/// The open file behind a descriptor that came from elsewhere and is a page's own. With a door to
/// put in its place, if it can have one.
pub fn adopt(fd: BorrowedFd<'_>) -> Option<(Arc<Open>, Option<OwnedFd>)> {
    let (mut page, about, memory) = Page::of(fd)?;
    if let Some(known) = known(page.inode()) {
        return Some((known, None));
    }
    let door = page.own(&memory, table::keep_for_children);
    Some((Open::adopt(page, &about)?, door))
}

/// The open file of this process that has a page.
fn known(inode: u64) -> Option<Arc<Open>> {
    table::all().into_iter().map(|(_, open)| open).find(|open| open.page_inode() == inode)
}
