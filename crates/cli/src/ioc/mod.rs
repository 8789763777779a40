//! `azekura ioc`: I/O request coordination for any file system. Needs no system of engines.

pub mod plot;
pub mod serve;
pub mod top;

use crate::exit::Outcome;
use crate::session::Session;
use clap::{Args, Subcommand};

/// Let only a few processes at a time write to a storage target.
#[derive(Args, Debug)]
pub struct IocArgs {
    #[command(subcommand)]
    verb: IocVerb,
}

#[derive(Subcommand, Debug)]
enum IocVerb {
    Serve(serve::ServeArgs),
    Top(top::TopArgs),
    Plot(plot::PlotArgs),
}

pub fn run(session: &Session, args: &IocArgs) -> Outcome {
    match &args.verb {
        IocVerb::Serve(args) => serve::run(session, args),
        IocVerb::Top(args) => top::run(session, args),
        IocVerb::Plot(args) => plot::run(session, args),
    }
}

impl IocArgs {
    /// It runs until it is told to stop, and logs.
    pub fn is_server(&self) -> bool {
        matches!(self.verb, IocVerb::Serve(_))
    }
}
