//! Putting damaged data right from other members of their group.
//!
//! A follower asks its leader for the key, as for any other that may differ. A leader asks a follower that has all of its orders for its own: what a whole member
//! has then is what the leader has, and it is installed only if no order has changed the key since. Where a lost leader may have told one of the two what the other does
//! not know ([`crate::suspects`]), theirs must tell of the same changes: the leader cannot wait for that to be settled, for it is settled with what the leader has. Where nobody
//! else is whole, members that are behind are asked, too: theirs may fill what is damaged, and change nothing else. A cell is put together from the others of its stripe.
//!
//! A reader that meets damage waits for this, a few seconds at most, and asks again; the scrubber goes on meanwhile. What no other
//! member has whole either stays refused to readers. A sector that the device does not give is damage like any other, whoever meets it.

use crate::cells::StripeAt;
use crate::mend::IMAGE_BYTES_MAX;
use crate::target::{Target, TargetPool};
use futures_channel::oneshot;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;
use types::limits::BULK_BYTES_MAX;
use types::{Code, ContId, Error, Result, TargetId, Unit};
use vos::{Closeness, Holder, Segments};
use wire::cell::of_cell_akey;
use wire::control::ControlRequest;
use wire::event::{EventCode, Happened};
use wire::map::PoolMap;
use wire::member::MemberAsk;
use wire::obj::{Batch, Cond, Op};
use wire::walk::walk;

/// A reader, or the scrubber, waits so long for data to be put right.
const WAIT_MAX: Duration = Duration::from_secs(5);
/// What nobody else has whole is not tried again for so long.
const FAILED_PAUSE: Duration = Duration::from_secs(10);
/// Pause before another try where others were just changing the key, or who leads.
const PASSING_PAUSE: Duration = Duration::from_millis(50);
/// Tries at a key that others change meanwhile, and the pause between them.
const TRIES_MAX: u32 = 8;
const TRY_PAUSE: Duration = Duration::from_millis(10);
/// Room for an image at first: that of a chunk of a file.
const IMAGE_BYTES: usize = 2 << 20;
/// Images may grow by so much between two asks.
const IMAGE_SLACK_BYTES: u64 = 64 << 10;

/// A key with damaged data; the akey only of cells, each of which is put together apart.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Spot {
    cont: ContId,
    unit: Unit,
    dkey: Vec<u8>,
    akey: Vec<u8>,
}

impl Spot {
    pub fn new(cont: ContId, unit: Unit, dkey: &[u8], akey: &[u8]) -> Spot {
        let akey = if unit.is_cell() { akey.to_vec() } else { Vec::new() };
        Spot { cont, unit, dkey: dkey.to_vec(), akey }
    }
}

/// What came of putting a key right.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Tried {
    Mended,
    /// The key was changed meanwhile, or who leads its group: it may be tried again at once.
    NotNow,
    Failed,
}

/// Another member's data of a key that this target leads.
enum Taken {
    Installed,
    /// They are not of the changes that are known here: one of the two has more from a leader that is lost.
    OfOtherChanges,
}

/// A key of a unit.
type KeyName = (ContId, Unit, Box<[u8]>);

/// What of a pool is being put right on a target.
#[derive(Default)]
pub(crate) struct Mending {
    /// With those who wait for the end.
    under_way: RefCell<BTreeMap<Spot, Vec<oneshot::Sender<Tried>>>>,
    /// Until when it is not tried again, by the target's clock.
    failed: RefCell<BTreeMap<Spot, Duration>>,
    mended_count: Cell<u64>,
    /// Keys for which others were to lead: they look as new as those of the others and are not what these have.
    given_up: RefCell<BTreeSet<KeyName>>,
}

impl Mending {
    /// True when a unit, or a key of it, is to be taken from others whole.
    pub fn has_given_up(&self, cont: ContId, unit: Unit, dkey: Option<&[u8]>) -> bool {
        let is_it = |(of, unit_of, key): &KeyName| {
            (*of, *unit_of) == (cont, unit) && dkey.is_none_or(|dkey| **key == *dkey)
        };
        self.given_up.borrow().iter().any(is_it)
    }

    /// All that was to be taken from others has been.
    pub fn has_caught_up(&self) {
        self.given_up.borrow_mut().clear();
    }

