//! Makes events of collected entries.

use std::fmt;
use std::hash::Hasher;
use std::sync::Arc;

use lease_core::InvalidInput;
use serde_json::{Map, Value};
use siphasher::sip128::{Hasher128, SipHasher24};
use tracing::warn;

use crate::bucket::{Bucket, Entry};
use crate::event::{Event, EventId, beginning};

/// Makes events of the entries of buckets.
///
/// The pipeline calls the filters, the parser and the stamp, in this order, for each [`Entry`]. The
/// stamp adds two fields: `time_gen`, the start of the entry's bucket, and `event_id`, by which a
/// receiver recognises a repetition. Both depend only on the bucket and the key. So an export after
/// a crash makes the same event again.
///
/// # Examples
///
/// ```
/// use lease_export::{Bucket, Entry, Pipeline};
/// use serde_json::{Map, json};
///
/// let pipeline = Pipeline::new(|entry, value| {
///     let (service, metric) = entry.key.split_once('/').ok_or("the key has no /")?;
///     let value: u64 = value.parse().map_err(|_| "its value is not a number")?;
///     let body = [("service", json!(service)), ("metric", json!(metric)), ("value", json!(value))];
///     Ok(body.map(|(name, value)| (name.to_owned(), value)).into_iter().collect::<Map<_, _>>())
/// })
/// .without_keys_containing(["/week", "/eternity"]);
///
/// let entry = |key: &str| {
///     Entry::new(Bucket::starting_at(1_700_000_005), key.to_owned(), Some("3".to_owned()))
/// };
/// let made = pipeline.run(vec![entry("shop/hits"), entry("shop/week"), entry("odd")]);
///
/// assert_eq!(
///     made.events[0].line(),
///     r#"{"event_id":"1700000005/shop/hits","metric":"hits","service":"shop","time_gen":"20231114 22:13:25","value":3}"#,
/// );
/// assert_eq!((made.filtered, made.bad), (1, 1));
/// ```
pub struct Pipeline {
    filters: Vec<Box<Filter>>,
    parser: Box<Parser>,
    bad_events: Arc<dyn BadEvents>,
}

type Filter = dyn Fn(&Entry) -> bool + Send + Sync;
type Parser = dyn Fn(&Entry, &str) -> Result<Map<String, Value>, String> + Send + Sync;

/// The output of a pipeline.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Made {
    /// The events, in the order of their entries.
    pub events: Vec<Event>,
    /// The number of entries that a filter left out.
    pub filtered: u64,
    /// The number of bad entries, which were reported and left out.
    pub bad: u64,
}

/// Receives the entries that make no event.
pub trait BadEvents: fmt::Debug + Send + Sync + 'static {
    /// Reports that `entry` was left out. Must not block.
    fn report(&self, entry: &Entry, why: &BadEvent);
}

/// Why an entry makes no event.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum BadEvent {
    /// The parser failed. The string is the parser's message, cut after 300 characters.
    Unparsable(String),
    /// The producer could not read the value.
    NoValue,
    /// The parsed object is not a valid event.
    Refused(InvalidInput),
}

#[derive(Debug)]
pub(crate) enum Judgement {
    Event(Event),
    Filtered,
    /// A later event of the same key replaces the entry.
    Replaced,
    Bad(BadEvent),
}

/// Logs bad entries as warnings, with the beginning of their text.
#[derive(Debug, Clone, Copy, Default)]
#[non_exhaustive]
pub struct WarnOfBadEvents;

impl BadEvents for WarnOfBadEvents {
    fn report(&self, entry: &Entry, why: &BadEvent) {
        let value = beginning(entry.value.as_deref().unwrap_or_default());
        warn!(bucket = %entry.bucket, key = entry.key, %value, %why, "bad event skipped");
    }
}

impl fmt::Display for BadEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unparsable(why) => write!(f, "it cannot be parsed: {why}"),
            Self::NoValue => f.write_str("it has no value"),
            Self::Refused(why) => why.fmt(f),
        }
    }
}

