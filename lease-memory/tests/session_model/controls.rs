//! Searches that leave out one rule of the protocol. Each search must find a violation.

use super::finds;
use super::setup::{Rule, Setup};
use super::state::Violation;

#[test]
fn end_by_a_stale_read_gives_two_holders() {
    let setup = Setup { beats: 1, ..small() };
    finds(Rule::EndIsWritten, Violation::HeldByTwo, setup);
}

#[test]
fn shard_without_the_sessions_token_gives_two_holders() {
    finds(Rule::ParentToken, Violation::HeldByTwo, small());
}

#[test]
fn condition_without_a_written_end_leaves_an_orphan() {
    finds(Rule::ProofBeforeClaim, Violation::Orphaned, small());
}

#[test]
fn absent_row_taken_for_the_end_gives_two_holders() {
    finds(Rule::AbsenceProvesNothing, Violation::HeldByTwo, small());
}

#[test]
fn shards_kept_across_sessions_give_two_holders() {
    finds(Rule::NewSessionLosesShards, Violation::HeldByTwo, small());
}

#[test]
fn grant_without_a_larger_token_is_detected() {
    finds(Rule::TokenGrows, Violation::TokenNotLarger, small());
    finds(Rule::TokenGrows, Violation::Orphaned, small());
}

#[test]
fn release_by_session_alone_gives_two_holders() {
    finds(Rule::ReleaseNamesGrant, Violation::HeldByTwo, small());
}

#[test]
fn checkpoint_by_name_alone_is_not_fenced() {
    finds(Rule::CheckpointNamesGrant, Violation::CheckpointNotFenced, small());
}

#[test]
fn claim_without_the_token_leaves_an_orphan() {
    finds(Rule::ClaimNamesToken, Violation::Orphaned, small());
}

#[test]
fn claim_that_is_not_settled_leaves_an_orphan() {
    finds(Rule::Settle, Violation::Orphaned, small());
}

fn small() -> Setup {
    Setup::contended()
}
