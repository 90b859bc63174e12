//! Maps the errors of the API server and of its client to error kinds with advice. Only this file decides whether a
//! retry may help.

use std::error::Error;
use std::iter::successors;

use kube::Error as ClientError;
use lease_core::{StoreError, StoreErrorKind};

/// A sentence with the API server's text and advice.
#[expect(clippy::needless_pass_by_value, reason = "for `map_err`")]
pub(crate) fn of_client(error: ClientError) -> StoreError {
    use StoreErrorKind::{Denied, Misconfigured, Refused, Throttled, Unavailable};

    let text = text_of(&error);
    let (kind, advice) = match &error {
        ClientError::Api(status) => match status.code {
            401 => (Denied, LOGIN),
            403 => (Denied, ROLE),
            404 => (Misconfigured, NAMESPACE),
            400 | 413 | 422 => (Refused, TOO_LARGE),
            429 => (Throttled, ""),
            _ => (Unavailable, ""),
        },
        ClientError::InferConfig(_) => (Misconfigured, NO_CONFIG),
        ClientError::Auth(_) => (Denied, LOGIN),
        ClientError::RustlsTls(_) => (Misconfigured, CERTIFICATE),
        _ if text.contains("certificate") => (Misconfigured, CERTIFICATE),
        // The request may have been applied, or may still be applied.
        _ => (Unavailable, ""),
    };
    StoreError::new(kind, format!("{text}{advice}"))
}

/// The API server's sentence, or the texts of an error and its sources, each once.
fn text_of(error: &ClientError) -> String {
    if let ClientError::Api(status) = error {
        return format!("the API server: {}", status.message);
    }
    let mut text = error.to_string();
    for part in successors(error.source(), |&cause| cause.source()).map(ToString::to_string) {
        if !text.contains(&part) {
            text = format!("{text}: {part}");
        }
    }
    text
}

const ROLE: &str = ": grant the service account the Role of the section \"Access rights\" of lease-kubernetes's README";
const LOGIN: &str = ": check the service account's token, or the user of the kubeconfig file";
const NAMESPACE: &str = ": create the namespace, or correct the address of the API server";
const TOO_LARGE: &str = ": if the record is too large, store fewer attributes; an object has at \
    most 256 KiB of annotations";
const NO_CONFIG: &str =
    ": run in a pod with a service account, set KUBECONFIG, or name the server by `with_server`";
const CERTIFICATE: &str =
    ": check the authority's certificate in the kubeconfig file or the service account";

#[cfg(test)]
mod tests {
    use StoreErrorKind::{Denied, Misconfigured, Refused, Throttled, Unavailable};
    use kube::core::Status;

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
            let status = Status::failure("it failed", "Failure").with_code(code);
            assert_eq!(of_client(ClientError::Api(status.boxed())).kind(), kind, "{code}");
        }
    }
}
