//! Transactions that lose a conflict are run again.
//!
//! Who has a key is through in a moment, or waits for an engine that is away: then that takes as long as the engine, or what stands in for it. So it is tried for as long as
//! a caller waits for any answer, and what he gets then is that it took too long.

use crate::fs::Shared;
use env::Env;
use std::time::Duration;
use types::{Code, Error, Result};

/// Losses after which pauses grow further: it is no crowd, but somebody who is away.
const CROWD_LOSSES_MAX: u32 = 50;

/// Runs a transaction until it loses no conflict, and no names of a directory that it needs as a whole move, with a short random pause after each loss; as long as the
/// client's patience lasts.
///
/// Errors: those of `run`; `TimedOut` in place of the last loss.
pub(crate) async fn retry<T>(shared: &Shared, run: impl AsyncFnMut() -> Result<T>) -> Result<T> {
    let client = shared.cont.client();
    retry_for(client.env(), client.options().timeout, run).await
}

async fn retry_for<T>(
    env: &Env,
    patience: Duration,
    mut run: impl AsyncFnMut() -> Result<T>,
) -> Result<T> {
    let until = env.now().saturating_add(patience);
    let mut losses = 0;
    loop {
        let lost = match run().await {
            Err(error) if matches!(error.code, Code::TxRestart | Code::Moved) => error,
            other => return other,
        };
        if env.now() >= until {
            return Err(Error::new(Code::TimedOut, format!("{lost}, for {patience:?}")));
        }
        losses += 1;
        let pause_us_max = match losses <= CROWD_LOSSES_MAX {
            true => 50u64 << losses.min(7),
            false => 100_000,
        };
        env.sleep(Duration::from_micros(env.random_u64() % pause_us_max)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use env::SimWorld;
    use std::cell::Cell;

    /// A key that another transaction held for four seconds, because an engine was away, was an error to who waited a minute for engines.
    #[test]
    fn who_loses_conflicts_is_as_patient_as_who_waits_for_an_engine() {
        let world = SimWorld::new(7);
        let env = world.node("client");
        world.block_on(async {
            let runs = Cell::new(0);
            let held_until = |held: Duration| {
                let (env, runs) = (env.clone(), &runs);
                async move || {
                    runs.set(runs.get() + 1);
                    match env.now() < held {
                        true => Err(Error::new(Code::TxRestart, "another transaction holds a key")),
                        false => Ok(env.now()),
                    }
                }
            };
            let patience = Duration::from_secs(60);
            let done =
                retry_for(&env, patience, held_until(Duration::from_secs(50))).await.unwrap();
            assert!(done < Duration::from_secs(51), "{done:?}");
            assert!(runs.take() < 3_000, "it asks all the time");
            let error = retry_for(&env, patience, held_until(Duration::MAX)).await.unwrap_err();
            assert_eq!(error.code, Code::TimedOut);
            assert!(error.to_string().contains("another transaction holds a key"), "{error}");
            let waited = env.now() - done;
            assert!(waited >= patience && waited < patience * 2, "{waited:?}");
            let other = retry_for(&env, patience, async || Err::<(), _>(Error::bare(Code::Exist)));
            assert_eq!(other.await.unwrap_err().code, Code::Exist);
        });
    }
}
