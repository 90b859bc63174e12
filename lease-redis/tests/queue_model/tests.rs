//! Searches that find the promises kept.

use crate::setup::{Clocks, Setup};
use crate::sound;

#[test]
fn right_clocks_two() {
    let s = Setup::of(2, Clocks::Right);
    sound("two, no beats", &s.with_beats([0; 3]));
    sound("two", &s);
}

#[test]
fn wrong_clocks_two() {
    let s = Setup::of(2, Clocks::Wrong);
    sound("two, no beats, wrong", &s.with_beats([0; 3]));
    sound("two, wrong", &s);
}
