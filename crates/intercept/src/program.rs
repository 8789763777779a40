//! Programs that are executed: their environment, and programs that lie on a prefix.
//!
//! The kernel does not find a program below a prefix without a mount. A script is handed to its
//! interpreter, which opens it through this library; of anything else a copy in memory is executed.

use std::ffi::{CStr, CString};
use std::sync::OnceLock;

/// What of the environment this process got must reach programs it executes: `NAME=VALUE`.
static OWN: OnceLock<Vec<CString>> = OnceLock::new();
static LIBRARY: OnceLock<CString> = OnceLock::new();

/// Remembers settings and where the library is. Called when the library is loaded.
pub fn load() {
    use std::os::unix::ffi::OsStrExt;
    let own = std::env::vars_os().filter(|(name, _)| name.as_bytes().starts_with(b"AZEKURA_"));
    let own = own.filter(|(name, _)| name.as_bytes() != crate::cwd::VARIABLE.to_bytes());
    let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
        CString::new([name.as_bytes(), b"=", value.as_bytes()].concat()).ok()
    };
    OWN.get_or_init(|| {
        // The system's directory as a full path: programs may get no home, or another one.
        let named: &[u8] = b"AZEKURA_SYSTEM";
        let dir = crate::config::default_dir();
        let system = dir.map(|dir| (named_os(named), dir.as_os_str().to_owned()));
        own.filter(|(name, _)| dir.is_none() || name.as_bytes() != named)
            .chain(system)
            .filter_map(text)
            .collect()
    });
    // SAFETY: all zeros are a valid value, and the address is one of this library's.
    let path = unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        let found = libc::dladdr(load as *const () as *const libc::c_void, &mut info);
        (found != 0 && !info.dli_fname.is_null()).then(|| CStr::from_ptr(info.dli_fname))
    };
    if let Some(path) = path {
        LIBRARY.get_or_init(|| path.to_owned());
    }
}

fn named_os(name: &[u8]) -> std::ffi::OsString {
    std::os::unix::ffi::OsStringExt::from_vec(name.to_vec())
}

/// The environment for a program: the given one, and what it needs to go on with files of ours.
pub fn environment(given: Vec<&CStr>, cwd: Option<Vec<u8>>) -> Vec<CString> {
    let is_off = |one: &&CStr| one.to_bytes() == b"AZEKURA_INTERCEPT=off";
    if given.iter().any(is_off) {
        return given.into_iter().map(CStr::to_owned).collect();
    }
    merge(given, OWN.get().map_or(&[], Vec::as_slice), LIBRARY.get(), cwd)
}

fn name_of(entry: &CStr) -> &[u8] {
    entry.to_bytes().split(|byte| *byte == b'=').next().unwrap_or_default()
}

fn merge(
    given: Vec<&CStr>,
    own: &[CString],
    library: Option<&CString>,
    cwd: Option<Vec<u8>>,
) -> Vec<CString> {
    let mut all: Vec<CString> = Vec::with_capacity(given.len() + own.len() + 2);
    let mut preloads = false;
    for one in &given {
        let name = name_of(one);
        if name == crate::cwd::VARIABLE.to_bytes() {
            continue;
        }
        if name == b"LD_PRELOAD" && !preloads {
            preloads = true;
            all.push(with_library(one, library));
            continue;
        }
        all.push((*one).to_owned());
    }
    if !preloads && library.is_some() {
        all.push(with_library(c"LD_PRELOAD=", library));
    }
    for one in own {
        if !given.iter().any(|other| name_of(other) == name_of(one)) {
            all.push(one.clone());
        }
    }
    if let Some(cwd) = cwd {
        let text = [crate::cwd::VARIABLE.to_bytes(), b"=", &cwd].concat();
        all.extend(CString::new(text).ok());
    }
    all
}

/// `LD_PRELOAD=...` with this library in it.
fn with_library(entry: &CStr, library: Option<&CString>) -> CString {
    let text = entry.to_bytes();
    let value = text.splitn(2, |byte| *byte == b'=').nth(1).unwrap_or_default();
    let has = value.windows(20).any(|part| part == b"libazekura_intercept");
    let Some(library) = library.filter(|_| !has) else { return entry.to_owned() };
    let mut text = [b"LD_PRELOAD=", library.to_bytes()].concat();
    if !value.is_empty() {
        text.push(b':');
        text.extend_from_slice(value);
    }
    CString::new(text).unwrap_or_else(|_| entry.to_owned())
}

/// The interpreter and its argument in the first line of a script.
pub fn interpreter(head: &[u8]) -> Option<(Vec<u8>, Option<Vec<u8>>)> {
    let line = head.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let line = line.trim_ascii();
    let blank = |byte: &u8| *byte == b' ' || *byte == b'\t';
    let end = line.iter().position(blank).unwrap_or(line.len());
    let (name, rest) = line.split_at(end);
    let rest = rest.trim_ascii();
    (!name.is_empty()).then(|| (name.to_vec(), (!rest.is_empty()).then(|| rest.to_vec())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interpreters_are_read_as_the_kernel_reads_them() {
        let of = |text: &str| {
            interpreter(text.as_bytes()).map(|(name, argument)| {
                let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
                (text(name), argument.map(text))
            })
        };
        assert_eq!(of("#!/bin/sh\necho"), Some(("/bin/sh".into(), None)));
        assert_eq!(
            of("#! /usr/bin/env  python3 -u \n"),
            Some(("/usr/bin/env".into(), Some("python3 -u".into())))
        );
        assert_eq!(of("#!\n"), None);
        assert_eq!(of("\u{7f}ELF"), None);
    }

    #[test]
    fn programs_get_what_they_need_and_no_more() {
        let own = [c"AZEKURA_SYSTEM=/s".to_owned(), c"AZEKURA_INTERCEPT=x".to_owned()];
        let library = c"/l/libazekura_intercept.so".to_owned();
        let made = merge(
            vec![
                c"A=1",
                c"AZEKURA_SYSTEM=/other",
                c"LD_PRELOAD=/x.so",
                c"AZEKURA_INTERCEPT_CWD=/old",
            ],
            &own,
            Some(&library),
            Some(b"/azk/d".to_vec()),
        );
        let made: Vec<&str> = made.iter().map(|one| one.to_str().unwrap()).collect();
        assert_eq!(
            made,
            [
                "A=1",
                "AZEKURA_SYSTEM=/other",
                "LD_PRELOAD=/l/libazekura_intercept.so:/x.so",
                "AZEKURA_INTERCEPT=x",
                "AZEKURA_INTERCEPT_CWD=/azk/d"
            ]
        );
        let kept = merge(vec![c"LD_PRELOAD=/l/libazekura_intercept.so"], &[], Some(&library), None);
        assert_eq!(kept, [c"LD_PRELOAD=/l/libazekura_intercept.so".to_owned()]);
    }
}
