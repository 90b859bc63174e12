//! Triggers: requests of other processes to run a job, and their answers.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use lease_core::{Attributes, FencingToken, InvalidInput, Value};

use crate::text::text;

/// A request to run a job once, with arguments. [`JobControl::trigger`](crate::JobControl::trigger) sends it.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use lease_scheduler::Trigger;
///
/// let trigger = Trigger::new()
///     .with_argument("day", "2026-11-20")
///     .with_id("ticket-4711") // a second trigger with this id starts no second run
///     .start_within(Duration::from_secs(600))?;
/// # drop(trigger);
/// # Ok::<_, lease_core::InvalidInput>(())
/// ```
#[derive(Debug, Clone)]
#[must_use = "a trigger does nothing until it is sent"]
pub struct Trigger {
    pub(crate) arguments: Attributes,
    pub(crate) id: Option<String>,
    pub(crate) start_within: Duration,
}

/// The number of a trigger. Each trigger of a job has a larger number than all earlier ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TriggerNumber(u64);

/// The result of [`JobControl::trigger`](crate::JobControl::trigger).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Triggered {
    /// The trigger waits for a scheduler.
    Accepted(TriggerNumber),
    /// A trigger with the same [id](Trigger::with_id) waits or was started. The value is its number.
    Repeated(TriggerNumber),
    /// Nothing was sent, since another trigger waits. The value is its number.
    OtherWaits(TriggerNumber),
}

/// The state of a trigger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum TriggerState {
    /// No scheduler has started or refused the trigger yet.
    Waiting,
    /// The trigger was answered.
    Answered(TriggerAnswer),
    /// The job's record does not have the trigger: ten later ones were answered, or the record was deleted.
    Forgotten,
}

/// The answer to a trigger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum TriggerAnswer {
    /// A scheduler has started the run. The [history](crate::PastRun::trigger) shows how it ends.
    Started,
    /// The job was running, and its [`Concurrency`](crate::Concurrency) forbids a trigger to wait.
    JobRuns,
    /// No scheduler started the trigger [in time](Trigger::start_within).
    Expired,
    /// The job's [`Switch`](crate::Switch) was off.
    Disabled,
    /// The sender has [withdrawn](crate::JobControl::withdraw) the trigger.
    Withdrawn,
}

/// A trigger in the control record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) number: TriggerNumber,
    pub(crate) id: Option<String>,
    pub(crate) arguments: Attributes,
    pub(crate) by: String,
    pub(crate) requested: Timestamp,
    pub(crate) expires: Timestamp,
    /// The scheduler that starts the trigger, and the token of its lease of the job. Only a holder of the job's
    /// lease may change a taken trigger.
    pub(crate) taken_by: Option<String>,
}

impl Trigger {
    /// Makes a trigger without arguments, which expires after an hour if no scheduler starts it. An hour
    /// covers a deployment and most runs before it, and ends before the trigger surprises an operator.
    pub fn new() -> Self {
        let start_within = Duration::from_secs(3600);
        Self { arguments: Attributes::new(), id: None, start_within }
    }

    /// Adds an argument, which the body reads from [`JobContext::arguments`](crate::JobContext::arguments).
    /// Names and values of all arguments may have 16 KiB.
    pub fn with_argument(mut self, name: impl Into<String>, value: impl Into<Value>) -> Self {
        self.arguments.insert(name.into(), value.into());
        self
    }

    /// Gives the trigger an id of up to 256 bytes. If the waiting trigger has the same id, or one of the last ten of
    /// the job has it and was started, nothing is sent. So a caller that does not know whether its trigger was sent
    /// can repeat it. A trigger that was refused can be sent again.
    pub fn with_id(mut self, id: impl Into<String>) -> Self {
        self.id = Some(id.into());
        self
    }

    /// Sets how long the trigger waits for a scheduler, 1 s to 7 days. Afterwards, the next scheduler or
    /// trigger answers it as [`Expired`](TriggerAnswer::Expired). The sender's clock gives the time, and the clock
    /// of a scheduler or of another sender decides whether it has passed. So differences of these clocks count.
    ///
    /// # Errors
    ///
    /// If `length` is out of range.
    pub fn start_within(mut self, length: Duration) -> Result<Self, InvalidInput> {
        if !(SHORTEST_WAIT..=LONGEST_WAIT).contains(&length) {
            return Err(InvalidInput::new(format!(
                "a trigger that waits {length:?} is out of range: 1 s to 7 days"
            )));
        }
        self.start_within = length;
        Ok(self)
    }

