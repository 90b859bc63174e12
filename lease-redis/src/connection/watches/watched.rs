//! The channels that callers of this store watch. A claim of a watched key marks the key in Redis.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

#[derive(Debug, Default)]
pub(crate) struct WatchedChannels {
    channels: Mutex<HashMap<String, Watchers>>,
}

#[derive(Debug, Default)]
struct Watchers {
    count: usize,
    marks: u64,
}

#[derive(Debug)]
pub(crate) struct WatchedEntry {
    watched: Arc<WatchedChannels>,
    channel: String,
    marks: u64,
}

impl WatchedChannels {
    pub(crate) fn enter(self: &Arc<Self>, channel: String) -> WatchedEntry {
        let mut channels = self.channels.lock();
        let watchers = channels.entry(channel.clone()).or_default();
        watchers.count += 1;
        let marks = watchers.marks;
        drop(channels);
        WatchedEntry { watched: Arc::clone(self), channel, marks }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.channels.lock().is_empty()
    }

    pub(crate) fn contains(&self, channel: &str) -> bool {
        self.channels.lock().contains_key(channel)
    }

    pub(crate) fn note_mark(&self, channel: &str) {
        if let Some(watchers) = self.channels.lock().get_mut(channel) {
            watchers.marks += 1;
        }
    }
}

impl WatchedEntry {
    pub(crate) fn is_marked(&self) -> bool {
        let channels = self.watched.channels.lock();
        channels.get(&self.channel).is_some_and(|watchers| watchers.marks > self.marks)
    }
}

impl Drop for WatchedEntry {
    fn drop(&mut self) {
        let mut channels = self.watched.channels.lock();
        if let Some(watchers) = channels.get_mut(&self.channel) {
            watchers.count -= 1;
            if watchers.count == 0 {
                channels.remove(&self.channel);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channel_is_watched_until_its_last_watch_ends() {
        let watched = Arc::<WatchedChannels>::default();
        let first = watched.enter("freed".to_owned());
        let second = watched.enter("freed".to_owned());

        drop(first);
        assert!(watched.contains("freed"));

        drop(second);
        assert!(!watched.contains("freed"));
    }

    #[test]
    fn mark_counts_for_watches_that_began_before_it() {
        let watched = Arc::<WatchedChannels>::default();
        let before = watched.enter("freed".to_owned());

        watched.note_mark("freed");
        let after = watched.enter("freed".to_owned());

        assert!(before.is_marked());
        assert!(!after.is_marked());
    }
}
