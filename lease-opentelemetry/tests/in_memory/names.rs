//! The names are those of `lease-metrics`.

use std::collections::BTreeSet;

/// The names in the source `text`.
fn names(text: &str) -> BTreeSet<&str> {
    text.split('"').filter(|word| word.starts_with("lease_")).collect()
}

#[test]
fn names_are_those_of_lease_metrics() {
    let own = [
        include_str!("../../src/instruments.rs"),
        include_str!("../../src/kinesis.rs"),
        include_str!("../../src/export.rs"),
        include_str!("../../src/jobs.rs"),
    ];
    let own: BTreeSet<_> = own.into_iter().flat_map(names).collect();
    let others = names(include_str!("../../../lease-metrics/src/names.rs"));

    assert_eq!(own, others);
}
