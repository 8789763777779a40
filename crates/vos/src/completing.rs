//! A key that is damaged here, put together with what another member has of it.
//!
//! Members that were away, or that are away for others, know of other changes than this target, so that their data cannot take the place of what is here
//! ([`PoolShard::tells_the_same`]). But bytes of the same records, no newer than what was here, that have the sums of the blocks here are what was in these blocks, whoever
//! gives them, and however old or new all else is that he has. So only damaged blocks are filled, and each is compared.

use crate::blocks::{BLOCK_BYTES, Run};
use crate::data_area::Core;
use crate::image_df::{self, ImageDf, ValueDf};
use crate::index::install::each_run;
use crate::index::past::Kept;
use crate::keys;
use crate::likeness::Told;
use crate::segments::Segments;
use crate::shard::PoolShard;
use crate::space::ReadGuard;
use crate::sums::differing;
use std::cmp::Reverse;
use std::rc::Rc;
use types::{ContId, CsumKind, Result, Unit};

/// Where a value lies in the data area.
struct Found {
    runs: Vec<Run>,
    /// To be loaded; `None`: some of it is known to be damaged.
    whole: Option<Segments>,
}

impl Found {
    fn of(core: &Rc<Core>, kept: &Kept, kind: CsumKind) -> Found {
        let mut runs = Vec::new();
        each_run(&kept.value, |run| runs.push(run));
        let whole = segments_of(core, &runs, kind);
        Found { runs, whole }
    }

    /// The bytes of a value, of which damaged blocks are filled with what others have; `None` where they cannot be.
    async fn filled(
        self,
        core: &Rc<Core>,
        kind: CsumKind,
        told: &Told<'_>,
        theirs: &[Told<'_>],
    ) -> Option<Vec<u8>> {
        if let Some(bytes) = whole(self.whole).await {
            return Some(bytes);
        }
        let mut filled = Vec::new();
        for part in self.runs.into_iter().flat_map(by_block) {
            let bytes = match whole(segments_of(core, &[part], kind)).await {
                Some(bytes) => bytes,
                None => {
                    let at = filled.len() as u64;
                    let bytes = told.bytes_of_others(theirs, at, part.bytes)?;
                    is_what_was_here(core, part, &bytes).then_some(bytes)?
                }
            };
            filled.extend_from_slice(&bytes);
        }
        Some(filled)
    }
}

fn segments_of(core: &Rc<Core>, runs: &[Run], kind: CsumKind) -> Option<Segments> {
    let mut segments = Segments::new();
    segments.kind = kind;
    runs.iter().try_for_each(|run| segments.push_run(core, *run)).ok()?;
    Some(segments)
}

/// What lies here, if it can be read and none of it is damaged.
async fn whole(segments: Option<Segments>) -> Option<Vec<u8>> {
    let mut segments = segments?;
    let is_whole = segments.load().await.is_ok() && segments.damaged().is_empty();
    is_whole.then(|| segments.slices().concat())
}

/// The parts of a run in each of its blocks.
fn by_block(run: Run) -> impl Iterator<Item = Run> {
    (run.first_block()..run.end_block()).map(move |block| {
        let at = run.at.max(block * BLOCK_BYTES);
        let end = (run.at + run.bytes).min((block + 1) * BLOCK_BYTES);
        Run { at, bytes: end - at }
    })
}

/// True when a block with these bytes, and nothing else, is the one that was written. What else a block holds that others cut off nobody has.
fn is_what_was_here(core: &Core, part: Run, bytes: &[u8]) -> bool {
    let mut block = [0; BLOCK_BYTES as usize];
    let skip = (part.at % BLOCK_BYTES) as usize;
    let Some(place) = block.get_mut(skip..skip + bytes.len()) else { return false };
    place.copy_from_slice(bytes);
    let space = core.space.borrow();
    space
        .sums
        .of(part.first_block())
        .is_some_and(|(kind, sum)| differing(kind, part.first_block(), &block, sum).is_empty())
}

impl PoolShard {
    /// The image of a dkey of which data are damaged here, put together with bytes of the same records that the image of another member has, and that have
    /// the sums of what was here. `None` where that has not all of them, or there are no sums to compare with. The rest of either image need not be the same.
    ///
    /// It is what [`PoolShard::replace_damaged`] takes. Errors: as for [`PoolShard::dkey_image`], but for damage, and `Csum`, `Version` for what is no image.
    pub async fn completed_image(
        &self,
        cont: ContId,
        unit: Unit,
        dkey: &[u8],
        other: &[u8],
    ) -> Result<Option<Vec<u8>>> {
        keys::check_dkey(unit, dkey)?;
        let other = ImageDf::decode(other)?;
        if (other.unit, other.dkey) != (unit, dkey) {
            return Ok(None);
        }
        let contents = self.contents_of(cont, unit, dkey).await?;
        // In the step in which they were found: blocks are not used again before the guard goes.
        let _guard = ReadGuard::new(&self.core.space);
        let kind = self.view(cont)?.cont.sums.kind;
        let found = |kept| (kept, Found::of(&self.core, kept, kind));
        let all: Vec<(&Kept, Found)> = contents.values.iter().map(found).collect();
        let mut theirs: Vec<Told<'_>> = other.values.iter().map(ValueDf::told).collect();
        theirs.sort_by_key(|told| Reverse(told.created));
        let mut data = Vec::new();
        for (kept, found) in all {
            let told = Told::of(kept, None);
            match found.filled(&self.core, kind, &told, &theirs).await {
                Some(filled) => data.extend_from_slice(&filled),
                None => return Ok(None),
            }
        }
        let (mut image, _) = image_df::encode(unit, dkey, &contents, kind, &data);
        image_df::join_sum(&mut image)?;
        Ok(Some(image))
    }
}