    /// Checks the length of the id and of the arguments.
    pub(crate) fn check(&self) -> Result<(), InvalidInput> {
        let length = self.id.as_ref().map_or(0, String::len);
        if length > LONGEST_ID {
            return Err(InvalidInput::new(format!(
                "the id of a trigger has {length} bytes: at most {LONGEST_ID}"
            )));
        }
        let length = format!("{:?}", self.arguments).len();
        if length > LONGEST_ARGUMENTS {
            return Err(InvalidInput::new(format!(
                "the arguments of a trigger have {length} bytes: at most {LONGEST_ARGUMENTS}"
            )));
        }
        Ok(())
    }

    pub(crate) fn request(&self, token: FencingToken, by: &str, now: Timestamp) -> Request {
        let wait = SignedDuration::try_from(self.start_within).unwrap_or(SignedDuration::MAX);
        Request {
            number: TriggerNumber(token.get()),
            id: self.id.clone(),
            arguments: self.arguments.clone(),
            by: by.to_owned(),
            requested: now,
            expires: now.saturating_add(wait).unwrap_or(Timestamp::MAX),
            taken_by: None,
        }
    }
}

impl Default for Trigger {
    fn default() -> Self {
        Self::new()
    }
}

impl TriggerNumber {
    /// Returns the number.
    pub fn get(self) -> u64 {
        self.0
    }

    pub(crate) fn read(value: &Value) -> Option<Self> {
        value.as_i64().and_then(|number| number.try_into().ok()).map(Self)
    }
}

impl TriggerAnswer {
    /// Returns the answer's name: `started`, `job runs`, `expired`, `disabled` or `withdrawn`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Started => "started",
            Self::JobRuns => "job runs",
            Self::Expired => "expired",
            Self::Disabled => "disabled",
            Self::Withdrawn => "withdrawn",
        }
    }

    pub(crate) fn read(name: &str) -> Option<Self> {
        let all = [Self::Started, Self::JobRuns, Self::Expired, Self::Disabled, Self::Withdrawn];
        all.into_iter().find(|answer| answer.name() == name)
    }
}

impl Request {
    /// Whether the trigger has expired by a clock that shows `now`.
    pub(crate) fn has_expired(&self, now: Timestamp) -> bool {
        self.expires <= now
    }

    pub(crate) fn to_value(&self) -> Value {
        let mut fields = BTreeMap::from([
            ("number".to_owned(), self.number.get().into()),
            ("by".to_owned(), self.by.as_str().into()),
            ("requested".to_owned(), text(self.requested)),
            ("expires".to_owned(), text(self.expires)),
        ]);
        if !self.arguments.is_empty() {
            fields.insert("arguments".to_owned(), Value::Map(self.arguments.clone()));
        }
        if let Some(id) = &self.id {
            fields.insert("id".to_owned(), id.as_str().into());
        }
        if let Some(by) = &self.taken_by {
            fields.insert("taken_by".to_owned(), by.as_str().into());
        }
        Value::Map(fields)
    }

    pub(crate) fn read(value: &Value) -> Option<Self> {
        let Value::Map(fields) = value else { return None };
        let field = |name: &str| fields.get(name).and_then(Value::as_text);
        Some(Self {
            number: TriggerNumber::read(fields.get("number")?)?,
            id: field("id").map(str::to_owned),
            arguments: match fields.get("arguments") {
                Some(Value::Map(arguments)) => arguments.clone(),
                Some(_) => return None,
                None => Attributes::new(),
            },
            by: field("by")?.to_owned(),
            requested: field("requested")?.parse().ok()?,
            expires: field("expires")?.parse().ok()?,
            taken_by: field("taken_by").map(str::to_owned),
        })
    }
}

impl fmt::Display for TriggerNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for TriggerNumber {
    type Err = InvalidInput;

    fn from_str(text: &str) -> Result<Self, InvalidInput> {
        let number = text.parse().map(Self);
        number.map_err(|_| InvalidInput::new(format!("{text:?} is not the number of a trigger")))
    }
}

impl fmt::Display for TriggerAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

const SHORTEST_WAIT: Duration = Duration::from_secs(1);

const LONGEST_ID: usize = 256;

const LONGEST_WAIT: Duration = Duration::from_secs(7 * 86_400);

/// Small enough for a record of `DynamoDB`, which also has the answers.
const LONGEST_ARGUMENTS: usize = 16 * 1024;
