//! `azekura system`: the engines of a system, as the control service knows them.

use crate::exit::Outcome;
use crate::output::Table;
use crate::session::Session;
use serde::Serialize;

/// Show the system and its engines.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  azekura system query
  azekura system list-engines --json")]
pub struct SystemArgs {
    #[command(subcommand)]
    verb: SystemVerb,
}

#[derive(clap::Subcommand, Debug)]
enum SystemVerb {
    /// Show which system it is and which engine leads
    Query,
    /// Show the engines with state, address, fault domain and targets
    ListEngines,
}

#[derive(Serialize)]
struct Engine {
    rank: u32,
    /// `up` or `down`: whether it answered when the leader last asked.
    state: &'static str,
    /// It holds the control service.
    leads: bool,
    tcp: String,
    domain: Vec<String>,
    targets: Vec<u32>,
}

#[derive(Serialize)]
struct Report {
    uuid: String,
    /// Of the program that the leader runs.
    version: String,
    /// Rank of the engine that holds the control service; missing while the catalog is away.
    #[serde(skip_serializing_if = "Option::is_none")]
    leader: Option<u32>,
    pools: u64,
    engines: Vec<Engine>,
}

pub fn run(session: &Session, args: &SystemArgs) -> Outcome {
    let client = session.connect()?;
    let info = client.block_on(client.system_query())?;
    let leader = info.leader.map(|rank| rank.0);
    let engine = |(engine, targets, reachable): &(wire::map::EngineInfo, Vec<_>, bool)| Engine {
        rank: engine.rank.0,
        state: if *reachable { "up" } else { "down" },
        leads: leader == Some(engine.rank.0),
        tcp: engine.tcp.clone(),
        domain: engine.domain.clone(),
        targets: targets.iter().map(|target: &types::TargetId| target.0).collect(),
    };
    let report = Report {
        uuid: info.uuid.to_string(),
        version: info.version.clone(),
        leader,
        pools: info.pool_count,
        engines: info.engines.iter().map(engine).collect(),
    };
    match args.verb {
        SystemVerb::Query => session.out.show(&report, |out| {
            writeln!(out, "System {}, version {}", report.uuid, report.version)?;
            let up = report.engines.iter().filter(|engine| engine.state == "up").count();
            writeln!(
                out,
                "{up} of {} engines are up; {} pools.",
                report.engines.len(),
                report.pools
            )?;
            match leader {
                Some(rank) => writeln!(out, "Engine {rank} leads."),
                None => writeln!(out, "No engine leads: the catalog is away."),
            }
        }),
        SystemVerb::ListEngines => session.out.show(&report.engines, |out| {
            let titles = [">RANK", "STATE", "ADDRESS", "DOMAIN", "TARGETS"];
            let mut table = Table::new(&titles);
            for engine in &report.engines {
                let leads = if engine.leads { ", leads" } else { "" };
                let targets: Vec<String> = engine.targets.iter().map(u32::to_string).collect();
                table.row(vec![
                    engine.rank.to_string(),
                    format!("{}{leads}", engine.state),
                    engine.tcp.clone(),
                    format!("/{}", engine.domain.join("/")),
                    targets.join(","),
                ]);
            }
            table.write(out)
        }),
    }?;
    Ok(())
}
