//! A sink in memory, with injected faults.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use async_trait::async_trait;
use lease_core::FencingToken;
use parking_lot::{Mutex, MutexGuard};

use crate::batch::Record;
use crate::error::{ServiceError, ServiceErrorKind};
use crate::event::EventId;
use crate::limits::Limits;
use crate::sink::{Put, SERVICE, Sink};

/// Takes records in memory, for tests. Clones share the records.
#[derive(Debug, Clone)]
pub struct MemorySink {
    limits: Limits,
    seen: Arc<Mutex<Seen>>,
}

#[derive(Debug, Default)]
struct Seen {
    requests: Vec<usize>,
    taken: Vec<(FencingToken, Record)>,
    responses: VecDeque<Response>,
    refused: BTreeSet<EventId>,
}

/// The response to one request.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Response {
    /// Takes every record.
    TakeAll,
    /// Takes all records except the records at these indexes.
    FailAt(Vec<usize>),
    /// Fails each record.
    FailAll,
    /// Takes no record, and fails the request as a whole.
    Unavailable,
    /// Takes no record, and refuses the request for a reason other than its content.
    Refuse,
    /// Takes no record, and refuses the request's content.
    RefuseContent,
    /// Takes every record, but the answer is lost.
    LoseAnswer,
    /// Takes every record, but returns this number of answers.
    Answers(usize),
    /// Never answers.
    Hang,
}

impl MemorySink {
    /// An empty sink that takes everything within `limits`.
    pub fn new(limits: Limits) -> Self {
        Self { limits, seen: Arc::default() }
    }

    /// Uses `responses` for the next requests, one per request. The sink takes all records of later
    /// requests.
    pub fn respond(&self, responses: impl IntoIterator<Item = Response>) {
        self.seen().responses.extend(responses);
    }

    /// Refuses each later request that contains any of these events.
    pub fn refuse(&self, ids: impl IntoIterator<Item = EventId>) {
        self.seen().refused.extend(ids);
    }

    /// The number of records of each request, in order.
    pub fn requests(&self) -> Vec<usize> {
        self.seen().requests.clone()
    }

    /// Every record that was taken, in order, with the token of its request.
    pub fn taken(&self) -> Vec<(FencingToken, Record)> {
        self.seen().taken.clone()
    }

    /// The ids of all events that were taken, in order.
    pub fn ids(&self) -> Vec<EventId> {
        let seen = self.seen();
        seen.taken.iter().flat_map(|(_, record)| record.ids().cloned()).collect()
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock()
    }
}

impl Seen {
    fn put(&mut self, token: FencingToken, records: &[Record]) -> (Response, Vec<Put>) {
        self.requests.push(records.len());
        let mut ids = records.iter().flat_map(Record::ids);
        let response = if ids.any(|id| self.refused.contains(id)) {
            Response::RefuseContent
        } else {
            self.responses.pop_front().unwrap_or(Response::TakeAll)
        };
        let takes = |place: usize| match &response {
            Response::TakeAll | Response::LoseAnswer | Response::Answers(_) => true,
            Response::FailAt(places) => !places.contains(&place),
            Response::FailAll
            | Response::Unavailable
            | Response::Refuse
            | Response::RefuseContent
            | Response::Hang => false,
        };
        let mut answers = Vec::with_capacity(records.len());
        for (place, record) in records.iter().enumerate() {
            if takes(place) {
                self.taken.push((token, record.clone()));
                answers.push(Put::Taken);
            } else {
                answers.push(Put::Failed("ServiceUnavailable: injected fault".to_owned()));
            }
        }
        (response, answers)
    }
}

#[async_trait]
impl Sink for MemorySink {
    fn limits(&self) -> Limits {
        self.limits
    }

    async fn put(&self, token: FencingToken, records: &[Record]) -> Result<Vec<Put>, ServiceError> {
        let (response, mut answers) = self.seen().put(token, records);
        match response {
            Response::TakeAll | Response::FailAt(_) | Response::FailAll => Ok(answers),
            Response::Unavailable | Response::LoseAnswer => {
                let source = "injected fault";
                Err(ServiceError::new(SERVICE, ServiceErrorKind::Unavailable, source))
            }
            Response::Refuse => {
                let source = "AccessDeniedException: injected fault";
                Err(ServiceError::new(SERVICE, ServiceErrorKind::Refused, source))
            }
            Response::RefuseContent => {
                let source = "ValidationException: injected fault";
                Err(ServiceError::new(SERVICE, ServiceErrorKind::Content, source))
            }
            Response::Answers(count) => {
                answers.resize(count, Put::Taken);
                Ok(answers)
            }
            Response::Hang => std::future::pending().await,
        }
    }
}
