//! Reads and writes the rows of workers, and chooses the workers that count for the plan.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use lease_core::store::LeaseRecord;
use lease_core::{Change, Lessee, Value};
use tokio::time::Instant;

use crate::plan::{Member, MemberState};

pub(crate) fn change(member: &Member) -> Change {
    let state = match member.state {
        MemberState::Live => LIVE,
        MemberState::Leaving => LEAVING,
    };
    let change = Change::new().set(STATE, state).set(WEIGHT, u32::from(member.weight));
    let change = match member.most {
        Some(most) => change.set(MOST, most),
        None => change.remove(MOST),
    };
    match &member.replaces {
        Some(replaced) => change.set(REPLACES, replaced.as_str()),
        None => change.remove(REPLACES),
    }
}

/// `None` if the row's lease is free, because the worker has then ended.
pub(crate) fn member(record: &LeaseRecord) -> Option<Member> {
    let holder = record.holder.as_ref()?;
    let text = |name: &str| record.attributes.get(name).and_then(Value::as_text);
    let number = |name: &str| record.attributes.get(name).and_then(Value::as_i64);
    let mut member = Member::new(holder.lessee.clone());
    if text(STATE) == Some(LEAVING) {
        member.state = MemberState::Leaving;
    }
    // A new row has no attributes until its worker has written them.
    member.weight = number(WEIGHT).and_then(|weight| u16::try_from(weight).ok()).unwrap_or(1);
    member.most = number(MOST).and_then(|most| usize::try_from(most).ok());
    member.replaces = text(REPLACES).and_then(|name| Lessee::new(name).ok());
    Some(member)
}

/// Decides which workers count for the plan. New workers start to count together, after a settling time
/// without a further new worker. So the plan changes once.
#[derive(Debug, Default)]
pub(crate) struct MemberTracker {
    seen: BTreeMap<Lessee, Tracked>,
    newest: Option<Instant>,
}

#[derive(Debug)]
struct Tracked {
    since: Instant,
    counts: bool,
}

impl MemberTracker {
    fn counts(&self, name: &Lessee) -> bool {
        self.seen.get(name).is_some_and(|tracked| tracked.counts)
    }

    /// Reports whether at least one worker was seen, and all seen workers count.
    pub(crate) fn all_count(&self) -> bool {
        !self.seen.is_empty() && self.seen.values().all(|tracked| tracked.counts)
    }

    /// `at` is the time when the listing started. Returns the workers that count.
    pub(crate) fn look(
        &mut self,
        members: Vec<Member>,
        at: Instant,
        settling: Duration,
    ) -> Vec<Member> {
        let listed: BTreeSet<_> = members.iter().map(|member| member.name.clone()).collect();
        self.seen.retain(|name, _| listed.contains(name));
        for name in listed {
            self.seen.entry(name).or_insert_with(|| {
                self.newest = Some(at);
                Tracked { since: at, counts: false }
            });
        }
        let is_quiet = self.newest.is_none_or(|newest| at >= newest + settling);
        for tracked in self.seen.values_mut() {
            tracked.counts |= is_quiet || at >= tracked.since + settling * MAX_SETTLING_TIMES;
        }
        members.into_iter().filter(|member| self.counts(&member.name)).collect()
    }
}

/// After this number of settling times, a worker counts even if new workers keep appearing. One worker may
/// crash at each start, and appear again.
const MAX_SETTLING_TIMES: u32 = 10;

const STATE: &str = "state";
const LIVE: &str = "live";
const LEAVING: &str = "leaving";
const WEIGHT: &str = "weight";
const MOST: &str = "mostShards";
const REPLACES: &str = "replaces";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::now;

    /// A worker's name is one letter.
    struct Listings {
        members: MemberTracker,
        at: Instant,
    }

    impl Listings {
        fn new() -> Self {
            Self { members: MemberTracker::default(), at: now() }
        }

        fn look(&mut self, names: &str) -> String {
            self.look_after(SECOND, names)
        }

        fn look_after(&mut self, pause: Duration, names: &str) -> String {
            let member = |name: char| Member::new(Lessee::new(name.to_string()).unwrap());
            self.at += pause;
            let counting = self.members.look(names.chars().map(member).collect(), self.at, SECOND);
            counting.iter().map(|member| member.name.as_str()).collect()
        }
    }

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn no_worker_counts_at_first_listing() {
        let mut listings = Listings::new();

        assert_eq!(listings.look("ab"), "");
        assert_eq!(listings.look("ab"), "ab");
    }

    #[test]
    fn workers_that_join_in_turn_count_together() {
        let mut listings = Listings::new();
        listings.look("a");
        listings.look("a");

        assert_eq!(listings.look("abc"), "a");
        assert!(!listings.members.all_count(), "new workers do not count yet");
        assert_eq!(listings.look("abcd"), "a");
        assert_eq!(listings.look("abcd"), "abcd");
        assert!(listings.members.all_count());
    }

    #[test]
    fn extra_listings_do_not_shorten_settling_time() {
        let mut listings = Listings::new();
        listings.look("a");
        listings.look("a");

        assert_eq!(listings.look("ab"), "a");
        assert_eq!(listings.look_after(SECOND / 3, "ab"), "a");
        assert_eq!(listings.look_after(SECOND / 3, "abc"), "a");
        assert_eq!(listings.look_after(SECOND / 3, "abc"), "a");
        assert_eq!(listings.look_after(SECOND, "abc"), "abc");
    }

    #[test]
    fn returning_worker_is_new_again() {
        let mut listings = Listings::new();
        listings.look("ab");
        listings.look("ab");

        assert_eq!(listings.look("a"), "a");
        assert_eq!(listings.look("ab"), "a");
        assert_eq!(listings.look("ab"), "ab");
    }

    #[test]
    fn new_worker_counts_despite_short_lived_workers() {
        let mut listings = Listings::new();
        listings.look("a");
        listings.look("a");

        for other in ('c'..).take(10) {
            assert_eq!(listings.look(&format!("ab{other}")), "a");
        }
        assert_eq!(listings.look("abz"), "ab");
    }
}
