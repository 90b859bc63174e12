//! Who holds a key, and under which token, on one server that may lose data.
//!
//! Start with `setup` for the parameters and rules, then `state`. `client` has the actions of a claim,
//! `server` handles requests, and `fault` has expiry and loss of data. `tests` has sound searches, `controls`
//! leaves out a rule per search, and `variants` searches simpler protocols.

mod client;
mod controls;
mod fault;
mod model;
mod normal;
mod server;
mod setup;
mod state;
mod step;
mod tests;
mod variants;
mod violation;

use lease_test_servers::search::search;
use model::Protocol;
use setup::{Rule, Setup};
use violation::Violation;

#[track_caller]
fn sound(what: &str, setup: &Setup) {
    keeps(&Violation::ALL, what, setup);
}

#[track_caller]
fn keeps(promises: &[Violation], what: &str, setup: &Setup) {
    let found = search(&Protocol::new(setup), promises);

    println!("{what}: {found}");
    assert!(found.violation.is_none(), "{what}: {found}");
}

#[track_caller]
fn finds(rule: Rule, violation: Violation, setup: Setup) {
    fails(violation, &format!("without {rule:?}"), &Setup { without: Some(rule), ..setup });
}

#[track_caller]
fn fails(violation: Violation, what: &str, setup: &Setup) {
    let found = search(&Protocol::new(setup), &[violation]);

    println!("{what}: {found}");
    assert!(found.violation.is_some(), "{what}: {found}");
}

const ALL_BUT_ADOPTION: [Violation; 6] = [
    Violation::HeldByTwo,
    Violation::TokensOutOfOrder,
    Violation::OneTokenTwice,
    Violation::ExtendedAfterASuccessor,
    Violation::ProlongedForNobody,
    Violation::ReservedForNobody,
];
