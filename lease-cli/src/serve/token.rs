//! The token that a browser needs to change something.

use std::fmt::{self, Write};
use std::path::Path;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use rand::TryRng;
use rand::rngs::SysRng;
use subtle::ConstantTimeEq;

use crate::exit::{Exit, Failure};
use crate::output::messages::say;

/// A secret text. No output shows it, unless this process has made it.
pub(super) struct Token {
    text: String,
    origin: Origin,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Origin {
    Given,
    Random,
}

impl Token {
    /// Reads the token from `file`, or else from the environment, or else makes one.
    pub(super) fn load(file: Option<&Path>) -> Result<Self, Failure> {
        if let Some(file) = file {
            let read = std::fs::read_to_string(file).map_err(|error| {
                let text = format!("{} cannot be read: {error}", file.display());
                Failure::new(Exit::CONFIGURATION, text)
            })?;
            return Self::given(&read);
        }
        match std::env::var(VARIABLE) {
            Ok(text) => Self::given(&text),
            Err(std::env::VarError::NotPresent) => Self::random(),
            Err(std::env::VarError::NotUnicode(_)) => Err(unusable()),
        }
    }

    fn given(text: &str) -> Result<Self, Failure> {
        let text = text.trim();
        // Visible ASCII, as in a header.
        if text.len() < SHORTEST || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(unusable());
        }
        Ok(Self { text: text.to_owned(), origin: Origin::Given })
    }

    fn random() -> Result<Self, Failure> {
        let mut bytes = [0_u8; 16];
        SysRng
            .try_fill_bytes(&mut bytes)
            .map_err(|error| Failure::own("no random bytes for a token", error))?;
        let mut text = String::new();
        for byte in bytes {
            write!(text, "{byte:02x}").map_err(|error| Failure::own("token", error))?;
        }
        Ok(Self { text, origin: Origin::Random })
    }

    /// The token, if nobody knows it yet.
    pub(super) fn to_show(&self) -> Option<&str> {
        (self.origin == Origin::Random).then_some(self.text.as_str())
    }

    /// Compares in a time that does not depend on the contents.
    fn is(&self, other: &[u8]) -> bool {
        self.text.as_bytes().ct_eq(other).into()
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

/// Refuses a change without the token. A browser never adds this header by itself, as it does with a cookie. It is not
/// `Authorization`, which belongs to the login of a reverse proxy.
pub(super) async fn require(
    State(token): State<Option<Arc<Token>>>,
    request: Request,
    next: Next,
) -> Response {
    let Some(token) = token else {
        return (StatusCode::FORBIDDEN, "read-only: see --allow-changes\n").into_response();
    };
    let given = request.headers().get(HEADER).map(HeaderValue::as_bytes);
    if given.is_some_and(|given| token.is(given)) {
        return next.run(request).await;
    }
    say(&format!("refused {}: wrong token, or none", request.uri().path()));
    (StatusCode::UNAUTHORIZED, "wrong token, or none\n").into_response()
}

fn unusable() -> Failure {
    let text = format!("the token needs at least {SHORTEST} visible ASCII characters");
    Failure::new(Exit::CONFIGURATION, text)
}

const HEADER: &str = "lease-token";
const VARIABLE: &str = "LEASE_SERVE_TOKEN";
/// 16 hexadecimal digits are 64 bits, too many to try over a network.
const SHORTEST: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_random_token_is_shown() {
        let given = Token::given("0123456789abcdef\n").unwrap();
        let random = Token::random().unwrap();

        assert_eq!(given.to_show(), None);
        assert_eq!(random.to_show().unwrap().len(), 32);
        assert_ne!(random.to_show(), Token::random().unwrap().to_show());
        assert!(given.is(b"0123456789abcdef") && !given.is(b"0123456789abcdeg"));
        assert!(!given.is(b"") && !given.is(b"0123456789abcde"));
        assert_eq!(format!("{given:?}"), "Token");
    }

    #[test]
    fn short_or_unsendable_token_is_refused() {
        for text in ["", "0123456789abcde", "0123456789 abcdef", "0123456789abcdé"] {
            assert!(Token::given(text).is_err(), "{text}");
        }
    }
}
