//! Arrays: cells of one size, cut into chunks that are spread over targets.

use crate::cont::ContHandle;
use crate::ctx::Local;
use crate::ctypes::{
    d_iov_t, d_sg_list_t, daos_array_iod_t, daos_array_stbuf_t, daos_event_t, daos_handle_t,
    daos_obj_id_t, daos_range_t, daos_size_t,
};
use crate::errno::Sign;
use crate::event::{fail, launch, settle};
use crate::guard::{self, User};
use crate::obj::{oid_in, require_open, writable_mode};
use crate::tx::TxHandle;
use crate::{global, handle, sgl};
use client::{ArrayObj, Tx};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use types::{Code, Error, ObjType, Oid, Result, limits};
use uuid::Uuid;
use wire::obj::Recx;

/// An open array.
pub struct ArrayHandle {
    cont: Arc<ContHandle>,
    oid: Oid,
    record_bytes: u32,
    /// `daos_array_update_chunk_size` changes it.
    chunk_records: AtomicU64,
    writable: bool,
}

impl ArrayHandle {
    fn of(oh: daos_handle_t) -> Result<Arc<ArrayHandle>> {
        let array = handle::get::<ArrayHandle>(oh.cookie)?;
        require_open(&array.cont)?;
        Ok(array)
    }

    fn writable(oh: daos_handle_t) -> Result<Arc<ArrayHandle>> {
        let array = ArrayHandle::of(oh)?;
        if !array.writable {
            return Err(Error::new(Code::NoPerm, "the array was opened read-only"));
        }
        Ok(array)
    }

    fn enter(&self, local: &Local) -> Result<ArrayObj> {
        self.enter_in(&None, local)
    }

    fn enter_in(&self, tx: &Option<Arc<TxHandle>>, local: &Local) -> Result<ArrayObj> {
        let chunk_records = self.chunk_records.load(Ordering::Relaxed);
        let cont = TxHandle::look(tx, &*self.cont.mirror(local)?);
        ArrayObj::open_with_attrs(&cont, self.oid, self.record_bytes, chunk_records)
    }

    /// Gives C a handle.
    fn add(
        cont: &Arc<ContHandle>,
        array: &ArrayObj,
        writable: bool,
        oh: User<daos_handle_t>,
    ) -> Result<()> {
        let entry = Arc::new(ArrayHandle {
            cont: cont.clone(),
            oid: array.oid,
            record_bytes: array.record_bytes,
            chunk_records: AtomicU64::new(array.chunk_records),
            writable,
        });
        oh.set(daos_handle_t { cookie: handle::add(entry)? });
        Ok(())
    }
}

/// Changes of a whole array are not part of transactions.
fn no_tx(th: daos_handle_t) -> Result<()> {
    if th.cookie != 0 {
        let text = "this operation on arrays is not part of transactions";
        return Err(Error::new(Code::NotSupported, text));
    }
    Ok(())
}

/// Cell size and, with 0 for the default, chunk size as the store counts them.
fn shape(cell_size: daos_size_t, chunk_size: daos_size_t) -> Result<(u32, u64)> {
    let record_bytes = u32::try_from(cell_size).ok();
    let record_bytes = record_bytes
        .filter(|bytes| (1..=limits::BULK_BYTES_MAX).contains(&(*bytes as usize)))
        .ok_or_else(|| Error::inval(format!("{cell_size} bytes are no size of a cell")))?;
    let default = (limits::CHUNK_BYTES_DEFAULT / u64::from(record_bytes)).max(1);
    Ok((record_bytes, if chunk_size == 0 { default } else { chunk_size }))
}

/// Makes an array and writes down its cell and chunk size; `chunk_size` in cells, 0 for 1 MiB.
/// `-DER_EXIST` when the object is an array already; `-DER_INVAL` for an id that is not an
/// array's.
///
/// # Safety
/// `oh` is good for writing until completion; `ev` is NULL or an event.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_array_create(
    coh: daos_handle_t,
    oid: daos_obj_id_t,
    th: daos_handle_t,
    cell_size: daos_size_t,
    chunk_size: daos_size_t,
    oh: *mut daos_handle_t,
    ev: *mut daos_event_t,
) -> i32 {
    let arguments = guard::catch(|| {
        if oh.is_null() {
            return Err(guard::null());
        }
        let cont = ContHandle::of(coh)?;
        cont.require_writable()?;
        no_tx(th)?;
        Ok((cont, shape(cell_size, chunk_size)?))
    });
    let (cont, (record_bytes, chunk_records)) = match arguments {
        Ok(arguments) => arguments,
        Err(error) => return fail(ev, Sign::Der, error),
    };
    let oh = User(oh);
    launch(ev, Sign::Der, move |local| async move {
        let mirror = cont.mirror(&local)?;
        let array = ArrayObj::create(&mirror, oid_in(oid), record_bytes, chunk_records).await?;
        ArrayHandle::add(&cont, &array, true, oh)
    })
}

