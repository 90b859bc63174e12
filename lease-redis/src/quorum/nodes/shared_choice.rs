//! The first nodes that simultaneous claims of a client share.
//!
//! If each key chose its own nodes, each node would get fewer claims per batch, and a claim would wait for the
//! answers to several batches. Claims with the same nodes share their batches, and are granted together.

use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::quorum::nodes::asked::Places;

#[derive(Debug, Default)]
pub(crate) struct SharedChoice {
    /// The number of claims that wait for the answers of their first nodes.
    open: AtomicUsize,
    turn: Mutex<Turn>,
}

#[derive(Debug, Default)]
struct Turn {
    places: Option<Places>,
    /// The number of further claims that choose these nodes.
    left: u32,
    /// The number of further claims that share, even if few claims are open.
    together: u32,
}

/// A claim that waits for the answers of its first nodes.
#[derive(Debug)]
pub(crate) struct OpenClaim<'a>(&'a SharedChoice);

impl Drop for OpenClaim<'_> {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

impl SharedChoice {
    pub(crate) fn open(&self) -> OpenClaim<'_> {
        self.open.fetch_add(1, Ordering::Relaxed);
        OpenClaim(self)
    }

    /// Returns the nodes of the claims before this one, or `own` if few claims are open or if the nodes have had
    /// their turn. So all nodes get the same number of claims. `fits` is whether the nodes still answer.
    pub(crate) fn choose(
        &self,
        fits: impl FnOnce(Places) -> bool,
        own: impl FnOnce() -> Option<Places>,
    ) -> Option<Places> {
        let mut turn = self.turn.lock();
        if self.open.load(Ordering::Relaxed) >= MANY {
            turn.together = TOGETHER;
        }
        let Some(together) = turn.together.checked_sub(1) else { return own() };
        turn.together = together;
        if let (Some(places), Some(left)) = (turn.places, turn.left.checked_sub(1))
            && fits(places)
        {
            turn.left = left;
            return Some(places);
        }
        turn.places = own();
        turn.left = CLAIMS_PER_TURN;
        turn.places
    }
}

/// With fewer open claims, the choice by the key costs no larger batch.
const MANY: usize = 8;

const TOGETHER: u32 = 256;

/// Between two turns, batches are smaller for a while. So a turn lasts for several batches.
const CLAIMS_PER_TURN: u32 = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_claims_choose_by_their_keys() {
        let choice = SharedChoice::default();

        for place in 0..5 {
            let _open = choice.open();
            assert_eq!(choose(&choice, place), one(place));
        }
    }

    #[test]
    fn simultaneous_claims_share_the_nodes_for_a_turn() {
        let choice = SharedChoice::default();
        let _open: Vec<_> = (0..MANY).map(|_| choice.open()).collect();

        for _ in 0..3 {
            assert_eq!(choose(&choice, 1), one(1));
            for _ in 0..CLAIMS_PER_TURN {
                assert_eq!(choose(&choice, 2), one(1));
            }
            assert_eq!(choose(&choice, 2), one(2));
            for _ in 0..CLAIMS_PER_TURN {
                assert_eq!(choose(&choice, 1), one(2));
            }
        }
    }

    #[test]
    fn turn_ends_when_a_node_stops_answering() {
        let choice = SharedChoice::default();
        let _open: Vec<_> = (0..MANY).map(|_| choice.open()).collect();
        assert_eq!(choose(&choice, 1), one(1));

        assert_eq!(choice.choose(|_| false, || one(2)), one(2));

        assert_eq!(choose(&choice, 3), one(2));
    }

    #[test]
    fn claims_choose_by_their_keys_again_after_a_while() {
        let choice = SharedChoice::default();
        let open: Vec<_> = (0..MANY).map(|_| choice.open()).collect();
        assert_eq!(choose(&choice, 1), one(1));
        drop(open);

        for _ in 1..TOGETHER {
            assert_eq!(choose(&choice, 2), one(1));
        }
        assert_eq!(choose(&choice, 2), one(2));
    }

    fn choose(choice: &SharedChoice, own: usize) -> Option<Places> {
        choice.choose(|_| true, || one(own))
    }

    #[expect(clippy::unnecessary_wraps, reason = "the type of a choice")]
    fn one(place: usize) -> Option<Places> {
        let mut places = Places::default();
        places.insert(place);
        Some(places)
    }
}
