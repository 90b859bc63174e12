//! The KCL workers beside ours, and which of them take no free shard.

use std::collections::{BTreeMap, BTreeSet};

use lease_core::{LeaseKey, Lessee};
use tokio::time::Instant;

/// A KCL worker may be at its `maxLeasesForWorker`, or its lease taker may have stopped. The table does not show
/// this. So a worker that lacked a shard and let a free shard pass is not waited for. It is waited for again as soon
/// as it obtains a row, or has its share without one.
///
/// A worker that has its share is never judged: it leaves free shards to the workers that lack one.
#[derive(Debug, Default)]
pub(crate) struct Neighbours {
    seen: BTreeMap<Lessee, Neighbour>,
    that_do_not_take: BTreeSet<Lessee>,
}

#[derive(Debug)]
struct Neighbour {
    rows: BTreeSet<LeaseKey>,
    /// The first look since which the worker has lacked a row and has obtained none. `None` if it lacks none.
    lacking: Option<Instant>,
}

impl Neighbours {
    /// `share` is the number of rows that a KCL worker takes.
    pub(crate) fn look(
        &mut self,
        rows: BTreeMap<&Lessee, BTreeSet<&LeaseKey>>,
        share: usize,
        now: Instant,
    ) {
        let before = std::mem::take(&mut self.seen);
        for (name, rows) in rows {
            let known = before.get(name);
            let is_new = |key: &&LeaseKey| known.is_none_or(|known| !known.rows.contains(*key));
            let has_obtained = rows.iter().any(is_new);
            let lacks = rows.len() < share;
            if has_obtained || !lacks {
                self.that_do_not_take.remove(name);
            }
            let since = known.and_then(|known| known.lacking).filter(|_| !has_obtained);
            let lacking = lacks.then_some(since.unwrap_or(now));
            let rows = rows.into_iter().cloned().collect();
            self.seen.insert(name.clone(), Neighbour { rows, lacking });
        }
        self.that_do_not_take.retain(|name| self.seen.contains_key(name));
    }

    /// Since `time`, a shard has been free for so long that each worker that lacked one could take it.
    pub(crate) fn have_not_taken_since(&mut self, time: Instant) {
        let lacked = |neighbour: &Neighbour| neighbour.lacking.is_some_and(|since| since <= time);
        let passive = self.seen.iter().filter(|(_, neighbour)| lacked(neighbour));
        self.that_do_not_take.extend(passive.map(|(name, _)| name.clone()));
    }

    pub(crate) fn that_do_not_take(&self) -> &BTreeSet<Lessee> {
        &self.that_do_not_take
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const SHARE: usize = 2;

    /// Each worker has a number of rows.
    fn look(neighbours: &mut Neighbours, workers: &[(&str, usize)], now: Instant) {
        let names: Vec<Lessee> = workers.iter().map(|(name, _)| name.parse().unwrap()).collect();
        let key = |name: &Lessee, number| format!("shop/shards/{name}-{number}").parse().unwrap();
        let rows = names.iter().zip(workers).map(|(name, (_, count))| {
            (name, (0..*count).map(|number| key(name, number)).collect::<Vec<LeaseKey>>())
        });
        let rows: BTreeMap<_, _> = rows.collect();
        let rows = rows.iter().map(|(name, keys)| (*name, keys.iter().collect())).collect();
        neighbours.look(rows, SHARE, now);
    }

    fn that_do_not_take(neighbours: &Neighbours) -> Vec<&str> {
        neighbours.that_do_not_take().iter().map(Lessee::as_str).collect()
    }

    #[expect(clippy::disallowed_methods, reason = "any moment; no lease depends on it")]
    fn now() -> Instant {
        Instant::now()
    }

    #[test]
    fn only_worker_that_lacked_a_shard_is_not_waited_for() {
        let (mut neighbours, start) = (Neighbours::default(), now());

        look(&mut neighbours, &[("full", 2), ("limited", 1)], start);
        neighbours.have_not_taken_since(start);

        assert_eq!(that_do_not_take(&neighbours), ["limited"]);
    }

    #[test]
    fn worker_that_lacks_a_shard_only_later_is_waited_for() {
        let (mut neighbours, start) = (Neighbours::default(), now());
        let later = start + Duration::from_secs(1);

        look(&mut neighbours, &[("shrunk", 2), ("obtained", 0)], start);
        look(&mut neighbours, &[("shrunk", 1), ("obtained", 1)], later);
        neighbours.have_not_taken_since(start);

        assert_eq!(that_do_not_take(&neighbours), [""; 0]);
    }

    #[test]
    fn worker_that_obtains_a_shard_is_waited_for_again() {
        let (mut neighbours, start) = (Neighbours::default(), now());
        look(&mut neighbours, &[("one", 0), ("other", 0)], start);
        neighbours.have_not_taken_since(start);
        assert_eq!(that_do_not_take(&neighbours), ["one", "other"]);

        look(&mut neighbours, &[("one", 1), ("other", 0)], start + Duration::from_secs(1));

        assert_eq!(that_do_not_take(&neighbours), ["other"]);
    }

    /// Other workers have joined, so the share is smaller.
    #[test]
    fn worker_that_has_its_share_is_waited_for_again() {
        let (mut neighbours, start) = (Neighbours::default(), now());
        look(&mut neighbours, &[("one", 1)], start);
        neighbours.have_not_taken_since(start);
        let rows = BTreeSet::from(["shop/shards/one-0".parse().unwrap()]);
        let name = "one".parse().unwrap();

        neighbours.look([(&name, rows.iter().collect())].into(), 1, start + Duration::from_secs(1));

        assert_eq!(that_do_not_take(&neighbours), [""; 0]);
    }
}
