//! Connects the cell of a lease under a session with the cell of the session.

use std::sync::{Arc, OnceLock, Weak};

use parking_lot::Mutex;
use slab::Slab;

use crate::heartbeat::command_queue::CommandSender;
use crate::heartbeat::lease_cell::LeaseCell;

/// The session of a child.
pub(crate) struct Standing {
    pub(crate) session: Arc<LeaseCell>,
    /// Sends commands to the heartbeater, which counts and logs the loss of the child.
    pub(crate) heartbeater: CommandSender,
    place: OnceLock<usize>,
}

/// The children of a session.
#[derive(Default)]
pub(crate) struct Children(Mutex<Slab<Weak<LeaseCell>>>);

impl Standing {
    pub(crate) fn new(session: Arc<LeaseCell>, heartbeater: CommandSender) -> Self {
        Self { session, heartbeater, place: OnceLock::new() }
    }

    /// Registers `child`, so that its receivers learn of the session's end at once.
    pub(crate) fn register(&self, child: &Arc<LeaseCell>) {
        let children = self.session.children();
        self.place.get_or_init(|| children.0.lock().insert(Arc::downgrade(child)));
    }
}

impl Drop for Standing {
    fn drop(&mut self) {
        if let Some(place) = self.place.get() {
            self.session.children().0.lock().try_remove(*place);
        }
    }
}

impl Children {
    /// Returns all children, and frees the lock before the caller changes or drops a child.
    pub(crate) fn all(&self) -> Vec<Arc<LeaseCell>> {
        self.0.lock().iter().filter_map(|(_, child)| child.upgrade()).collect()
    }
}
