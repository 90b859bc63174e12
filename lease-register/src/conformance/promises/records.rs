//! Records: each key has its own, and it is read back as it was written.

use lease_core::{LeaseKey, Value};

use crate::conformance::Fixture;
use crate::conformance::case::{Case, full_records, name, record};
use crate::record::Record;

/// A key that was never written has no record.
pub async fn absent_key_is_read_as_absent<F: Fixture>(case: Case<F>) {
    let found = case.read(&name("register/absent")).await;

    assert_eq!(found, None, "the register should read a key that was never written as absent");
}

/// A record is read back with all its fields.
pub async fn record_is_read_back_with_all_fields<F: Fixture>(case: Case<F>) {
    for (number, record) in full_records().into_iter().enumerate() {
        let key = name(&format!("register/full/{number}"));
        case.write(&key, None, &record).await;

        let found = case.read(&key).await.map(|found| found.record);

        assert_eq!(found, Some(record), "the register should keep each field of a record");
    }
}

/// A record with attributes of 50,000 bytes is read back.
pub async fn large_record_is_read_back<F: Fixture>(case: Case<F>) {
    let key = name("register/large");
    let mut record = record();
    record.attributes.insert("note".to_owned(), Value::from("x".repeat(50_000)));
    case.write(&key, None, &record).await;

    let found = case.read(&key).await.map(|found| found.record);

    assert!(found == Some(record), "the register should keep a record of 50,000 bytes");
}

/// Each valid key has its own record, and a list returns the key as it was written.
pub async fn every_valid_key_has_its_own_record<F: Fixture>(case: Case<F>) {
    let keys: Vec<LeaseKey> = odd_keys().iter().map(|key| name(key)).collect();
    let mut written: Vec<(LeaseKey, Record)> = Vec::new();
    for key in keys {
        let record = record();
        case.write(&key, None, &record).await;
        written.push((key, record));
    }

    for (key, record) in written {
        let found = case.read_by_other(&key).await.map(|found| found.record);
        assert!(found == Some(record), "the register should keep {key:?} apart from other keys");
        let listed = case.listed(key.as_str()).await;
        assert!(
            listed.iter().any(|(listed, _)| *listed == key),
            "the register should list {key:?} as it was written"
        );
    }
}

/// Keys that a service may confuse, shorten or refuse.
fn odd_keys() -> Vec<String> {
    let long = "k".repeat(LeaseKey::MAX_BYTES);
    let almost = format!("{}l", "k".repeat(LeaseKey::MAX_BYTES - 1));
    let odd = [
        "a", "A", "a/b", "a/b/c", "a//b", "/a", "a/", ".", "..", "a.b", "a-b", "a_b", "a b", " a",
        "a ", "ä", "日本", "a%2Fb", "a?b#c", "a\"b", "a\\b", "a*b", "a:b", "a+b", "-", "0",
    ];
    odd.iter().map(|key| (*key).to_owned()).chain([long, almost]).collect()
}
