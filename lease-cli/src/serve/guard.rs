//! Refuses requests that other sites let a browser send.
//!
//! A site can let a browser send requests to any address, also to this machine. If the site's own name resolves to the
//! address of this page, the browser even shows it the answers (DNS rebinding). But then `Host` has the site's name.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, HOST, HeaderName, HeaderValue, ORIGIN, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::exit::{Exit, Failure};

/// The names under which browsers reach this page, with ports, in lower case.
#[derive(Debug)]
pub(super) struct OwnHosts {
    names: BTreeSet<String>,
    first: String,
}

impl OwnHosts {
    /// The names of `address`, and `more`, such as that of a reverse proxy.
    pub(super) fn new(address: SocketAddr, more: &[String]) -> Result<Self, Failure> {
        let (ip, port) = (address.ip(), address.port());
        let mut names = Vec::new();
        if ip.is_loopback() {
            names.extend([address.to_string(), format!("localhost:{port}")]);
        } else if !ip.is_unspecified() {
            names.push(address.to_string());
        }
        if let Some(wrong) = more.iter().find(|name| name.is_empty() || name.contains('/')) {
            let text = format!("--host {wrong:?} is no NAME or NAME:PORT, without https://");
            return Err(Failure::new(Exit::CONFIGURATION, text));
        }
        names.extend(more.iter().map(|name| name.to_ascii_lowercase()));
        if port == 80 {
            let short: Vec<_> = names
                .iter()
                .filter_map(|name| name.strip_suffix(":80").map(str::to_owned))
                .collect();
            names.extend(short);
        }
        let Some(first) = names.first().cloned() else {
            let text =
                format!("{address} has no name: add --host, with the name that browsers use");
            return Err(Failure::new(Exit::CONFIGURATION, text));
        };
        Ok(Self { names: names.into_iter().collect(), first })
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}/", self.first)
    }

    /// Why a request with these headers is refused, if it is.
    fn refusal(&self, headers: &HeaderMap) -> Option<&'static str> {
        let hosts: Vec<_> = headers.get_all(HOST).iter().collect();
        let [host] = hosts.as_slice() else { return Some("one header Host is needed") };
        let Some(host) = lower_case(host).filter(|host| self.names.contains(host)) else {
            return Some("Host is not a name of this page: see --host");
        };
        let is_own = |origin: &HeaderValue| {
            let origin = lower_case(origin);
            let name = origin.as_deref().and_then(|origin| {
                origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"))
            });
            name == Some(&host)
        };
        let is_own = headers.get_all(ORIGIN).iter().all(is_own);
        if is_own { None } else { Some("Origin is another site") }
    }
}

/// Refuses requests of other sites, and adds the headers that limit what a browser does with the answer.
pub(super) async fn check(
    State(hosts): State<Arc<OwnHosts>>,
    request: Request,
    next: Next,
) -> Response {
    let mut response = match hosts.refusal(request.headers()) {
        Some(reason) => (StatusCode::FORBIDDEN, format!("{reason}\n")).into_response(),
        None => next.run(request).await,
    };
    for (name, value) in HEADERS {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

fn lower_case(value: &HeaderValue) -> Option<String> {
    value.to_str().ok().map(str::to_ascii_lowercase)
}

const HEADERS: [(HeaderName, &str); 7] = [
    (CONTENT_SECURITY_POLICY, POLICY),
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (X_FRAME_OPTIONS, "DENY"),
    (REFERRER_POLICY, "no-referrer"),
    (CACHE_CONTROL, "no-store"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

/// Only the files of this page, no text that becomes code, no frame around it, and no form that leaves it.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; \
    base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types";

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(hosts: &OwnHosts, headers: &[(HeaderName, &str)]) -> Option<&'static str> {
        let headers = headers
            .iter()
            .map(|(name, value)| (name.clone(), HeaderValue::from_str(value).unwrap()));
        hosts.refusal(&headers.collect())
    }

    #[test]
    fn only_own_hosts_are_served() {
        let own =
            OwnHosts::new("127.0.0.1:8080".parse().unwrap(), &["Leases.test".into()]).unwrap();

        for host in ["127.0.0.1:8080", "localhost:8080", "LOCALHOST:8080", "leases.test"] {
            assert_eq!(refusal(&own, &[(HOST, host)]), None, "{host}");
        }
        for host in ["evil.test", "localhost", "localhost:80", "leases.test:8080", "[::1]:8080", ""]
        {
            assert!(refusal(&own, &[(HOST, host)]).is_some(), "{host}");
        }
        assert!(refusal(&own, &[]).is_some());
        assert!(refusal(&own, &[(HOST, "localhost:8080"), (HOST, "evil.test")]).is_some());
    }

    #[test]
    fn only_own_origin_is_served() {
        let own = OwnHosts::new("[::1]:8080".parse().unwrap(), &["leases.test".into()]).unwrap();
        let from = |origin| refusal(&own, &[(HOST, "leases.test"), (ORIGIN, origin)]);

        assert_eq!(from("https://leases.test"), None);
        assert_eq!(from("http://leases.test"), None);
        for origin in ["http://evil.test", "null", "http://[::1]:8080", "leases.test", "file://"] {
            assert!(from(origin).is_some(), "{origin}");
        }
    }

    #[test]
    fn address_of_all_interfaces_needs_a_name() {
        let all: SocketAddr = "0.0.0.0:80".parse().unwrap();

        for names in [&[][..], &[String::new()], &["https://leases.test".to_owned()]] {
            assert!(OwnHosts::new(all, names).is_err(), "{names:?}");
        }
        let named = OwnHosts::new(all, &["leases.test".into()]).unwrap();
        assert_eq!(named.url(), "http://leases.test/");
        let port_80 = OwnHosts::new("192.0.2.1:80".parse().unwrap(), &[]).unwrap();
        assert_eq!(refusal(&port_80, &[(HOST, "192.0.2.1")]), None);
    }
}
