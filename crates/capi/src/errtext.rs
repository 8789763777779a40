//! Names and descriptions of DAOS error numbers.
//!
//! Names and numbers are DAOS's: two blocks, numbered by position from 1001 and 2001. The
//! descriptions are ours.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int};

type Entry = (&'static CStr, &'static CStr);

const GURT_BASE: i32 = 1000;
const DAOS_BASE: i32 = 2000;
/// `DER_UNKNOWN`.
const UNKNOWN: i32 = GURT_BASE + 500_000;

const GURT: &[Entry] = &[
    (c"DER_NO_PERM", c"The operation is not permitted"),
    (c"DER_NO_HDL", c"The handle was never given out or was closed"),
    (c"DER_INVAL", c"An argument is not valid"),
    (c"DER_EXIST", c"The named thing exists already"),
    (c"DER_NONEXIST", c"The named thing does not exist"),
    (c"DER_UNREACH", c"The peer cannot be reached"),
    (c"DER_NOSPACE", c"No space is left"),
    (c"DER_ALREADY", c"This was done already"),
    (c"DER_NOMEM", c"No memory is left"),
    (c"DER_NOSYS", c"The function is not available"),
    (c"DER_TIMEDOUT", c"No answer came in time"),
    (c"DER_BUSY", c"The thing is in use"),
    (c"DER_AGAIN", c"Not possible now, try again"),
    (c"DER_PROTO", c"The two sides speak different protocols"),
    (c"DER_UNINIT", c"The library or object is not initialized"),
    (c"DER_TRUNC", c"The buffer is too small"),
    (c"DER_OVERFLOW", c"The value is too large for its type or buffer"),
    (c"DER_CANCELED", c"The operation was cancelled"),
    (c"DER_OOG", c"Not a member of the group or list"),
    (c"DER_HG", c"The transport failed"),
    (c"DER_UNREG", c"The request or its version is not known to the peer"),
    (c"DER_ADDRSTR_GEN", c"No text could be made for an address"),
    (c"DER_PMIX", c"The process manager failed"),
    (c"DER_IVCB_FORWARD", c"The variable is not here, ask the next peer"),
    (c"DER_MISC", c"An error of no other kind"),
    (c"DER_BADPATH", c"The path is not valid"),
    (c"DER_NOTDIR", c"Not a directory"),
    (c"DER_CORPC_INCOMPLETE", c"A collective request failed on some peers"),
    (c"DER_NO_RAS_RANK", c"Nobody receives events of reliability and serviceability"),
    (c"DER_NOTATTACH", c"Not attached to the service group"),
    (c"DER_MISMATCH", c"Versions or contents differ"),
    (c"DER_EXCLUDED", c"The rank has been excluded"),
    (c"DER_NOREPLY", c"The handler of the request sent no reply"),
    (c"DER_DOS", c"Service is denied because of too many requests"),
    (c"DER_BAD_TARGET", c"The request went to the wrong target"),
    (c"DER_GRPVER", c"The group's version differs"),
    (c"DER_HLC_SYNC", c"A clock is too far ahead of the local one"),
    (c"DER_NO_SHMEM", c"No shared memory is left"),
    (c"DER_ADD_METRIC_FAILED", c"The metric could not be added"),
    (c"DER_DURATION_MISMATCH", c"A duration was ended that had not begun"),
    (c"DER_OP_NOT_PERMITTED", c"The metric's type does not allow this"),
    (c"DER_EXCEEDS_PATH_LEN", c"The path of the metric is too long"),
    (c"DER_METRIC_NOT_FOUND", c"There is no such metric"),
    (c"DER_SHMEM_PERMS", c"Shared memory belongs to another user or group"),
    (c"DER_HG_FATAL", c"The transport failed for good"),
    (c"DER_QUOTA_LIMIT", c"The quota is used up"),
];