impl Pipeline {
    /// Parses entries with `parser`, which gets the entry and its value. The parser returns the
    /// fields of the event, or the reason why the value cannot be parsed.
    pub fn new(
        parser: impl Fn(&Entry, &str) -> Result<Map<String, Value>, String> + Send + Sync + 'static,
    ) -> Self {
        Self {
            filters: Vec::new(),
            parser: Box::new(parser),
            bad_events: Arc::new(WarnOfBadEvents),
        }
    }

    /// Keeps only entries for which `filter` returns `true`, in addition to earlier filters.
    #[must_use]
    pub fn keeping(mut self, filter: impl Fn(&Entry) -> bool + Send + Sync + 'static) -> Self {
        self.filters.push(Box::new(filter));
        self
    }

    /// Leaves out entries whose key contains any of `parts`.
    #[must_use]
    pub fn without_keys_containing<const N: usize>(self, parts: [&'static str; N]) -> Self {
        self.keeping(move |entry| !parts.iter().any(|part| entry.key.contains(part)))
    }

    /// Reports bad entries to `bad_events`. The default is [warnings](WarnOfBadEvents) in the log.
    #[must_use]
    pub fn with_bad_events(mut self, bad_events: Arc<dyn BadEvents>) -> Self {
        self.bad_events = bad_events;
        self
    }

    /// Makes events of `entries`.
    pub fn run(&self, entries: Vec<Entry>) -> Made {
        let judged = entries.into_iter().map(|entry| {
            let judgement = self.judge(&entry);
            (entry, judgement)
        });
        self.make(judged)
    }

    pub(crate) fn make(&self, judged: impl IntoIterator<Item = (Entry, Judgement)>) -> Made {
        let mut made = Made::default();
        for (entry, judgement) in judged {
            match judgement {
                Judgement::Event(event) => made.events.push(event),
                Judgement::Filtered => made.filtered += 1,
                Judgement::Replaced => (),
                Judgement::Bad(why) => {
                    self.bad_events.report(&entry, &why);
                    made.bad += 1;
                }
            }
        }
        made
    }

    pub(crate) fn judge(&self, entry: &Entry) -> Judgement {
        if !self.filters.iter().all(|filter| filter(entry)) {
            return Judgement::Filtered;
        }
        match self.event(entry) {
            Ok(event) => Judgement::Event(event),
            Err(why) => Judgement::Bad(why),
        }
    }

    fn event(&self, entry: &Entry) -> Result<Event, BadEvent> {
        let value = entry.value.as_deref().ok_or(BadEvent::NoValue)?;
        let mut body = (self.parser)(entry, value).map_err(|mut why| {
            if let Some((end, _)) = why.char_indices().nth(LONGEST_SENTENCE) {
                why.truncate(end);
                why.push('…');
            }
            BadEvent::Unparsable(why)
        })?;
        let id = idempotency_key(entry.bucket, &entry.key).map_err(BadEvent::Refused)?;
        body.insert("time_gen".to_owned(), entry.bucket.time_gen().into());
        body.insert("event_id".to_owned(), id.as_str().into());
        Event::new(id, &Value::Object(body)).map_err(BadEvent::Refused)
    }
}

impl fmt::Debug for Pipeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pipeline").field("filters", &self.filters.len()).finish_non_exhaustive()
    }
}

/// Returns the same id each time for the same key and bucket. The id of a key that is too long or
/// has control characters consists of the key's beginning and a hash.
fn idempotency_key(bucket: Bucket, key: &str) -> Result<EventId, InvalidInput> {
    let whole = format!("{bucket}/{key}");
    if whole.len() <= EventId::MAX_BYTES && !whole.chars().any(char::is_control) {
        return EventId::new(whole);
    }
    let mut hasher = SipHasher24::new();
    hasher.write(key.as_bytes());
    let readable = key.chars().filter(|character| !character.is_control()).take(48);
    let readable: String = readable.collect();
    EventId::new(format!("{bucket}/{readable}~{:032x}", hasher.finish128().as_u128()))
}

