//! Properties that each plan has.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};

use lease_core::{LeaseKey, Lessee};
use lease_kinesis::{Member, MemberState, plan};
use proptest::prelude::*;
use proptest::sample::Index;

type Held = BTreeMap<LeaseKey, Option<Lessee>>;

fn name(number: usize) -> Lessee {
    Lessee::new(format!("worker-{number}")).unwrap()
}

fn key(number: usize) -> LeaseKey {
    LeaseKey::new(format!("shardId-{number:012}")).unwrap()
}

fn members(count: usize) -> Vec<Member> {
    (0..count).map(|number| Member::new(name(number))).collect()
}

fn placement() -> impl Strategy<Value = (Held, Vec<Member>)> {
    (1..10_usize, prop::collection::vec(any::<Option<Index>>(), 0..41)).prop_map(
        |(count, holders)| {
            let holder = |holder: Option<Index>| holder.map(|index| name(index.index(count + 2)));
            let held = holders.into_iter().enumerate();
            (held.map(|(number, index)| (key(number), holder(index))).collect(), members(count))
        },
    )
}

fn counts(planned: &BTreeMap<LeaseKey, Lessee>, members: &[Member]) -> Vec<usize> {
    let of = |member: &Member| planned.values().filter(|holder| **holder == member.name).count();
    members.iter().map(of).collect()
}

fn moves(held: &Held, planned: &BTreeMap<LeaseKey, Lessee>) -> usize {
    planned.iter().filter(|(key, holder)| held[*key].as_ref() != Some(holder)).count()
}

/// Each member keeps its keys up to its quota, and all other keys move. The members with the most keys have
/// the larger quotas.
fn fewest_moves(held: &Held, members: &[Member]) -> usize {
    let has =
        |member: &Member| held.values().flatten().filter(|name| **name == member.name).count();
    let mut has: Vec<_> = members.iter().map(has).collect();
    has.sort_unstable_by(|one, other| other.cmp(one));
    let (base, extra) = (held.len() / members.len(), held.len() % members.len());
    let quota = |rank: usize| base + usize::from(rank < extra);
    held.len() - has.iter().enumerate().map(|(rank, has)| quota(rank).min(*has)).sum::<usize>()
}

fn applied(planned: BTreeMap<LeaseKey, Lessee>) -> Held {
    planned.into_iter().map(|(key, holder)| (key, Some(holder))).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn plan_is_balanced_stable_and_has_fewest_moves((held, members) in placement()) {
        let planned = plan(&held, &members);

        prop_assert_eq!(planned.len(), held.len());
        let counts = counts(&planned, &members);
        let spread = counts.iter().max().unwrap() - counts.iter().min().unwrap();
        prop_assert!(spread <= 1, "{:?}", counts);
        prop_assert_eq!(moves(&held, &planned), fewest_moves(&held, &members));
        prop_assert_eq!(plan(&applied(planned.clone()), &members), planned);
    }

    #[test]
    fn plan_does_not_depend_on_order_of_workers((held, members) in placement()) {
        let mut others: Vec<_> = members.iter().rev().cloned().collect();
        let half = others.len() / 2;
        others.rotate_left(half);

        prop_assert_eq!(plan(&held, &others), plan(&held, &members));
    }

    #[test]
    fn members_stay_within_their_limits(
        (held, mut members) in placement(),
        most in prop::collection::vec(prop::option::of(0..8_usize), 10),
    ) {
        for (member, most) in members.iter_mut().zip(&most) {
            member.most = *most;
        }

        let planned = plan(&held, &members);

        let counts = counts(&planned, &members);
        for (member, count) in members.iter().zip(&counts) {
            prop_assert!(member.most.is_none_or(|most| *count <= most));
        }
        let room: usize = members.iter().map(|member| member.most.unwrap_or(held.len())).sum();
        prop_assert_eq!(planned.len(), held.len().min(room));
        // A member with at least two keys fewer than another member must be at its limit.
        let largest = counts.iter().max().unwrap();
        for (member, count) in members.iter().zip(&counts) {
            prop_assert!(count + 1 >= *largest || member.most == Some(*count), "{:?}", counts);
        }
        prop_assert_eq!(plan(&applied(planned.clone()), &members), planned);
    }

    #[test]
    fn shares_follow_the_weights(
        (held, mut members) in placement(),
        weights in prop::collection::vec(1..20_u16, 10),
    ) {
        for (member, weight) in members.iter_mut().zip(&weights) {
            member.weight = *weight;
        }
        let all: usize = members.iter().map(|member| usize::from(member.weight)).sum();

        let planned = plan(&held, &members);

        for (member, count) in members.iter().zip(counts(&planned, &members)) {
            let share = held.len() * usize::from(member.weight) / all;
            prop_assert!(count == share || count == share + 1, "{} of {}", count, share);
        }
        prop_assert_eq!(plan(&applied(planned.clone()), &members), planned);
    }

    #[test]
    fn rolling_deployment_moves_each_key_once(keys in 1..60_usize, count in 1..8_usize) {
        let old = members(count);
        let held: Held = (0..keys).map(|number| (key(number), None)).collect();
        let mut held = applied(plan(&held, &old));
        let mut fleet = old.clone();
        let mut moved = 0;
        for index in 0..count {
            let mut newcomer = Member::new(name(100 + index));
            newcomer.replaces = Some(name(index));
            fleet.push(newcomer);
            prop_assert_eq!(moves(&held, &plan(&held, &fleet)), 0, "a replacement waits for its predecessor");
            fleet[index].state = MemberState::Leaving;
            let planned = plan(&held, &fleet);
            moved += moves(&held, &planned);
            held = applied(planned);
        }
        for member in &old {
            fleet.retain(|other| other.name != member.name);
            prop_assert_eq!(moves(&held, &plan(&held, &fleet)), 0, "no key moves after a worker has gone");
        }

        prop_assert_eq!(moved, keys);
    }
}

#[test]
fn plan_without_members_is_empty() {
    let held = Held::from([(key(1), Some(name(1))), (key(2), None)]);

    assert!(plan(&held, &[]).is_empty());
    let mut leaving = Member::new(name(1));
    leaving.state = MemberState::Leaving;
    assert!(plan(&held, &[leaving]).is_empty());
}

#[test]
fn two_replacements_share_the_keys() {
    let held: Held = (0..10).map(|number| (key(number), Some(name(0)))).collect();
    let mut heirs = [Member::new(name(1)), Member::new(name(2))];
    for heir in &mut heirs {
        heir.replaces = Some(name(0));
    }

    let planned = plan(&held, &heirs);

    assert_eq!(counts(&planned, &heirs), [5, 5]);
    let names: BTreeSet<_> = planned.values().cloned().collect();
    assert_eq!(names.len(), 2);
}

#[test]
fn plan_is_the_same_in_every_version() {
    let held: Held = (0..4).map(|number| (key(number), None)).collect();

    let planned = plan(&held, &members(2));

    let names: Vec<_> = planned.values().map(Lessee::as_str).collect();
    assert_eq!(names, ["worker-1", "worker-0", "worker-0", "worker-1"]);
}
