//! What only a whole unit knows, on its way to another member: its last changes, and sizes that snapshots show. It goes after the
//! unit's dkeys ([`crate::image`]).

use types::{ContId, Error, Result, Unit};
use wire::obj::{Cond, Op};

use crate::Lsn;
use crate::image_df::{UnitDf, decode_facts, seal};
use crate::index::install::Timeline;
use crate::index::past::Facts;
use crate::shard::PoolShard;

impl PoolShard {
    /// What is known of a unit as a whole, to be installed at another member after its dkeys. `NonExist` for an unknown
    /// container, `Busy` while that is rolled back.
    pub async fn unit_facts(&self, cont: ContId, unit: Unit) -> Result<Vec<u8>> {
        self.require_open(cont)?;
        self.ready_for(cont, |container| {
            container.whole(unit);
        })
        .await?;
        let view = self.view(cont)?;
        let timeline = view.cont.whole(unit).map(|object| object.timeline());
        let (epochs, facts) = timeline.map_or_else(Default::default, |timeline| {
            (timeline.epochs, timeline.facts.iter().map(Facts::durable).collect())
        });
        Ok(seal(&UnitDf { unit, epochs, facts }))
    }

    /// Sets what is known of a unit as a whole to what it is at another member; no effect on a unit of which nothing is here.
    /// Errors: as for [`PoolShard::install_dkey`].
    pub async fn install_unit_facts(&self, cont: ContId, unit: Unit, facts: &[u8]) -> Result<Lsn> {
        Ok(self.install_unit_facts_while(cont, unit, facts, &|| Ok(false)).await?.0)
    }

    /// The same unless `may` has something against it, which is asked in the step that sets it. Where it says so, keys may be here that the other member does not have: what
    /// is newer of the unit than there stays so. Whether something did.
    pub async fn install_unit_facts_while(
        &self,
        cont: ContId,
        unit: Unit,
        facts: &[u8],
        may: &dyn Fn() -> Result<bool>,
    ) -> Result<(Lsn, bool)> {
        self.writable()?;
        let UnitDf { unit: of, epochs, facts } = decode_facts(facts)?;
        if of != unit {
            return Err(Error::inval(format!("the facts are not of object {unit}")));
        }
        let facts = facts.iter().map(Facts::from_durable).collect();
        let mut timeline = Timeline { epochs, facts };
        self.require_cont(cont)?;
        let op = Op::PunchObj { unit, cond: Cond::NONE, besides: b"" };
        self.ready_for(cont, |container| {
            container.whole(unit);
        })
        .await?;
        self.writable()?;
        self.require_not_rolled(cont)?;
        let keeps_newer = may()?;
        let Some(here) = self.look(cont)?.whole(unit).map(|object| object.timeline().epochs) else {
            return Ok((self.last_lsn(), false));
        };
        let (epoch, keys_epoch, _) = &mut timeline.epochs;
        let has_kept = keeps_newer && (here.0 > *epoch || here.1 > *keys_epoch);
        if has_kept {
            (*epoch, *keys_epoch) = (here.0.max(*epoch), here.1.max(*keys_epoch));
        }
        let lsn = self.set_timeline(cont, unit, &timeline)?;
        self.note_unsettled(lsn, cont, &[op]);
        Ok((lsn, has_kept))
    }
}
