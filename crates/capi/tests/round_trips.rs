//! What calls cost: the number of questions asked of the servers.

use azekura::ctx::Ctx;
use azekura::ctypes::{d_iov_t, d_sg_list_t, daos_handle_t};
use azekura::dfs::io::{dfs_read, dfs_readx, dfs_write};
use azekura::dfs::lookup::dfs_open;
use azekura::dfs::mount::dfs_mount;
use azekura::dfs::names::{dfs_mkdir, dfs_move, dfs_remove};
use azekura::dfs::obj::dfs_release;
use azekura::dfs::{attr::dfs_stat, dfs_obj_t, dfs_t};
use sim::LocalSystem;
use std::ffi::CStr;
use std::ptr::{null, null_mut};
use types::{ContLayout, Durability};

const FILE: u32 = libc::S_IFREG | 0o644;

/// How many questions `call` asks; it must return 0.
fn asked(call: impl FnOnce() -> i32) -> u64 {
    let count = || Ctx::of_thread().unwrap().lock().local().client.request_count();
    let before = count();
    assert_eq!(call(), 0);
    count() - before
}

fn open(dfs: *mut dfs_t, name: &CStr, flags: i32, file: &mut *mut dfs_obj_t) -> i32 {
    // SAFETY: a C string and room for the result.
    unsafe { dfs_open(dfs, null_mut(), name.as_ptr(), FILE, flags, 0, 0, null(), file) }
}

/// All in one test: the library is set up once per process.
#[test]
fn calls_ask_no_more_than_they_must() {
    let system = LocalSystem::start(1, 2).unwrap();
    let options = system.options(false);
    let unix = options.system.engines.iter().find_map(|address| match address {
        transport::Address::Unix(path) => Some(format!("unix:{}", path.display())),
        _ => None,
    });
    // SAFETY: no other thread of this test process looks at the environment now.
    unsafe { std::env::set_var("AZEKURA_SYSTEM", unix.unwrap()) };
    let client = system.client(false).unwrap();
    let cont = system.container(&client, Durability::Memory, ContLayout::Posix).unwrap();
    client.block_on(dfs::Dfs::format(&cont, &dfs::FormatOptions::default())).unwrap();

    assert_eq!(azekura::init::daos_init(), 0);
    let (mut poh, mut coh) = (daos_handle_t::default(), daos_handle_t::default());
    let mut dfs = null_mut();
    // SAFETY: C strings, and room for the results.
    unsafe {
        use azekura::{cont::daos_cont_open, pool::daos_pool_connect};
        let none = null_mut();
        let connected = daos_pool_connect(c"p".as_ptr(), null(), 2, &mut poh, null_mut(), none);
        assert_eq!(connected, 0);
        assert_eq!(daos_cont_open(poh, c"c".as_ptr(), 2, &mut coh, null_mut(), none), 0);
        assert_eq!(dfs_mount(poh, coh, libc::O_RDWR, &mut dfs), 0);
    }
    let mut file = null_mut();
    let creates = libc::O_RDWR | libc::O_CREAT;
    // The first file also gets a range of object numbers.
    assert_eq!(asked(|| open(dfs, c"first", creates, &mut file)), 2);
    // SAFETY: numbers.
    assert_eq!(asked(|| unsafe { dfs_release(file) }), 0);
    let mut created = 0;
    for name in [c"a", c"b", c"c", c"d"] {
        created += asked(|| open(dfs, name, creates | libc::O_EXCL, &mut file));
        // SAFETY: numbers.
        created += asked(|| unsafe { dfs_release(file) });
    }
    assert_eq!(created, 4, "a file is made, opened and released in one round trip");

    let mut memory = [7u8; 100];
    let mut iov = d_iov_t { iov_buf: memory.as_mut_ptr().cast(), iov_buf_len: 100, iov_len: 100 };
    let mut sgl = d_sg_list_t { sg_nr: 1, sg_nr_out: 0, sg_iovs: &mut iov };
    assert_eq!(open(dfs, c"a", libc::O_RDWR, &mut file), 0);
    // SAFETY: lists of memory that is there; numbers.
    unsafe {
        assert_eq!(asked(|| dfs_write(dfs, file, &mut sgl, 0, null_mut())), 1);
        let mut read = 0;
        (*sgl.sg_iovs).iov_len = 50;
        assert_eq!(asked(|| dfs_read(dfs, file, &mut sgl, 10, &mut read, null_mut())), 1);
        assert_eq!(read, 50);
        // Fifty ranges of one chunk are one question.
        let mut ranges: Vec<azekura::ctypes::daos_range_t> =
            (0..50).map(|at| azekura::ctypes::daos_range_t { rg_idx: 2 * at, rg_len: 1 }).collect();
        let mut iod = azekura::ctypes::dfs_iod_t { iod_nr: 50, iod_rgs: ranges.as_mut_ptr() };
        assert_eq!(asked(|| dfs_readx(dfs, file, &mut iod, &mut sgl, &mut read, null_mut())), 1);
        assert_eq!(read, 50);
        assert_eq!(dfs_release(file), 0);
    }
    for name in [c"a", c"b"] {
        assert_eq!(asked(|| open(dfs, name, libc::O_RDONLY, &mut file)), 1);
        // SAFETY: numbers.
        assert_eq!(asked(|| unsafe { dfs_release(file) }), 0);
        // SAFETY: a C string and room for the result.
        let stat = asked(|| unsafe {
            let mut stat = std::mem::zeroed();
            dfs_stat(dfs, null_mut(), name.as_ptr(), &mut stat)
        });
        assert_eq!(stat, 1, "attributes and size come together");
    }
    // SAFETY: C strings.
    unsafe {
        assert_eq!(asked(|| dfs_remove(dfs, null_mut(), c"b".as_ptr(), false, null_mut())), 1);
        let moved = asked(|| {
            dfs_move(dfs, null_mut(), c"c".as_ptr(), null_mut(), c"e".as_ptr(), null_mut())
        });
        assert!(moved <= 3, "both entries at once, then the move: {moved}");
        let made = asked(|| dfs_mkdir(dfs, null_mut(), c"dir".as_ptr(), 0o755, 0));
        assert!(made <= 2, "{made}");
    }

    // Another thread uses the file without asking where it is, and gives back nothing twice.
    assert_eq!(open(dfs, c"a", libc::O_RDWR, &mut file), 0);
    let (mount, shared) = (dfs.addr(), file.addr());
    std::thread::spawn(move || {
        let mount: *mut dfs_t = std::ptr::without_provenance_mut(mount);
        let shared: *mut dfs_obj_t = std::ptr::without_provenance_mut(shared);
        let mut memory = [0u8; 100];
        let (iov_buf, iov_len) = (memory.as_mut_ptr().cast(), memory.len());
        let mut iov = d_iov_t { iov_buf, iov_buf_len: iov_len, iov_len };
        let mut sgl = d_sg_list_t { sg_nr: 1, sg_nr_out: 0, sg_iovs: &mut iov };
        let mut read = 0;
        // SAFETY: lists of memory that is there; numbers.
        unsafe {
            let first = asked(|| dfs_read(mount, shared, &mut sgl, 0, &mut read, null_mut()));
            assert_eq!((first, read), (1, 100));
            assert_eq!(asked(|| dfs_release(shared)), 0);
            assert_eq!(dfs_release(shared), libc::EINVAL);
        }
    })
    .join()
    .unwrap();
    assert_eq!(azekura::init::daos_fini(), 0);
}
