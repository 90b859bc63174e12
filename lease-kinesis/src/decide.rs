//! What a worker does at a tick: the lines of the plan that are its own.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use lease_core::{LeaseKey, Lessee};
use tokio::time::Instant;

/// What one worker has to do, so that the plan comes true.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Decision {
    /// Free, and planned for it.
    pub(crate) claim: Vec<LeaseKey>,
    /// Held by it, and planned for another; or for nobody, where nobody else is there.
    pub(crate) give: Vec<(LeaseKey, Option<Lessee>)>,
    /// Planned for it, and held by another, who will hand it over.
    pub(crate) expect: Vec<LeaseKey>,
}

/// Compares who has what with who should have it, for the worker `me` that reads `reading`.
///
/// Nobody takes what another holds: of a worker that is gone, the leases run out.
pub(crate) fn decide(
    me: &Lessee,
    reading: &BTreeSet<LeaseKey>,
    held: &BTreeMap<LeaseKey, Option<Lessee>>,
    planned: &BTreeMap<LeaseKey, Lessee>,
) -> Decision {
    let mut decision = Decision::default();
    for (key, holder) in held {
        let to = planned.get(key);
        if reading.contains(key) {
            if to != Some(me) {
                decision.give.push((key.clone(), to.cloned()));
            }
        } else if to == Some(me) {
            match holder {
                None => decision.claim.push(key.clone()),
                Some(_) => decision.expect.push(key.clone()),
            }
        }
    }
    decision
}

/// What a worker has too many of, and from when on each is given away.
///
/// At once, where workers came or went. Where shards did, only what is too many for a while: when a
/// stream is reshaped, shards end and begin by the dozen, here before there, and every plan is of a
/// moment that has passed when a hand-over is done.
#[derive(Debug, Default)]
pub(crate) struct Surplus {
    ripe: BTreeMap<LeaseKey, Instant>,
}

