//! Batches: ops that take effect together.
//!
//! A batch whose ops fall on one target is one request and one round trip. Otherwise it goes
//! whole to the target of its first op, which coordinates a two-phase commit.

use crate::cont::Container;
use crate::sums;
use crate::target::Ask;
use smallvec::SmallVec;
use std::time::Duration;
use transport::Answer;
use types::{Code, CsumKind, Epoch, Error, Result, TargetId, Unit};
use wire::link::Link;
use wire::obj::{
    self, BatchReply, ListScope, Op, OpReply, ReadCheck, ReadScope, Request, RequestKind, Sums,
    TxId, TxReply,
};

/// Pause before a transaction is tried again because a participant could not be reached.
const ABSENCE_PAUSE: Duration = Duration::from_millis(20);

/// Times that data are asked for again, or sent again, after they differed from their sums.
const MISMATCH_RETRIES: u32 = 2;

/// Ops of one target.
struct Part<'a> {
    target: TargetId,
    batch: obj::Batch<'a>,
    bulk_out: SmallVec<[&'a [u8]; 2]>,
}

/// The sums of a batch's bulk.
fn of_kind(kind: CsumKind, bytes: &[u8]) -> Sums<'_> {
    if bytes.is_empty() { Sums::NONE } else { Sums { kind, bytes } }
}

impl Part<'_> {
    fn encode_request(&self, kind: CsumKind, sums: &[u8], body: &mut Vec<u8>) {
        // As `Request::Batch` with these sums, without copying the ops.
        let obj::Batch { pool, cont, at, checks, ops, .. } = &self.batch;
        wire::encode_into(
            &(RequestKind::BATCH_TAG, pool, cont, at, checks, ops, of_kind(kind, sums)),
            body,
        );
    }
}

/// Ops in the making. Data of an op is attached right after the op itself.
pub struct Batch<'a> {
    cont: Container,
    parts: SmallVec<[Part<'a>; 1]>,
    /// For each op: its part, and its place there.
    order: SmallVec<[(u16, u16); 4]>,
    bulk_in: Vec<&'a mut [u8]>,
    /// Handles that the batch registers for certain.
    opens: SmallVec<[(TargetId, Unit); 1]>,
    /// Ops that register a handle on what their link leads to, if it is held there.
    open_links: SmallVec<[(u16, u16); 1]>,
    failed: Option<Error>,
}

