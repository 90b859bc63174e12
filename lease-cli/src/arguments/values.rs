//! Parsers of single values.

use std::time::Duration;

use lease_core::HandOver;
use rustix::process::Signal;

/// Parses `90s`, `5m` or `1h30m`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text)
        .map_err(|error| format!("{error}: write a duration as 90s, 5m or 1h30m"))
}

/// Parses the time between two reads of the store. Without a pause, they would load the store for nothing.
pub(super) fn interval(text: &str) -> Result<Duration, String> {
    let interval = duration(text)?;
    if interval < SHORTEST_INTERVAL {
        return Err("the shortest interval is 10ms".to_owned());
    }
    Ok(interval)
}

/// Parses `TERM`, `SIGTERM` or `15`.
pub(super) fn signal(text: &str) -> Result<Signal, String> {
    let name = text.to_ascii_uppercase();
    let name = name.strip_prefix("SIG").unwrap_or(&name);
    let named = SIGNALS.iter().find(|(known, _)| *known == name).map(|(_, signal)| *signal);
    let number = || text.parse().ok().and_then(Signal::from_named_raw);
    named.or_else(number).ok_or_else(|| "write a signal as TERM, INT or 15".to_owned())
}

/// Where a hand-over text comes from.
#[derive(Debug, Clone)]
pub(crate) enum HandOverSource {
    Text(HandOver),
    Stdin,
}

pub(super) fn hand_over_source(text: &str) -> Result<HandOverSource, String> {
    if text == "-" {
        return Ok(HandOverSource::Stdin);
    }
    text.parse()
        .map(HandOverSource::Text)
        .map_err(|error: lease_core::InvalidInput| error.to_string())
}

const SHORTEST_INTERVAL: Duration = Duration::from_millis(10);

const SIGNALS: [(&str, Signal); 14] = [
    ("ABRT", Signal::ABORT),
    ("ALRM", Signal::ALARM),
    ("CONT", Signal::CONT),
    ("HUP", Signal::HUP),
    ("INT", Signal::INT),
    ("KILL", Signal::KILL),
    ("PIPE", Signal::PIPE),
    ("QUIT", Signal::QUIT),
    ("STOP", Signal::STOP),
    ("TERM", Signal::TERM),
    ("TSTP", Signal::TSTP),
    ("USR1", Signal::USR1),
    ("USR2", Signal::USR2),
    ("WINCH", Signal::WINCH),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read() {
        assert_eq!(duration("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("5m"), Ok(Duration::from_secs(300)));
        assert_eq!(duration("1h30m"), Ok(Duration::from_secs(5400)));
        assert_eq!(duration("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(duration("1min 30s"), Ok(Duration::from_secs(90)));
        for wrong in ["", "x", "5", "-1s", "1y2"] {
            assert!(duration(wrong).unwrap_err().contains("write a duration"), "{wrong}");
        }
    }

    #[test]
    fn interval_is_at_least_10_ms() {
        assert_eq!(interval("10ms"), Ok(Duration::from_millis(10)));
        assert!(interval("0s").unwrap_err().contains("10ms"));
    }

    #[test]
    fn signals_are_read() {
        for text in ["TERM", "term", "SIGTERM", "15"] {
            assert_eq!(signal(text), Ok(Signal::TERM), "{text}");
        }
        assert!(signal("NONE").is_err());
        assert!(signal("0").is_err());
    }
}
