//! Keeps checkpoints by asking the daemon.

use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::{mpsc, oneshot};
use tokio::time::sleep;
use tracing::warn;

use crate::checkpoint::{CheckpointError, Keeper};
use crate::multilang::{Asked, ErrorName, Generation};
use crate::position::Position;

/// Asks whoever has the pipe, and is asked by nobody else: a request goes on when the processor
/// that made it has dropped it, so that its reply is not taken for the next one's.
pub(super) struct ByPipe {
    pub(super) requests: mpsc::Sender<Request>,
    pub(super) generation: Generation,
    pub(super) backoff: Backoff,
}

/// A checkpoint that is to be asked for.
pub(super) struct Request {
    pub(super) asked: Asked,
    pub(super) reply: oneshot::Sender<Option<ErrorName>>,
}

/// How often something is tried, and with which pauses.
#[derive(Debug, Clone, Copy)]
pub(super) struct Backoff {
    pub(super) first: Duration,
    pub(super) last: Duration,
    pub(super) most_attempts: u32,
}

impl Backoff {
    /// The pause after so many failures in a row, doubled each time; `None` after the last try.
    pub(super) fn after(self, failures: u32) -> Option<Duration> {
        let doubled = self.first.saturating_mul(1 << failures.saturating_sub(1).min(20));
        (failures < self.most_attempts).then(|| doubled.min(self.last))
    }
}

#[async_trait]
impl Keeper for ByPipe {
    async fn keep(
        &mut self,
        written: &mut Position,
        position: &Position,
    ) -> Result<(), CheckpointError> {
        let mut failures = 0;
        loop {
            let (reply, replied) = oneshot::channel();
            let asked = asked(position, self.generation);
            // Nobody there any more: the daemon is gone, or done with this child.
            let sent = self.requests.send(Request { asked, reply }).await;
            sent.map_err(|_closed| CheckpointError::Over)?;
            let Some(error) = replied.await.map_err(|_closed| CheckpointError::Over)? else {
                written.clone_from(position);
                return Ok(());
            };
            failures += 1;
            let pause = self.backoff.after(failures).filter(|_pause| error.is_retryable());
            let Some(pause) = pause else { return Err(error.into()) };
            warn!(%position, failures, ?pause, %error, "not checkpointed, it is tried again");
            sleep(pause).await;
        }
    }
}

/// How `position` is asked for. Without a number only the end is, never what was delivered: a batch
/// that failed was delivered, too.
fn asked(position: &Position, generation: Generation) -> Asked {
    let (sequence_number, place) = match position {
        Position::ShardEnd => return Asked::default(),
        Position::Record(number) => (number.sequence.to_string(), number.sub_sequence),
        Position::AtTimestamp(_) | Position::TrimHorizon | Position::Latest => {
            (position.to_string(), 0)
        }
    };
    // The first generation has no word for it. A place that Java has no number for is none that it
    // gave.
    let place = i64::try_from(place).ok().filter(|_place| generation > Generation::G0);
    Asked { sequence_number: Some(sequence_number), sub_sequence_number: place }
}
