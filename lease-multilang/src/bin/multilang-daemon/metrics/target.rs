//! Where the daemon publishes its metrics.

use std::net::{Ipv4Addr, SocketAddr};
use std::str::FromStr;
use std::time::Duration;

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
            interval: file.millis("metricsBufferTimeMillis", 1).unwrap_or(INTERVAL),
        }
    }
}

fn namespace(text: &str) -> Result<String, &'static str> {
    let allowed = |letter: char| letter.is_ascii_alphanumeric() || "._-/#: ".contains(letter);
    let is_valid = text.len() <= 255 && !text.starts_with(':') && text.chars().all(allowed);
    let rule = "a namespace of CloudWatch has up to 255 letters, digits, ., _, -, /, #, : and spaces, \
                and does not start with a colon";
    is_valid.then(|| text.to_owned()).ok_or(rule)
}

fn dimensions(text: &str) -> Result<Vec<(String, String)>, String> {
    let pair = |pair: &str| {
        let (name, value) = pair.split_once('=')?;
        let (name, value) = (name.trim(), value.trim());
        let is_own = OWN_DIMENSIONS.contains(&name);
        let is_valid = |text: &str| (1..=255).contains(&text.len()) && text.is_ascii();
        (is_valid(name) && is_valid(value) && !name.starts_with(':') && !is_own)
            .then(|| (name.to_owned(), value.to_owned()))
    };
    let pairs: Option<Vec<_>> = text.split(',').map(pair).collect();
    pairs.filter(|pairs| pairs.len() <= MAX_DIMENSIONS).ok_or_else(|| {
        let own = OWN_DIMENSIONS.join(", ");
        format!("write up to {MAX_DIMENSIONS} pairs, as in Team=orders,Stage=test; {own} are taken")
    })
}

/// The dimensions of KCL.
const OWN_DIMENSIONS: [&str; 4] = ["Operation", "ShardId", "StreamId", "WorkerIdentifier"];

/// CloudWatch allows 30 dimensions of a metric.
const MAX_DIMENSIONS: usize = 28;

/// As in KCL.
const INTERVAL: Duration = Duration::from_secs(10);

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
    fn namespace_has_the_letters_of_cloudwatch() {
        assert_eq!(namespace("shop/orders 1"), Ok("shop/orders 1".to_owned()));
        assert!(namespace(":shop").is_err() && namespace("a\"b").is_err());
    }
}
