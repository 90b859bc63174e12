//! The behaviour of DynamoDB in a trial, and the options of the store.

use std::time::Duration;

use lease_core::conformance::Call;
use lease_dynamodb::TimeMode;

/// DynamoDB behaves as documented, except for the `breach`.
#[derive(Debug, Clone)]
pub(crate) struct Setup {
    pub(crate) mode: TimeMode,
    pub(crate) margin: Duration,
    /// The actual maximum difference between the clocks of front ends.
    pub(crate) apart: Duration,
    pub(crate) breach: Option<Breach>,
}

/// A promise that DynamoDB or the machine of a contender breaks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Breach {
    /// Consistent reads return old items.
    StaleReads,
    /// As `StaleReads`, but refusals contain the current item, as on AWS. Without the item, a read
    /// decides whether a claim under a session is refused for ever.
    StaleHints,
    /// A condition is checked some time before its write.
    ChecksApart,
    /// The given parts of conditions count as true, in the writes of the given call.
    Assumes(Call, &'static [&'static str]),
    /// As `Assumes`, for claims under a session.
    AssumesOfClaim(&'static [&'static str]),
    LosesItem,
    Restores,
    /// Half of all contenders use another Region's replica of a global table.
    TwoRegions,
    /// The clock of the stores runs faster by the given factor.
    HastyStores(f64),
}

impl Setup {
    /// No breach. The clocks of front ends differ by almost the margin.
    pub(crate) fn sound(mode: TimeMode) -> Self {
        let (margin, apart) = (Duration::from_millis(600), Duration::from_millis(599));
        Self { mode, margin, apart, breach: None }
    }

    pub(crate) fn breaking(self, breach: Breach) -> Self {
        Self { breach: Some(breach), ..self }
    }
}