/// Opens an array by its id; `*cell_size` and `*chunk_size` are set. `-DER_NONEXIST` when it was
/// not created.
///
/// # Safety
/// Results are NULL (but for `oh`) or good for writing until completion.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_array_open(
    coh: daos_handle_t,
    oid: daos_obj_id_t,
    _th: daos_handle_t,
    mode: u32,
    cell_size: *mut daos_size_t,
    chunk_size: *mut daos_size_t,
    oh: *mut daos_handle_t,
    ev: *mut daos_event_t,
) -> i32 {
    let arguments = guard::catch(|| {
        if oh.is_null() {
            return Err(guard::null());
        }
        let cont = ContHandle::of(coh)?;
        let writable = writable_mode(mode, &cont)?;
        Ok((cont, writable))
    });
    let (cont, writable) = match arguments {
        Ok(arguments) => arguments,
        Err(error) => return fail(ev, Sign::Der, error),
    };
    let (oh, cell_size, chunk_size) = (User(oh), User(cell_size), User(chunk_size));
    launch(ev, Sign::Der, move |local| async move {
        let array = ArrayObj::open(&*cont.mirror(&local)?, oid_in(oid)).await?;
        cell_size.set(array.record_bytes.into());
        chunk_size.set(array.chunk_records);
        ArrayHandle::add(&cont, &array, writable, oh)
    })
}

/// Opens an array whose sizes the caller keeps. Asks nobody. `-DER_INVAL` for an id that is not
/// `DAOS_OT_ARRAY_ATTR` or `DAOS_OT_ARRAY_BYTE`, and for cells of more than a byte in the latter.
///
/// # Safety
/// `oh` is good for writing until completion; `ev` is NULL or an event.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_array_open_with_attr(
    coh: daos_handle_t,
    oid: daos_obj_id_t,
    _th: daos_handle_t,
    mode: u32,
    cell_size: daos_size_t,
    chunk_size: daos_size_t,
    oh: *mut daos_handle_t,
    ev: *mut daos_event_t,
) -> i32 {
    let arguments = guard::catch(|| {
        if oh.is_null() {
            return Err(guard::null());
        }
        let cont = ContHandle::of(coh)?;
        let writable = writable_mode(mode, &cont)?;
        let oid = oid_in(oid);
        oid.class()?;
        match oid.obj_type() {
            Some(ObjType::ArrayAttr) => {}
            Some(ObjType::ArrayByte) if cell_size == 1 => {}
            _ => return Err(Error::inval(format!("object {oid} keeps its own sizes, or none"))),
        }
        Ok((cont, writable, oid, shape(cell_size, chunk_size)?))
    });
    let (cont, writable, oid, (record_bytes, chunk_records)) = match arguments {
        Ok(arguments) => arguments,
        Err(error) => return fail(ev, Sign::Der, error),
    };
    let oh = User(oh);
    launch(ev, Sign::Der, move |local| async move {
        let mirror = cont.mirror(&local)?;
        let array = ArrayObj::open_with_attrs(&mirror, oid, record_bytes, chunk_records)?;
        ArrayHandle::add(&cont, &array, writable, oh)
    })
}

/// Writes an open array as bytes that another process can open without asking; as
/// [`crate::pool::daos_pool_local2global`].
///
/// # Safety
/// `glob` points to an iov whose buffer is as long as it says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_array_local2global(oh: daos_handle_t, glob: *mut d_iov_t) -> i32 {
    guard::daos(|| {
        let array = ArrayHandle::of(oh)?;
        let chunk_records = array.chunk_records.load(Ordering::Relaxed);
        let value = (array.cont.info.uuid, array.oid, array.record_bytes, chunk_records);
        let raw = global::encode(global::Kind::Array, &value)?;
        // SAFETY: the caller's promise.
        unsafe { global::export(&raw, glob, Code::Range) }
    })
}

