//! How DynamoDB behaves in a trial, and how the store is built.

use std::time::Duration;

use lease_core::conformance::Call;
use lease_dynamodb::TimeMode;

/// Everything as documented, unless something is said to be broken.
#[derive(Debug, Clone)]
pub(crate) struct Setup {
    pub(crate) mode: TimeMode,
    /// What the store is told of how far front ends' clocks may be apart.
    pub(crate) margin: Duration,
    /// How far they are apart.
    pub(crate) apart: Duration,
    pub(crate) breach: Option<Breach>,
}

/// What DynamoDB, or the machine of a contender, does other than promised.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Breach {
    /// Consistent reads show what was.
    StaleReads,
    /// The condition of a write is looked at first, and the write is done later.
    ChecksApart,
    /// Writes that serve this call take these parts of their condition for fulfilled.
    Assumes(Call, &'static [&'static str]),
    /// The item is deleted by hand, once.
    LosesItem,
    /// The table becomes what it was a while ago, once.
    Restores,
    /// Half of all contenders use another Region's replica of a global table.
    TwoRegions,
    /// The clock that stores go by runs so much too fast.
    HastyStores(f64),
}

impl Setup {
    /// Front ends that differ by less than the margin, if only just.
    pub(crate) fn sound(mode: TimeMode) -> Self {
        let (margin, apart) = (Duration::from_millis(600), Duration::from_millis(599));
        Self { mode, margin, apart, breach: None }
    }

    pub(crate) fn breaking(self, breach: Breach) -> Self {
        Self { breach: Some(breach), ..self }
    }
}