const DAOS: &[Entry] = &[
    (c"DER_IO", c"A device or the network failed"),
    (c"DER_FREE_MEM", c"Memory could not be given back"),
    (c"DER_ENOENT", c"There is no such entry"),
    (c"DER_NOTYPE", c"The object type is not known"),
    (c"DER_NOSCHEMA", c"The object schema is not known"),
    (c"DER_NOLOCAL", c"The object is not here"),
    (c"DER_STALE", c"The pool map is out of date"),
    (c"DER_NOTLEADER", c"This replica does not lead the service"),
    (c"DER_TGT_CREATE", c"A target could not be created"),
    (c"DER_EP_RO", c"The epoch is read-only"),
    (c"DER_EP_OLD", c"The epoch is older than what is kept"),
    (c"DER_KEY2BIG", c"The key is too long"),
    (c"DER_REC2BIG", c"The record does not fit"),
    (c"DER_IO_INVAL", c"The buffers do not match the extents"),
    (c"DER_EQ_BUSY", c"The event queue is in use"),
    (c"DER_DOMAIN", c"The domains do not match"),
    (c"DER_SHUTDOWN", c"The service is shutting down"),
    (c"DER_INPROGRESS", c"The operation is under way"),
    (c"DER_NOTAPPLICABLE", c"This does not apply here"),
    (c"DER_NOTREPLICA", c"Not a replica of the service"),
    (c"DER_CSUM", c"The bytes do not match their checksum"),
    (c"DER_DF_INVAL", c"The stored format is not supported"),
    (c"DER_DF_INCOMPT", c"The stored format has another version"),
    (c"DER_REC_SIZE", c"The record has another size"),
    (c"DER_TX_RESTART", c"The transaction lost a conflict, run it again"),
    (c"DER_DATA_LOSS", c"Data are lost"),
    (c"DER_OP_CANCELED", c"The operation was cancelled by its issuer"),
    (c"DER_TX_BUSY", c"The transaction is not committed"),
    (c"DER_AGENT_INCOMPAT", c"The agent and the library have different versions"),
    (c"DER_NEED_TX", c"This needs a distributed transaction"),
    (c"DER_RF", c"More failures than the redundancy factor allows"),
    (c"DER_FETCH_AGAIN", c"Read once more"),
    (c"DER_TX_UNCERTAIN", c"Nobody knows yet how the transaction ended"),
    (c"DER_AGENT_COMM", c"The agent cannot be reached"),
    (c"DER_ID_MISMATCH", c"The ids differ"),
    (c"DER_TGT_RETRY", c"Try another target"),
    (c"DER_NOTSUPPORTED", c"The operation is not supported"),
    (c"DER_CONTROL_INCOMPAT", c"Components of the control plane do not fit together"),
    (c"DER_NO_SERVICE", c"No service is available"),
    (c"DER_TX_ID_REUSED", c"The transaction's id may have been used before"),
    (c"DER_UPDATE_AGAIN", c"Write once more"),
    (c"DER_NVME_IO", c"An NVMe device failed"),
    (c"DER_NO_CERT", c"A certificate cannot be read"),
    (c"DER_BAD_CERT", c"A certificate is not valid"),
    (c"DER_VOS_PARTIAL_UPDATE", c"An array value is overwritten in part at one epoch"),
    (c"DER_CHKPT_BUSY", c"The page is being written to a checkpoint"),
    (c"DER_DIV_BY_ZERO", c"A division by zero"),
    (c"DER_OVERLOAD_RETRY", c"The service is overloaded, try later"),
    (c"DER_NOT_RESUME", c"The earlier check cannot be resumed"),
    (c"DER_CONT_NONEXIST", c"The container does not exist"),
    (c"DER_CONT_DESTROYING", c"The container is being destroyed"),
    (c"DER_IGNORE", c"To be passed over"),
];

fn entry(errnum: c_int) -> Option<&'static Entry> {
    let number = errnum.checked_neg()?;
    [(GURT_BASE, GURT), (DAOS_BASE, DAOS)].into_iter().find_map(|(base, entries)| {
        entries.get(usize::try_from(number.checked_sub(base + 1)?).ok()?)
    })
}

