//! Heartbeats of one moment, on their way to the store together.

use futures_util::StreamExt;
use tokio::sync::mpsc;

use crate::error::{StoreError, StoreErrorKind};
use crate::grant::{Beat, Grant, Heartbeat};
use crate::settings::Settings;

/// What the store said to one heartbeat.
pub(crate) struct Answer {
    pub(crate) to: Sent,
    pub(crate) heartbeat: Result<Heartbeat, StoreError>,
}

/// A heartbeat that was sent: of which lease, where that is kept, and which of its heartbeats.
#[derive(Clone, Copy)]
pub(crate) struct Sent {
    pub(crate) place: usize,
    pub(crate) id: u64,
    pub(crate) beat: Beat,
}

/// Where answers are told, as many together as came together.
pub(crate) type Answered = mpsc::UnboundedSender<Vec<Answer>>;

/// Heartbeats of one moment, on their way to the store together.
pub(crate) struct Batch {
    sent: Vec<Sent>,
    beats: Vec<(Grant, Beat)>,
}

impl Batch {
    pub(crate) fn add(&mut self, sent: Sent, grant: Grant) {
        self.sent.push(sent);
        self.beats.push((grant, sent.beat));
    }

    pub(crate) fn len(&self) -> usize {
        self.sent.len()
    }

    pub(crate) fn with_capacity(count: usize) -> Self {
        Self { sent: Vec::with_capacity(count), beats: Vec::with_capacity(count) }
    }

    /// Sends all heartbeats and passes on the answers as they come; completes when each lease
    /// has had one.
    pub(crate) async fn deliver(self, settings: &Settings, answered: &Answered) {
        let mut unanswered: Vec<_> = self.sent.into_iter().map(Some).collect();
        let answers = settings.store.heartbeat_all(&self.beats);
        let mut answers = answers.ready_chunks(self.beats.len().max(1));
        while let Some(some) = answers.next().await {
            let told = some.into_iter().filter_map(|(place, heartbeat)| {
                let to = unanswered.get_mut(place)?.take()?;
                Some(Answer { to, heartbeat })
            });
            // Nobody listens any more: every lease is gone.
            drop(answered.send(told.collect()));
        }
        let missing: Vec<_> = unanswered.into_iter().flatten().map(unheard).collect();
        if !missing.is_empty() {
            drop(answered.send(missing));
        }
    }
}

fn unheard(to: Sent) -> Answer {
    let error = StoreError::new(StoreErrorKind::Unavailable, "heartbeat was not answered");
    Answer { to, heartbeat: Err(error) }
}