impl Surplus {
    /// What is to be given away `now`, of what is planned for others; anything that is so for the
    /// first time, only after `wait`.
    pub(crate) fn ripened(
        &mut self,
        give: Vec<(LeaseKey, Option<Lessee>)>,
        now: Instant,
        wait: Duration,
    ) -> Vec<(LeaseKey, Option<Lessee>)> {
        let before = std::mem::take(&mut self.ripe);
        for (key, _) in &give {
            let ripe = before.get(key).map_or(now + wait, |ripe| now.max(*ripe).min(now + wait));
            self.ripe.insert(key.clone(), ripe);
        }
        give.into_iter()
            .filter(|(key, _)| self.ripe.get(key).is_some_and(|ripe| *ripe <= now))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn name(number: usize) -> Lessee {
        Lessee::new(format!("worker-{number}")).unwrap()
    }

    fn key(number: usize) -> LeaseKey {
        LeaseKey::new(format!("shard-{number}")).unwrap()
    }

    fn me() -> Lessee {
        name(0)
    }

    /// What to do with one shard, which I read or not.
    fn about(reads: bool, holder: Option<usize>, to: Option<usize>) -> Decision {
        let reading = reads.then(|| key(1)).into_iter().collect();
        let held = BTreeMap::from([(key(1), holder.map(name))]);
        let planned = to.map(|to| (key(1), name(to))).into_iter().collect();
        decide(&me(), &reading, &held, &planned)
    }

    fn claim() -> Decision {
        Decision { claim: vec![key(1)], ..Decision::default() }
    }

    fn give(to: Option<usize>) -> Decision {
        Decision { give: vec![(key(1), to.map(name))], ..Decision::default() }
    }

    fn expect() -> Decision {
        Decision { expect: vec![key(1)], ..Decision::default() }
    }

    #[test]
    fn what_is_free_and_planned_for_me_is_claimed() {
        assert_eq!(about(false, None, Some(0)), claim());
    }

    #[test]
    fn what_is_free_and_planned_for_another_is_left_to_it() {
        assert_eq!(about(false, None, Some(1)), Decision::default());
        assert_eq!(about(false, None, None), Decision::default());
    }

    #[test]
    fn what_another_holds_is_waited_for_and_never_taken() {
        assert_eq!(about(false, Some(1), Some(0)), expect());
    }

    #[test]
    fn what_i_read_and_shall_read_stays() {
        assert_eq!(about(true, Some(0), Some(0)), Decision::default());
    }

    #[test]
    fn what_i_read_and_another_shall_is_given_to_it() {
        assert_eq!(about(true, Some(0), Some(1)), give(Some(1)));
    }

    #[test]
    fn what_i_read_and_nobody_shall_is_given_up() {
        assert_eq!(about(true, Some(0), None), give(None));
    }

    #[test]
    fn what_is_no_affair_of_mine_is_left_alone() {
        assert_eq!(about(false, Some(1), Some(2)), Decision::default());
        assert_eq!(about(false, Some(1), None), Decision::default());
    }

    #[test]
    fn what_has_no_row_any_more_is_nobodys_affair() {
        let reading = BTreeSet::from([key(1)]);
        let planned = BTreeMap::from([(key(1), name(1))]);

        assert_eq!(decide(&me(), &reading, &BTreeMap::new(), &planned), Decision::default());
    }

    #[expect(clippy::disallowed_methods, reason = "any moment: no lease depends on it")]
    fn some_moment() -> Instant {
        Instant::now()
    }

    fn ripened(surplus: &mut Surplus, numbers: &[usize], now: Instant, wait: u64) -> Vec<usize> {
        let give = |number: &usize| (key(*number), None);
        let give = numbers.iter().map(give).collect();
        let given = surplus.ripened(give, now, Duration::from_secs(wait));
        let number = |(key, _): (LeaseKey, _)| key.as_str()["shard-".len()..].parse().unwrap();
        given.into_iter().map(number).collect()
    }

    #[test]
    fn what_is_too_many_for_a_moment_is_kept() {
        let (mut surplus, start) = (Surplus::default(), some_moment());
        let after = |seconds| start + Duration::from_secs(seconds);

        assert_eq!(ripened(&mut surplus, &[1, 2], start, 3), [0; 0]);
        assert_eq!(ripened(&mut surplus, &[1], after(1), 3), [0; 0]);
        assert_eq!(ripened(&mut surplus, &[1, 2], after(3), 3), [1]);
        assert_eq!(ripened(&mut surplus, &[1, 2], after(6), 3), [1, 2]);
    }

    #[test]
    fn what_is_given_at_once_goes_on_being_given() {
        let (mut surplus, start) = (Surplus::default(), some_moment());

        assert_eq!(ripened(&mut surplus, &[1], start, 3), [0; 0]);
        assert_eq!(ripened(&mut surplus, &[1, 2], start, 0), [1, 2]);
        assert_eq!(ripened(&mut surplus, &[1, 2], start, 3), [1, 2]);
    }

    proptest! {
        #[test]
        fn of_all_workers_no_two_act_on_one_key(
            rows in prop::collection::vec((prop::option::of(0..4_usize), prop::option::of(0..4_usize)), 0..20),
        ) {
            let rows = rows.into_iter().enumerate();
            let (mut held, mut planned) = (BTreeMap::new(), BTreeMap::new());
            for (number, (holder, to)) in rows {
                held.insert(key(number), holder.map(name));
                planned.extend(to.map(|to| (key(number), name(to))));
            }

            let mut acted = BTreeSet::new();
            for worker in (0..4).map(name) {
                let own = held.iter().filter(|(_, holder)| holder.as_ref() == Some(&worker));
                let reading = own.map(|(key, _)| key.clone()).collect();
                let decision = decide(&worker, &reading, &held, &planned);
                let given = decision.give.into_iter().map(|(key, _)| key);
                for key in decision.claim.into_iter().chain(given) {
                    prop_assert!(acted.insert(key));
                }
            }
            // What is not as planned is acted on by somebody, where somebody can.
            for (key, holder) in &held {
                let right = planned.get(key) == holder.as_ref();
                prop_assert_eq!(acted.contains(key), !right);
            }
        }
    }
}
