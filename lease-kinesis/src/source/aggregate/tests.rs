use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

fn golden(name: &str) -> Vec<u8> {
    let lines = include_str!("golden.txt").lines().filter_map(|line| line.split_once(' '));
    let digits = lines.collect::<BTreeMap<_, _>>()[name];
    (0..digits.len()).step_by(2).map(|at| byte(&digits[at..at + 2])).collect()
}

fn byte(digits: &str) -> u8 {
    u8::from_str_radix(digits, 16).unwrap()
}

fn raw(data: impl Into<Bytes>) -> RawRecord {
    RawRecord {
        sequence: "7".parse().unwrap(),
        partition_key: "of the whole".into(),
        data: data.into(),
        arrived: Some(5),
    }
}

fn split(data: impl Into<Bytes>) -> Vec<Record> {
    split_in(data, HashKeyRange::ALL)
}

fn split_in(data: impl Into<Bytes>, hash_keys: HashKeyRange) -> Vec<Record> {
    deaggregate(raw(data), hash_keys).collect()
}

fn contents(records: &[Record]) -> Vec<(&str, &[u8])> {
    records.iter().map(|record| (&*record.partition_key, &*record.data)).collect()
}

fn numbers(records: &[Record]) -> Vec<String> {
    records.iter().map(|record| record.number.to_string()).collect()
}

/// Adds the magic bytes and the digest, as a producer does.
fn sealed(message: &[u8]) -> Vec<u8> {
    [&MAGIC[..], message, &Md5::digest(message)[..]].concat()
}

fn is_plain_record(data: impl Into<Bytes>) -> bool {
    let raw = raw(data);
    let expected = plain(raw.clone());
    deaggregate(raw, HashKeyRange::ALL).eq([expected])
}

#[test]
fn plain_record_yields_one_record() {
    let records = split("plain");

    assert_eq!(contents(&records), [("of the whole", &b"plain"[..])]);
    assert_eq!(numbers(&records), ["7"]);
    assert_eq!(records[0].arrived, Some(5));
}

#[test]
fn aggregate_of_one_record_is_split() {
    let records = split(golden("one"));

    assert_eq!(contents(&records), [("a", &b"only"[..])]);
    assert_eq!(records[0].number, RecordNumber::new("7".parse().unwrap()));
    assert_eq!(records[0].arrived, Some(5));
}

#[test]
fn records_of_aggregate_are_numbered_from_0() {
    let records = split(golden("two-keys"));

    assert_eq!(contents(&records), [("a", &b"first"[..]), ("b", b"second"), ("a", b"third")]);
    assert_eq!(numbers(&records), ["7", "7+1", "7+2"]);
}

#[test]
fn unusual_keys_and_empty_data_are_preserved() {
    let records = split(golden("odd"));

    let bytes: Vec<u8> = (0..=255).collect();
    let long = "k".repeat(256);
    assert_eq!(contents(&records), [("\u{e9}\u{1f980}", &b""[..]), (&long, &bytes)]);
}

#[test]
fn aggregate_of_300_records_is_complete() {
    let records = split(golden("many"));

    assert_eq!(records.len(), 300);
    for (number, record) in records.iter().enumerate() {
        assert_eq!(*record.partition_key, format!("key-{}", number % 150));
        assert_eq!(record.data, number.to_string());
        assert_eq!(record.number.sub_sequence, number as u64);
    }
}

#[test]
fn split_records_share_the_data() {
    let whole = Bytes::from(golden("two-keys"));

    let records = split(whole.clone());

    for record in records {
        assert!(whole.as_ptr_range().contains(&record.data.as_ptr()));
    }
}

#[test]
fn records_of_another_shard_are_left_out() {
    let (lower, upper) = (half(0), half(1));

    let low = split_in(golden("two-keys"), lower);
    let high = split_in(golden("two-keys"), upper);

    // The MD5 of "a" begins with 0c. The MD5 of "b" begins with 92.
    assert_eq!(contents(&low), [("a", &b"first"[..]), ("a", b"third")]);
    assert_eq!(numbers(&low), ["7", "7+2"]);
    assert_eq!(contents(&high), [("b", &b"second"[..])]);
    assert_eq!(numbers(&high), ["7+1"]);
}

#[test]
fn explicit_hash_key_overrides_partition_key() {
    let low = split_in(golden("explicit"), half(0));
    let high = split_in(golden("explicit"), half(1));

    assert_eq!(contents(&low), [("a", &b"lowest"[..]), ("b", b"lowest too")]);
    assert_eq!(contents(&high), [("a", &b"highest"[..]), ("b", b"own")]);
    assert_eq!(numbers(&high), ["7+1", "7+2"]);
}

#[test]
fn aggregate_of_another_shard_yields_nothing() {
    let none_of_these = HashKeyRange::new(1, 2).unwrap();

    assert_eq!(split_in(golden("explicit"), none_of_these), []);
}

#[test]
fn wrong_digest_makes_plain_record() {
    let mut data = golden("two-keys");
    *data.last_mut().unwrap() ^= 1;

    assert!(is_plain_record(data));
}

#[test]
fn truncated_aggregate_makes_plain_record() {
    let data = golden("two-keys");

    for bytes in 0..data.len() {
        assert!(is_plain_record(data[..bytes].to_vec()), "{bytes} of {}", data.len());
    }
}