/// The name of a negative error number, such as `DER_NONEXIST`; `DER_UNKNOWN` for any other.
#[unsafe(no_mangle)]
pub extern "C" fn d_errstr(errnum: c_int) -> *const c_char {
    match (errnum, entry(errnum)) {
        (0, _) => c"DER_SUCCESS".as_ptr(),
        (_, Some((name, _))) => name.as_ptr(),
        (_, None) => c"DER_UNKNOWN".as_ptr(),
    }
}

/// What a negative error number means. For a number that has no meaning the text is good until
/// this thread asks again.
#[unsafe(no_mangle)]
pub extern "C" fn d_errdesc(errnum: c_int) -> *const c_char {
    thread_local! {
        static TEXT: RefCell<CString> = RefCell::default();
    }
    match (errnum, entry(errnum)) {
        (0, _) => c"Success".as_ptr(),
        (_, Some((_, text))) => text.as_ptr(),
        (errnum, None) if errnum == -UNKNOWN => c"Unknown error".as_ptr(),
        (errnum, None) => {
            let text = CString::new(format!("Unknown error {errnum}")).unwrap_or_default();
            let kept = TEXT.try_with(|kept| {
                let mut kept = kept.borrow_mut();
                *kept = text;
                kept.as_ptr()
            });
            kept.unwrap_or(c"Unknown error".as_ptr())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::errno::*;

    fn name(errnum: c_int) -> &'static str {
        // SAFETY: names are literals.
        unsafe { CStr::from_ptr(d_errstr(errnum)) }.to_str().unwrap()
    }

    fn text(errnum: c_int) -> String {
        // SAFETY: the text is good until the next call.
        unsafe { CStr::from_ptr(d_errdesc(errnum)) }.to_str().unwrap().to_owned()
    }

    #[test]
    fn the_numbers_in_use_have_their_names() {
        macro_rules! each {
            ($($name:ident),+) => { $(assert_eq!(name(-$name), stringify!($name));)+ };
        }
        each!(
            DER_NO_PERM,
            DER_NO_HDL,
            DER_INVAL,
            DER_EXIST,
            DER_NONEXIST,
            DER_UNREACH,
            DER_NOSPACE,
            DER_ALREADY,
            DER_NOMEM,
            DER_NOSYS,
            DER_TIMEDOUT,
            DER_BUSY,
            DER_AGAIN,
            DER_PROTO,
            DER_UNINIT,
            DER_TRUNC,
            DER_OVERFLOW,
            DER_CANCELED,
            DER_MISC,
            DER_MISMATCH,
            DER_HLC_SYNC,
            DER_IO,
            DER_REC2BIG,
            DER_STALE,
            DER_CSUM,
            DER_TX_RESTART,
            DER_KEY2BIG,
            DER_NOTSUPPORTED
        );
        assert_eq!([GURT.len(), DAOS.len()], [46, 52]);
        assert_eq!(name(-1046), "DER_QUOTA_LIMIT");
        assert_eq!(name(-2052), "DER_IGNORE");
    }

    #[test]
    fn other_numbers_are_unknown() {
        for errnum in [1, 1001, -1000, -1047, -2000, -2053, -UNKNOWN, c_int::MIN, c_int::MAX] {
            assert_eq!(name(errnum), "DER_UNKNOWN");
            assert!(text(errnum).starts_with("Unknown error"));
        }
        assert_eq!(text(-77), "Unknown error -77");
        assert_eq!((name(0), text(0).as_str()), ("DER_SUCCESS", "Success"));
        assert!(text(-DER_NONEXIST).contains("does not exist"));
    }

    #[test]
    fn names_and_texts_are_all_different() {
        let all: Vec<&Entry> = GURT.iter().chain(DAOS).collect();
        let names: std::collections::HashSet<_> = all.iter().map(|entry| entry.0).collect();
        let texts: std::collections::HashSet<_> = all.iter().map(|entry| entry.1).collect();
        assert_eq!([names.len(), texts.len()], [all.len(); 2]);
    }
}