    pub fn mended_count(&self) -> u64 {
        self.mended_count.get()
    }

    /// So many more were put right.
    pub fn count(&self, mended: u64) {
        self.mended_count.set(self.mended_count.get() + mended);
    }
}

impl Target {
    /// Puts a key right, or waits until somebody else who has begun is through. False when it could not be done.
    pub(crate) async fn mend_spot(self: &Rc<Self>, ctx: &Rc<TargetPool>, spot: &Spot) -> bool {
        self.try_to_mend(ctx, spot).await == Tried::Mended
    }

    /// The same until then while others change the key, or who leads.
    async fn mend_before(self: &Rc<Self>, ctx: &Rc<TargetPool>, spot: &Spot, until: Duration) {
        while self.try_to_mend(ctx, spot).await == Tried::NotNow
            && self.env.now() < until
            && !self.is_done_with(ctx)
        {
            // timer: others are at the key, or who leads it changes: another try later.
            self.env.sleep(PASSING_PAUSE).await;
        }
    }

    async fn try_to_mend(self: &Rc<Self>, ctx: &Rc<TargetPool>, spot: &Spot) -> Tried {
        let mending = &ctx.mending;
        if ctx.is_alone(spot.unit.object) {
            return Tried::Failed;
        }
        let now = self.env.now();
        mending.failed.borrow_mut().retain(|_, until| *until > now);
        if mending.failed.borrow().contains_key(spot) {
            return Tried::Failed;
        }
        let waits = {
            let mut under_way = mending.under_way.borrow_mut();
            match under_way.get_mut(spot) {
                Some(waiting) => {
                    let (sender, over) = oneshot::channel();
                    waiting.push(sender);
                    Some(over)
                }
                None => {
                    under_way.insert(spot.clone(), Vec::new());
                    None
                }
            }
        };
        if let Some(over) = waits {
            return over.await.unwrap_or(Tried::NotNow);
        }
        let outcome = match spot.unit.is_cell() {
            true => self.mend_own_cell(ctx, spot).await,
            false => self.mend_own_key(ctx, spot).await,
        };
        let Spot { cont, unit, dkey, .. } = spot;
        let (object, group, dkey) = (unit.object, unit.group, dkey.escape_ascii());
        match &outcome {
            Ok(()) => {
                mending.mended_count.set(mending.mended_count.get() + 1);
                let what = format!(
                    "target {}: damaged data of object {object} (key {dkey}) were put right from other members of its group",
                    self.id
                );
                self.events.tell(
                    Happened::new(EventCode::DamageMended, what)
                        .of_target(self.id)
                        .of_pool(ctx.shard.pool()),
                );
                tracing::warn!(
                    target_id = %self.id, %cont, oid = %object, group, %dkey,
                    "damaged data were put right from other members of the group"
                );
            }
            Err(error) if is_passing(error) => tracing::info!(
                target_id = %self.id, %cont, oid = %object, group, %dkey,
                "damaged data are not put right yet: {error}"
            ),
            Err(error) => {
                mending.failed.borrow_mut().insert(spot.clone(), self.env.now() + FAILED_PAUSE);
                tracing::warn!(
                    target_id = %self.id, %cont, oid = %object, group, %dkey,
                    "damaged data cannot be put right: {error}"
                );
            }
        }
        let tried = match &outcome {
            Ok(()) => Tried::Mended,
            Err(error) if is_passing(error) => Tried::NotNow,
            Err(_) => Tried::Failed,
        };
        let waiting = mending.under_way.borrow_mut().remove(spot);
        for waiting in waiting.into_iter().flatten() {
            // A receiver that is gone gave up waiting.
            let _ = waiting.send(tried);
        }
        tried
    }

    /// Puts a key right in the background.
    pub(crate) fn mend_soon(self: &Rc<Self>, ctx: &Rc<TargetPool>, spot: Spot) {
        let (target, ctx) = (self.clone(), ctx.clone());
        self.env.spawn(async move {
            target.mend_spot(&ctx, &spot).await;
        });
    }

