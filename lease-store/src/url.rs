//! Parses a store URL: `scheme://user:password@host:port,host:port/path?name=value`.
//!
//! This module uses no URL library, because URL libraries refuse several hosts.

#[cfg(any(
    feature = "sqlite",
    feature = "redis",
    feature = "postgres",
    feature = "etcd",
    feature = "kubernetes"
))]
use std::time::Duration;

use lease_core::StoreError;
use percent_encoding::percent_decode_str;

use crate::error::{is_scheme, misconfigured, shown};
use crate::scheme::{self, Scheme};

/// The path and the parameters are decoded. The login and the hosts are not.
#[derive(Clone)]
pub(crate) struct StoreUrl {
    pub(crate) scheme: &'static Scheme,
    pub(crate) has_authority: bool,
    #[cfg_attr(
        not(any(
            feature = "redis",
            feature = "dynamodb",
            feature = "postgres",
            feature = "etcd",
            feature = "kubernetes"
        )),
        expect(dead_code, reason = "only a server has logins")
    )]
    pub(crate) login: Option<String>,
    #[cfg_attr(
        not(any(
            feature = "sqlite",
            feature = "redis",
            feature = "dynamodb",
            feature = "postgres",
            feature = "etcd",
            feature = "kubernetes"
        )),
        expect(dead_code, reason = "memory has no host")
    )]
    pub(crate) hosts: Vec<String>,
    /// The path after the hosts, with the leading slash. Without `//`, all text before the parameters.
    pub(crate) path: String,
    parameters: Vec<(String, String)>,
    shown: String,
}

impl StoreUrl {
    pub(crate) fn parse(url: &str) -> Result<Self, StoreError> {
        let shown = shown(url);
        let refuse = |remedy: String| misconfigured(&shown, remedy);
        if url.trim().is_empty() {
            return Err(refuse(format!("is empty: {}", scheme::listed())));
        }
        if url.trim() != url || url.chars().any(char::is_control) {
            return Err(refuse("has a blank or a line break at an end: remove it".to_owned()));
        }
        let Some((name, rest)) = url.split_once(':').filter(|(name, _)| is_scheme(name)) else {
            return Err(refuse(format!("has no scheme: {}", scheme::listed())));
        };
        let Some(scheme) = scheme::find(name) else {
            return Err(refuse(format!("has the unknown scheme {name}: {}", scheme::listed())));
        };
        if !scheme.is_built {
            let listed = scheme::listed();
            return Err(refuse(format!(
                "needs the feature {} of lease-store, which is off in this program: {listed}",
                scheme.feature
            )));
        }
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let parameters = parameters(query).ok_or_else(|| {
            refuse("has a parameter that is not NAME=VALUE in UTF-8: encode & as %26".to_owned())
        })?;
        let (authority, path) = match rest.strip_prefix("//") {
            Some(rest) => match rest.find('/') {
                Some(slash) => (Some(rest.get(..slash).unwrap_or_default()), rest.get(slash..)),
                None => (Some(rest), None),
            },
            None => (None, Some(rest)),
        };
        let path = decoded(path.unwrap_or_default())
            .ok_or_else(|| refuse("has a path that is not UTF-8: encode it".to_owned()))?;
        let (login, hosts) = match authority.unwrap_or_default().rsplit_once('@') {
            Some((login, hosts)) => (Some(login.to_owned()), hosts),
            None => (None, authority.unwrap_or_default()),
        };
        let hosts = hosts.split(',').map(str::to_owned).collect();
        let has_authority = authority.is_some();
        Ok(Self { scheme, has_authority, login, hosts, path, parameters, shown })
    }

    pub(crate) fn refuse(&self, remedy: impl std::fmt::Display) -> StoreError {
        misconfigured(&self.shown, remedy)
    }