/// In characters.
const LONGEST_SENTENCE: usize = 300;

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use lease_test_servers::warnings::Warnings;

    use super::*;

    #[derive(Debug, Default)]
    struct Reported(Mutex<Vec<(String, String)>>);

    impl BadEvents for Reported {
        fn report(&self, entry: &Entry, why: &BadEvent) {
            self.0.lock().unwrap().push((entry.key.clone(), why.to_string()));
        }
    }

    fn entry(key: &str, value: Option<&str>) -> Entry {
        Entry::new(Bucket::starting_at(60), key.to_owned(), value.map(str::to_owned))
    }

    fn numbers() -> Pipeline {
        Pipeline::new(|_, value| {
            let value: u64 = value.parse().map_err(|_| format!("{value:?} is not a number"))?;
            Ok(Map::from_iter([("value".to_owned(), value.into())]))
        })
    }

    #[test]
    fn bad_entry_is_reported_with_its_text_and_makes_no_event() {
        let reported = Arc::new(Reported::default());
        let bad_events = Arc::clone(&reported);
        let pipeline = numbers().with_bad_events(bad_events);

        let made = pipeline.run(vec![
            entry("a", Some("1")),
            entry("b", Some("many")),
            entry("gone", None),
        ]);

        assert_eq!((made.events.len(), made.bad), (1, 2));
        let reported = reported.0.lock().unwrap();
        let expected =
            [("b", "it cannot be parsed: \"many\" is not a number"), ("gone", "it has no value")];
        assert_eq!(*reported, expected.map(|(key, why)| (key.to_owned(), why.to_owned())));
    }

    #[test]
    fn long_bad_value_is_logged_by_its_beginning() {
        let (log, _listening) = Warnings::listen();
        let long = "ß".repeat(3_000_000);

        let made = numbers().run(vec![entry("a", Some(&long)), entry("b", Some("many"))]);

        assert_eq!(made.bad, 2);
        let logged = log.text();
        assert!(logged.contains(&format!("{:?}…", "ß".repeat(60))));
        assert!(logged.contains(&format!("it cannot be parsed: \"{}…", "ß".repeat(299))));
        assert!(logged.contains("\"many\" is not a number"));
        assert!(logged.len() < 2_000, "{} bytes", logged.len());
    }

    #[test]
    fn keys_with_filtered_parts_are_left_out() {
        let pipeline = numbers().without_keys_containing(["/week", "/eternity"]);
        let keys = ["hits/day", "hits/week", "hits/eternity"];

        let made = pipeline.run(keys.map(|key| entry(key, Some("1"))).into());

        assert_eq!((made.events.len(), made.filtered, made.bad), (1, 2, 0));
    }

    #[test]
    fn unknown_period_is_reported_and_does_not_block_the_rest() {
        let reported = Arc::new(Reported::default());
        let periods = Pipeline::new(|entry, value| {
            let (_, period) = entry.key.rsplit_once('/').ok_or("the key has no /")?;
            if !["minute", "hour", "day"].contains(&period) {
                return Err(format!("period {period:?} is not known"));
            }
            Ok(Map::from_iter([(period.to_owned(), value.into())]))
        })
        .with_bad_events(Arc::clone(&reported) as Arc<dyn BadEvents>);
        let keys = ["hits/hour", "hits/fortnight", "hits", "hits/day"];

        let made = periods.run(keys.map(|key| entry(key, Some("1"))).into());

        let ids: Vec<_> = made.events.iter().map(|event| event.id().as_str()).collect();
        assert_eq!((ids.as_slice(), made.bad), (["60/hits/hour", "60/hits/day"].as_slice(), 2));
        let reported = reported.0.lock().unwrap();
        let expected = [
            ("hits/fortnight", "it cannot be parsed: period \"fortnight\" is not known"),
            ("hits", "it cannot be parsed: the key has no /"),
        ];
        assert_eq!(*reported, expected.map(|(key, why)| (key.to_owned(), why.to_owned())));
    }

    #[test]
    fn same_entry_makes_the_same_event_with_any_key_length() {
        let keys = ["short", &"long".repeat(100), "with\nbreak", "with\tbreak"];
        let run = || numbers().run(keys.map(|key| entry(key, Some("1"))).into()).events;

        let (first, second) = (run(), run());

        assert_eq!(first, second);
        let mut ids: Vec<_> = first.iter().map(Event::id).collect();
        ids.dedup();
        assert_eq!(ids.len(), keys.len());
    }
}
