//! `azekura bench durability`: how long rebuilds take, and how likely data are lost.

use super::with_output;
use crate::exit::Outcome;
use crate::session::{Session, absolute};
use bench::durability::{self, Options};
use clap::Args;
use std::path::PathBuf;
use types::{ObjClass, Result, size};

/// How long the loss of a target, an engine, a rack lasts, and how likely data are lost
///
/// A simulation: no system is started or asked. A pool of the given size is filled with objects of each class, placed as clients and
/// engines place them. Then something is lost, and those that stand in for it get what they are to have. The target or link with the
/// most to do decides how long that takes. The chance of losing data follows from that and from how often things fail;
/// docs/reliability.md has the formula.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  azekura bench durability                                   # 1,000 targets of 16 TiB in 10 racks
  azekura bench durability --racks 4 --engines 6 --targets 8 --target-size 8TiB --class RP_2GX,EC_4P2GX
  azekura bench durability --rates 100MiB,1GiB --target-losses 0.02 --json
  azekura bench durability --plot durability.svg             # also durability-hours.svg, durability.json")]
pub struct DurabilityArgs {
    /// Racks
    #[arg(long, default_value_t = 10)]
    racks: u32,
    /// Engines of a rack
    #[arg(long, default_value_t = 10)]
    engines: u32,
    /// Targets of an engine
    #[arg(long, default_value_t = 10)]
    targets: u32,
    /// Room of a target
    #[arg(long, default_value = "16TiB", value_name = "SIZE", value_parser = size::parse)]
    target_size: u64,
    /// How much of it is in use, percent
    #[arg(long, default_value_t = 80, value_name = "PERCENT")]
    fill: u32,
    /// What each member of a group holds of it: smaller files make more groups
    #[arg(long, default_value = "8GiB", value_name = "SIZE", value_parser = size::parse)]
    member_size: u64,
    /// Classes, with commas between them
    #[arg(long, value_delimiter = ',', default_value = "RP_2GX,RP_3GX,EC_4P1GX,EC_4P2GX,EC_8P2GX")]
    class: Vec<ObjClass>,
    /// What a target reads and writes for healing a second, with commas between them
    #[arg(
        long, value_delimiter = ',', value_name = "SIZES", value_parser = size::parse,
        default_value = "25MiB,50MiB,100MiB,200MiB,400MiB"
    )]
    rates: Vec<u64>,
    /// What an engine sends and receives for healing a second
    #[arg(long, default_value = "2500MiB", value_name = "SIZE", value_parser = size::parse)]
    link: u64,
    /// Seconds from a loss until its rebuild begins
    #[arg(long, default_value_t = 65.0, value_name = "SECONDS")]
    delay: f64,
    /// Losses of one target in a year
    #[arg(long, default_value_t = 0.01, value_name = "RATE")]
    target_losses: f64,
    /// Losses of one engine, with all it holds, in a year
    #[arg(long, default_value_t = 0.005, value_name = "RATE")]
    engine_losses: f64,
    /// Losses of one rack, with all it holds, in a year
    #[arg(long, default_value_t = 0.0001, value_name = "RATE")]
    rack_losses: f64,
    /// Write the plots (SVG) and, beside them, the report (JSON)
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
}

pub fn run(session: &Session, args: &DurabilityArgs) -> Outcome {
    let options = options(args)?;
    with_output(session, |out| durability::run(&options, out)).map(|_| ())
}

fn options(args: &DurabilityArgs) -> Result<Options> {
    Ok(Options {
        racks: args.racks,
        engines_per_rack: args.engines,
        targets_per_engine: args.targets,
        target_bytes: args.target_size,
        fill_percent: args.fill,
        member_bytes: args.member_size,
        rates_bytes_s: args.rates.clone(),
        link_bytes_s: args.link,
        delay_s: args.delay,
        target_losses_per_year: args.target_losses,
        engine_losses_per_year: args.engine_losses,
        rack_losses_per_year: args.rack_losses,
        classes: args.class.clone(),
        plot: args.plot.as_deref().map(absolute).transpose()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: DurabilityArgs,
    }

    #[test]
    fn without_options_it_is_what_the_library_has() {
        let args = Line::parse_from(["durability"]).args;
        assert_eq!(options(&args).unwrap(), Options::default());
    }
}
