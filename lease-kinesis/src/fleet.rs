//! The workers of an application: what the row of each says, and since when it has been seen.

use std::collections::{BTreeMap, BTreeSet};

use lease_core::{Change, LeaseRecord, Lessee, Value};

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

/// Which workers count: a join when it has been seen twice, so that many who join together are
/// seen together; an end at once, since the store waits for a ttl before it tells of one.
#[derive(Debug, Default)]
pub(crate) struct Sightings {
    seen: BTreeMap<Lessee, u32>,
}

impl Sightings {
    /// Whether a worker counts.
    pub(crate) fn counts(&self, name: &Lessee) -> bool {
        self.seen.get(name).is_some_and(|times| *times >= 2)
    }

    /// Counts another look at all workers, and answers those that count.
    pub(crate) fn look(&mut self, members: Vec<Member>) -> Vec<Member> {
        let there: BTreeSet<_> = members.iter().map(|member| member.name.clone()).collect();
        self.seen.retain(|name, _| there.contains(name));
        for name in there {
            let times = self.seen.entry(name).or_default();
            *times = times.saturating_add(1);
        }
        members.into_iter().filter(|member| self.counts(&member.name)).collect()
    }
}

const STATE: &str = "state";
const LIVE: &str = "live";
const LEAVING: &str = "leaving";
const WEIGHT: &str = "weight";
const MOST: &str = "mostShards";
const REPLACES: &str = "replaces";
