//! Maps etcd's errors to error kinds with advice. Only this file decides whether a retry may help.

use std::error::Error;
use std::time::Duration;

use lease_core::{StoreError, StoreErrorKind};
use tonic::Code;

/// The member may still apply the request.
pub(crate) fn late(endpoint: &str, limit: Duration) -> StoreError {
    unavailable(format!("etcd at {endpoint} did not answer within {limit:?}"))
}

/// An error of the client: a sentence with the member's address, the client's text and advice.
pub(crate) fn of_client(endpoint: &str, error: &etcd_client::Error) -> StoreError {
    let text = text_of(error);
    let (kind, advice) = match error {
        etcd_client::Error::GRpcStatus(status) => by_status(status.code(), &text),
        etcd_client::Error::InvalidUri(_) | etcd_client::Error::InvalidArgs(_) => {
            (StoreErrorKind::Misconfigured, ": give http://HOST:2379")
        }
        _ => by_text(&text),
    };
    StoreError::new(kind, format!("etcd at {endpoint}: {text}{advice}"))
}

/// etcd has refused a watch.
pub(crate) fn of_watch(reason: &str) -> StoreError {
    let (kind, advice) = match reason {
        reason if reason.contains("permission denied") => (StoreErrorKind::Denied, ALLOW),
        _ => (StoreErrorKind::Unavailable, ""),
    };
    StoreError::new(kind, format!("etcd refused a watch: {reason}{advice}"))
}

/// The outcome of the request is unknown.
pub(crate) fn unavailable(sentence: impl Into<String>) -> StoreError {
    StoreError::new(StoreErrorKind::Unavailable, sentence.into())
}

pub(crate) fn misconfigured(sentence: impl Into<String>) -> StoreError {
    StoreError::new(StoreErrorKind::Misconfigured, sentence.into())
}

pub(crate) fn corrupt(sentence: impl Into<String>) -> StoreError {
    StoreError::new(StoreErrorKind::Corrupt, sentence.into())
}

/// Joins the texts of an error and its sources, each once.
fn text_of(error: &etcd_client::Error) -> String {
    let (mut text, mut cause) = match error {
        etcd_client::Error::GRpcStatus(status) => (status.message().to_owned(), status.source()),
        etcd_client::Error::TransportError(error) => (error.to_string(), error.source()),
        error => (error.to_string(), None),
    };
    while let Some(error) = cause {
        let part = error.to_string();
        if !text.contains(&part) {
            text = format!("{text}: {part}");
        }
        cause = error.source();
    }
    text
}

fn by_status(code: Code, text: &str) -> (StoreErrorKind, &'static str) {
    use StoreErrorKind::{Denied, Misconfigured, Refused, Throttled, Unavailable};

    let has = |part: &str| text.contains(part);
    match code {
        Code::PermissionDenied => (Denied, ALLOW),
        Code::Unauthenticated => (Denied, LOGIN),
        Code::InvalidArgument if has("authentication failed") => (Denied, LOGIN),
        Code::InvalidArgument if has("user name is empty") => (Denied, NO_USER),
        Code::FailedPrecondition if has("authentication is not enabled") => {
            (Misconfigured, NO_AUTH)
        }
        Code::InvalidArgument if has("request is too large") => (Refused, TOO_LARGE),
        Code::ResourceExhausted if has("database space exceeded") => (Unavailable, NO_SPACE),
        // The member's limit of a message has 512 KiB more than its limit of a request.
        Code::ResourceExhausted if has("larger than max") => (Refused, TOO_LARGE),
        Code::ResourceExhausted => (Throttled, ""),
        Code::Unimplemented => (Misconfigured, NOT_ETCD),
        // The token is older than the last change of users or roles. The next connection gets a new one.
        Code::InvalidArgument if has("revision of auth store is old") => (Unavailable, ""),
        _ => by_text(text),
    }
}

fn by_text(text: &str) -> (StoreErrorKind, &'static str) {
    use StoreErrorKind::{Misconfigured, Unavailable};

    let has = |part: &str| text.contains(part);
    // A member that restarts ends its streams like this, too.
    if has("h2 protocol error") || has("http2 error") {
        return (Unavailable, NOT_HTTP2);
    }
    if has("certificate") || has("fatal alert: BadCertificate") || has("CertificateRequired") {
        return (Misconfigured, CERTIFICATE);
    }
    if has("InvalidContentType") {
        return (Misconfigured, NO_TLS);
    }
    if CLOSING.iter().any(|part| has(part)) {
        return (Unavailable, CLOSED);
    }
    // The request may have been applied, or may still be applied.
    (Unavailable, "")
}

const ALLOW: &str = ": grant the role the right `readwrite` to the prefix, as in the section \"Access rights\" of \
    lease-etcd's README";
const LOGIN: &str = ": check the user name and the password";
const NO_USER: &str = ": the cluster requires a user; give it by `with_user`";
const NO_AUTH: &str = ": give no user, or enable it by `etcdctl auth enable`";
const TOO_LARGE: &str = ": store fewer attributes, or raise `--max-request-bytes`";
const NO_SPACE: &str = ": compact and defragment the cluster, and then `etcdctl alarm disarm`; see the section \
    \"Compaction\" of lease-etcd's README";
const NOT_ETCD: &str = ": it does not answer like etcd 3; correct the host and port, and use https:// if the \
    cluster has TLS";
const NOT_HTTP2: &str = ": if no request succeeds, it does not answer like etcd 3; correct the host and port, and use \
    https:// if the cluster has TLS";
const NO_TLS: &str = ": it does not use TLS; use http://";
/// A crash of the member ends a connection in the same way.
const CLOSING: [&str; 5] = [
    "broken pipe",
    "connection closed",
    "connection reset",
    "Connection reset",
    "tls handshake eof",
];
const CLOSED: &str = ": it has closed the connection; use https:// if the cluster has TLS, and http:// otherwise; give \
    your certificate by `with_client_certificate` if it asks for one";
const CERTIFICATE: &str = ": give the authority's certificate by `with_root_certificates`, and your own by \
    `with_client_certificate` if the cluster asks for one";

#[cfg(test)]
mod tests {
    use StoreErrorKind::{Refused, Throttled, Unavailable};
    use tonic::Status;

    use super::*;

    fn kind_of(code: Code, text: &str) -> StoreErrorKind {
        let error = etcd_client::Error::GRpcStatus(Status::new(code, text));
        of_client("http://etcd:2379", &error).kind()
    }

    /// etcd may have applied the request before the connection or the stream ended.
    #[test]
    fn broken_stream_leaves_the_outcome_unknown() {
        for code in [Code::Internal, Code::Unavailable, Code::Unknown, Code::Cancelled] {
            for text in [
                "h2 protocol error: http2 error",
                "h2 protocol error: http2 error: stream error received: refused stream",
                "h2 protocol error: connection error received: not a result of an error (GOAWAY)",
                "transport error: http2 error: keep-alive timed out: operation timed out",
            ] {
                assert_eq!(kind_of(code, text), Unavailable, "{code:?} {text}");
            }
        }
    }

    #[test]
    fn record_larger_than_a_message_is_refused() {
        let text = "grpc: received message larger than max (2098188 vs. 2097152)";
        assert_eq!(kind_of(Code::ResourceExhausted, text), Refused);
        assert_eq!(kind_of(Code::ResourceExhausted, "too many requests"), Throttled);
    }
}
