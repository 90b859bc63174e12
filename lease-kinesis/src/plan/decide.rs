//! Compares the plan with the shards that one worker holds, and returns that worker's next steps.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use lease_core::{LeaseKey, Lessee};
use tokio::time::Instant;

use crate::plan::{Member, rendezvous_hash};

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Decision {
    /// Free keys that the plan assigns to this worker.
    pub(crate) claim: Vec<LeaseKey>,
    /// Keys that this worker holds beyond the plan. The target is `None` if the plan names no worker.
    pub(crate) give: Vec<(LeaseKey, Option<Lessee>)>,
    /// Keys that the plan assigns to this worker, while other workers hold them.
    pub(crate) expect: Vec<LeaseKey>,
}

/// Returns the steps of the worker `me`, which reads the shards `reading`. No worker takes a lease that
/// another worker holds.
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

/// Returns the steps of the worker `me` before `me` counts for the plan. The worker claims at most one free
/// shard and hands over none. With equal weights, the plan leaves this shard with the worker.
pub(crate) fn begin(
    me: &Member,
    reading: &BTreeSet<LeaseKey>,
    held: &BTreeMap<LeaseKey, Option<Lessee>>,
) -> Decision {
    let mut decision = Decision::default();
    if reading.is_empty() && me.replaces.is_none() {
        let free = held.iter().filter(|(_, holder)| holder.is_none()).map(|(key, _)| key);
        // Workers that start together should claim different shards, so the hash selects the shard.
        let first = free.max_by_key(|key| (rendezvous_hash(key.as_str(), me.name.as_str()), *key));
        decision.claim.extend(first.cloned());
    }
    decision
}

/// The keys that a worker holds beyond the plan, each with the time of its hand-over. After shards changed,
/// the worker waits, because another change may follow soon.
#[derive(Debug, Default)]
pub(crate) struct Surplus {
    due: BTreeMap<LeaseKey, Instant>,
}

