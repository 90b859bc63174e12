//! The control record of a job: whether it is paused, the trigger that waits, and the last answers.

use std::collections::BTreeMap;

use jiff::Timestamp;
use lease_core::{Attributes, Change, InvalidInput, LeaseKey, StoreError, StoreErrorKind, Value};

use crate::control::trigger::{Request, TriggerAnswer, TriggerNumber};
use crate::text::text;

/// The trigger of a job and the last answers, as read from the job's control record. [`read_pause`] reads the pause.
#[derive(Debug, Clone, Default)]
pub(crate) struct ControlRecord {
    /// The trigger that is not answered yet.
    pub(crate) request: Option<Request>,
    /// The stored value of the trigger, also if it cannot be read.
    stored_request: Option<Value>,
    answers: Vec<Value>,
}

/// Since when a job is paused, by whom, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Pause {
    /// When the job was paused, by the clock of the process that paused it.
    pub since: Timestamp,
    /// The lessee that paused it.
    pub by: String,
    /// The reason that the operator gave; empty if there is none.
    pub why: String,
}

/// The answer to a trigger, as stored.
#[derive(Debug, Clone)]
pub(crate) struct StoredAnswer {
    pub(crate) number: TriggerNumber,
    pub(crate) id: Option<String>,
    pub(crate) answer: TriggerAnswer,
}

/// Returns the key of the control record of the job `name`.
///
/// # Errors
///
/// If the name is too long for the suffix.
pub(crate) fn control_key(name: &LeaseKey) -> Result<LeaseKey, InvalidInput> {
    LeaseKey::new(format!("{name}{SUFFIX}"))
}

/// Returns the name of the job, if `key` is the key of a control record.
pub(crate) fn job_of(key: &LeaseKey) -> Option<&str> {
    key.as_str().strip_suffix(SUFFIX)
}

impl ControlRecord {
    /// Reads the attributes of a control record. A trigger that cannot be read never starts, and the next trigger
    /// replaces it.
    pub(crate) fn read(attributes: &Attributes) -> Self {
        let stored_request = attributes.get(REQUEST).cloned();
        Self {
            request: stored_request.as_ref().and_then(Request::read),
            stored_request,
            answers: match attributes.get(ANSWERS) {
                Some(Value::List(answers)) => answers.clone(),
                _ => Vec::new(),
            },
        }
    }

    /// Returns the change that pauses or resumes the job.
    pub(crate) fn set_paused(pause: Option<&Pause>) -> Change {
        match pause {
            None => Change::new().remove(PAUSED),
            Some(Pause { since, by, why }) => Change::new().set(
                PAUSED,
                Value::Map(BTreeMap::from([
                    ("since".to_owned(), text(*since)),
                    ("by".to_owned(), by.as_str().into()),
                    ("why".to_owned(), why.as_str().into()),
                ])),
            ),
        }
    }

    /// Returns the change that stores a trigger, if none waits.
    pub(crate) fn add(&self, request: &Request) -> Change {
        self.expecting_request().set(REQUEST, request.to_value())
    }

    /// Returns the change that answers an expired trigger, and stores another one in its place.
    pub(crate) fn replace(&self, expired: &Request, request: &Request) -> Change {
        self.answer(expired, TriggerAnswer::Expired).set(REQUEST, request.to_value())
    }

    /// Returns the change by which a scheduler that holds the job's lease takes the trigger. After it, only a holder
    /// of this lease may refuse the trigger. `by` must differ for each grant of this lease.
    pub(crate) fn take(&self, request: &Request, by: &str) -> Change {
        let taken = Request { taken_by: Some(by.to_owned()), ..request.clone() };
        self.expecting_request().set(REQUEST, taken.to_value())
    }

    /// Returns the change that removes the trigger and stores its answer.
    pub(crate) fn answer(&self, request: &Request, answer: TriggerAnswer) -> Change {
        let mut answers = self.answers.clone();
        let mut stored = BTreeMap::from([
            ("number".to_owned(), request.number.get().into()),
            ("answer".to_owned(), answer.name().into()),
        ]);
        if let Some(id) = &request.id {
            stored.insert("id".to_owned(), id.as_str().into());
        }
        answers.push(Value::Map(stored));
        let surplus = answers.len().saturating_sub(MOST_ANSWERS);
        answers.drain(..surplus);
        self.expecting_request().remove(REQUEST).set(ANSWERS, Value::List(answers))
    }

    /// Returns the last answers, the latest first.
    pub(crate) fn answers(&self) -> impl Iterator<Item = StoredAnswer> {
        self.answers.iter().rev().filter_map(|value| {
            let Value::Map(fields) = value else { return None };
            Some(StoredAnswer {
                number: TriggerNumber::read(fields.get("number")?)?,
                id: fields.get("id").and_then(Value::as_text).map(str::to_owned),
                answer: TriggerAnswer::read(fields.get("answer")?.as_text()?)?,
            })
        })
    }

    /// Expects the trigger that was read. So a late or repeated request replaces no newer trigger.
    fn expecting_request(&self) -> Change {
        match &self.stored_request {
            Some(value) => Change::new().expecting(REQUEST, value.clone()),
            None => Change::new().expecting_none(REQUEST),
        }
    }
}

/// Reads the pause from the attributes of a control record.
///
/// # Errors
///
/// Fails if it cannot be read whether the job is paused. Then no tick runs. A resume removes the pause.
pub(crate) fn read_pause(attributes: &Attributes) -> Result<Option<Pause>, StoreError> {
    let Some(value) = attributes.get(PAUSED) else { return Ok(None) };
    let pause = match value {
        Value::Map(fields) => pause(fields),
        _ => None,
    };
    pause.map(Some).ok_or_else(|| {
        let text = format!("attribute {PAUSED:?} of a job cannot be read: {value:?}");
        StoreError::new(StoreErrorKind::Corrupt, text)
    })
}

fn pause(fields: &BTreeMap<String, Value>) -> Option<Pause> {
    let field = |name: &str| fields.get(name).and_then(Value::as_text);
    Some(Pause {
        since: field("since")?.parse().ok()?,
        by: field("by").unwrap_or_default().to_owned(),
        why: field("why").unwrap_or_default().to_owned(),
    })
}

const SUFFIX: &str = "/control";
const PAUSED: &str = "job_paused";
const REQUEST: &str = "job_request";
const ANSWERS: &str = "job_answers";

/// Ten answers take less than 4 KiB, since an id has at most 256 bytes.
const MOST_ANSWERS: usize = 10;
