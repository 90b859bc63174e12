//! Reads the start position of shards that no worker has read.

use std::time::{SystemTime, UNIX_EPOCH};

use lease_kinesis::InitialPosition;

use super::properties::Properties;

/// `now` is in seconds since 1970.
pub(crate) fn initial(file: &mut Properties, now: u64) -> InitialPosition {
    let words = [
        ("LATEST", Some(InitialPosition::Latest)),
        ("TRIM_HORIZON", Some(InitialPosition::TrimHorizon)),
        ("AT_TIMESTAMP", None),
    ];
    let word = file.choice("initialPositionInStream", &words);
    match (word, time(file, now)) {
        (_, Some(seconds)) => InitialPosition::AtTimestamp(seconds * 1000),
        (Some(Some(position)), None) => position,
        (Some(None), None) => {
            file.record_error(
                "initialPositionInStream = AT_TIMESTAMP: initialPositionInStreamExtended, the time in \
                 seconds since 1970, is missing or invalid"
                    .to_owned(),
            );
            InitialPosition::Latest
        }
        (None, None) => InitialPosition::Latest,
    }
}

/// Returns the time in seconds since 1970.
fn time(file: &mut Properties, now: u64) -> Option<u64> {
    let most = u64::try_from(i64::MAX).unwrap_or(u64::MAX) / 1000;
    let times = TIMES.map(|key| file.number(key, 0..=most).map(|seconds| (key, seconds)));
    for (key, seconds) in times.into_iter().flatten() {
        if seconds > now {
            file.record_error(in_the_future(key, seconds, now));
        }
    }
    if let [Some((one, first)), Some((other, second))] = times
        && first != second
    {
        file.record_error(format!("{one} = {first} and {other} = {second}: delete one of them"));
    }
    times.into_iter().flatten().next().map(|(_, seconds)| seconds)
}

pub(crate) fn in_words(initial: InitialPosition) -> String {
    match initial {
        InitialPosition::Latest => "LATEST".to_owned(),
        InitialPosition::TrimHorizon => "TRIM_HORIZON".to_owned(),
        InitialPosition::AtTimestamp(millis) => format!("AT_TIMESTAMP {}", millis / 1000),
    }
}

/// Returns the time in milliseconds since 1970.
#[expect(clippy::disallowed_methods, reason = "the time of a metric, not lease time")]
pub(crate) fn millis_since_1970() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Returns the time in seconds since 1970.
#[expect(clippy::disallowed_methods, reason = "a start position, not lease time")]
pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// Each row of the table would keep a time in the future, even after the user has corrected the property.
fn in_the_future(key: &str, seconds: u64, now: u64) -> String {
    let rule = "must be in seconds since 1970 and not in the future";
    let of_millis = seconds / 1000;
    if !(KINESIS_BEGAN..=now).contains(&of_millis) {
        return format!("{key} = {seconds}: {rule}");
    }
    format!("{key} = {seconds}: {rule}; if it is in milliseconds, set {of_millis}")
}

/// The key of versions 2 and 3 of the Kinesis Client Library, then the key of version 1.
const TIMES: [&str; 2] = ["initialPositionInStreamExtended", "timestampAtInitialPositionInStream"];

/// 1 January 2013. Kinesis has no older record.
const KINESIS_BEGAN: u64 = 1_356_998_400;

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_700_000_000;

    fn read(lines: &str) -> (InitialPosition, String) {
        let mut file = Properties::parse("test".into(), lines.as_bytes()).unwrap();
        let initial = initial(&mut file, NOW);
        let errors =
            file.end().map_or_else(|failure| failure.to_string(), |_ignored| String::new());
        (initial, errors)
    }

    #[test]
    fn start_time_overrides_initial_position() {
        let lines = "initialPositionInStream = TRIM_HORIZON\n\
                     initialPositionInStreamExtended = 1636609142";

        let position = InitialPosition::AtTimestamp(1_636_609_142_000);
        assert_eq!(read(lines), (position, String::new()));
    }

    #[test]
    fn start_time_in_the_future_is_refused() {
        let read = |seconds: u64| read(&format!("initialPositionInStreamExtended = {seconds}")).1;

        assert_eq!(read(NOW), "");
        assert!(read(NOW + 1).ends_with("not in the future"), "{}", read(NOW + 1));
        let millis = read(1_636_609_142_000);
        assert!(millis.contains("if it is in milliseconds, set 1636609142"), "{millis}");
    }

    #[test]
    fn key_of_kcl_version_1_sets_the_start_time() {
        let key = "timestampAtInitialPositionInStream";
        let position = InitialPosition::AtTimestamp(1_636_609_142_000);

        assert_eq!(read(&format!("{key} = 1636609142")), (position, String::new()));
        let both = format!("{key} = 1636609142\ninitialPositionInStreamExtended = 1636609143");
        assert!(read(&both).1.contains("delete one of them"), "{}", read(&both).1);
    }
}
