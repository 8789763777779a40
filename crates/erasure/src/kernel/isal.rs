//! Intel's ISA-L, opened at run time: what is built runs on machines without it.

use crate::factors::Factors;
use std::ffi::{CStr, c_int, c_uchar, c_void};
use std::sync::OnceLock;

/// The name with which Debian, Fedora and others install it.
const FILE: &CStr = c"libisal.so.2";
/// Bytes of a cell that are given to it at a time; it counts them with an `int`.
const BLOCK_BYTES: usize = 1 << 30;
/// Bytes of its tables per factor.
const TABLE_BYTES: usize = 32;

type InitTables = unsafe extern "C" fn(c_int, c_int, *const c_uchar, *mut c_uchar);
type EncodeData = unsafe extern "C" fn(
    c_int,
    c_int,
    c_int,
    *const c_uchar,
    *const *const c_uchar,
    *const *mut c_uchar,
);

/// The functions that are used of it.
pub struct Library {
    /// `ec_init_tables(columns, rows, values, tables)`
    init_tables: InitTables,
    /// `ec_encode_data(bytes, columns, rows, tables, sources, outputs)`
    encode_data: EncodeData,
}

/// The library; `None` where the machine has none. It stays open for good.
pub fn library() -> Option<&'static Library> {
    static LIBRARY: OnceLock<Option<Library>> = OnceLock::new();
    LIBRARY.get_or_init(open).as_ref()
}

fn open() -> Option<Library> {
    // SAFETY: the name ends with a zero byte. The library has no constructors that touch anything
    // of this process, and its names are not given to others (`RTLD_LOCAL`).
    let handle = unsafe { libc::dlopen(FILE.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if handle.is_null() {
        return None;
    }
    let find = |name: &CStr| -> Option<*mut c_void> {
        // SAFETY: the handle is open, the name ends with a zero byte.
        let found = unsafe { libc::dlsym(handle, name.as_ptr()) };
        (!found.is_null()).then_some(found)
    };
    let (init_tables, encode_data) = (find(c"ec_init_tables")?, find(c"ec_encode_data")?);
    // SAFETY: the signatures are those of erasure_code.h, unchanged in all of version 2.
    unsafe {
        Some(Library {
            init_tables: std::mem::transmute::<*mut c_void, InitTables>(init_tables),
            encode_data: std::mem::transmute::<*mut c_void, EncodeData>(encode_data),
        })
    }
}

/// Computes the outputs. The numbers and lengths of the cells fit, and the library is there.
pub fn combine(factors: &Factors, sources: &[&[u8]], outputs: &mut [&mut [u8]]) {
    let library = library().expect("the caller found the library");
    let (columns, rows) = (factors.columns() as c_int, factors.rows() as c_int);
    let tables = factors.isal_tables(|factors| {
        let values = factors.values();
        let mut tables = vec![0; TABLE_BYTES * values.len()];
        // SAFETY: `values` are columns * rows, and it writes 32 bytes for each.
        unsafe { (library.init_tables)(columns, rows, values.as_ptr(), tables.as_mut_ptr()) };
        tables
    });
    let length = outputs[0].len();
    for start in (0..length).step_by(BLOCK_BYTES) {
        let bytes = BLOCK_BYTES.min(length - start);
        let from: Vec<*const u8> = sources.iter().map(|cell| cell[start..].as_ptr()).collect();
        let to: Vec<*mut u8> = outputs.iter_mut().map(|cell| cell[start..].as_mut_ptr()).collect();
        // SAFETY: all cells have `bytes` bytes from `start` on, no output overlaps anything (they are borrowed
        // alone), and the tables were made for these numbers of columns and rows.
        unsafe {
            (library.encode_data)(
                bytes as c_int,
                columns,
                rows,
                tables.as_ptr(),
                from.as_ptr(),
                to.as_ptr(),
            );
        }
    }
}
