//! `daos_obj_update`: akeys of a dkey, written together.

use super::iod::{self, Iods, Shape, Supply};
use super::{COND_PER_AKEY, ObjHandle, conds, enter, judge, value_akey_in};
use crate::ctypes::{
    d_sg_list_t, daos_event_t, daos_handle_t, daos_iod_t, daos_key_t, daos_size_t,
};
use crate::errno::Sign;
use crate::event::{fail, launch};
use crate::tx::TxHandle;
use crate::{guard, sgl};
use client::{Object, Tx};
use types::{Code, Error, Oid, Result, limits};
use wire::obj::{Cond, Op, UpdateIod, UpdateValue};

/// Values up to this size travel in the message itself.
const INLINE_BYTES_MAX: usize = 1024;

/// Conditions an update may name.
const ALLOWED: Cond =
    Cond(Cond::DKEY_INSERT.0 | Cond::DKEY_UPDATE.0 | Cond::AKEY_INSERT.0 | Cond::AKEY_UPDATE.0);
/// Conditions an iod of an update may name.
const ALLOWED_PER_AKEY: Cond = Cond(Cond::AKEY_INSERT.0 | Cond::AKEY_UPDATE.0);

/// What one request writes.
#[derive(Default)]
struct Load<'a> {
    iods: Vec<UpdateIod<'a>>,
    data: Vec<&'a [u8]>,
    bytes: usize,
}

/// Writes `nr` akeys of a dkey at one moment; `iod_size` 0 removes what is named. An update of
/// more than 32 MiB takes effect in parts.
///
/// `-DER_REC2BIG` when an iod names more bytes than its list of memory holds, or a single value
/// of more than 32 MiB; `-DER_EXIST`, `-DER_NONEXIST` when a condition does not hold.
///
/// # Safety
/// All that is pointed to stays there, unchanged, until completion.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_obj_update(
    oh: daos_handle_t,
    th: daos_handle_t,
    flags: u64,
    dkey: *mut daos_key_t,
    nr: u32,
    iods: *mut daos_iod_t,
    sgls: *mut d_sg_list_t,
    ev: *mut daos_event_t,
) -> i32 {
    let iods = Iods { first: iods, count: nr, sgls };
    let arguments = guard::catch(|| {
        let handle = ObjHandle::writable(oh)?;
        let tx = TxHandle::of(th, &handle.cont)?;
        iods.check()?;
        // SAFETY: the caller's promise.
        let dkey: &'static [u8] = unsafe { sgl::key(dkey) }?;
        Ok((handle, tx, conds(flags, ALLOWED)?, dkey))
    });
    let (handle, tx, cond, dkey) = match arguments {
        Ok(arguments) => arguments,
        Err(error) => return fail(ev, Sign::Der, error),
    };
    let per_akey = flags & COND_PER_AKEY != 0;
    launch(ev, Sign::Der, move |local| async move {
        let (object, tx) = enter(&handle, &tx, &local)?;
        // SAFETY: the caller's promise.
        let (loads, punched) = unsafe { plan(handle.oid, &iods, per_akey) }?;
        let written = loads.iter().flat_map(|load| &load.iods).map(|iod| (iod.akey, iod.cond));
        let judged: Vec<(&[u8], Cond)> = written.collect();
        judge(&object, tx.as_ref(), cond, dkey, &judged).await?;
        write(&object, tx.as_ref(), cond, dkey, loads, &punched).await
    })
}

/// Cuts an update into requests, and names the akeys that go.
///
/// # Safety
/// Descriptors and memory are there, unchanged, for `'a`.
unsafe fn plan<'a>(
    oid: Oid,
    iods: &Iods,
    per_akey: bool,
) -> Result<(Vec<Load<'a>>, Vec<&'a [u8]>)> {
    let mut loads: Vec<Load<'a>> = vec![Load::default()];
    let mut punched = Vec::new();
    // SAFETY: the caller's promise.
    let all: &'a [daos_iod_t] = unsafe { iods.all() };
    for (at, iod) in all.iter().enumerate() {
        // SAFETY: the caller's promise.
        let akey = value_akey_in(oid, unsafe { sgl::key(&iod.iod_name) }?)?;
        let cond = if per_akey { conds(iod.iod_flags, ALLOWED_PER_AKEY)? } else { Cond::NONE };
        let shape = iod::shape(iod)?;
        if iod.iod_size == 0 {
            if shape == Shape::Single {
                punched.push(akey);
            } else {
                // SAFETY: the caller's promise.
                let value = UpdateValue::PunchRecords { recxs: unsafe { iod::recxs(iod) }? };
                put(&mut loads, UpdateIod { akey, cond, value }, 0);
            }
            continue;
        }
        // SAFETY: the caller's promise.
        let memory: Vec<&'a [u8]> = unsafe { sgl::held(iods.sgl(at)) }?;
        match shape {
            Shape::Single => put_single(&mut loads, akey, cond, iod.iod_size, memory)?,
            Shape::Array => {
                // SAFETY: the caller's promise.
                let recxs = unsafe { iod::recxs(iod) }?;
                iod::require_apart(&recxs)?;
                let record_bytes = iod::record_bytes(iod.iod_size)?;
                // Before they are cut: ranges beyond the memory would be cut without end.
                let given: usize = memory.iter().map(|piece| piece.len()).sum();
                if iod::bytes_of(&recxs, record_bytes)? > given {
                    let text = "the memory given is smaller than the data named";
                    return Err(Error::new(Code::RecordTooBig, text));
                }
                let mut memory = Supply::new(memory);
                // The parts after the first find what the first has written.
                let mut cond = Some(cond);
                let room = limits::BULK_BYTES_MAX - last(&mut loads).bytes;
                for (run, (recxs, bytes)) in
                    iod::cut(&recxs, record_bytes, room).into_iter().enumerate()
                {
                    if run > 0 {
                        loads.push(Load::default());
                    }
                    if !recxs.is_empty() {
                        let value = UpdateValue::Array { record_bytes, recxs };
                        let cond = cond.take().unwrap_or(Cond::NONE);
                        put(&mut loads, UpdateIod { akey, cond, value }, bytes);
                        memory.take(bytes, &mut last(&mut loads).data)?;
                    }
                }
            }
        }
    }
    Ok((loads, punched))
}

