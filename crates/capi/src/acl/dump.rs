//! Lists for people, on standard output or a stream.

use super::text::{ACCESS, FLAGS, Letter, PERMS};
use super::{Ace, Acl, text};
use crate::ctypes::{daos_ace, daos_acl};
use crate::errno::{DER_INVAL, DER_IO};
use crate::gurt::{Outcome, shielded, status};
use std::ffi::{CString, c_int};
use std::fmt::Write;

unsafe extern "C" {
    /// The C library's standard output.
    #[link_name = "stdout"]
    static STDOUT: *mut libc::FILE;
}

/// Writes text through a stream of C's, so that it stays in order with what the program prints.
///
/// # Safety
/// The caller gives an open stream.
unsafe fn print(stream: *mut libc::FILE, text: &str) -> Outcome {
    let text = CString::new(text).map_err(|_| DER_INVAL)?;
    // SAFETY: the caller gives an open stream; the text is a string.
    if unsafe { libc::fputs(text.as_ptr(), stream) } < 0 { Err(DER_IO) } else { Ok(()) }
}

fn section(out: &mut String, tabs: &str, title: &str, bits: u64, known: &[Letter]) {
    let _ = writeln!(out, "{tabs}{title}:");
    if bits == 0 {
        let _ = writeln!(out, "{tabs}\tnone");
    }
    for bit in (0..64).map(|at| 1u64 << at).filter(|bit| bits & bit != 0) {
        let word = known.iter().find(|letter| letter.0 == bit).map_or("unknown", |known| known.2);
        let _ = writeln!(out, "{tabs}\t{word} ({bit:#x})");
    }
}

fn describe(entry: &Ace, tabs: usize) -> String {
    let (outer, inner) = ("\t".repeat(tabs), "\t".repeat(tabs + 1));
    let kinds = ["owner", "user", "owner's group", "group", "everyone"];
    let kind = kinds.get(entry.principal_type as usize).unwrap_or(&"unknown");
    let mut out = format!("{outer}Entry:\n{inner}Principal: {kind}");
    if entry.name_room > 0 {
        let _ = write!(out, " \"{}\"", String::from_utf8_lossy(&entry.name));
    }
    out.push('\n');
    section(&mut out, &inner, "Access types", entry.access_types as u64, &ACCESS);
    section(&mut out, &inner, "Flags", entry.flags as u64, &FLAGS);
    for (title, perms) in [("Allow", entry.allow), ("Audit", entry.audit), ("Alarm", entry.alarm)] {
        section(&mut out, &inner, &format!("{title} permissions"), perms, &PERMS);
    }
    out
}

/// Prints an entry, indented.
///
/// # Safety
/// The caller gives NULL or an entry.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_ace_dump(ace: *mut daos_ace, tabs: u32) {
    shielded((), || {
        let tabs = tabs.min(64) as usize;
        // SAFETY: the caller gives NULL or an entry; standard output is open or fails.
        unsafe {
            let text = match Ace::read(ace) {
                Ok(entry) => describe(&entry, tabs),
                Err(_) => format!("{}Entry: NULL\n", "\t".repeat(tabs)),
            };
            let _ = print(STDOUT, &text);
        }
    });
}

/// Prints a list.
///
/// # Safety
/// The caller gives NULL or a list.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_acl_dump(acl: *mut daos_acl) {
    shielded((), || {
        // SAFETY: the caller gives NULL or a list; standard output is open or fails.
        unsafe {
            let text = match Acl::read(acl) {
                Ok(list) => {
                    let entries = list.entries.iter().map(|entry| describe(entry, 1));
                    let head = format!("Access control list, version {}:\n", list.version);
                    entries.fold(head, |text, entry| text + &entry)
                }
                Err(_) => "Access control list: NULL or malformed\n".into(),
            };
            let _ = print(STDOUT, &text);
        }
    });
}

/// Writes a list as text to a stream, one line an entry, with words for letters above it if asked.
///
/// # Safety
/// The caller gives an open stream, and NULL or a list.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_acl_to_stream(
    stream: *mut libc::FILE,
    acl: *mut daos_acl,
    verbose: bool,
) -> c_int {
    status(|| {
        if stream.is_null() {
            return Err(DER_INVAL);
        }
        // SAFETY: the caller gives an open stream, and NULL or a list.
        unsafe {
            let lines = if acl.is_null() { Vec::new() } else { super::texts_of(acl)? };
            let mut out = String::from("# Entries:\n");
            if lines.is_empty() {
                out.push_str("#   None\n");
            }
            for line in lines {
                if verbose {
                    let _ = writeln!(out, "# {}", text::verbose(line.as_bytes())?);
                }
                let _ = writeln!(out, "{line}");
            }
            print(stream, &out)
        }
    })
}
