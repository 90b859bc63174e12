//! Groups of keys, for adapters of metrics.

use std::fmt;

use crate::key::LeaseKey;

/// One value, such as the instruments of a metric, for each group of keys.
///
/// Metrics must not have the key as a label: each key would be a time series of its own. So an adapter has a few
/// groups, and each key belongs to the first group that selects it.
///
/// # Examples
///
/// ```
/// use lease_core::KeyGroups;
///
/// let groups = KeyGroups::new("other").with(|key| key.as_str() == "leader", "leader");
///
/// assert_eq!(*groups.of(&"leader".parse()?), "leader");
/// assert_eq!(*groups.of(&"jobs/1".parse()?), "other");
/// # Ok::<_, lease_core::InvalidInput>(())
/// ```
pub struct KeyGroups<T> {
    groups: Vec<(Selects, T)>,
    others: T,
}

type Selects = Box<dyn Fn(&LeaseKey) -> bool + Send + Sync>;

impl<T> KeyGroups<T> {
    /// Returns groups in which `others` is the value of each key.
    pub fn new(others: T) -> Self {
        Self { groups: Vec::new(), others }
    }

    /// Adds a group with `value`, for the keys that `selects` selects and that belong to no group yet.
    #[must_use]
    pub fn with(
        mut self,
        selects: impl Fn(&LeaseKey) -> bool + Send + Sync + 'static,
        value: T,
    ) -> Self {
        self.groups.push((Box::new(selects), value));
        self
    }

    /// Returns the value of the group to which `key` belongs.
    pub fn of(&self, key: &LeaseKey) -> &T {
        let group = self.groups.iter().find(|(selects, _)| selects(key));
        group.map_or(&self.others, |(_, value)| value)
    }

    /// Replaces each value.
    pub fn map<U>(self, mut change: impl FnMut(T) -> U) -> KeyGroups<U> {
        let groups = self.groups.into_iter().map(|(selects, value)| (selects, change(value)));
        let groups = groups.collect();
        KeyGroups { groups, others: change(self.others) }
    }
}

impl<T: fmt::Debug> fmt::Debug for KeyGroups<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let values = self.groups.iter().map(|(_, value)| value).chain([&self.others]);
        f.debug_list().entries(values).finish()
    }
}