    /// The keys of a batch that others may have whole: something of them is known to be damaged here, or the device does not give it.
    async fn spots_to_mend(&self, ctx: &TargetPool, batch: &Batch<'_>) -> Result<BTreeSet<Spot>> {
        ctx.shard.ready_at(batch.cont, batch.at, &[], &batch.ops).await?;
        let mut spots = BTreeSet::new();
        let mut unread = Vec::new();
        {
            let view = ctx.shard.view_at(batch.cont, batch.at)?;
            for op in walk(&batch.ops) {
                let Op::Fetch { unit, dkey, cond, iods } = op else { continue };
                if ctx.is_alone(unit.object) {
                    continue;
                }
                for iod in iods {
                    let spot = Spot::new(batch.cont, *unit, dkey, iod.akey);
                    let (one, mut segments) = (std::slice::from_ref(iod), Segments::new());
                    match view.fetch(*unit, dkey, *cond, one, &mut segments) {
                        Ok(_) => unread.push((spot, segments)),
                        Err(error) if is_damage(&error) => drop(spots.insert(spot)),
                        // Whoever asked is told so.
                        Err(_) => {}
                    }
                }
            }
        }
        for (spot, mut segments) in unread {
            if !spots.contains(&spot) && segments.load().await.is_err_and(|error| is_damage(&error))
            {
                spots.insert(spot);
            }
        }
        Ok(spots)
    }

    /// For a reader that met damage: puts right what it reads; it is to ask again. It does not wait for ever. False when nobody else can
    /// have what is damaged here.
    pub(crate) async fn mend_for_reader(
        self: &Rc<Self>,
        ctx: &Rc<TargetPool>,
        batch: &Batch<'_>,
    ) -> bool {
        match self.spots_to_mend(ctx, batch).await {
            Ok(spots) if spots.is_empty() => false,
            Ok(spots) => {
                self.mend_spots_for_reader(ctx, spots).await;
                true
            }
            Err(error) => {
                tracing::debug!("target {}: what is damaged: {error}", self.id);
                false
            }
        }
    }

    /// The same for one that met what cannot be read, which is not noted as damaged: the device may come to itself. What it is to be told: that
    /// the data were damaged, so that it asks again, where others may have put them right.
    pub(crate) async fn mend_unreadable(
        self: &Rc<Self>,
        ctx: &Rc<TargetPool>,
        batch: &Batch<'_>,
        error: Error,
    ) -> Error {
        if error.code != Code::Io {
            return error;
        }
        if !self.mend_for_reader(ctx, batch).await {
            return error;
        }
        tracing::warn!("target {}: {error}; others were asked for it", self.id);
        Error::new(Code::Csum, error.text)
    }

    async fn mend_spots_for_reader(self: &Rc<Self>, ctx: &Rc<TargetPool>, spots: BTreeSet<Spot>) {
        let (sender, over) = oneshot::channel();
        let (target, of) = (self.clone(), ctx.clone());
        let until = self.env.now() + WAIT_MAX;
        self.env.spawn(async move {
            for spot in &spots {
                target.mend_before(&of, spot, until).await;
            }
            // The reader may have gone.
            let _ = sender.send(());
        });
        let _ = self.env.timeout(WAIT_MAX, over).await;
    }

    /// Puts right what holds damaged blocks.
    pub(crate) async fn mend_holders(self: &Rc<Self>, ctx: &Rc<TargetPool>, holders: &[Holder]) {
        let spot = |of: &Holder| Spot::new(of.cont, of.unit, &of.dkey, &of.akey);
        let spots: BTreeSet<Spot> = holders.iter().map(spot).collect();
        for spot in &spots {
            if self.is_done_with(ctx) {
                return;
            }
            self.mend_before(ctx, spot, self.env.now() + WAIT_MAX).await;
        }
    }