    #[cfg(any(
        feature = "sqlite",
        feature = "redis",
        feature = "dynamodb",
        feature = "postgres",
        feature = "etcd",
        feature = "kubernetes"
    ))]
    pub(crate) fn take(&mut self, name: &str) -> Option<String> {
        let place = self.parameters.iter().position(|(found, _)| found == name)?;
        Some(self.parameters.remove(place).1)
    }

    #[cfg(any(
        feature = "sqlite",
        feature = "redis",
        feature = "postgres",
        feature = "etcd",
        feature = "kubernetes"
    ))]
    pub(crate) fn take_duration(&mut self, name: &str) -> Result<Option<Duration>, StoreError> {
        let Some(text) = self.take(name) else { return Ok(None) };
        let parsed = duration(&text);
        parsed.map(Some).ok_or_else(|| {
            self.refuse(format!(
                "has the parameter {name}, which is no length of time: write 500ms or 2s"
            ))
        })
    }

    #[cfg(any(feature = "dynamodb", feature = "postgres"))]
    pub(crate) fn take_create(&mut self) -> Result<bool, StoreError> {
        match self.take("create").as_deref() {
            None | Some("false") => Ok(false),
            Some("true") => Ok(true),
            Some(_) => {
                Err(self.refuse("has the parameter create: write create=true, or remove it"))
            }
        }
    }

    /// `known` has the parameters of this scheme.
    pub(crate) fn refuse_others(&self, known: &[&str]) -> Result<(), StoreError> {
        let Some((name, _)) = self.parameters.first() else { return Ok(()) };
        let name: String = name.chars().take(40).collect();
        let scheme = self.scheme.name;
        Err(self.refuse(match known {
            [] => format!("has the parameter {name:?}, but {scheme} takes none: remove it"),
            known if known.contains(&name.as_str()) => {
                format!("has the parameter {name} twice: remove one")
            }
            known => {
                format!("has the unknown parameter {name:?}: {scheme} takes {}", known.join(", "))
            }
        }))
    }

    #[cfg(any(feature = "redis", feature = "postgres", feature = "etcd"))]
    pub(crate) fn check_hosts(&self) -> Result<(), StoreError> {
        let example = self.scheme.example;
        if !self.has_authority {
            return Err(self.refuse(format!("has no // after its scheme: write {example}")));
        }
        for host in &self.hosts {
            if host.is_empty() {
                return Err(self.refuse(format!("has an empty host: write {example}")));
            }
            let port = match host.rsplit_once(']') {
                Some((_, after)) => after.strip_prefix(':'),
                None => host.split_once(':').map(|(_, port)| port),
            };
            let is_wrong =
                port.is_some_and(|port| port.parse::<u16>().map_or(true, |port| port == 0));
            if is_wrong {
                return Err(self.refuse(format!(
                    "has a port that is no number from 1 to 65535: write {example}, and encode an @, : or / in \
                     a password as %40, %3A or %2F"
                )));
            }
        }
        Ok(())
    }
}

/// Omits the login, which may contain a password.
impl std::fmt::Debug for StoreUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.shown)
    }
}

fn parameters(query: &str) -> Option<Vec<(String, String)>> {
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| {
            let (name, value) = pair.split_once('=')?;
            Some((decoded(name)?, decoded(value)?))
        })
        .collect()
}

fn decoded(text: &str) -> Option<String> {
    Some(percent_decode_str(text).decode_utf8().ok()?.into_owned())
}

/// Reads `500ms`, `2s` or `5m`.
#[cfg(any(
    feature = "sqlite",
    feature = "redis",
    feature = "postgres",
    feature = "etcd",
    feature = "kubernetes"
))]
fn duration(text: &str) -> Option<Duration> {
    let digits = text.len() - text.trim_start_matches(|digit: char| digit.is_ascii_digit()).len();
    let (number, unit) = text.split_at_checked(digits)?;
    let number: u64 = number.parse().ok()?;
    Some(match unit {
        "ms" => Duration::from_millis(number),
        "s" => Duration::from_secs(number),
        "m" => Duration::from_secs(number.checked_mul(60)?),
        _ => return None,
    })
}

#[cfg(all(
    test,
    any(
        feature = "sqlite",
        feature = "redis",
        feature = "postgres",
        feature = "etcd",
        feature = "kubernetes"
    )
))]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_time_are_read() {
        assert_eq!(duration("500ms"), Some(Duration::from_millis(500)));
        assert_eq!(duration("5m"), Some(Duration::from_secs(300)));
        for wrong in ["", "5", "s", "-1s", "1.5s", "5 s", "fast", "99999999999999999999s"] {
            assert_eq!(duration(wrong), None, "{wrong}");
        }
    }
}
