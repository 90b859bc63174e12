//! Addresses of servers, as another server reports them.

use std::fmt;

use redis::{ConnectionAddr, ConnectionInfo};

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Address {
    pub(crate) host: String,
    pub(crate) port: u16,
}

impl Address {
    pub(crate) fn of(info: &ConnectionInfo) -> Option<Self> {
        match info.addr() {
            ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
                Some(Self { host: host.clone(), port: *port })
            }
            _ => None,
        }
    }

    /// Parses `host:port`. If the host is empty, the address has the host of `from`, the node that answered.
    pub(crate) fn parse(text: &str, from: &Self) -> Option<Self> {
        let (host, port) = text.rsplit_once(':')?;
        Some(Self::named(host, port.parse().ok()?, from))
    }

    pub(crate) fn named(host: &str, port: u16, from: &Self) -> Self {
        let host = if matches!(host, "" | "?") { &from.host } else { host };
        Self { host: host.to_owned(), port }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

pub(crate) fn with_address(info: &ConnectionInfo, host: &str, port: u16) -> ConnectionInfo {
    let host = host.to_owned();
    let addr = match info.addr() {
        ConnectionAddr::TcpTls { insecure, tls_params, .. } => ConnectionAddr::TcpTls {
            host,
            port,
            insecure: *insecure,
            tls_params: tls_params.clone(),
        },
        _ => ConnectionAddr::Tcp(host, port),
    };
    info.clone().set_addr(addr)
}

#[cfg(test)]
mod tests {
    use redis::IntoConnectionInfo;

    use super::*;

    #[test]
    fn reported_address_keeps_tls_and_login_of_connection() {
        let insecure = "rediss://user:secret@first:1/#insecure".into_connection_info().unwrap();
        let other = with_address(&insecure, "other", 2);

        assert_eq!(other.addr().to_string(), "other:2");
        assert!(matches!(other.addr(), ConnectionAddr::TcpTls { insecure: true, .. }));
        assert_eq!(other.redis_settings().username(), Some("user"));
        let plain = "redis://first:1".into_connection_info().unwrap();
        assert!(matches!(with_address(&plain, "other", 2).addr(), ConnectionAddr::Tcp(..)));
    }

    #[test]
    fn omitted_host_is_the_host_of_the_answering_node() {
        let from = Address { host: "::1".to_owned(), port: 1 };
        let other = |host: &str| Some(Address { host: host.to_owned(), port: 7 });

        assert_eq!(Address::parse(":7", &from), other("::1"));
        assert_eq!(Address::parse("fe80::2:7", &from), other("fe80::2"));
        assert_eq!(Address::parse("7", &from), None);
        assert_eq!(Some(Address::named("?", 7, &from)), other("::1"));
    }
}
