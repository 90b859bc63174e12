//! The KCL workers beside ours, and which of them take no free shard.

use std::collections::{BTreeMap, BTreeSet};

use lease_core::{LeaseKey, Lessee};
use tokio::time::Instant;

/// A KCL worker may be at its `maxLeasesForWorker`, or its lease taker may have stopped. The table does not show
/// this. So a worker that let a free shard pass is not waited for, until it obtains a row.
#[derive(Debug, Default)]
pub(crate) struct Neighbours {
    seen: BTreeMap<Lessee, Neighbour>,
    that_do_not_take: BTreeSet<Lessee>,
}

#[derive(Debug)]
struct Neighbour {
    rows: BTreeSet<LeaseKey>,
    /// The first look that showed the worker's last new row.
    obtained: Instant,
}

impl Neighbours {
    pub(crate) fn look(&mut self, rows: BTreeMap<&Lessee, BTreeSet<&LeaseKey>>, now: Instant) {
        let before = std::mem::take(&mut self.seen);
        for (name, rows) in rows {
            let known = before.get(name);
            let is_new = |key: &&LeaseKey| known.is_none_or(|known| !known.rows.contains(*key));
            let obtained = match known {
                Some(known) if !rows.iter().any(is_new) => known.obtained,
                _ => now,
            };
            if obtained == now {
                self.that_do_not_take.remove(name);
            }
            let rows = rows.into_iter().cloned().collect();
            self.seen.insert(name.clone(), Neighbour { rows, obtained });
        }
        self.that_do_not_take.retain(|name| self.seen.contains_key(name));
    }

    /// Since `time`, a shard has been free for so long that each worker could take it.
    pub(crate) fn have_not_taken_since(&mut self, time: Instant) {
        let passive = self.seen.iter().filter(|(_, neighbour)| neighbour.obtained <= time);
        self.that_do_not_take.extend(passive.map(|(name, _)| name.clone()));
    }

    pub(crate) fn that_do_not_take(&self) -> &BTreeSet<Lessee> {
        &self.that_do_not_take
    }
}
