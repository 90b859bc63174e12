//! Heartbeats that are sent to the store together.

use futures_util::StreamExt;
use tokio::sync::mpsc;

use crate::error::{StoreError, StoreErrorKind};
use crate::metrics::StoreOperation;
use crate::metrics::stopwatch::Stopwatch;
use crate::settings::Settings;
use crate::store::grant::{Beat, Grant, Heartbeat};

pub(crate) struct Answer {
    pub(crate) to: Sent,
    pub(crate) heartbeat: Result<Heartbeat, StoreError>,
}

#[derive(Clone, Copy)]
pub(crate) struct Sent {
    pub(crate) index: usize,
    pub(crate) id: u64,
    pub(crate) beat: Beat,
}

pub(crate) type AnswerSender = mpsc::UnboundedSender<Vec<Answer>>;

pub(crate) struct Batch {
    sent: Vec<Sent>,
    beats: Vec<(Grant, Beat)>,
}

impl Batch {
    pub(crate) fn with_capacity(count: usize) -> Self {
        Self { sent: Vec::with_capacity(count), beats: Vec::with_capacity(count) }
    }

    pub(crate) fn add(&mut self, sent: Sent, grant: Grant) {
        self.sent.push(sent);
        self.beats.push((grant, sent.beat));
    }

    pub(crate) fn len(&self) -> usize {
        self.sent.len()
    }

    /// Completes when each heartbeat has an answer.
    pub(crate) async fn send(self, settings: &Settings, answered: &AnswerSender) {
        let mut unanswered: Vec<_> = self.sent.into_iter().map(Some).collect();
        let answers = settings.store.heartbeat_all(&self.beats);
        let mut answers = answers.ready_chunks(self.beats.len().max(1));
        let mut timed = settings.has_metrics.then(|| TimedBatch::new(settings));
        while let Some(some) = answers.next().await {
            if let Some(timed) = &mut timed {
                timed.answered(some.iter().all(|(_, heartbeat)| heartbeat.is_ok()));
            }
            let some = some.into_iter().filter_map(|(index, heartbeat)| {
                let to = unanswered.get_mut(index)?.take()?;
                Some(Answer { to, heartbeat })
            });
            // The send fails only if the heartbeater has ended. Then no lease needs the answers.
            drop(answered.send(some.collect()));
        }
        let missing: Vec<_> = unanswered.into_iter().flatten().map(without_answer).collect();
        if !missing.is_empty() {
            drop(answered.send(missing));
        }
    }
}

/// Reports the batch as one request, once all answers have arrived, or the batch was dropped.
struct TimedBatch<'a> {
    settings: &'a Settings,
    sent: Stopwatch,
    is_ok: Option<bool>,
}

impl<'a> TimedBatch<'a> {
    fn new(settings: &'a Settings) -> Self {
        Self { settings, sent: Stopwatch::start(), is_ok: None }
    }

    fn answered(&mut self, is_ok: bool) {
        self.is_ok = Some(is_ok && self.is_ok.unwrap_or(true));
    }
}

impl Drop for TimedBatch<'_> {
    fn drop(&mut self) {
        let is_ok = self.is_ok.unwrap_or(false);
        self.settings.metrics.store_request(StoreOperation::Heartbeat, self.sent.elapsed(), is_ok);
    }
}

fn without_answer(to: Sent) -> Answer {
    let error = StoreError::new(StoreErrorKind::Unavailable, "heartbeat was not answered");
    Answer { to, heartbeat: Err(error) }
}
