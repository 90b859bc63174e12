//! The workers of an application: what the row of each says, and since when it has been seen.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use lease_core::{Change, LeaseRecord, Lessee, Value};
use tokio::time::Instant;

use crate::plan::{Member, Standing};

/// What a worker writes on its own row.
pub(crate) fn change(member: &Member) -> Change {
    let standing = match member.standing {
        Standing::Live => LIVE,
        Standing::Leaving => LEAVING,
    };
    let change = Change::new().set(STATE, standing).set(WEIGHT, u32::from(member.weight));
    let change = match member.most {
        Some(most) => change.set(MOST, most),
        None => change.remove(MOST),
    };
    match &member.replaces {
        Some(replaced) => change.set(REPLACES, replaced.as_str()),
        None => change.remove(REPLACES),
    }
}

/// What a worker's row says; `None` where nobody holds it, so that the worker is gone.
pub(crate) fn member(record: &LeaseRecord) -> Option<Member> {
    let holder = record.holder.as_ref()?;
    let text = |name: &str| record.attributes.get(name).and_then(Value::as_text);
    let number = |name: &str| record.attributes.get(name).and_then(Value::as_i64);
    let mut member = Member::new(holder.lessee.clone());
    if text(STATE) == Some(LEAVING) {
        member.standing = Standing::Leaving;
    }
    // A row whose lease was obtained a moment ago, and that is not written yet, says nothing.
    member.weight = number(WEIGHT).and_then(|weight| u16::try_from(weight).ok()).unwrap_or(1);
    member.most = number(MOST).and_then(|most| usize::try_from(most).ok());
    member.replaces = text(REPLACES).and_then(|name| Lessee::new(name).ok());
    Some(member)
}

/// Which workers count. An end counts at once, since the store waits for a ttl before it tells of
/// one. Joins count together: once nobody new has been found for a while, however often one looked
/// meanwhile. Workers that begin together are then planned for once, by all, rather than each time
/// one more is seen; and who begins takes no more than one shard before it knows who begins beside it.
#[derive(Debug, Default)]
pub(crate) struct Sightings {
    seen: BTreeMap<Lessee, Sighting>,
    /// When somebody new was found last.
    newest: Option<Instant>,
}

#[derive(Debug)]
struct Sighting {
    since: Instant,
    counts: bool,
}

impl Sightings {
    /// Whether a worker counts.
    fn counts(&self, name: &Lessee) -> bool {
        self.seen.get(name).is_some_and(|sighting| sighting.counts)
    }

    /// Whether all that were seen count, and anybody was.
    pub(crate) fn all_count(&self) -> bool {
        !self.seen.is_empty() && self.seen.values().all(|sighting| sighting.counts)
    }

    /// Adds a look at all workers, begun `at` that time, and answers those that count: once nobody
    /// new was found for `settling`.
    pub(crate) fn look(
        &mut self,
        members: Vec<Member>,
        at: Instant,
        settling: Duration,
    ) -> Vec<Member> {
        let there: BTreeSet<_> = members.iter().map(|member| member.name.clone()).collect();
        self.seen.retain(|name, _| there.contains(name));
        for name in there {
            self.seen.entry(name).or_insert_with(|| {
                self.newest = Some(at);
                Sighting { since: at, counts: false }
            });
        }
        let is_quiet = self.newest.is_none_or(|newest| at >= newest + settling);
        for sighting in self.seen.values_mut() {
            sighting.counts |= is_quiet || at >= sighting.since + settling * PATIENCE;
        }
        members.into_iter().filter(|member| self.counts(&member.name)).collect()
    }
}

/// After so many times of settling, a worker counts though there are others that are new: somewhere,
/// one may begin and die for ever.
const PATIENCE: u32 = 10;

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

    /// What a worker finds to count that looks at these, a second after its last look.
    struct Looks {
        sightings: Sightings,
        at: Instant,
    }

    impl Looks {
        fn new() -> Self {
            Self { sightings: Sightings::default(), at: now() }
        }

        fn look(&mut self, names: &str) -> String {
            self.look_after(SECOND, names)
        }

        fn look_after(&mut self, pause: Duration, names: &str) -> String {
            let member = |name: char| Member::new(Lessee::new(name.to_string()).unwrap());
            self.at += pause;
            let counting =
                self.sightings.look(names.chars().map(member).collect(), self.at, SECOND);
            counting.iter().map(|member| member.name.as_str()).collect()
        }
    }

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn nobody_counts_at_the_first_look() {
        let mut looks = Looks::new();

        assert_eq!(looks.look("ab"), "");
        assert_eq!(looks.look("ab"), "ab");
    }

    #[test]
    fn those_who_join_one_after_the_other_count_together() {
        let mut looks = Looks::new();
        looks.look("a");
        looks.look("a");

        assert_eq!(looks.look("abc"), "a");
        assert!(!looks.sightings.all_count(), "it is to look again soon");
        assert_eq!(looks.look("abcd"), "a");
        assert_eq!(looks.look("abcd"), "abcd");
        assert!(looks.sightings.all_count());
    }

    #[test]
    fn nobody_counts_for_a_look_that_comes_at_once() {
        let mut looks = Looks::new();
        looks.look("a");
        looks.look("a");

        assert_eq!(looks.look("ab"), "a");
        assert_eq!(looks.look_after(SECOND / 3, "ab"), "a");
        assert_eq!(looks.look_after(SECOND / 3, "abc"), "a");
        assert_eq!(looks.look_after(SECOND / 3, "abc"), "a");
        assert_eq!(looks.look_after(SECOND, "abc"), "abc");
    }

    #[test]
    fn who_is_gone_counts_no_more_at_once_and_is_new_when_it_is_back() {
        let mut looks = Looks::new();
        looks.look("ab");
        looks.look("ab");

        assert_eq!(looks.look("a"), "a");
        assert_eq!(looks.look("ab"), "a");
        assert_eq!(looks.look("ab"), "ab");
    }

    #[test]
    fn nobody_is_kept_waiting_by_others_that_come_and_go() {
        let mut looks = Looks::new();
        looks.look("a");
        looks.look("a");

        for other in ('c'..).take(10) {
            assert_eq!(looks.look(&format!("ab{other}")), "a");
        }
        assert_eq!(looks.look("abz"), "ab");
    }
}
