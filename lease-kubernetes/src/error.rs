//! Maps the errors of the API server and of its client to error kinds with advice. Only this file decides whether a
//! retry may help.

use std::error::Error;
use std::time::Duration;

use kube::Error as ClientError;
use lease_core::{StoreError, StoreErrorKind};

/// The API server may still apply the request.
pub(crate) fn late(limit: Duration) -> StoreError {
    unavailable(format!("the API server did not answer within {limit:?}"))
}

/// The status code, if the API server has refused the request.
pub(crate) fn code(error: &ClientError) -> Option<u16> {
    match error {
        ClientError::Api(status) => Some(status.code),
        _ => None,
    }
}

/// A sentence with the API server's text and advice.
pub(crate) fn of_client(error: &ClientError) -> StoreError {
    if let ClientError::Api(status) = error {
        let (kind, advice) = by_code(status.code);
        return StoreError::new(kind, format!("the API server: {}{advice}", status.message));
    }
    let text = text_of(error);
    let (kind, advice) = match error {
        ClientError::InferConfig(_) => (StoreErrorKind::Misconfigured, NO_CONFIG),
        ClientError::Auth(_) => (StoreErrorKind::Denied, LOGIN),
        ClientError::BuildRequest(_) | ClientError::HttpError(_) | ClientError::RustlsTls(_) => {
            (StoreErrorKind::Misconfigured, "")
        }
        _ if text.contains("certificate") => (StoreErrorKind::Misconfigured, CERTIFICATE),
        // The request may have been applied, or may still be applied.
        _ => (StoreErrorKind::Unavailable, ""),
    };
    StoreError::new(kind, format!("{text}{advice}"))
}

fn by_code(code: u16) -> (StoreErrorKind, &'static str) {
    use StoreErrorKind::{Denied, Misconfigured, Refused, Throttled, Unavailable};

    match code {
        401 => (Denied, LOGIN),
        403 => (Denied, ROLE),
        404 => (Misconfigured, NAMESPACE),
        400 | 413 | 422 => (Refused, TOO_LARGE),
        429 => (Throttled, ""),
        405 | 406 | 415 => (Misconfigured, NOT_KUBERNETES),
        // 5xx, and 410: a page of a list has expired.
        _ => (Unavailable, ""),
    }
}

/// The outcome of the request is unknown.
pub(crate) fn unavailable(sentence: impl Into<String>) -> StoreError {
    StoreError::new(StoreErrorKind::Unavailable, sentence.into())
}

pub(crate) fn misconfigured(sentence: impl Into<String>) -> StoreError {
    StoreError::new(StoreErrorKind::Misconfigured, sentence.into())
}

pub(crate) fn unsupported(sentence: impl Into<String>) -> StoreError {
    StoreError::new(StoreErrorKind::Unsupported, sentence.into())
}

pub(crate) fn corrupt(sentence: impl Into<String>) -> StoreError {
    StoreError::new(StoreErrorKind::Corrupt, sentence.into())
}

/// Joins the texts of an error and its sources, each once.
fn text_of(error: &ClientError) -> String {
    let (mut text, mut cause) = (error.to_string(), error.source());
    while let Some(error) = cause {
        let part = error.to_string();
        if !text.contains(&part) {
            text = format!("{text}: {part}");
        }
        cause = error.source();
    }
    text
}

const ROLE: &str = ": grant the service account the Role of the section \"Access rights\" of lease-kubernetes's README";
const LOGIN: &str = ": check the service account's token, or the user of the kubeconfig file";
const NAMESPACE: &str = ": create the namespace, or name another one";
const TOO_LARGE: &str = ": if the record is too large, store fewer attributes; an object has at most 256 KiB of \
    annotations";
const NO_CONFIG: &str =
    ": run in a pod with a service account, set KUBECONFIG, or name the server by `with_server`";
const NOT_KUBERNETES: &str =
    ": it does not answer like an API server of Kubernetes; correct the host and port";
const CERTIFICATE: &str =
    ": check the authority's certificate in the kubeconfig file or the service account";

#[cfg(test)]
mod tests {
    use StoreErrorKind::{Denied, Misconfigured, Refused, Throttled, Unavailable};

    use super::*;

    #[test]
    fn only_an_answer_that_excludes_the_write_is_not_unknown() {
        for (code, kind) in [
            (401, Denied),
            (403, Denied),
            (404, Misconfigured),
            (422, Refused),
            (429, Throttled),
            (500, Unavailable),
            (502, Unavailable),
            (503, Unavailable),
            (504, Unavailable),
        ] {
            assert_eq!(by_code(code).0, kind, "{code}");
        }
    }
}