/// Opens an array from bytes of [`daos_array_local2global`], of a container opened here.
/// `-DER_INVAL` when it is another container's.
///
/// # Safety
/// The buffer of `glob` is as long as `iov_len` says; `oh` is good for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_array_global2local(
    coh: daos_handle_t,
    glob: d_iov_t,
    mode: u32,
    oh: *mut daos_handle_t,
) -> i32 {
    guard::daos(|| {
        let cont = ContHandle::of(coh)?;
        let writable = writable_mode(mode, &cont)?;
        // SAFETY: the caller's promise.
        let raw = unsafe { global::import(&glob) }?;
        let (of, oid, record_bytes, chunk_records): (Uuid, Oid, u32, u64) =
            global::decode(global::Kind::Array, raw)?;
        if of != cont.info.uuid {
            return Err(Error::inval("the array belongs to another container"));
        }
        if oh.is_null() {
            return Err(guard::null());
        }
        oid.class()?;
        let (record_bytes, chunk_records) = shape(record_bytes.into(), chunk_records)?;
        let chunk_records = AtomicU64::new(chunk_records);
        let array = ArrayHandle { cont, oid, record_bytes, chunk_records, writable };
        let cookie = handle::add(Arc::new(array))?;
        // SAFETY: the caller's promise.
        unsafe { guard::put(oh, daos_handle_t { cookie }) }
    })
}

/// Closes an array.
///
/// # Safety
/// `ev` is NULL or an event.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_array_close(oh: daos_handle_t, ev: *mut daos_event_t) -> i32 {
    settle(ev, Sign::Der, move || handle::remove::<ArrayHandle>(oh.cookie).map(|_| ()))
}

/// The ranges of a transfer, and how many cells they are.
///
/// # Safety
/// `iod` points to a descriptor whose ranges are as many as it says.
unsafe fn ranges_of(iod: *const daos_array_iod_t) -> Result<(Vec<Recx>, u64)> {
    // SAFETY: the caller's promise.
    let iod = unsafe { guard::get(iod) }?;
    let count_max = isize::MAX as u64 / size_of::<daos_range_t>() as u64;
    if iod.arr_nr > 0 && iod.arr_rgs.is_null() || iod.arr_nr > count_max {
        return Err(Error::inval("the ranges are NULL, or more than there can be"));
    }
    let given: &[daos_range_t] = if iod.arr_nr == 0 {
        &[]
    } else {
        // SAFETY: the caller's promise.
        unsafe { std::slice::from_raw_parts(iod.arr_rgs, iod.arr_nr as usize) }
    };
    let mut ranges = Vec::with_capacity(given.len());
    let mut total = 0u64;
    for range in given.iter().filter(|range| range.rg_len > 0) {
        ranges.push(Recx { index: range.rg_idx, count: range.rg_len });
        let sum = total.checked_add(range.rg_len);
        total = sum.ok_or_else(|| Error::inval("the ranges hold too many cells"))?;
    }
    Ok((ranges, total))
}

fn require_equal(cells: u64, record_bytes: u32, memory_bytes: usize) -> Result<()> {
    if cells.checked_mul(u64::from(record_bytes)) != Some(memory_bytes as u64) {
        return Err(Error::inval(format!(
            "{cells} cells of {record_bytes} bytes do not fill {memory_bytes} bytes of memory"
        )));
    }
    Ok(())
}

/// What a transfer needs.
struct Transfer {
    array: Arc<ArrayHandle>,
    tx: Option<Arc<TxHandle>>,
    ranges: Vec<Recx>,
    cells: u64,
}

impl Transfer {
    /// # Safety
    /// As for [`ranges_of`].
    unsafe fn new(
        array: Arc<ArrayHandle>,
        th: daos_handle_t,
        iod: *const daos_array_iod_t,
    ) -> Result<Transfer> {
        let tx = TxHandle::of(th, &array.cont)?;
        // SAFETY: the caller's promise.
        let (ranges, cells) = unsafe { ranges_of(iod) }?;
        Ok(Transfer { array, tx, ranges, cells })
    }

    fn enter(&self, local: &Local) -> Result<(ArrayObj, Option<Tx>)> {
        let array = self.array.enter_in(&self.tx, local)?;
        let tx = self.tx.as_ref().map(|tx| tx.attach(&array.cont));
        Ok((array, tx))
    }
}

