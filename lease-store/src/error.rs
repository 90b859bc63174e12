//! Errors about a URL: a sentence with the remedy. No sentence contains a password.

use lease_core::{StoreError, StoreErrorKind};

pub(crate) fn misconfigured(shown: &str, remedy: impl std::fmt::Display) -> StoreError {
    StoreError::new(StoreErrorKind::Misconfigured, format!("store URL {shown:?} {remedy}"))
}

/// The part of `url` that an error may show: without the user, the password and the parameters. Accepts
/// every text, because an invalid URL may also contain a password.
pub(crate) fn shown(url: &str) -> String {
    let (address, _) = url.split_once(['?', '#']).unwrap_or((url, ""));
    // A password may contain a `/` or an `@` that was not encoded, so everything before the last `@` is
    // left out.
    let has_login = url.contains('@');
    let place = url.rsplit_once('@').map_or(address, |(_, place)| place);
    let place = place.split(['?', '#']).next().unwrap_or_default();
    let scheme = url.split_once(':').map(|(scheme, _)| scheme).filter(|scheme| is_scheme(scheme));
    let text = match scheme {
        Some(scheme) if has_login => format!("{scheme}://***@{place}"),
        None if has_login => format!("***@{place}"),
        _ => address.to_owned(),
    };
    let mut short: String = text.chars().take(100).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}

pub(crate) fn is_scheme(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_alphabetic())
        && text.chars().all(|one| one.is_ascii_alphanumeric() || "+-.".contains(one))
}
