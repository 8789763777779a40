//! `azekura system measure`: how fast the devices of all targets are.

use crate::exit::{Failure, Outcome, exit_code};
use crate::measures::{TargetMeasures, show};
use crate::output::{spinner, warn_line};
use crate::props::wrong_reply;
use crate::session::Session;
use clap::Args;
use client::Client;
use futures_util::future::join_all;
use std::collections::BTreeMap;
use types::{Code, Error, Rank, Result, TargetId, size};
use wire::control::{ControlReply, ControlRequest};
use wire::map::EngineInfo;
use wire::measure::{MeasureAsk, Standing};

/// Most time for each of writing and reading, milliseconds.
const STEP_MS: u32 = 3_000;

/// Measure the devices of targets, and show how fast they are
///
/// Each target writes a file of its own beside its data, reads it, and removes it: one after the other and 4 KiB at random places,
/// past the page cache where the file system allows it. That takes eight seconds for a target at most; targets of one machine are
/// measured one after the other. They serve meanwhile, and while clients work what is measured has a tenth of the time. Targets that were measured
/// before are only shown, unless --now is given. The network is probed with some MiB each way: between engines, and from here to each target.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  azekura system measure
  azekura system measure --now --size 4GiB
  azekura system measure --now --rank 2 --json")]
pub struct MeasureArgs {
    /// Bytes to write and read on each device; a sixteenth of what is free at most
    #[arg(long, short, value_parser = size::parse, default_value = "1GiB")]
    size: u64,
    /// Measure again what was measured before
    #[arg(long)]
    now: bool,
    /// Only the targets of these engines, by rank: 'azekura system list-engines'
    #[arg(long, value_delimiter = ',', value_name = "RANK")]
    rank: Vec<u32>,
}

pub fn run(session: &Session, args: &MeasureArgs) -> Outcome {
    if args.size == 0 {
        return Err(Error::inval("--size is 0; give 4MiB or more").into());
    }
    let client = session.connect()?;
    let system = client.block_on(client.system_query())?;
    for rank in &args.rank {
        if !system.engines.iter().any(|(engine, ..)| engine.rank == Rank(*rank)) {
            let text = format!("there is no engine {rank}; see 'azekura system list-engines'");
            return Err(Error::new(Code::NonExist, text).into());
        }
    }
    let mut hosts: BTreeMap<&str, Vec<(EngineInfo, TargetId)>> = BTreeMap::new();
    for (engine, targets, _) in &system.engines {
        if args.rank.is_empty() || args.rank.contains(&engine.rank.0) {
            let of = targets.iter().map(|target| (engine.clone(), *target));
            hosts.entry(env::host_of(&engine.host)).or_default().extend(of);
        }
    }
    let ask = MeasureAsk { bytes: args.size, step_ms_max: STEP_MS, once: !args.now };
    let progress = spinner(session.out.shows_progress());
    let of_host = |targets: &Vec<(EngineInfo, TargetId)>| {
        let (client, targets, progress) = (client.clone(), targets.clone(), progress.clone());
        async move {
            let mut measured = Vec::new();
            for (engine, target) in targets {
                let rank = engine.rank;
                progress.set_message(format!("measuring target {target}"));
                let answer = measure(&client, (&engine, target), ask).await;
                measured.push(match answer {
                    Ok(standing) => TargetMeasures::of(target, rank.0, &standing),
                    Err(error) => TargetMeasures::failed(target, rank.0, error.to_string()),
                });
            }
            measured
        }
    };
    let measured = client.block_on(join_all(hosts.values().map(of_host)));
    progress.finish_and_clear();
    let mut all: Vec<TargetMeasures> = measured.into_iter().flatten().collect();
    all.sort_by_key(TargetMeasures::number);
    session.out.show(&all, |out| show(&all, out))?;
    let failed: Vec<&str> = all.iter().filter_map(TargetMeasures::error).collect();
    match failed.first() {
        Some(first) => {
            // Each is in what was shown; a program reads one document.
            warn_line(format_args!(
                "azekura: {} of {} targets were not measured: {first}",
                failed.len(),
                all.len()
            ));
            Err(Failure::Reported(exit_code(Code::Io)))
        }
        None => Ok(()),
    }
}

/// How a target stands then. Its link from here is probed when everything is measured anew, or no client has told of one.
async fn measure(
    client: &Client,
    (engine, target): (&EngineInfo, TargetId),
    ask: MeasureAsk,
) -> Result<Standing> {
    let probe = async || {
        if let Err(error) = client.probe_link(engine, target).await {
            tracing::info!("target {target}: the link from here: {error}");
        }
    };
    if !ask.once {
        probe().await;
    }
    let standing = stand(client, target, Some(ask)).await?;
    if standing.clients.is_some() {
        return Ok(standing);
    }
    probe().await;
    stand(client, target, None).await
}

async fn stand(client: &Client, target: TargetId, ask: Option<MeasureAsk>) -> Result<Standing> {
    match client.control(&ControlRequest::TargetMeasure { target, ask }).await? {
        ControlReply::Standing(standing) => Ok(standing),
        _ => Err(wrong_reply()),
    }
}
