//! `azekura fs put`, `get`, `cat`: one way, and pipes.

use super::copy::{PIECE_BYTES, TransferOptions, transfer};
use super::remote::Remote;
use crate::exit::Outcome;
use crate::output::write_failure;
use crate::session::Session;
use crate::url::{Place, Url};
use dfs::{CreateOptions, Obj, OpenFlags};
use std::ffi::OsString;
use std::io::{Read, Write};
use types::{Error, Result};
use wire::control::OpenMode;

/// Copy files into a container; '-' is standard input
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  azekura fs put -r ./data azk://tank/home/
  mysqldump db | azekura fs put - azk://tank/home/db.sql")]
pub struct PutArgs {
    /// Local files
    #[arg(required = true, value_name = "LOCAL")]
    sources: Vec<OsString>,
    /// Where to
    #[arg(value_name = "URL", value_parser = super::url_parser())]
    target: Url,
    #[command(flatten)]
    options: TransferOptions,
}

pub fn put(session: &Session, args: &PutArgs) -> Outcome {
    if let [source] = &args.sources[..]
        && source == "-"
    {
        return put_stdin(session, args);
    }
    let sources: Vec<Place> = args.sources.iter().map(local_only).collect::<Result<_>>()?;
    transfer(session, &sources, &Place::Remote(args.target.clone()), &args.options)
}

fn local_only(text: &OsString) -> Result<Place> {
    match Place::parse(text)? {
        Place::Local(path) => Ok(Place::Local(path)),
        Place::Remote(url) => Err(Error::inval(format!(
            "{url} is not a local path; copy between containers with 'azekura fs cp'"
        ))),
    }
}

fn put_stdin(session: &Session, args: &PutArgs) -> Outcome {
    let path = &args.target.path;
    let remote = Remote::open(session, &args.target, OpenMode::ReadWrite)?;
    let is_new = remote.try_stat(path, true)?.is_none();
    let flags = OpenFlags::WRITE | OpenFlags::CREATE | OpenFlags::TRUNC;
    let options: CreateOptions = args.options.create_options();
    let file = remote.wait(path, remote.sys.open(path, flags, 0o666, &options))?;
    let mut offset = 0;
    if let Err(error) = write_stdin(&remote, path, &file, &mut offset) {
        return Err(clear_stdin(&remote, (path, &file), (is_new, offset), error).into());
    }
    session.out.done(&format!("{}: {}", args.target, types::size::format(offset)))
}

/// Writes all of standard input. `offset`: what is written.
fn write_stdin(remote: &Remote, path: &[u8], file: &Obj, offset: &mut u64) -> Result<()> {
    let mut input = std::io::stdin().lock();
    let mut memory = vec![0; PIECE_BYTES as usize];
    loop {
        let count = read_full(&mut input, &mut memory)
            .map_err(|error| Error::io("reading standard input", error))?;
        remote.write(path, file, *offset, &memory[..count])?;
        *offset += count as u64;
        if count < memory.len() {
            return Ok(());
        }
    }
}

/// Removes a file that got only a part of standard input, if it is new, so that nobody takes it for whole. One that was there before is
/// cut to what is written: parts of what came after that may be there, too.
fn clear_stdin(
    remote: &Remote,
    (path, file): (&[u8], &Obj),
    (is_new, written): (bool, u64),
    error: Error,
) -> Error {
    let cleared = match is_new {
        true => remote.wait(path, remote.sys.unlink(path)),
        false => remote.wait(path, remote.dfs().truncate(file, written)),
    };
    match (cleared, is_new) {
        (Ok(_), true) => error,
        (Ok(_), false) => error.context(format!("only {written} bytes are written")),
        (Err(_), _) => error.context("what is written is not whole, and could not be removed"),
    }
}

/// Fills `memory` unless the input ends before.
fn read_full(input: &mut impl Read, memory: &mut [u8]) -> std::io::Result<usize> {
    let mut done = 0;
    while done < memory.len() {
        match input.read(&mut memory[done..]) {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

/// Copy files out of a container; '-' is standard output
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  azekura fs get -r azk://tank/home/data .
  azekura fs get azk://tank/home/db.sql - | mysql db")]
pub struct GetArgs {
    /// Files in containers
    #[arg(required = true, value_name = "URL", value_parser = super::url_parser())]
    sources: Vec<Url>,
    /// Where to
    #[arg(value_name = "LOCAL")]
    target: OsString,
    #[command(flatten)]
    options: TransferOptions,
}

pub fn get(session: &Session, args: &GetArgs) -> Outcome {
    if args.target == "-" {
        return write_out(session, &args.sources);
    }
    let target = match Place::parse(&args.target)? {
        Place::Local(path) => Place::Local(path),
        Place::Remote(url) => {
            return Err(Error::inval(format!(
                "{url} is not a local path; copy between containers with 'azekura fs cp'"
            ))
            .into());
        }
    };
    let sources: Vec<Place> = args.sources.iter().cloned().map(Place::Remote).collect();
    transfer(session, &sources, &target, &args.options)
}

/// Print files
///
/// Prints bytes as they are, also with --json.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n  azekura fs cat azk://tank/home/notes.txt")]
pub struct CatArgs {
    /// Files
    #[arg(required = true, value_name = "URL", value_parser = super::url_parser())]
    urls: Vec<Url>,
}

pub fn cat(session: &Session, args: &CatArgs) -> Outcome {
    write_out(session, &args.urls)
}

fn write_out(session: &Session, urls: &[Url]) -> Outcome {
    let mut out = std::io::stdout().lock();
    let mut memory = Vec::new();
    for url in urls {
        let remote = Remote::open(session, url, OpenMode::ReadOnly)?;
        let file = remote.open_file(&url.path, OpenFlags::READ)?;
        let size = remote.wait(&url.path, remote.dfs().size(&file))?;
        memory.resize(size.clamp(1, PIECE_BYTES) as usize, 0);
        let mut offset = 0;
        loop {
            let count = remote.read(&url.path, &file, offset, &mut memory)?;
            out.write_all(&memory[..count]).map_err(write_failure)?;
            offset += count as u64;
            if count < memory.len() || offset == size {
                break;
            }
        }
    }
    out.flush().map_err(write_failure)
}
