//! What simulations, and tests of single scripts, take from this crate.

use crate::quorum;
use crate::scripts::{self, LeaseScript};

/// The text of a script as it is sent to servers.
#[must_use]
pub fn script(name: &str) -> Option<&'static str> {
    let all = scripts::all().into_iter().chain(quorum::scripts::all());
    all.into_iter().find(|script| script.name() == name).map(LeaseScript::text)
}