impl<'a> Batch<'a> {
    pub fn new(cont: &Container) -> Batch<'a> {
        Batch {
            cont: cont.clone(),
            parts: SmallVec::new(),
            order: SmallVec::new(),
            bulk_in: Vec::new(),
            opens: SmallVec::new(),
            open_links: SmallVec::new(),
            failed: None,
        }
    }

    /// True when nothing was added.
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    fn part(&mut self, target: TargetId) -> usize {
        if let Some(at) = self.parts.iter().position(|part| part.target == target) {
            return at;
        }
        let batch = obj::Batch {
            pool: self.cont.pool().info().id,
            cont: self.cont.id(),
            at: self.cont.at(),
            checks: Vec::new(),
            ops: Vec::with_capacity(2),
            sums: Sums::NONE,
        };
        self.parts.push(Part { target, batch, bulk_out: SmallVec::new() });
        self.parts.len() - 1
    }

    /// Fails the batch with `TxRestart` if what was read has changed. A check on a dkey is made of
    /// the unit that holds it, whatever group it names; one on keys or the object is made of the
    /// unit it names, and belongs to every unit that was read.
    pub fn check(&mut self, mut check: ReadCheck<'a>) {
        if let ReadScope::Dkey(dkey) | ReadScope::Akey(dkey, _) = check.of {
            match self.cont.unit_of(check.unit.object, dkey) {
                Ok(unit) => check.unit = unit,
                Err(error) => self.failed = Some(error),
            }
        }
        self.check_of_unit(check);
    }

    /// The same of the unit that the check names, whatever it is on.
    pub fn check_of_unit(&mut self, check: ReadCheck<'a>) {
        match self.cont.target_of(check.unit) {
            Ok(target) => {
                let part = self.part(target);
                self.parts[part].batch.checks.push(check);
            }
            Err(error) => self.failed = Some(error),
        }
    }

    /// Adds an op. One on a dkey is for the unit that holds it, whatever group it names; another one
    /// is for the unit it names. Returns its index among the replies.
    pub fn op(&mut self, mut op: Op<'a>) -> usize {
        let dkey = match &op {
            Op::Update { dkey, .. }
            | Op::Fetch { dkey, .. }
            | Op::PunchAkeys { dkey, .. }
            | Op::FetchLink { dkey, .. }
            | Op::RemoveLink { dkey, .. }
            | Op::List {
                scope: ListScope::Akeys { dkey } | ListScope::Recxs { dkey, .. }, ..
            } => Some(*dkey),
            Op::PunchDkeys { dkeys, .. } => dkeys.first().map(|key| key.as_ref()),
            _ => None,
        };
        if let Some(dkey) = dkey {
            match self.cont.unit_of(op.oid(), dkey) {
                Ok(unit) => op.set_unit(unit),
                Err(error) => self.failed = Some(error),
            }
        }
        self.op_of_unit(op)
    }

    /// Adds an op for the unit that it names, whatever it is on.
    pub fn op_of_unit(&mut self, op: Op<'a>) -> usize {
        let target = match self.cont.target_of(op.unit()) {
            Ok(target) => target,
            Err(error) => {
                self.failed = Some(error);
                self.order.push((0, 0));
                return self.order.len() - 1;
            }
        };
        if let Op::Open { unit } = op {
            self.opens.push((target, unit));
        }
        let opens_link = matches!(op, Op::FetchLink { open: true, .. });
        if op.is_write() && self.cont.is_read_only() {
            self.failed = Some(Error::new(Code::ReadOnly, "the container is open read-only"));
        }
        let part = self.part(target);
        let ops = &mut self.parts[part].batch.ops;
        ops.push(op);
        let place = (part as u16, (ops.len() - 1) as u16);
        if opens_link {
            self.open_links.push(place);
        }
        self.order.push(place);
        self.order.len() - 1
    }

    /// Data of the update just added.
    pub fn bulk_out(&mut self, data: &'a [u8]) {
        if let Some(&(part, _)) = self.order.last()
            && !data.is_empty()
            && let Some(part) = self.parts.get_mut(part as usize)
        {
            part.bulk_out.push(data);
        }
    }

    /// Room for the data of the fetch just added. Only batches on one target can fetch data.
    pub fn bulk_in(&mut self, room: &'a mut [u8]) {
        if !room.is_empty() {
            self.bulk_in.push(room);
        }
    }

    /// Runs the batch. All or nothing.
    ///
    /// Errors: those of the conditions (`Exist`, `NonExist`, `NotEmpty`); `TxRestart` when a
    /// check failed or a two-phase commit lost a conflict: read again and build a new batch.
    pub async fn run(mut self) -> Result<BatchResult> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        match self.parts.len() {
            0 => Ok(BatchResult { epoch: Epoch::ZERO, bodies: SmallVec::new(), order: self.order }),
            1 => self.run_on_one().await,
            _ => self.run_on_several().await,
        }
    }

    async fn run_on_one(mut self) -> Result<BatchResult> {
        let Some(part) = self.parts.pop() else {
            return Err(Error::bare(Code::Inval));
        };
        let target = part.target;
        let answer = match self.ask_one(&part).await {
            Err(error) if error.code == Code::Csum => self.ask_again(&part, error).await?,
            outcome => outcome?,
        };
        let mut bodies: SmallVec<[Body; 1]> = SmallVec::new();
        bodies.push(Body { bytes: answer.body, from: 1 });
        let epoch = bodies[0].epoch()?;
        note_opens(&self.cont, &self.opens, &self.open_links, |_| target, &bodies)?;
        Ok(BatchResult { epoch, bodies, order: self.order })
    }

    /// Sends a part that is all of the batch; compares what comes back with its sums.
    async fn ask_one(&mut self, part: &Part<'_>) -> Result<Answer> {
        let kind = self.cont.info().props.csum;
        let bytes = sums::of_update(kind, &part.batch.ops, &part.bulk_out)?;
        let mut body = Vec::with_capacity(192 + bytes.len());
        part.encode_request(kind, &bytes, &mut body);
        let pool = &self.cont.pool().0;
        let link = pool.client.target(part.target);
        let writes = part.batch.ops.iter().any(Op::is_write);
        let _in_doubt = if writes { Some(link.in_doubt.begin().await) } else { None };
        let _opening = (writes && !self.opens.is_empty()).then(|| link.begin_opening());
        let ask = Ask { body: &body, bulk_out: &part.bulk_out, bulk_in: &mut self.bulk_in };
        let answer = link.ask(&pool.client, &pool.state, ask).await?;
        if kind != CsumKind::Off && answer.bulk_bytes > 0 {
            sums::check_reply(kind, &answer.body[1..], &self.bulk_in, answer.bulk_bytes)?;
        }
        Ok(answer)
    }

    /// After a mismatch: tries again, for it may have happened on the way; then has the target look
    /// at what it holds. A batch that writes and reads data is not repeated.
    async fn ask_again(&mut self, part: &Part<'_>, first: Error) -> Result<Answer> {
        let writes = part.batch.ops.iter().any(Op::is_write);
        if writes && !self.bulk_in.is_empty() {
            return Err(first);
        }
        let mut last = first;
        for _ in 0..MISMATCH_RETRIES {
            tracing::warn!("target {}: {last}; trying again", part.target);
            match self.ask_one(part).await {
                Err(error) if error.code == Code::Csum => last = error,
                outcome => return outcome,
            }
        }
        if writes {
            return Err(last);
        }
        let pool = &self.cont.pool().0;
        let body = wire::encode(&Request::Verify(part.batch.clone()));
        let ask = Ask { body: &body, bulk_out: &[], bulk_in: &mut [] };
        let asked = pool.client.target(part.target).ask(&pool.client, &pool.state, ask).await;
        let said = asked.and_then(|answer| wire::decode::<u64>(&answer.body[1..]));
        Err(match said {
            Ok(0) => last.context(format!(
                "target {} holds the data whole; they are damaged on their way",
                part.target
            )),
            Ok(_) => last.context(format!("the data are damaged on target {}", part.target)),
            Err(error) => {
                tracing::warn!("target {} could not look at its data: {error}", part.target);
                last
            }
        })
    }

    async fn run_on_several(mut self) -> Result<BatchResult> {
        if !self.bulk_in.is_empty() {
            return Err(Error::inval("a batch over several targets cannot fetch bulk data"));
        }
        let kind = self.cont.info().props.csum;
        let mut encoded: Vec<Vec<u8>> = Vec::with_capacity(self.parts.len());
        for part in &mut self.parts {
            let bytes = sums::of_update(kind, &part.batch.ops, &part.bulk_out)?;
            let batch = obj::Batch { sums: of_kind(kind, &bytes), ..part.batch.clone() };
            encoded.push(wire::encode(&batch));
        }
        let mut bulk_out: Vec<&[u8]> = Vec::new();
        let mut parts = Vec::with_capacity(encoded.len());
        for (part, batch) in self.parts.iter().zip(&encoded) {
            let bytes: usize = part.bulk_out.iter().map(|piece| piece.len()).sum();
            parts.push((part.target, serde_bytes::Bytes::new(batch), bytes as u32));
            bulk_out.extend(part.bulk_out.iter());
        }
        let client = self.cont.client();
        let deadline = client.env().now() + client.options().timeout;
        let link = client.target(self.parts[0].target);
        let answer = loop {
            let _in_doubt = link.in_doubt.begin().await;
            let tx = TxId { client: client.id(), seq: client.next_request() };
            let body = wire::encode(&Request::Commit { tx, parts: parts.clone() });
            let ask = Ask { body: &body, bulk_out: &bulk_out, bulk_in: &mut [] };
            match link.ask(client, &self.cont.pool().0.state, ask).await {
                // A participant was away and the transaction is aborted: try again.
                Err(error) if error.code == Code::Unreach && client.env().now() < deadline => {
                    client.env().sleep(ABSENCE_PAUSE).await;
                }
                outcome => break outcome?,
            }
        };
        let reply: TxReply<'_> = wire::decode(&answer.body[1..])?;
        if reply.parts.len() != self.parts.len() {
            return Err(Error::new(Code::Proto, "a transaction's answer lacks parts"));
        }
        let bodies: SmallVec<[Body; 1]> =
            reply.parts.iter().map(|part| Body { bytes: part.to_vec(), from: 0 }).collect();
        let target_of = |part: u16| self.parts[part as usize].target;
        note_opens(&self.cont, &self.opens, &self.open_links, target_of, &bodies)?;
        Ok(BatchResult { epoch: reply.epoch, bodies, order: self.order })
    }
}

