//! Selects the fault of the next call.

use std::collections::{HashMap, VecDeque};

use crate::conformance::kit::faulty::fault::{Call, Fault};

#[derive(Default)]
pub(super) struct Plan {
    pub(super) next: HashMap<Call, VecDeque<Fault>>,
    pub(super) every: HashMap<Call, Fault>,
    pub(super) choose: Option<Chooser>,
    pub(super) calls: HashMap<Call, usize>,
}

type Chooser = Box<dyn FnMut(Call) -> Option<Fault> + Send>;

impl Plan {
    pub(super) fn has_fault_for(&self, call: Call) -> bool {
        let queued = self.next.get(&call).is_some_and(|next| !next.is_empty());
        queued || self.every.contains_key(&call) || self.choose.is_some()
    }

    pub(super) fn take_fault(&mut self, call: Call) -> Option<Fault> {
        self.take_planned(call).or_else(|| self.choose.as_mut().and_then(|choose| choose(call)))
    }

    pub(super) fn take_planned(&mut self, call: Call) -> Option<Fault> {
        *self.calls.entry(call).or_default() += 1;
        let next = self.next.get_mut(&call).and_then(VecDeque::pop_front);
        next.or_else(|| self.every.get(&call).copied())
    }
}
