//! Simpler protocols, with the promises that each protocol keeps.

use super::setup::{Again, Clocks, Rule, Setup, Write};
use super::sound;

/// All heartbeats have the same ttl. `crate::pace` has heartbeats with two ttls.
#[test]
fn heartbeat_without_its_number_keeps_promises() {
    let unnumbered = |setup| Setup { without: Some(Rule::BeatNumber), ..setup };
    let right = Setup::contended(Clocks::Right).with_beats([2, 1, 0]);
    sound("no beat number", &unnumbered(right));
    let wrong = Setup::contended(Clocks::Wrong).with_beats([2, 1, 0]);
    sound("no beat number, wrong clocks", &unnumbered(Setup { flushes: 1, ..wrong }));
    let promotion = Setup { promotions: 1, ..Setup::contended(Clocks::Right) };
    sound("no beat number, a promotion", &unnumbered(promotion));
    sound("no beat number, handed over", &unnumbered(Setup::handed_over(Clocks::Right)));
}

#[test]
fn ttl_counted_from_the_named_send_keeps_promises() {
    let named = |setup| Setup { again: Again::NamedSend, ..setup };
    let right = Setup::contended(Clocks::Right);
    sound("named send", &named(right));
    sound("named send, a flush", &named(Setup { flushes: 1, ..right }));
    sound("named send, a promotion", &named(Setup { promotions: 1, ..right }));
    let wrong = Setup::contended(Clocks::Wrong);
    sound("named send, a flush, wrong clocks", &named(Setup { flushes: 1, ..wrong }));
    sound("named send, handed over", &named(Setup::handed_over(Clocks::Right)));
}

#[test]
fn pipeline_of_one_run_survives_restart_and_promotion() {
    let right = Setup { write: Write::PipelineOfOneRun, ..Setup::contended(Clocks::Right) };
    sound("one run", &right);
    sound("one run, a restart", &Setup { restarts: 1, ..right });
    let promotion = Setup { promotions: 1, ..right.with_beats([1, 0, 0]) };
    sound("one run, a promotion", &promotion);
}

/// The answer arrives after the deadline of the lease, but within one ttl of its heartbeat.
#[test]
fn extension_answered_after_the_deadline_keeps_promises() {
    let right = Setup::contended(Clocks::Right).with_beats([2, 1, 0]);
    sound("revived", &Setup { without: Some(Rule::DeadlineIsFinal), ..right });
}
