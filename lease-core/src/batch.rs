//! Heartbeats of one moment, on their way to the store together.

use futures_util::StreamExt;
use tokio::sync::mpsc;

use crate::error::{StoreError, StoreErrorKind};
use crate::grant::{Beat, Grant, Heartbeat};
use crate::settings::Settings;

/// What the store said to one heartbeat.
pub(crate) struct Answer {
    pub(crate) id: u64,
    pub(crate) beat: Beat,
    pub(crate) heartbeat: Result<Heartbeat, StoreError>,
}

/// Heartbeats of one moment, on their way to the store together.
pub(crate) struct Batch {
    ids: Vec<u64>,
    beats: Vec<(Grant, Beat)>,
}

impl Batch {
    pub(crate) fn add(&mut self, id: u64, grant: Grant, beat: Beat) {
        self.ids.push(id);
        self.beats.push((grant, beat));
    }

    pub(crate) fn len(&self) -> usize {
        self.ids.len()
    }

    pub(crate) fn with_capacity(count: usize) -> Self {
        Self { ids: Vec::with_capacity(count), beats: Vec::with_capacity(count) }
    }

    /// Sends all heartbeats and passes on the answers as they come; completes when each lease
    /// has had one.
    pub(crate) async fn deliver(
        self,
        settings: &Settings,
        answered: &mpsc::UnboundedSender<Answer>,
    ) {
        let mut open = vec![true; self.ids.len()];
        let mut answers = settings.store.heartbeat_all(&self.beats);
        while let Some((place, heartbeat)) = answers.next().await {
            let Some(unanswered) = open.get_mut(place) else {
                continue;
            };
            *unanswered = false;
            self.pass_on(place, heartbeat, answered);
        }
        for (place, _) in open.iter().enumerate().filter(|(_, open)| **open) {
            let error = StoreError::new(StoreErrorKind::Unavailable, "heartbeat was not answered");
            self.pass_on(place, Err(error), answered);
        }
    }

    fn pass_on(
        &self,
        place: usize,
        heartbeat: Result<Heartbeat, StoreError>,
        answered: &mpsc::UnboundedSender<Answer>,
    ) {
        if let (Some(id), Some((_, beat))) = (self.ids.get(place), self.beats.get(place)) {
            // Nobody listens any more: every lease is gone.
            drop(answered.send(Answer { id: *id, beat: *beat, heartbeat }));
        }
    }
}