#[test]
fn invalid_message_makes_plain_record() {
    assert!(is_plain_record(sealed(b"no message")));
    assert!(is_plain_record(sealed(b"")), "without records");
}

#[test]
fn index_out_of_range_makes_plain_record() {
    let good = aggregate(&[("a", None, b"data")]);
    let mut partition_key = good.clone();
    partition_key.records[0].partition_key = Some(1);
    let mut explicit_hash_key = good.clone();
    explicit_hash_key.records[0].explicit_hash_key = Some(u64::MAX);

    assert!(!is_plain_record(sealed(&good.encode_to_vec())));
    assert!(is_plain_record(sealed(&partition_key.encode_to_vec())));
    assert!(is_plain_record(sealed(&explicit_hash_key.encode_to_vec())));
}

#[test]
fn missing_required_field_makes_plain_record() {
    let good = aggregate(&[("a", Some(3), b"data")]);
    let mut no_key = good.clone();
    no_key.records[0].partition_key = None;
    let mut no_data = good.clone();
    no_data.records[0].data = None;
    let mut no_text = good.clone();
    no_text.partition_keys[0] = Bytes::from_static(&[0xff]);
    let mut no_number = good.clone();
    no_number.explicit_hash_keys[0] = Bytes::from_static(b"three");
    let mut too_large = good;
    // 2¹²⁸
    too_large.explicit_hash_keys[0] =
        Bytes::from_static(b"340282366920938463463374607431768211456");

    for bad in [no_key, no_data, no_text, no_number, too_large] {
        assert!(is_plain_record(sealed(&bad.encode_to_vec())), "{bad:?}");
    }
}

#[test]
fn tags_are_skipped() {
    let record = [0x08, 0, 0x1a, 1, b'x', 0x22, 3, 0x0a, 1, b't'];
    let message = [&[0x0a, 1, b'a', 0x1a, 10][..], &record].concat();

    assert_eq!(contents(&split(sealed(&message))), [("a", &b"x"[..])]);
}

fn half(index: u128) -> HashKeyRange {
    let first = index << 127;
    HashKeyRange::new(first, first + (u128::MAX >> 1)).unwrap()
}

fn aggregate(records: &[(&str, Option<u128>, &[u8])]) -> Aggregate {
    let mut aggregate = Aggregate::default();
    for (partition_key, explicit_hash_key, data) in records {
        let hash_key = explicit_hash_key.map(|hash_key| hash_key.to_string());
        let hash_keys = &mut aggregate.explicit_hash_keys;
        aggregate.records.push(UserRecord {
            partition_key: Some(index(&mut aggregate.partition_keys, partition_key)),
            explicit_hash_key: hash_key.map(|hash_key| index(hash_keys, &hash_key)),
            data: Some(Bytes::copy_from_slice(data)),
        });
    }
    aggregate
}

fn index(table: &mut Vec<Bytes>, text: &str) -> u64 {
    let at = table.iter().position(|entry| entry == text.as_bytes()).unwrap_or_else(|| {
        table.push(Bytes::copy_from_slice(text.as_bytes()));
        table.len() - 1
    });
    at as u64
}

type Put = (String, Option<u128>, Vec<u8>);

fn puts() -> impl Strategy<Value = Vec<Put>> {
    let put = ("[ab\u{e9}]{1,2}", any::<Option<u128>>(), prop::collection::vec(any::<u8>(), 0..20));
    prop::collection::vec(put, 1..30)
}

proptest! {
    #[test]
    fn aggregated_records_are_split_in_order(
        puts in puts(),
        ends in any::<[u128; 2]>(),
    ) {
        let hash_keys = HashKeyRange::new(ends[0].min(ends[1]), ends[0].max(ends[1])).unwrap();
        let parts: Vec<_> =
            puts.iter().map(|(key, hash_key, data)| (&**key, *hash_key, &**data)).collect();
        let own = |(_, (key, hash_key, _)): &(usize, &Put)| {
            hash_keys.contains(hash_key.unwrap_or_else(|| hash_key_of(key)))
        };

        let records = split_in(sealed(&aggregate(&parts).encode_to_vec()), hash_keys);

        let expected = puts.iter().enumerate().filter(own);
        let expected: Vec<_> =
            expected.map(|(at, (key, _, data))| (at as u64, &**key, &**data)).collect();
        let sub_sequences = records.iter().map(|record| record.number.sub_sequence);
        let contents: Vec<_> =
            sub_sequences.zip(contents(&records)).map(|(at, (key, data))| (at, key, data)).collect();
        prop_assert_eq!(contents, expected);
    }

    #[test]
    fn any_bytes_yield_records(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
        prop_assert!(is_plain_record(bytes.clone()));
        // If the random bytes are a valid aggregate, any records are a valid result.
        let records = split(sealed(&bytes));
        prop_assert!(!records.is_empty());
    }

    #[test]
    fn aggregate_with_changed_byte_yields_records(at in any::<prop::sample::Index>(), to: u8) {
        let mut data = golden("explicit");
        let message = MAGIC.len()..data.len() - DIGEST_BYTES;
        data[message.start + at.index(message.len())] = to;

        prop_assert!(!split(sealed(&data[message])).is_empty());
    }
}
