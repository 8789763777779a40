//! How the data of a pool are compared with their checksums, and what is damaged.

use crate::damaged::{self, DamagedObject};
use crate::exit::{Failure, Outcome};
use crate::output::{Table, bar, utc};
use crate::props::attr_text;
use crate::session::Session;
use serde::Serialize;
use std::io::{self, Write};
use std::time::Duration;
use types::{Code, Error, Result, TargetId, size};
use wire::scrub::{BadHolder, BadPlace, ScrubStat};

/// Between two looks at a pass under way.
const LOOK_PAUSE: Duration = Duration::from_millis(200);

/// What one target says.
#[derive(Serialize)]
pub struct TargetScrub {
    target: u32,
    /// `null`: no answer.
    #[serde(flatten)]
    stat: Option<ScrubStat>,
}

impl TargetScrub {
    /// Whose the damaged places are, as far as they are known.
    pub fn holders(&self) -> impl Iterator<Item = &BadHolder> {
        let places = self.stat.iter().flat_map(|stat| &stat.places);
        places.filter_map(|place| place.holder.as_ref())
    }
}

/// Asks all targets.
pub fn report(pool: &client::Pool) -> Result<Vec<TargetScrub>> {
    let asked = pool.client().block_on(pool.scrub_stat())?;
    let one = |(target, stat): (TargetId, _)| TargetScrub { target: target.0, stat };
    Ok(asked.into_iter().map(one).collect())
}

/// Prints a table, and the places of damage if there are any, with their paths if those were searched.
pub fn show(
    targets: &[TargetScrub],
    objects: &[DamagedObject],
    out: &mut dyn Write,
) -> io::Result<()> {
    writeln!(out)?;
    let mut table = Table::new(&[
        ">TARGET",
        "SCRUB",
        ">SUMMED",
        ">CHECKED",
        "LAST FULL PASS",
        ">DAMAGED",
        ">MENDED KEYS",
    ]);
    for target in targets {
        let Some(stat) = &target.stat else { continue };
        let checked = match stat.checked_bytes + stat.left_bytes {
            0 => "-".to_string(),
            all => format!("{}%", stat.checked_bytes * 100 / all),
        };
        let last = match stat.pass_end_ns {
            0 => "never".to_string(),
            ended => utc(ended as i64),
        };
        table.row(vec![
            target.target.to_string(),
            stat.rate.to_string(),
            size::format(stat.summed_bytes),
            checked,
            last,
            size::format(stat.bad_bytes),
            stat.mended_count.to_string(),
        ]);
    }
    table.write(out)?;
    show_places(targets, objects, out)
}

fn show_places(
    targets: &[TargetScrub],
    objects: &[DamagedObject],
    out: &mut dyn Write,
) -> io::Result<()> {
    for target in targets {
        for place in target.stat.iter().flat_map(|stat| &stat.places) {
            writeln!(out, "{}", place_text(target.target, place, objects))?;
        }
    }
    Ok(())
}

fn place_text(target: u32, place: &BadPlace, objects: &[DamagedObject]) -> String {
    let found = utc(place.found_ns as i64);
    let whose = match &place.holder {
        Some(holder) => format!(
            "{}container {}, object {}, dkey {}, akey {}: {} bytes at {}",
            damaged::path_of(objects, holder.cont, holder.unit.object)
                .map_or_else(String::new, |path| format!("{path}, ")),
            holder.cont,
            holder.unit.object,
            key_text(&holder.dkey),
            key_text(&holder.akey),
            holder.bytes,
            holder.offset
        ),
        None => "holder not found".to_string(),
    };
    format!(
        "damaged on target {target}, found {found}: {whose} (device byte {})",
        place.device_offset
    )
}

fn key_text(key: &[u8]) -> String {
    if key.is_empty() { "''".into() } else { attr_text(key) }
}

/// Has all targets compare all data now; with `wait`, until they are through.
pub fn run(session: &Session, pool: &client::Pool, wait: bool) -> Outcome {
    let client = pool.client();
    let begun = client.block_on(pool.scrub())?;
    let silent: Vec<String> = begun
        .iter()
        .filter(|(_, pass)| pass.is_none())
        .map(|(target, _)| target.to_string())
        .collect();
    if !silent.is_empty() {
        return Err(Error::new(
            Code::Unreach,
            format!("targets {} gave no answer; the others have begun", silent.join(", ")),
        )
        .into());
    }
    if !wait {
        return session.out.done("Begun; 'azekura pool query' shows how far it is.");
    }
    let progress = bar(session.out.shows_progress());
    loop {
        let targets = report(pool)?;
        let under_way = |stat: &ScrubStat, pass: u64| stat.passes < pass;
        let (mut all, mut done, mut left) = (0, 0, 0);
        for (target, (_, pass)) in targets.iter().zip(&begun) {
            let (Some(stat), Some(pass)) = (&target.stat, pass) else {
                let text = format!("target {} gives no answer any more", target.target);
                return Err(Error::new(Code::Unreach, text).into());
            };
            all += stat.summed_bytes;
            if under_way(stat, *pass) {
                left += 1;
                done += stat.checked_bytes;
            } else {
                done += stat.summed_bytes;
            }
        }
        progress.set_length(all);
        progress.set_position(done);
        if left == 0 {
            progress.finish_and_clear();
            return tell(session, pool, &targets);
        }
        client.block_on(client.env().sleep(LOOK_PAUSE));
    }
}

#[derive(Serialize)]
struct Told<'a> {
    summed_bytes: u64,
    bad_bytes: u64,
    mended_count: u64,
    targets: &'a [TargetScrub],
    damaged: Vec<DamagedObject>,
}

fn tell(session: &Session, pool: &client::Pool, targets: &[TargetScrub]) -> Outcome {
    let stats = || targets.iter().filter_map(|target| target.stat.as_ref());
    let told = Told {
        summed_bytes: stats().map(|stat| stat.summed_bytes).sum(),
        bad_bytes: stats().map(|stat| stat.bad_bytes).sum(),
        mended_count: stats().map(|stat| stat.mended_count).sum(),
        targets,
        damaged: damaged::objects(session, pool, targets),
    };
    session.out.show(&told, |out| {
        if told.bad_bytes == 0 {
            return match session.out.quiet {
                true => Ok(()),
                false => writeln!(out, "All {} are whole.", size::format(told.summed_bytes)),
            };
        }
        writeln!(
            out,
            "{} of {} are damaged:",
            size::format(told.bad_bytes),
            size::format(told.summed_bytes)
        )?;
        show_places(targets, &told.damaged, out)
    })?;
    if told.bad_bytes > 0 { Err(Failure::Reported(1)) } else { Ok(()) }
}
