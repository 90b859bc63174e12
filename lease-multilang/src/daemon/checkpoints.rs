//! The checkpoints that a child requests.

use std::error::Error;

use lease_kinesis::extension::shard_row::SHARD_END;
use lease_kinesis::extension::{LogLevel, LogThrottle};
use lease_kinesis::{Checkpointer, Position, RecordNumber, ShardId};
use tracing::{debug, warn};

use super::message_filter::quoted;
use crate::protocol::{CheckpointReply, CheckpointRequest, ErrorName, ToChild};

/// The checkpoints cover only records that were sent to the child.
pub(super) struct ChildCheckpoints {
    shard: ShardId,
    /// The checkpointer of the last action.
    checkpointer: Option<Checkpointer>,
    delivered: Option<RecordNumber>,
    at_the_end: bool,
    refused: LogThrottle,
}

impl ChildCheckpoints {
    pub(super) fn new(shard: ShardId) -> Self {
        let refused = LogThrottle::default();
        Self { shard, checkpointer: None, delivered: None, at_the_end: false, refused }
    }

    /// Notes that `message` is completely written.
    pub(super) fn sent(&mut self, message: &ToChild, checkpointer: Option<Checkpointer>) {
        self.checkpointer = checkpointer;
        match message {
            ToChild::ProcessRecords(batch) => {
                let last = batch.records.last().map(|record| RecordNumber {
                    sequence: record.sequence_number.clone(),
                    sub_sequence: record.sub_sequence_number.unwrap_or(0),
                });
                self.delivered = last.or_else(|| self.delivered.take());
            }
            ToChild::ShardEnded => self.at_the_end = true,
            ToChild::Initialize(_)
            | ToChild::LeaseLost
            | ToChild::Shutdown(_)
            | ToChild::ShutdownRequested
            | ToChild::Checkpoint(_) => (),
        }
    }

    /// Whether the shard has ended but the child has not checkpointed the end.
    pub(super) async fn owes_the_end(&self) -> bool {
        match &self.checkpointer {
            Some(checkpointer) if self.at_the_end => {
                checkpointer.checkpointed().await != Position::ShardEnd
            }
            _ => false,
        }
    }

    pub(super) async fn write(&mut self, request: CheckpointRequest) -> CheckpointReply {
        let error = self.try_write(&request).await.err();
        if let Some(error) = &error {
            self.log_refused(&request, error);
        }
        CheckpointReply { request, error }
    }

    async fn try_write(&self, request: &CheckpointRequest) -> Result<(), ErrorName> {
        let checkpointer = self.checkpointer.as_ref().ok_or(ErrorName::InvalidState)?;
        let written = match &request.sequence_number {
            None if self.at_the_end => checkpointer.try_checkpoint().await,
            // As Amazon's daemon does.
            Some(text) if self.at_the_end && text == SHARD_END => {
                checkpointer.try_checkpoint().await
            }
            // A checkpoint without a record would cover the whole batch, which may not be sent yet.
            None => match &self.delivered {
                Some(last) => checkpointer.try_checkpoint_at(last).await,
                None => Ok(()),
            },
            Some(text) => {
                let sequence = text.parse().map_err(|_invalid| ErrorName::IllegalArgument)?;
                let sub_sequence = request.sub_sequence_number.unwrap_or(0);
                let sub_sequence =
                    u64::try_from(sub_sequence).map_err(|_negative| ErrorName::IllegalArgument)?;
                let record = RecordNumber { sequence, sub_sequence };
                if self.at_the_end && self.is_last(&record, request, checkpointer).await {
                    checkpointer.try_checkpoint().await
                } else {
                    checkpointer.try_checkpoint_at(&record).await
                }
            }
        };
        written.map_err(|error| {
            debug!(shard = %self.shard, error = &error as &dyn Error, "checkpoint not written");
            ErrorName::from(&error)
        })
    }

    /// After the shard's end, a request for the last record means `ShardEnd`. `request` may omit the position
    /// within an aggregate, as some clients do.
    async fn is_last(
        &self,
        record: &RecordNumber,
        request: &CheckpointRequest,
        checkpointer: &Checkpointer,
    ) -> bool {
        let is = |last: &RecordNumber| {
            let has_no_position = request.sub_sequence_number.is_none();
            record == last || has_no_position && record.sequence == last.sequence
        };
        match (&self.delivered, checkpointer.checkpointed().await) {
            (Some(last), _) => is(last),
            (None, Position::Record(last)) => is(&last),
            (None, _) => false,
        }
    }

    /// Throttled, because a child may repeat its request at once.
    fn log_refused(&mut self, request: &CheckpointRequest, error: &ErrorName) {
        let shard = &self.shard;
        let sequence_number = request.sequence_number.as_deref().map(quoted);
        let level = self.refused.once_more();
        if level == LogLevel::Debug {
            debug!(%shard, sequence_number, %error, "checkpoint of child not written");
        } else {
            warn!(%shard, sequence_number, %error, "checkpoint of child not written");
        }
        if level == LogLevel::WarnThenRarely {
            warn!(%shard, "further failed checkpoints of this child are logged rarely");
        }
    }
}

impl Drop for ChildCheckpoints {
    fn drop(&mut self) {
        if let Some(checkpoints) = self.refused.total_if_throttled() {
            warn!(shard = %self.shard, checkpoints, "total of child's unwritten checkpoints");
        }
    }
}