fn last<'a, 'b>(loads: &'b mut Vec<Load<'a>>) -> &'b mut Load<'a> {
    if loads.is_empty() {
        loads.push(Load::default());
    }
    let at = loads.len() - 1;
    &mut loads[at]
}

fn put<'a>(loads: &mut Vec<Load<'a>>, iod: UpdateIod<'a>, bytes: usize) {
    let load = last(loads);
    load.iods.push(iod);
    load.bytes += bytes;
}

fn put_single<'a>(
    loads: &mut Vec<Load<'a>>,
    akey: &'a [u8],
    cond: Cond,
    size: daos_size_t,
    memory: Vec<&'a [u8]>,
) -> Result<()> {
    let bytes = iod::record_bytes(size)? as usize;
    let mut pieces = Vec::with_capacity(memory.len());
    Supply::new(memory).take(bytes, &mut pieces)?;
    if let [whole] = pieces[..]
        && bytes <= INLINE_BYTES_MAX
    {
        put(loads, UpdateIod { akey, cond, value: UpdateValue::Inline(whole) }, 0);
        return Ok(());
    }
    if last(loads).bytes + bytes > limits::BULK_BYTES_MAX {
        loads.push(Load::default());
    }
    let value = UpdateValue::Single { bytes: bytes as u64 };
    put(loads, UpdateIod { akey, cond, value }, bytes);
    last(loads).data.extend(pieces);
    Ok(())
}

async fn write(
    object: &Object,
    tx: Option<&Tx>,
    cond: Cond,
    dkey: &[u8],
    loads: Vec<Load<'_>>,
    punched: &[&[u8]],
) -> Result<()> {
    let akeys = Cond(cond.0 & ALLOWED_PER_AKEY.0);
    if !punched.is_empty() && akeys.has(Cond::AKEY_INSERT) {
        return Err(Error::inval("an akey cannot be inserted and removed at once"));
    }
    let nothing_written = loads.iter().all(|load| load.iods.is_empty());
    if nothing_written && cond.0 & !akeys.0 != 0 {
        return Err(Error::inval("a condition on the dkey wants an akey to write"));
    }
    let punch_cond = if akeys.has(Cond::AKEY_UPDATE) { Cond::PUNCH } else { Cond::NONE };
    let one_request = loads.len() == 1;
    for (at, load) in loads.into_iter().enumerate() {
        // The parts after the first find what the first has written.
        let cond = if at == 0 { cond } else { Cond::NONE };
        if punched.is_empty() || tx.is_some() || !one_request {
            if !load.iods.is_empty() || punched.is_empty() {
                object.update(tx, cond, dkey, load.iods, &load.data).await?;
            }
            continue;
        }
        // Written and removed at one moment.
        let unit = object.cont().unit_of(object.oid(), dkey).await?;
        let mut batch = object.cont().batch();
        if !load.iods.is_empty() {
            batch.op_of_unit(Op::Update { unit, dkey, cond, iods: load.iods });
            for piece in &load.data {
                batch.bulk_out(piece);
            }
        }
        let akeys = punched.iter().map(|akey| serde_bytes::Bytes::new(akey)).collect();
        batch.op_of_unit(Op::PunchAkeys { unit, dkey, cond: punch_cond, akeys });
        return batch.run().await.map(|_| ());
    }
    if !punched.is_empty() {
        object.punch_akeys(tx, punch_cond, dkey, punched).await?;
    }
    Ok(())
}
