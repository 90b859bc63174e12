//! Versions: they never come back, and growing versions grow.

use std::collections::HashSet;

use lease_core::LeaseKey;

use crate::conformance::Fixture;
use crate::conformance::case::{Case, name, record};
use crate::record::Record;
use crate::register::{Register, Version, Versions};

/// No version of a key comes back, not even if the content of a record does, except for its mark.
pub async fn versions_never_come_back<F: Fixture>(case: Case<F>) {
    let key = name("register/key");
    let mut seen = HashSet::new();
    let mut last = None;
    for _ in 0..40 {
        let version = case.write(&key, last.as_ref(), &record()).await;
        assert!(
            seen.insert(version.clone()),
            "version {version:?} came back: each write should get a new version. If the version is \
             a hash of the content, the content should have the mark"
        );
        last = Some(version);
        if seen.len() % 10 == 0 && case.delete(&key).await {
            last = None;
        }
    }
}

/// The version in the answer to a write is the version that a read returns.
pub async fn version_of_write_is_read<F: Fixture>(case: Case<F>) {
    let key = name("register/key");
    let mut version = case.create(&key).await;
    for _ in 0..5 {
        let found = case.read(&key).await.map(|found| found.version);
        assert_eq!(
            found.as_ref(),
            Some(&version),
            "a read should return the version of the write's answer"
        );
        version = case.write(&key, Some(&version), &record()).await;
    }
}

/// If versions grow, each write has a larger version.
pub async fn growing_versions_grow<F: Fixture>(case: Case<F>) {
    let key = name("register/key");
    let mut last = None;
    for _ in 0..20 {
        last = Some(case.grown(&key, last.as_ref(), last.as_ref()).await);
    }
}

/// If versions grow, they also grow after the record was deleted by hand.
pub async fn growing_versions_grow_over_deletion<F: Fixture>(case: Case<F>) {
    let key = name("register/key");
    let mut last: Option<Version> = None;
    for _ in 0..5 {
        let created = case.grown(&key, None, last.as_ref()).await;
        last = Some(case.grown(&key, Some(&created), Some(&created)).await);
        if !case.delete(&key).await {
            return;
        }
    }
}

impl<F: Fixture> Case<F> {
    /// Writes a record. If versions grow, fails unless its version is larger than `last`.
    async fn grown(
        &self,
        key: &LeaseKey,
        expected: Option<&Version>,
        last: Option<&Version>,
    ) -> Version {
        let next: Record = record();
        let version = self.write(key, expected, &next).await;
        if self.register.versions() == Versions::Growing {
            assert!(
                version.number() > last.map_or(Some(0), Version::number),
                "the version after {last:?} was {version:?}: growing versions should be numbers \
                 that grow with each write of a key. If they do not, the register should say \
                 Opaque"
            );
        }
        version
    }
}
