//! The parts of this crate that simulations and tests of single scripts use.

use crate::quorum;
use crate::scripts::{self, LeaseScript};

/// Returns the text of a script as the store sends it to servers.
#[must_use]
pub fn script(name: &str) -> Option<&'static str> {
    let all = scripts::all().into_iter().chain(quorum::scripts::all());
    all.into_iter().find(|script| script.name() == name).map(LeaseScript::text)
}
