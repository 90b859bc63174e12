//! The majority of nodes that a claim asks first.

use std::time::Duration;

use lease_core::LeaseKey;
use lease_core::store::Moment;
use parking_lot::Mutex;

use crate::quorum::nodes::Nodes;
use crate::quorum::nodes::asked::Places;
use crate::quorum::voting::ballot::majority;

/// The time of the last claim that each node got although it was left out.
#[derive(Debug)]
pub(crate) struct Probes {
    last: Mutex<Vec<Option<Moment>>>,
}

impl Probes {
    pub(crate) fn new(nodes: usize) -> Self {
        Self { last: Mutex::new(vec![None; nodes]) }
    }

    fn is_due(&self, place: usize, now: Moment) -> bool {
        let mut last = self.last.lock();
        let Some(last) = last.get_mut(place) else { return false };
        let due = last.is_none_or(|last| now.since(last) >= PROBED_EVERY);
        if due {
            *last = Some(now);
        }
        due
    }
}

impl Nodes {
    /// All clients choose the same nodes for a key, so that a claim meets the holder's votes. While a client has
    /// many claims, they [share](super::shared_choice) their nodes instead. Leaves out silent nodes, and nodes
    /// that do not vote. Sometimes adds one of them, which then shows that it answers again.
    ///
    /// Returns `None` if the claim must ask all nodes at once.
    pub(crate) fn first_choice(&self, key: &LeaseKey) -> Option<Places> {
        if self.count() > Places::MOST_NODES || self.majority() == self.count() {
            return None;
        }
        let fits = |places: Places| places.iter().all(|place| !self.is_left_out(place));
        let mut places = self.shared_choice.choose(fits, || self.choice_of(key))?;
        if let Some(place) = self.place_to_probe(places) {
            places.insert(place);
        }
        (places.count() < self.count()).then_some(places)
    }

    fn choice_of(&self, key: &LeaseKey) -> Option<Places> {
        let mut places = Places::default();
        let order = self.in_order_of(key).into_iter().map(|(place, _)| place);
        let live = order.filter(|place| !self.is_left_out(*place));
        live.take(self.majority()).for_each(|place| places.insert(place));
        (places.count() == self.majority()).then_some(places)
    }

    fn place_to_probe(&self, places: Places) -> Option<usize> {
        let others = (0..self.count()).filter(|place| !places.contains(*place));
        let mut left_out = others.filter(|place| self.is_left_out(*place));
        left_out.find(|place| self.probes.is_due(*place, self.clock.now()))
    }

    fn is_left_out(&self, place: usize) -> bool {
        self.all
            .get(place)
            .is_some_and(|node| node.is_silent() || !node.has_run_for(node.rejoin_delay()))
    }

    /// Returns the time after which a node that has not answered is silent.
    pub(crate) fn patience(&self) -> Duration {
        self.all.iter().map(|node| node.patience()).max().unwrap_or_default()
    }

    /// Returns the time after which a claim asks the other nodes, too. The fastest majority usually answers in
    /// half of this time. So a minority of slow nodes does not affect the delay.
    pub(crate) fn hedge_delay(&self) -> Duration {
        hedge_delay(self.all.iter().map(|node| node.patience()).collect())
    }
}

fn hedge_delay(mut of_nodes: Vec<Duration>) -> Duration {
    of_nodes.sort_unstable();
    of_nodes.get(majority(of_nodes.len()) - 1).copied().unwrap_or_default()
}

/// A hung node that continues answers its earlier requests, and so is not silent any more. Only a node whose
/// connection was closed needs another request.
const PROBED_EVERY: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_minority_does_not_prolong_the_hedge_delay() {
        let delay = |millis: &[u64]| {
            let of_nodes = millis.iter().copied().map(Duration::from_millis).collect();
            u64::try_from(hedge_delay(of_nodes).as_millis()).unwrap()
        };

        assert_eq!(delay(&[2_500, 20, 20]), 20);
        assert_eq!(delay(&[20, 2_500, 40, 9_000, 30]), 40);
        assert_eq!(delay(&[160, 160, 20]), 160, "a majority needs one of the slow nodes");
    }
}
