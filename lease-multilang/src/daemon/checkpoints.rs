//! How far a child has come: what it was given, and what it wants kept.

use std::error::Error;

use tracing::{debug, warn};

use super::noise::cut;
use crate::checkpoint::Checkpointer;
use crate::multilang::{Asked, ErrorName, Reply, ToChild};
use crate::position::{Position, RecordNumber};
use crate::repeats::{Repeats, Telling};
use crate::shard::ShardId;

/// Makes a child's checkpoints: of what it was given, and of nothing that is on its way to it.
pub(super) struct Progress {
    shard: ShardId,
    /// Of what the child was told last.
    checkpointer: Option<Checkpointer>,
    /// The last record that the child was given.
    delivered: Option<RecordNumber>,
    at_the_end: bool,
    refused: Repeats,
}

impl Progress {
    pub(super) fn new(shard: ShardId) -> Self {
        let refused = Repeats::default();
        Self { shard, checkpointer: None, delivered: None, at_the_end: false, refused }
    }

    /// The child may have read `message`, all of which was written. Its checkpoints are
    /// `checkpointer`'s from here on.
    pub(super) fn told(&mut self, message: &ToChild, checkpointer: Option<Checkpointer>) {
        self.checkpointer = checkpointer;
        match message {
            ToChild::ProcessRecords(told) => {
                let last = told.records.last().map(|record| RecordNumber {
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

    /// Whether it was told of the end of its shard, and has not had that kept.
    pub(super) async fn owes_the_end(&self) -> bool {
        match &self.checkpointer {
            Some(checkpointer) if self.at_the_end => {
                checkpointer.checkpointed().await != Position::ShardEnd
            }
            _ => false,
        }
    }

    /// Makes the checkpoint that the child asks for, and answers what it is told of that.
    pub(super) async fn keep(&mut self, asked: Asked) -> Reply {
        let error = self.try_keep(&asked).await.err();
        if let Some(error) = &error {
            self.tell_refused(&asked, error);
        }
        Reply { asked, error }
    }

    async fn try_keep(&self, asked: &Asked) -> Result<(), ErrorName> {
        let checkpointer = self.checkpointer.as_ref().ok_or(ErrorName::InvalidState)?;
        let kept = match &asked.sequence_number {
            None if self.at_the_end => checkpointer.try_checkpoint().await,
            // By its number: more may have been delivered to us than the child was given.
            None => match &self.delivered {
                Some(last) => checkpointer.try_checkpoint_at(last).await,
                None => Ok(()),
            },
            Some(text) => {
                let sequence = text.parse().map_err(|_no_number| ErrorName::IllegalArgument)?;
                let sub_sequence = asked.sub_sequence_number.unwrap_or(0);
                let sub_sequence =
                    u64::try_from(sub_sequence).map_err(|_negative| ErrorName::IllegalArgument)?;
                let record = RecordNumber { sequence, sub_sequence };
                if self.at_the_end && self.is_last(&record, asked, checkpointer).await {
                    checkpointer.try_checkpoint().await
                } else {
                    checkpointer.try_checkpoint_at(&record).await
                }
            }
        };
        kept.map_err(|error| {
            debug!(shard = %self.shard, error = &error as &dyn Error, "checkpoint not kept");
            ErrorName::from(&error)
        })
    }

    /// Whether this is the last record of the shard: whoever checkpoints that at the end, means the
    /// end. Not all clients tell the place within an aggregate.
    async fn is_last(
        &self,
        record: &RecordNumber,
        asked: &Asked,
        checkpointer: &Checkpointer,
    ) -> bool {
        let is = |last: &RecordNumber| {
            let tells_no_place = asked.sub_sequence_number.is_none();
            record == last || tells_no_place && record.sequence == last.sequence
        };
        match (&self.delivered, checkpointer.checkpointed().await) {
            (Some(last), _) => is(last),
            (None, Position::Record(last)) => is(&last),
            (None, _) => false,
        }
    }

    /// A child may ask for the same again as soon as it was refused.
    fn tell_refused(&mut self, asked: &Asked, error: &ErrorName) {
        let shard = &self.shard;
        let sequence_number = asked.sequence_number.as_deref().map(cut);
        let telling = self.refused.once_more();
        if telling == Telling::Quietly {
            debug!(%shard, sequence_number, %error, "checkpoint of a child not kept");
        } else {
            warn!(%shard, sequence_number, %error, "checkpoint of a child not kept");
        }
        if telling == Telling::AloudThenSeldom {
            warn!(%shard, "further checkpoints of that child that are not kept are told seldom");
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(checkpoints) = self.refused.counted() {
            warn!(shard = %self.shard, checkpoints, "checkpoints of a child were not kept");
        }
    }
}