    async fn mend_own_key(self: &Rc<Self>, ctx: &Rc<TargetPool>, spot: &Spot) -> Result<()> {
        let map = ctx.map()?;
        let leader = self.leader_of(ctx, spot.unit)?;
        if leader != self.id {
            let dkeys = vec![serde_bytes::Bytes::new(&spot.dkey)];
            let (cont, unit) = (spot.cont, spot.unit);
            let ask = MemberAsk::Mend { cont, unit, dkeys, with_facts: true };
            return self.ask_member(ctx, &map, leader, ask).await;
        }
        let mut last = Error::new(Code::Csum, "no other member of the group has it");
        let mut differs = None;
        for member in self.whole_members(&map, spot.unit) {
            for _ in 0..TRIES_MAX {
                match self.take_key_of(ctx, member, spot).await {
                    Ok(Taken::Installed) => return Ok(()),
                    Ok(Taken::OfOtherChanges) => {
                        differs = Some(member);
                        break;
                    }
                    Err(error) => {
                        let is_busy = error.code == Code::Busy;
                        last = error;
                        if !is_busy {
                            break;
                        }
                    }
                }
                // timer: a busy member is asked again.
                self.env.sleep(TRY_PAUSE).await;
            }
        }
        match differs {
            Some(member) => self.let_others_lead(ctx, &map, member, spot).await,
            None if self.complete_key(ctx, &map, spot).await? => Ok(()),
            None => Err(last),
        }
    }

    /// Fills what is damaged of a key that this target leads with what members have that are behind: they wait for this key, to catch up. True when it is
    /// whole now.
    async fn complete_key(
        self: &Rc<Self>,
        ctx: &Rc<TargetPool>,
        map: &PoolMap,
        spot: &Spot,
    ) -> Result<bool> {
        let Spot { cont, unit, ref dkey, .. } = *spot;
        let read = || Op::Fetch { unit, dkey, cond: Cond::NONE, iods: Vec::new() };
        for member in self.members_behind(map, unit) {
            let theirs = match self.image_of(ctx, member, spot).await {
                Ok(theirs) => theirs,
                // Another one may be there.
                Err(error) => {
                    tracing::debug!("target {}: what target {member} has: {error}", self.id);
                    continue;
                }
            };
            let watch = ctx.streams.watch();
            let Some(image) = ctx.shard.completed_image(cont, unit, dkey, &theirs).await? else {
                continue;
            };
            let changed = || ctx.map_version() != map.version || watch.has_changed(cont, read());
            let lsn = ctx.shard.replace_damaged(cont, unit, dkey, &image, &|| !changed()).await?;
            ctx.shard.durable(lsn).await?;
            return Ok(true);
        }
        Ok(false)
    }

    /// Has others lead: `member` has all of a damaged key, and an update more or less than this target, of which nobody was told. What
    /// this target has of it nobody can be sent, so it is settled with what the others have.
    async fn let_others_lead(
        self: &Rc<Self>,
        ctx: &Rc<TargetPool>,
        map: &PoolMap,
        member: TargetId,
        spot: &Spot,
    ) -> Result<()> {
        tracing::warn!(
            target_id = %self.id, %member, oid = %spot.unit.object, group = spot.unit.group,
            dkey = %spot.dkey.escape_ascii(),
            "a key is damaged that a lost leader has changed last, and who has it whole knows of other changes: others are to lead"
        );
        let (pool, target, map_version) = (ctx.shard.pool(), self.id, map.version);
        let damaged = ControlRequest::TargetDamaged { pool, target, map_version };
        // What differs may be as old as what is newest on both sides, and not be seen by epochs.
        let given_up = (spot.cont, spot.unit, spot.dkey.clone().into());
        ctx.mending.given_up.borrow_mut().insert(given_up);
        self.tell_control(map, &damaged).await?;
        Err(Error::new(Code::Busy, "others are about to lead the group"))
    }

    /// Takes a follower's data of a key that this target leads and has damaged.
    async fn take_key_of(
        self: &Rc<Self>,
        ctx: &Rc<TargetPool>,
        member: TargetId,
        spot: &Spot,
    ) -> Result<Taken> {
        let Spot { cont, unit, ref dkey, .. } = *spot;
        let read = || Op::Fetch { unit, dkey, cond: Cond::NONE, iods: Vec::new() };
        let map = ctx.map()?;
        let watch = ctx.streams.watch();
        // The follower has all that was given so far then, folds included.
        ctx.streams.reach(member).await?;
        let image = self.image_of(ctx, member, spot).await?;
        // What only the follower has of a lost leader this target has no suspicion of.
        let closeness = match ctx.suspects.may_differ(cont, unit, dkey) {
            true => Closeness::Written,
            false => Closeness::Joined,
        };
        let has_same = ctx.shard.tells_the_same(cont, unit, dkey, &image, closeness).await?;
        let is_same = || ctx.map_version() == map.version && !watch.has_changed(cont, read());
        if !has_same {
            return match is_same() {
                true => Ok(Taken::OfOtherChanges),
                false => Err(Error::new(Code::Busy, "the key was changed meanwhile")),
            };
        }
        let lsn = ctx.shard.replace_damaged(cont, unit, dkey, &image, &is_same).await?;
        ctx.shard.durable(lsn).await?;
        Ok(Taken::Installed)
    }

