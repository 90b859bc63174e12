//! Counts the nodes on which a key may be free.

use lease_core::store::Change;

#[derive(Debug)]
pub(crate) struct FreedOn {
    nodes: Vec<OnNode>,
    majority: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OnNode {
    Held,
    /// The node reports the number of watches, if it may count them.
    Free(Option<u64>),
}

impl FreedOn {
    pub(crate) fn new(count: usize, majority: usize) -> Self {
        Self { nodes: vec![OnNode::Held; count], majority }
    }

    /// Returns the change on a majority, if any. Returns `Freed` again for each further node that frees the
    /// key, because this node may have refused the waiter's claim until then.
    pub(crate) fn note(&mut self, place: usize, change: Change) -> Option<Change> {
        let before = self.count();
        let node = self.nodes.get_mut(place)?;
        let Change::Freed { watches } = change else {
            *node = OnNode::Held;
            return self.change_since(before);
        };
        if std::mem::replace(node, OnNode::Free(watches)) != OnNode::Held {
            // A claim obtained the key between two releases. The other nodes have reported only the first
            // release so far.
            let others = self.nodes.iter_mut().enumerate().filter(|(other, _)| *other != place);
            others.for_each(|(_, node)| *node = OnNode::Held);
            return None;
        }
        self.change_since(before)
    }

    pub(crate) fn note_free(&mut self, place: usize) -> Option<Change> {
        let before = self.count();
        let node = self.nodes.get_mut(place)?;
        if *node == OnNode::Held {
            *node = OnNode::Free(None);
        }
        self.change_since(before)
    }

    fn change_since(&self, before: usize) -> Option<Change> {
        let now = self.count();
        if before < now && now >= self.majority {
            let watches = self.free().max().flatten();
            return Some(Change::Freed { watches });
        }
        (before == self.majority && now < before).then_some(Change::Taken)
    }

    fn count(&self) -> usize {
        self.free().count()
    }

    fn free(&self) -> impl Iterator<Item = Option<u64>> {
        self.nodes.iter().filter_map(|node| match node {
            OnNode::Held => None,
            OnNode::Free(watches) => Some(*watches),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn freed(watches: u64) -> Change {
        Change::Freed { watches: Some(watches) }
    }

    #[test]
    fn majority_frees_and_takes_the_key() {
        let mut nodes = FreedOn::new(3, 2);

        assert_eq!(nodes.note(0, freed(5)), None);
        assert_eq!(nodes.note(1, freed(7)), Some(freed(7)));
        assert_eq!(nodes.note(2, freed(9)), Some(freed(9)));
        assert_eq!(nodes.note(0, Change::Taken), None);
        assert_eq!(nodes.note(2, Change::Taken), Some(Change::Taken));
        assert_eq!(nodes.note(1, Change::Taken), None);
        assert_eq!(nodes.note(0, freed(4)), None);
        assert_eq!(nodes.note(2, freed(4)), Some(freed(4)));
    }

    #[test]
    fn withdrawn_vote_frees_the_key_again() {
        let mut nodes = FreedOn::new(3, 2);
        assert_eq!(nodes.note(0, freed(5)), None);
        assert_eq!(nodes.note(1, freed(5)), Some(freed(5)));

        assert_eq!(nodes.note(0, Change::Taken), Some(Change::Taken));
        assert_eq!(nodes.note(0, freed(5)), Some(freed(5)));
    }

    /// The waiter's claim was refused. Later messages of one node may arrive before earlier messages of
    /// another node.
    #[test]
    fn release_after_refusal_counts_if_nodes_report_one_by_one() {
        let mut nodes = FreedOn::new(3, 2);
        for place in 0..3 {
            nodes.note(place, freed(5));
        }

        let mut told = Vec::new();
        for place in 0..3 {
            told.extend(nodes.note(place, Change::Taken));
            told.extend(nodes.note(place, freed(6)));
        }

        assert!(matches!(told.last(), Some(Change::Freed { .. })), "{told:?}");
    }

    #[test]
    fn second_release_counts_if_the_grant_was_not_published() {
        let mut nodes = FreedOn::new(3, 2);
        for place in 0..3 {
            nodes.note(place, freed(5));
        }

        assert_eq!(nodes.note(1, freed(6)), None);
        assert_eq!(nodes.note(0, freed(6)), Some(freed(6)));
    }

    #[test]
    fn node_that_was_not_watched_may_have_freed_the_key() {
        let mut nodes = FreedOn::new(3, 2);

        assert_eq!(nodes.note_free(0), None);
        assert_eq!(nodes.note_free(1), Some(Change::Freed { watches: None }));
        assert_eq!(nodes.note_free(1), None);
    }
}
