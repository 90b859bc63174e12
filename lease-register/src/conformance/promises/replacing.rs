//! Replacements: one that expects another version is never applied.

use crate::conformance::Fixture;
use crate::conformance::case::{Case, name, record};
use crate::register::{Register, Replaced, Version};

/// A record is created only if the key is absent.
pub async fn existing_key_is_not_created<F: Fixture>(case: Case<F>) {
    let key = name("register/key");
    case.create(&key).await;

    case.conflicts(&key, None, "the creation of a record that exists").await;
}

/// A replacement of an absent key conflicts, whatever version it expects.
pub async fn absent_key_has_no_version<F: Fixture>(case: Case<F>) {
    let version = case.create(&name("register/other")).await;

    case.conflicts(&name("register/key"), Some(&version), "a version of an absent key").await;
}

/// A replacement that expects an earlier version is never applied.
pub async fn stale_replacement_never_applies<F: Fixture>(case: Case<F>) {
    let key = name("register/key");
    let mut stale = vec![case.create(&key).await];
    for _ in 0..5 {
        let next = case.write(&key, stale.last(), &record()).await;
        for version in &stale {
            case.conflicts(&key, Some(version), "an earlier version").await;
        }
        stale.push(next);
    }
}

/// A request that arrives twice is applied once: the second answer is a conflict.
pub async fn repeated_replacement_conflicts<F: Fixture>(case: Case<F>) {
    let key = name("register/key");
    let first = case.create(&key).await;
    let next = record();
    let second = case.write(&key, Some(&first), &next).await;

    let repeated = case.replace(&key, Some(&first), &next).await;

    assert_eq!(repeated, Replaced::Conflict, "the register should apply a request at most once");
    let found = case.read(&key).await.map(|found| found.version);
    assert_eq!(found, Some(second), "a repeated request should change nothing");
}

/// After a deletion by hand, no earlier version is replaced, also after the record was created again.
pub async fn replacement_of_deleted_record_conflicts<F: Fixture>(case: Case<F>) {
    let key = name("register/key");
    let first = case.create(&key).await;
    if !case.delete(&key).await {
        return;
    }
    assert_eq!(case.read(&key).await, None, "a deleted record should be absent");

    case.conflicts(&key, Some(&first), "the version of a deleted record").await;
    case.create(&key).await;

    case.conflicts(&key, Some(&first), "the version of a record that was deleted before").await;
}

/// Of two replacements that arrive at once through two handles, exactly one is applied.
pub async fn one_of_two_replacements_applies<F: Fixture>(case: Case<F>) {
    for round in 0..ROUNDS {
        let key = name(&format!("register/replaced-{round}"));
        let first = case.create(&key).await;
        case.race(&key, Some(&first)).await;
    }
}

/// Of two creations that arrive at once through two handles, exactly one is applied.
pub async fn one_of_two_creations_applies<F: Fixture>(case: Case<F>) {
    for round in 0..ROUNDS {
        case.race(&name(&format!("register/created-{round}")), None).await;
    }
}

impl<F: Fixture> Case<F> {
    async fn race(&self, key: &lease_core::LeaseKey, expected: Option<&Version>) {
        let (one, other) = (record(), record());

        let answers = tokio::join!(
            self.register.replace(key, expected, &one),
            self.other.replace(key, expected, &other),
        );

        let winner = match answers {
            (Ok(Replaced::Done(version)), Ok(Replaced::Conflict)) => (one, version),
            (Ok(Replaced::Conflict), Ok(Replaced::Done(version))) => (other, version),
            answers => unreachable!(
                "of two replacements that expect one version, one should be applied and the other \
                 should conflict: the register should compare and write in one atomic step, in \
                 the service itself: {answers:?}"
            ),
        };
        let found = self.read(key).await.map(|found| (found.record, found.version));
        assert_eq!(found, Some(winner), "the register should keep the record that was applied");
    }
}

const ROUNDS: usize = 32;
