//! Parses the URL of a server.

use std::time::Duration;

use tokio_postgres::Config;
use tokio_postgres::config::{Host, TargetSessionAttrs};

use crate::error::ServerFault;

/// `name` names the server in messages, without its password.
#[derive(Clone)]
pub(crate) struct Address {
    pub(crate) config: Config,
    pub(crate) name: String,
}

impl Address {
    /// `postgres://user:password@host:port/database?option=value`. Of several hosts, the first that accepts
    /// writes is used.
    pub(crate) fn parse(url: &str) -> Result<Self, ServerFault> {
        if !SCHEMES.iter().any(|scheme| url.starts_with(scheme)) {
            return Err(ServerFault::misconfigured(
                "the URL does not begin with postgres://: give \
                 postgres://user:password@host:port/database",
            ));
        }
        let mut config: Config = url.parse().map_err(|error| invalid(&error))?;
        // The driver ends the password at the first `@`. Messages would print the rest as a host.
        let is_misread = |host: &Host| matches!(host, Host::Tcp(name) if name.contains('@'));
        if config.get_hosts().iter().any(is_misread) {
            return Err(ServerFault::misconfigured(
                "the URL has more than one `@`: write an `@` in the password as %40",
            ));
        }
        config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        config.keepalives_idle(SILENCE).keepalives_interval(SILENCE).keepalives_retries(3);
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(CONNECT);
        }
        if config.get_application_name().is_none() {
            config.application_name("lease-postgres");
        }
        let name = name_of(&config);
        Ok(Self { config, name })
    }

    /// Sets the lock timeout of each session, in milliseconds.
    pub(crate) fn with_lock_timeout(&self, limit: i64) -> Self {
        let mut address = self.clone();
        let options = self.config.get_options().unwrap_or_default();
        address.config.options(format!("{options} -c lock_timeout={limit}").trim_start());
        address
    }

    pub(crate) fn has_several_hosts(&self) -> bool {
        self.config.get_hosts().len() > 1
    }

    pub(crate) fn user(&self) -> &str {
        self.config.get_user().unwrap_or("the role")
    }
}

fn invalid(error: &tokio_postgres::Error) -> ServerFault {
    // The driver's reason contains the name of an option, but never a value.
    let reason = std::error::Error::source(error).map(ToString::to_string).unwrap_or_default();
    let advice = if reason.contains("sslmode") {
        ": it is disable, prefer or require, which verifies the certificate"
    } else {
        ""
    };
    ServerFault::misconfigured(format!("the URL is not valid: {reason}{advice}"))
}

fn name_of(config: &Config) -> String {
    let ports = config.get_ports();
    let port = |place: usize| ports.get(place).or_else(|| ports.first()).copied().unwrap_or(5432);
    let named = |(place, host): (usize, &Host)| match host {
        Host::Tcp(name) if name.contains(':') => format!("[{name}]:{}", port(place)),
        Host::Tcp(name) => format!("{name}:{}", port(place)),
        #[cfg(unix)]
        Host::Unix(path) => path.display().to_string(),
    };
    let hosts: Vec<_> = config.get_hosts().iter().enumerate().map(named).collect();
    format!("PostgreSQL at {}", hosts.join(","))
}

const SCHEMES: [&str; 2] = ["postgres://", "postgresql://"];
const CONNECT: Duration = Duration::from_secs(10);

/// The driver detects a vanished peer after four times this period.
const SILENCE: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_is_named_without_its_password() {
        let name = |url: &str| Address::parse(url).unwrap().name;

        assert_eq!(name("postgres://u:secret@db/leases"), "PostgreSQL at db:5432");
        assert_eq!(name("postgresql://u:secret@a:1,b:2/x"), "PostgreSQL at a:1,b:2");
        assert_eq!(name("postgres://u@[::1]:7/x"), "PostgreSQL at [::1]:7");
    }

    #[test]
    fn invalid_url_is_refused_without_its_password() {
        let refused = |url: &str| Address::parse(url).err().unwrap().to_string();

        for url in [
            "postgres://u:sec@ret@db/x",
            "postgres://u:secret@db:port/x",
            "postgres://u:secret@db/x?unknown=1",
            "host=db password=secret",
            "mysql://u:secret@db",
        ] {
            let sentence = refused(url);
            assert!(!sentence.contains("ret"), "{sentence}");
        }
        assert!(refused("postgres://u:sec@ret@db/x").contains("%40"));
        assert!(refused("postgres://db/x?sslmode=verify-full").contains("require"));
    }
}