    async fn image_of(
        self: &Rc<Self>,
        ctx: &Rc<TargetPool>,
        member: TargetId,
        spot: &Spot,
    ) -> Result<Vec<u8>> {
        let map = ctx.map()?;
        let Spot { cont, unit, ref dkey, .. } = *spot;
        let mut room = vec![0; IMAGE_BYTES];
        loop {
            let ask = MemberAsk::Image { cont, unit, dkey, bytes_max: room.len() as u64 };
            let (bytes, sent): (u64, usize) =
                self.ask_member_for_bulk(ctx, &map, member, ask, &mut room).await?;
            if bytes == sent as u64 {
                room.truncate(sent);
                return Ok(room);
            }
            let wanted = bytes.saturating_add(IMAGE_SLACK_BYTES);
            if wanted <= room.len() as u64 {
                return Err(Error::new(
                    Code::Proto,
                    "an image has fewer bytes than it is said to have",
                ));
            }
            if wanted > BULK_BYTES_MAX as u64 {
                return self.image_in_parts(ctx, member, spot, bytes).await;
            }
            room = vec![0; wanted as usize];
        }
    }

    /// An image of so many bytes, more than a message has. What its parts are of is told by its checksum, when it is installed.
    async fn image_in_parts(
        self: &Rc<Self>,
        ctx: &Rc<TargetPool>,
        member: TargetId,
        spot: &Spot,
        bytes: u64,
    ) -> Result<Vec<u8>> {
        if bytes > IMAGE_BYTES_MAX as u64 {
            let text = format!("the key has {bytes} bytes, more than {IMAGE_BYTES_MAX}");
            return Err(Error::new(Code::RecordTooBig, text));
        }
        let map = ctx.map()?;
        let Spot { cont, unit, ref dkey, .. } = *spot;
        let mut image = vec![0; bytes as usize];
        let mut at = 0;
        while at < image.len() {
            let end = image.len().min(at + BULK_BYTES_MAX);
            let part = &mut image[at..end];
            let bytes_max = part.len() as u64;
            let ask = MemberAsk::ImagePart { cont, unit, dkey, at: at as u64, bytes_max };
            let (now, sent): (u64, usize) =
                self.ask_member_for_bulk(ctx, &map, member, ask, part).await?;
            if now != bytes || sent as u64 != bytes_max {
                return Err(Error::new(Code::Busy, "the key was changed meanwhile"));
            }
            at = end;
        }
        Ok(image)
    }

    async fn mend_own_cell(self: &Rc<Self>, ctx: &Rc<TargetPool>, spot: &Spot) -> Result<()> {
        let Spot { cont, unit, ref dkey, ref akey } = *spot;
        let (of_akey, stripe) =
            of_cell_akey(akey).ok_or_else(|| Error::new(Code::Io, "a cell with a strange name"))?;
        let here = ctx.shard.cells_under(cont, unit, dkey).await?;
        let Some(epoch) = here.iter().find(|(name, _)| name == akey).map(|(_, epoch)| *epoch)
        else {
            return Err(Error::new(Code::NonExist, "the cell was dropped meanwhile"));
        };
        let of = StripeAt { cont, unit: Unit { cell: 0, ..unit }, dkey, akey: of_akey, stripe };
        let cell = unit.cell as usize - 1;
        let data = self.restore_cell(ctx, of, cell, (0, stripe.cell_bytes)).await?;
        // As old as it was: no snapshot has a use for what it replaces.
        self.keep_cell(ctx, StripeAt { unit, ..of }, &data, Some(epoch)).await
    }
}

/// True where data are not what was written, or the device does not give them: other members may have them whole.
pub(crate) fn is_damage(error: &Error) -> bool {
    matches!(error.code, Code::Csum | Code::Io)
}

/// True for what may be otherwise in a moment.
fn is_passing(error: &Error) -> bool {
    matches!(error.code, Code::Busy | Code::Stale | Code::Closed)
}
