//! Orders to many targets at once, and what to say when some fail.

use crate::records::{PoolDf, TargetDf};
use futures_util::future::LocalBoxFuture;
use futures_util::stream::{self, StreamExt};
use std::time::Duration;
use types::{Code, Error, Rank, Result, TargetId};
use wire::obj::{AdminOp, AdminReply};

/// How the service reaches targets; the engine provides it.
pub trait Targets {
    /// Has a target carry out an order. Must end: with `Unreach` or `TimedOut` when the target
    /// does not answer. Orders are idempotent, so they may be sent again.
    fn order(&self, target: TargetId, op: AdminOp) -> LocalBoxFuture<'_, Result<AdminReply>>;

    /// Ends after a moment, when an order that is under way may be over.
    fn pause(&self) -> LocalBoxFuture<'_, ()>;

    /// The clock of the service's engine that goes on in sleep.
    fn now(&self) -> Duration;

    /// Ends when that clock shows this.
    fn until(&self, at: Duration) -> LocalBoxFuture<'_, ()>;

    /// The engine that the service is on.
    fn here(&self) -> Option<Rank>;

    /// True when the engine of this rank is believed to answer.
    fn reachable(&self, rank: Rank) -> bool;
}

/// Targets that did not carry out an order, and why.
pub type Failures = Vec<(TargetId, Error)>;

/// Orders under way at once: each may hold a map of half a megabyte.
const ORDERS_MAX: usize = 256;

/// Sends one order to each target, very many at once, and waits for all answers; what has failed comes in the order of the targets.
pub async fn order_all(
    orders: &dyn Targets,
    targets: impl IntoIterator<Item = TargetId>,
    op: impl Fn() -> AdminOp,
) -> Failures {
    order_each(orders, targets, op).await.1
}

/// Sends one order to each target of a pool whose engine is there. Nothing is sent to the others, which are among those that fail.
pub async fn order_present(
    orders: &dyn Targets,
    pool: &PoolDf,
    op: impl Fn() -> AdminOp,
) -> Failures {
    let is_there = |target: &&TargetDf| orders.reachable(target.rank);
    let (there, away): (Vec<_>, Vec<_>) = pool.targets.iter().partition(is_there);
    let mut failures = order_all(orders, there.iter().map(|target| target.id), op).await;
    let why = |rank| Error::new(Code::Unreach, format!("engine {rank} is away"));
    failures.extend(away.iter().map(|target| (target.id, why(target.rank))));
    failures
}

/// True when nobody has heard the order: whoever is told again may carry it out.
pub fn is_unheard(error: &Error) -> bool {
    matches!(error.code, Code::Unreach | Code::Closed | Code::TimedOut | Code::Busy)
}

/// The same, with the answers.
pub async fn order_each(
    orders: &dyn Targets,
    targets: impl IntoIterator<Item = TargetId>,
    op: impl Fn() -> AdminOp,
) -> (Vec<(TargetId, AdminReply)>, Failures) {
    let send = |(at, target)| {
        let op = &op;
        async move { (at, target, orders.order(target, op()).await) }
    };
    // Not in order: those behind one that gives no answer would wait for it.
    let sent = stream::iter(targets).enumerate().map(send).buffer_unordered(ORDERS_MAX);
    let mut answers: Vec<(usize, TargetId, Result<AdminReply>)> = sent.collect().await;
    answers.sort_unstable_by_key(|(at, ..)| *at);
    let (mut replies, mut failures) = (Vec::new(), Failures::new());
    for (_, target, answer) in answers {
        match answer {
            Ok(reply) => replies.push((target, reply)),
            Err(error) => failures.push((target, error)),
        }
    }
    (replies, failures)
}

/// One error for all failures: the code of the first, every target by name (up to a few).
pub fn failure(doing: &str, failures: &[(TargetId, Error)], advice: &str) -> Error {
    const NAMED_MAX: usize = 4;
    let code = failures.first().map_or(Code::Io, |(_, error)| error.code);
    let mut text = format!("{doing}: ");
    for (at, (target, error)) in failures.iter().take(NAMED_MAX).enumerate() {
        let comma = if at == 0 { "" } else { ", " };
        text.push_str(&format!("{comma}target {target}: {error}"));
    }
    if failures.len() > NAMED_MAX {
        text.push_str(&format!(" and {} more", failures.len() - NAMED_MAX));
    }
    Error::new(code, format!("{text}; {advice}"))
}
