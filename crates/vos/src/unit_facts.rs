//! What only a whole unit knows, on its way to another member: its last changes, and sizes that snapshots show. It goes after the
//! unit's dkeys ([`crate::image`]).

use serde::{Deserialize, Serialize};
use types::{ContId, CsumKind, Epoch, Error, Result, Unit};
use wire::obj::{Cond, Op};

use crate::Lsn;
use crate::image::{bad, decode, open, require_sum, seal};
use crate::index::install::Timeline;
use crate::index::past::Facts;
use crate::record::FactsDf;
use crate::shard::PoolShard;

/// What is known of a unit as a whole.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct UnitDf {
    pub unit: Unit,
    pub epochs: (Epoch, Epoch, Epoch),
    pub facts: Vec<FactsDf>,
}

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
        self.writable()?;
        let UnitDf { unit: of, epochs, facts } = decode_facts(facts)?;
        if of != unit {
            return Err(Error::inval(format!("the facts are not of object {unit}")));
        }
        let facts = facts.iter().map(Facts::from_durable).collect();
        let timeline = Timeline { epochs, facts };
        self.require_cont(cont)?;
        let op = Op::PunchObj { unit, cond: Cond::NONE, besides: b"" };
        self.ready_for(cont, |container| {
            container.whole(unit);
        })
        .await?;
        self.writable()?;
        self.require_open(cont)?;
        if self.view(cont)?.cont.whole(unit).is_none() {
            return Ok(self.last_lsn());
        }
        let lsn = self.set_timeline(cont, unit, &timeline)?;
        self.note_unsettled(lsn, cont, &[op]);
        Ok(lsn)
    }
}

pub(crate) fn decode_facts(raw: &[u8]) -> Result<UnitDf> {
    let (sum, body) = open(raw)?;
    let mut of_body = [0; 4];
    codec::sum(CsumKind::Crc32c, body, &mut of_body);
    require_sum(sum, of_body)?;
    let found: UnitDf = decode(body)?;
    if !found.facts.is_sorted_by(|a, b| a.until < b.until) {
        return Err(bad("facts out of order"));
    }
    Ok(found)
}
