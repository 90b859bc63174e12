//! What a worker does at a tick: the lines of the plan that are its own.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use lease_core::{LeaseKey, Lessee};
use tokio::time::Instant;

use crate::plan::{Member, hash};

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

/// What the worker `me` does as long as it does not count: it takes one shard, and gives none away.
///
/// However many begin beside it, in the end each will have one at least; or there are more workers
/// than shards, and who has one keeps it. So this one stays where it is, and the first records do not
/// wait until it is known who else begins. Workers of other weights may have it move once more.
pub(crate) fn begin(
    me: &Member,
    reading: &BTreeSet<LeaseKey>,
    held: &BTreeMap<LeaseKey, Option<Lessee>>,
) -> Decision {
    let mut decision = Decision::default();
    if reading.is_empty() && me.replaces.is_none() {
        let free = held.iter().filter(|(_, holder)| holder.is_none()).map(|(key, _)| key);
        // Those who begin together go for one each, as far as their hashes have it.
        let first = free.max_by_key(|key| (hash(key.as_str(), me.name.as_str()), *key));
        decision.claim.extend(first.cloned());
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
    fn who_begins_takes_one_of_what_is_free_and_gives_nothing_away() {
        let held = (0..9).map(|number| (key(number), (number < 3).then(|| name(number)))).collect();
        let member = Member::new(me());
        let claimed = |member: &Member, reading: &BTreeSet<_>| begin(member, reading, &held).claim;

        let decision = begin(&member, &BTreeSet::new(), &held);

        assert_eq!(decision, Decision { claim: decision.claim.clone(), ..Decision::default() });
        let [first] = decision.claim.as_slice() else { panic!("{decision:?}") };
        assert_eq!(held[first], None);
        assert!(claimed(&member, &BTreeSet::from([key(0)])).is_empty(), "it has one");
        let heir = Member { replaces: Some(name(1)), ..member };
        assert!(claimed(&heir, &BTreeSet::new()).is_empty(), "it waits for whom it replaces");
    }

    /// What it took at once is its share, or a part of it, whoever begins beside it.
    #[test]
    fn what_workers_of_one_weight_that_begin_together_take_at_once_stays_where_it_is() {
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
