//! Writes checkpoints by requesting them from the daemon.

use async_trait::async_trait;
use lease_kinesis::extension::CheckpointWriter;
use lease_kinesis::{CheckpointError, Position};
use tokio::sync::{mpsc, oneshot};
use tokio::time::sleep;
use tracing::warn;

use super::backoff::Backoff;
use crate::protocol::{CheckpointRequest, ErrorName, Generation};

/// Sends each checkpoint to the task that owns the pipe. If the processor drops its call, that task still
/// awaits the reply. Otherwise, the next request would receive this request's reply.
pub(super) struct DaemonWriter {
    pub(super) requests: mpsc::Sender<PendingRequest>,
    pub(super) generation: Generation,
    pub(super) backoff: Backoff,
}

pub(super) struct PendingRequest {
    pub(super) checkpoint: CheckpointRequest,
    pub(super) reply: oneshot::Sender<Option<ErrorName>>,
}

#[async_trait]
impl CheckpointWriter for DaemonWriter {
    async fn write(
        &mut self,
        written: &mut Position,
        position: &Position,
    ) -> Result<(), CheckpointError> {
        let mut failures = 0;
        loop {
            let (reply, replied) = oneshot::channel();
            let checkpoint = request(position, self.generation);
            // A closed channel means that the daemon is gone or has ended the shard.
            let sent = self.requests.send(PendingRequest { checkpoint, reply }).await;
            sent.map_err(|_closed| CheckpointError::Over)?;
            let Some(error) = replied.await.map_err(|_closed| CheckpointError::Over)? else {
                written.clone_from(position);
                return Ok(());
            };
            failures += 1;
            let pause = self.backoff.after(failures).filter(|_pause| error.is_retryable());
            let Some(pause) = pause else { return Err(error.into()) };
            warn!(%position, failures, ?pause, %error, "checkpoint not written, retrying");
            sleep(pause).await;
        }
    }
}

/// Without a number, the daemon would checkpoint all delivered records, even those of a failed batch. So only
/// the end of a shard has no number.
fn request(position: &Position, generation: Generation) -> CheckpointRequest {
    let (sequence_number, sub_sequence) = match position {
        Position::ShardEnd => return CheckpointRequest::default(),
        Position::Record(number) => (number.sequence.to_string(), number.sub_sequence),
        Position::AtTimestamp(_) | Position::TrimHorizon | Position::Latest => {
            (position.to_string(), 0)
        }
    };
    // The first generation has no sub-sequence number. Java's daemon never sends a number above `i64::MAX`.
    let sub_sequence = i64::try_from(sub_sequence).ok();
    let sub_sequence_number = sub_sequence.filter(|_| generation > Generation::G0);
    CheckpointRequest { sequence_number: Some(sequence_number), sub_sequence_number }
}