/// Reads ranges of cells; ranges and memory are cut independently and are equally long. Memory of
/// cells that were never written stays as it is; in a `DAOS_OT_ARRAY_BYTE` only beyond its end, and
/// before it they are zeros. `arr_nr_read` and `arr_nr_short_read` tell how many cells were inside
/// the array and how many beyond its end.
///
/// # Safety
/// All that is pointed to is there, used by nobody else, until completion.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_array_read(
    oh: daos_handle_t,
    th: daos_handle_t,
    iod: *mut daos_array_iod_t,
    sgl: *mut d_sg_list_t,
    ev: *mut daos_event_t,
) -> i32 {
    // SAFETY: the caller's promise.
    let transfer = guard::catch(|| unsafe { Transfer::new(ArrayHandle::of(oh)?, th, iod) });
    let transfer = match transfer {
        Ok(transfer) => transfer,
        Err(error) => return fail(ev, Sign::Der, error),
    };
    let (iod, sgl) = (User(iod), User(sgl));
    launch(ev, Sign::Der, move |local| async move {
        let (array, tx) = transfer.enter(&local)?;
        // SAFETY: the caller's promise.
        let mut memory = unsafe { sgl::held_mut(sgl.0) }?;
        let bytes: usize = memory.iter().map(|piece| piece.len()).sum();
        require_equal(transfer.cells, array.record_bytes, bytes)?;
        let mut short = 0;
        if transfer.cells > 0 {
            let end = |range: &Recx| range.index.saturating_add(range.count);
            let end_max = transfer.ranges.iter().map(end).max();
            let read = array.read_present(tx.as_ref(), &transfer.ranges, &mut memory).await?;
            let mut size = read.size_min;
            if end_max.is_some_and(|end| size < end) {
                size = size.max(array.size().await?);
            }
            let beyond = |range: &Recx| end(range).saturating_sub(size.max(range.index));
            short = transfer.ranges.iter().map(beyond).sum();
            if array.oid.obj_type() == Some(ObjType::ArrayByte) {
                read.zero_below(size, &mut memory);
            }
        }
        // SAFETY: checked not to be NULL, and the caller's promise.
        let iod = unsafe { &mut *iod.0 };
        iod.arr_nr_short_read = short;
        iod.arr_nr_read = transfer.cells - short;
        Ok(())
    })
}

/// Writes ranges of cells; ranges and memory are cut independently and are equally long.
///
/// # Safety
/// All that is pointed to is there, unchanged, until completion.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_array_write(
    oh: daos_handle_t,
    th: daos_handle_t,
    iod: *mut daos_array_iod_t,
    sgl: *mut d_sg_list_t,
    ev: *mut daos_event_t,
) -> i32 {
    // SAFETY: the caller's promise.
    let transfer = guard::catch(|| unsafe { Transfer::new(ArrayHandle::writable(oh)?, th, iod) });
    let transfer = match transfer {
        Ok(transfer) => transfer,
        Err(error) => return fail(ev, Sign::Der, error),
    };
    let sgl = User(sgl);
    launch(ev, Sign::Der, move |local| async move {
        let (array, tx) = transfer.enter(&local)?;
        // SAFETY: the caller's promise.
        let memory = unsafe { sgl::held(sgl.0) }?;
        let bytes: usize = memory.iter().map(|piece| piece.len()).sum();
        require_equal(transfer.cells, array.record_bytes, bytes)?;
        if transfer.cells == 0 {
            return Ok(());
        }
        array.write_in(tx.as_ref(), &transfer.ranges, &memory).await
    })
}

/// The size in cells: one past the last that was written.
///
/// # Safety
/// `size` is good for writing until completion.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_array_get_size(
    oh: daos_handle_t,
    th: daos_handle_t,
    size: *mut daos_size_t,
    ev: *mut daos_event_t,
) -> i32 {
    let arguments = guard::catch(|| {
        let array = ArrayHandle::of(oh)?;
        no_tx(th)?;
        if size.is_null() { Err(guard::null()) } else { Ok(array) }
    });
    let array = match arguments {
        Ok(array) => array,
        Err(error) => return fail(ev, Sign::Der, error),
    };
    let size = User(size);
    launch(ev, Sign::Der, move |local| async move {
        size.set(array.enter(&local)?.size().await?);
        Ok(())
    })
}