impl Surplus {
    /// A new entry of `give` is due after `wait`.
    pub(crate) fn due_hand_overs(
        &mut self,
        give: Vec<(LeaseKey, Option<Lessee>)>,
        now: Instant,
        wait: Duration,
    ) -> Vec<(LeaseKey, Option<Lessee>)> {
        let before = std::mem::take(&mut self.due);
        for (key, _) in &give {
            let due = before.get(key).map_or(now + wait, |due| now.max(*due).min(now + wait));
            self.due.insert(key.clone(), due);
        }
        give.into_iter()
            .filter(|(key, _)| self.due.get(key).is_some_and(|due| *due <= now))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::plan::plan;

    fn name(number: usize) -> Lessee {
        Lessee::new(format!("worker-{number}")).unwrap()
    }

    fn key(number: usize) -> LeaseKey {
        LeaseKey::new(format!("shard-{number}")).unwrap()
    }

    fn me() -> Lessee {
        name(0)
    }

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
    fn new_worker_claims_one_free_shard_and_gives_none() {
        let held = (0..9).map(|number| (key(number), (number < 3).then(|| name(number)))).collect();
        let member = Member::new(me());
        let claimed = |member: &Member, reading: &BTreeSet<_>| begin(member, reading, &held).claim;

        let decision = begin(&member, &BTreeSet::new(), &held);

        assert_eq!(decision, Decision { claim: decision.claim.clone(), ..Decision::default() });
        let [first] = decision.claim.as_slice() else { panic!("{decision:?}") };
        assert_eq!(held[first], None);
        assert!(claimed(&member, &BTreeSet::from([key(0)])).is_empty(), "it reads a shard");
        let heir = Member { replaces: Some(name(1)), ..member };
        assert!(
            claimed(&heir, &BTreeSet::new()).is_empty(),
            "the new worker waits for the worker that it replaces"
        );
    }

    #[test]
    fn first_claims_of_workers_that_start_together_stay() {
        for (shards, workers) in [(1, 1), (1, 5), (7, 3), (9, 9), (40, 9)] {
            let mut held: BTreeMap<_, _> = (0..shards).map(|number| (key(number), None)).collect();
            let members: Vec<_> = (0..workers).map(|number| Member::new(name(number))).collect();
            let all_free = held.clone();
            for member in &members {
                for first in begin(member, &BTreeSet::new(), &all_free).claim {
                    held.insert(first, Some(member.name.clone()));
                }
            }

            let planned = plan(&held, &members);

            for (key, holder) in held {
                assert!(holder.is_none() || planned.get(&key) == holder.as_ref(), "{key}");
            }
        }
    }

    #[test]
    fn free_shard_planned_for_me_is_claimed() {
        assert_eq!(about(false, None, Some(0)), claim());
    }

    #[test]
    fn free_shard_planned_for_another_worker_is_not_claimed() {
        assert_eq!(about(false, None, Some(1)), Decision::default());
        assert_eq!(about(false, None, None), Decision::default());
    }

    #[test]
    fn held_shard_planned_for_me_is_expected() {
        assert_eq!(about(false, Some(1), Some(0)), expect());
    }

    #[test]
    fn my_shard_planned_for_me_stays() {
        assert_eq!(about(true, Some(0), Some(0)), Decision::default());
    }

    #[test]
    fn my_shard_planned_for_another_worker_is_given_to_it() {
        assert_eq!(about(true, Some(0), Some(1)), give(Some(1)));
    }

    #[test]
    fn my_shard_without_plan_is_given_up() {
        assert_eq!(about(true, Some(0), None), give(None));
    }

    #[test]
    fn shard_of_other_workers_needs_no_step() {
        assert_eq!(about(false, Some(1), Some(2)), Decision::default());
        assert_eq!(about(false, Some(1), None), Decision::default());
    }

    #[test]
    fn shard_without_row_needs_no_decision() {
        let reading = BTreeSet::from([key(1)]);
        let planned = BTreeMap::from([(key(1), name(1))]);

        assert_eq!(decide(&me(), &reading, &BTreeMap::new(), &planned), Decision::default());
    }

    #[expect(clippy::disallowed_methods, reason = "any moment; no lease depends on it")]
    fn some_moment() -> Instant {
        Instant::now()
    }

    fn due_hand_overs(
        surplus: &mut Surplus,
        numbers: &[usize],
        now: Instant,
        wait: u64,
    ) -> Vec<usize> {
        let give = |number: &usize| (key(*number), None);
        let give = numbers.iter().map(give).collect();
        let given = surplus.due_hand_overs(give, now, Duration::from_secs(wait));
        let number = |(key, _): (LeaseKey, _)| key.as_str()["shard-".len()..].parse().unwrap();
        given.into_iter().map(number).collect()
    }

    #[test]
    fn short_surplus_is_kept() {
        let (mut surplus, start) = (Surplus::default(), some_moment());
        let after = |seconds| start + Duration::from_secs(seconds);

        assert_eq!(due_hand_overs(&mut surplus, &[1, 2], start, 3), [0; 0]);
        assert_eq!(due_hand_overs(&mut surplus, &[1], after(1), 3), [0; 0]);
        assert_eq!(due_hand_overs(&mut surplus, &[1, 2], after(3), 3), [1]);
        assert_eq!(due_hand_overs(&mut surplus, &[1, 2], after(6), 3), [1, 2]);
    }

    #[test]
    fn due_hand_over_stays_due() {
        let (mut surplus, start) = (Surplus::default(), some_moment());

        assert_eq!(due_hand_overs(&mut surplus, &[1], start, 3), [0; 0]);
        assert_eq!(due_hand_overs(&mut surplus, &[1, 2], start, 0), [1, 2]);
        assert_eq!(due_hand_overs(&mut surplus, &[1, 2], start, 3), [1, 2]);
    }

    proptest! {
        #[test]
        fn no_two_workers_act_on_one_key(
            rows in prop::collection::vec(
                (prop::option::of(0..4_usize), prop::option::of(0..4_usize)),
                0..20,
            ),
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
            for (key, holder) in &held {
                let right = planned.get(key) == holder.as_ref();
                prop_assert_eq!(acted.contains(key), !right);
            }
        }
    }
}
