//! Parses the URL of a Redis store.

use percent_encoding::percent_decode_str;

/// The parts of a URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) form: Form,
    /// `redis` or `rediss`.
    scheme: String,
    /// `USER:PASSWORD@`, or empty. All servers have the same login.
    login: String,
    pub(super) hosts: Vec<String>,
    /// The name of the master, behind Sentinels.
    pub(super) master: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Single,
    Sentinel,
    Cluster,
    Quorum,
}

impl Address {
    pub(super) fn parse(url: &str) -> Option<Self> {
        let (scheme, rest) = url.split_once("://")?;
        let (scheme, form) = scheme.split_once('+').unwrap_or((scheme, ""));
        let form = match form.to_ascii_lowercase().as_str() {
            "" => Form::Single,
            "sentinel" => Form::Sentinel,
            "cluster" => Form::Cluster,
            "quorum" => Form::Quorum,
            _ => return None,
        };
        let rest = rest.split('?').next().unwrap_or_default();
        let (login, rest) = rest.rsplit_once('@').unwrap_or(("", rest));
        let (hosts, path) = rest.split_once('/').unwrap_or((rest, ""));
        let master = percent_decode_str(path.trim_matches('/')).decode_utf8_lossy();
        Some(Self {
            form,
            scheme: scheme.to_ascii_lowercase(),
            login: if login.is_empty() { String::new() } else { format!("{login}@") },
            hosts: hosts.split(',').map(str::to_owned).collect(),
            master: if form == Form::Sentinel { master.into_owned() } else { String::new() },
        })
    }

    /// The URL of one server.
    pub(super) fn of(&self, host: &str) -> String {
        format!("{}://{}{host}", self.scheme, self.login)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_read_from_the_url() {
        let found = Address::parse("rediss+sentinel://u:p%2Fw@a:1,b:2/my%20leases?db=1").unwrap();

        assert_eq!((found.form, found.master.as_str()), (Form::Sentinel, "my leases"));
        assert_eq!(found.hosts, ["a:1", "b:2"]);
        assert_eq!(found.of("b:2"), "rediss://u:p%2Fw@b:2");
        let single = Address::parse("REDIS://[::1]:6379/3").unwrap();
        assert_eq!(
            (single.form, single.of(&single.hosts[0])),
            (Form::Single, "redis://[::1]:6379".to_owned())
        );
        assert_eq!(Address::parse("redis+other://a"), None);
    }
}