/// Remembers the handles that a batch registered, for restarts of the engine.
fn note_opens(
    cont: &Container,
    opens: &[(TargetId, Unit)],
    open_links: &[(u16, u16)],
    target_of: impl Fn(u16) -> TargetId,
    bodies: &[Body],
) -> Result<()> {
    for (target, unit) in opens {
        cont.note_open(*target, *unit);
    }
    for &(part, at) in open_links {
        let Some(body) = bodies.get(part as usize) else { continue };
        if let Some(OpReply::Link { value: Some(value), opened: true, .. }) =
            body.reply()?.ops.get(at as usize)
            && let Some(link) = Link::decode(value)
        {
            cont.note_open(target_of(part), link.oid.first_unit());
        }
    }
    Ok(())
}

/// An encoded [`BatchReply`] and where it begins.
struct Body {
    bytes: Vec<u8>,
    from: usize,
}

impl Body {
    /// The epoch, which leads the encoding; spares decoding the rest where nobody asks for it.
    fn epoch(&self) -> Result<Epoch> {
        let bytes = self.bytes.get(self.from..).ok_or_else(|| Error::bare(Code::Proto))?;
        wire::decode_prefix(bytes)
    }

    fn reply(&self) -> Result<BatchReply<'_>> {
        let bytes = self.bytes.get(self.from..).ok_or_else(|| Error::bare(Code::Proto))?;
        wire::decode(bytes)
    }
}

/// What a batch did and found.
pub struct BatchResult {
    /// Epoch at which its writes took effect (or its reads looked).
    pub epoch: Epoch,
    bodies: SmallVec<[Body; 1]>,
    order: SmallVec<[(u16, u16); 4]>,
}

impl BatchResult {
    /// The replies, in the order of the ops.
    pub fn replies(&self) -> Result<Vec<OpReply<'_>>> {
        let mut parts = Vec::with_capacity(self.bodies.len());
        for body in &self.bodies {
            parts.push(body.reply()?.ops);
        }
        if let [ops] = &mut parts[..] {
            let ops = std::mem::take(ops);
            if ops.len() != self.order.len() {
                return Err(Error::new(Code::Proto, "an answer lacks replies"));
            }
            return Ok(ops);
        }
        self.order
            .iter()
            .map(|&(part, at)| {
                let reply = parts.get(part as usize).and_then(|ops| ops.get(at as usize));
                reply.cloned().ok_or_else(|| Error::new(Code::Proto, "an answer lacks replies"))
            })
            .collect()
    }
}
