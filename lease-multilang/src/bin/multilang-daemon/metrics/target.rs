//! Where the daemon publishes its metrics.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::str::FromStr;
use std::time::Duration;

use super::documents::METRICS;
use crate::configuration::properties::Properties;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Target {
    /// Serves the text format of Prometheus.
    Prometheus(SocketAddr),
    /// Prints CloudWatch's embedded metric format on stdout.
    Emf,
}

/// The settings of the embedded metric format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EmfSettings {
    /// `None` stands for the name of the application, as in KCL.
    pub(crate) namespace: Option<String>,
    pub(crate) dimensions: Vec<(String, String)>,
    pub(crate) interval: Duration,
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.eq_ignore_ascii_case("emf") {
            return Ok(Self::Emf);
        }
        let port = text.parse().ok().map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
        let address = port.or_else(|| text.parse().ok()).filter(|address| address.port() != 0);
        address.map(Self::Prometheus).ok_or_else(|| {
            "write a port, as in 9464, an IP address with a port, as in 127.0.0.1:9464, or emf"
                .to_owned()
        })
    }
}

impl EmfSettings {
    pub(crate) fn read(file: &mut Properties) -> Self {
        Self {
            namespace: file.parsed("metricsNamespace", namespace),
            dimensions: file.parsed("metricsDimensions", dimensions).unwrap_or_default(),
            interval: interval(file),
        }
    }
}

/// KCL accepts all times, so a time out of range is no error.
fn interval(file: &mut Properties) -> Duration {
    let interval = file.millis("metricsBufferTimeMillis", 0).unwrap_or(INTERVAL);
    interval.clamp(SHORTEST_INTERVAL, LONGEST_INTERVAL)
}

fn namespace(text: &str) -> Result<String, &'static str> {
    let allowed = |letter: char| letter.is_ascii_alphanumeric() || "._-/#: ".contains(letter);
    let is_reserved = text.starts_with(':') || text.starts_with("AWS/");
    let is_valid = text.len() <= 255 && !is_reserved && text.chars().all(allowed);
    let rule = "a namespace of CloudWatch has up to 255 letters, digits, ., _, -, /, #, : and spaces, \
                and does not start with a colon or with AWS/";
    is_valid.then(|| text.to_owned()).ok_or(rule)
}

fn dimensions(text: &str) -> Result<Vec<(String, String)>, String> {
    let pair = |pair: &str| {
        let (name, value) = pair.split_once('=')?;
        let (name, value) = (name.trim(), value.trim());
        let is_own = name == "_aws" || OWN_DIMENSIONS.contains(&name) || METRICS.contains(&name);
        let is_printed = |letter: char| letter.is_ascii_graphic() || letter == ' ';
        let is_valid = |text: &str| (1..=255).contains(&text.len()) && text.chars().all(is_printed);
        (is_valid(name) && is_valid(value) && !name.starts_with(':') && !is_own)
            .then(|| (name.to_owned(), value.to_owned()))
    };
    let pairs: Option<Vec<_>> = text.split(',').map(pair).collect();
    let are_distinct = |pairs: &[(String, String)]| {
        let names: BTreeSet<_> = pairs.iter().map(|(name, _)| name).collect();
        names.len() == pairs.len()
    };
    let pairs = pairs.filter(|pairs| pairs.len() <= MAX_DIMENSIONS && are_distinct(pairs));
    pairs.ok_or_else(|| {
        let own = OWN_DIMENSIONS.join(", ");
        format!(
            "write up to {MAX_DIMENSIONS} pairs, as in Team=orders,Stage=test, each name once; {own}, _aws and \
             the names of metrics are taken"
        )
    })
}

/// The dimensions of KCL.
const OWN_DIMENSIONS: [&str; 4] = ["Operation", "ShardId", "StreamId", "WorkerIdentifier"];

/// CloudWatch allows 30 dimensions of a metric.
const MAX_DIMENSIONS: usize = 28;

/// As in KCL.
const INTERVAL: Duration = Duration::from_secs(10);

/// The finest resolution of CloudWatch.
const SHORTEST_INTERVAL: Duration = Duration::from_secs(1);

/// The standard resolution of CloudWatch.
const LONGEST_INTERVAL: Duration = Duration::from_mins(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn port_alone_is_served_on_loopback() {
        let served = |text: &str| text.parse::<Target>();

        let expected = Target::Prometheus(([127, 0, 0, 1], 9464).into());
        assert_eq!(served("9464"), Ok(expected));
        assert_eq!(served("127.0.0.1:9464"), Ok(expected));
        assert_eq!(served("0.0.0.0:9464"), Ok(Target::Prometheus(([0, 0, 0, 0], 9464).into())));
        assert_eq!(served("EMF"), Ok(Target::Emf));
    }

    #[test]
    fn wrong_target_is_refused_with_the_allowed_forms() {
        for text in ["", "0", "localhost", "localhost:9464", "127.0.0.1", "1:2:3", "99999", "emv"] {
            let refused = text.parse::<Target>().unwrap_err();

            assert!(refused.contains("127.0.0.1:9464, or emf"), "{text}: {refused}");
        }
    }

    #[test]
    fn dimensions_are_pairs() {
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());

        let both = Ok(vec![pair("Team", "orders"), pair("Stage", "test")]);
        assert_eq!(dimensions("Team=orders, Stage = test"), both);
        for text in ["Team", "=orders", "Team=", "Operation=x", ":a=b", "Team=orders,"] {
            assert!(dimensions(text).is_err(), "{text}");
        }
    }

    #[test]
    fn dimension_that_the_document_has_already_is_refused() {
        for text in ["_aws=x", "TotalLeases=x", "Team=orders,Team=clicks", "Team=a\tb", "T\u{7}=a"]
        {
            let refused = dimensions(text).unwrap_err();

            assert!(refused.contains("each name once"), "{text}: {refused}");
        }
    }

    #[test]
    fn interval_is_between_a_second_and_a_minute() {
        let of = |text: &str| {
            let line = format!("metricsBufferTimeMillis = {text}");
            interval(&mut Properties::parse("test".into(), line.as_bytes()).unwrap())
        };

        assert_eq!(of("0"), SHORTEST_INTERVAL);
        assert_eq!(of("5000"), Duration::from_secs(5));
        assert_eq!(of("3600000"), LONGEST_INTERVAL);
    }

    #[test]
    fn namespace_has_the_letters_of_cloudwatch() {
        assert_eq!(namespace("shop/orders 1"), Ok("shop/orders 1".to_owned()));
        assert!(namespace(":shop").is_err() && namespace("a\"b").is_err());
        assert!(namespace("AWS/shop").is_err() && namespace("AWSshop").is_ok());
    }
}