/// Size in cells, and epoch of the last change.
///
/// # Safety
/// `stbuf` is good for writing until completion.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_array_stat(
    oh: daos_handle_t,
    th: daos_handle_t,
    stbuf: *mut daos_array_stbuf_t,
    ev: *mut daos_event_t,
) -> i32 {
    let arguments = guard::catch(|| {
        let array = ArrayHandle::of(oh)?;
        no_tx(th)?;
        if stbuf.is_null() { Err(guard::null()) } else { Ok(array) }
    });
    let array = match arguments {
        Ok(array) => array,
        Err(error) => return fail(ev, Sign::Der, error),
    };
    let stbuf = User(stbuf);
    launch(ev, Sign::Der, move |local| async move {
        let stat = array.enter(&local)?.stat().await?;
        stbuf.set(daos_array_stbuf_t { st_size: stat.end, st_max_epoch: stat.epoch.0 });
        Ok(())
    })
}

/// Cuts or extends an array; new cells read as zero.
///
/// # Safety
/// `ev` is NULL or an event.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_array_set_size(
    oh: daos_handle_t,
    th: daos_handle_t,
    size: daos_size_t,
    ev: *mut daos_event_t,
) -> i32 {
    let arguments = guard::catch(|| {
        let array = ArrayHandle::writable(oh)?;
        no_tx(th)?;
        Ok(array)
    });
    let array = match arguments {
        Ok(array) => array,
        Err(error) => return fail(ev, Sign::Der, error),
    };
    launch(ev, Sign::Der, move |local| async move { array.enter(&local)?.set_size(size).await })
}

/// Removes an array with its attributes. The handle is still to be closed.
///
/// # Safety
/// `ev` is NULL or an event.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_array_destroy(
    oh: daos_handle_t,
    th: daos_handle_t,
    ev: *mut daos_event_t,
) -> i32 {
    let arguments = guard::catch(|| {
        let array = ArrayHandle::writable(oh)?;
        no_tx(th)?;
        Ok(array)
    });
    let array = match arguments {
        Ok(array) => array,
        Err(error) => return fail(ev, Sign::Der, error),
    };
    launch(ev, Sign::Der, move |local| async move { array.enter(&local)?.destroy().await })
}

/// Makes holes of ranges of cells. The size stays unless a hole reaches the end.
///
/// # Safety
/// `iod` points to a descriptor whose ranges are as many as it says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_array_punch(
    oh: daos_handle_t,
    th: daos_handle_t,
    iod: *mut daos_array_iod_t,
    ev: *mut daos_event_t,
) -> i32 {
    let transfer = guard::catch(|| {
        no_tx(th)?;
        // SAFETY: the caller's promise.
        unsafe { Transfer::new(ArrayHandle::writable(oh)?, th, iod) }
    });
    let transfer = match transfer {
        Ok(transfer) => transfer,
        Err(error) => return fail(ev, Sign::Der, error),
    };
    launch(ev, Sign::Der, move |local| async move {
        let (array, _) = transfer.enter(&local)?;
        array.punch(&transfer.ranges).await
    })
}

/// Chunk size in cells and cell size in bytes of an open array.
///
/// # Safety
/// Results are NULL or good for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_array_get_attr(
    oh: daos_handle_t,
    chunk_size: *mut daos_size_t,
    cell_size: *mut daos_size_t,
) -> i32 {
    guard::daos(|| {
        let array = ArrayHandle::of(oh)?;
        User(chunk_size).set(array.chunk_records.load(Ordering::Relaxed));
        User(cell_size).set(array.record_bytes.into());
        Ok(())
    })
}

/// From now on this handle counts chunks of another size. For arrays without data whose sizes
/// the caller keeps.
#[unsafe(no_mangle)]
pub extern "C" fn daos_array_update_chunk_size(oh: daos_handle_t, chunk_size: daos_size_t) -> i32 {
    guard::daos(|| {
        let array = ArrayHandle::of(oh)?;
        if chunk_size == 0 || array.oid.obj_type() == Some(ObjType::Array) {
            return Err(Error::inval("the chunk size is 0, or stored with the array"));
        }
        array.chunk_records.store(chunk_size, Ordering::Relaxed);
        Ok(())
    })
}
