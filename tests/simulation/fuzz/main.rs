//! Feeds each parser of external data a stored corpus, and thousands of random mutations of it.
//!
//! The test shrinks and prints an input that fails, which belongs into `corpus/` as a file.
//! `fuzz/README.md` describes longer runs with a coverage-guided fuzzer.

#![expect(clippy::unwrap_used, reason = "a missing corpus fails the test")]

use std::path::Path;

use lease_core::{HandOver, LeaseKey};
use lease_multilang::protocol::{FromChild, Generation, ToChild};
use proptest::prelude::*;

#[test]
fn parsed_hand_over_survives_its_text_form() {
    feed("hand_over", |bytes| {
        let Ok(text) = std::str::from_utf8(bytes) else { return };
        drop(text.parse::<LeaseKey>());
        if let Ok(handed) = text.parse::<HandOver>() {
            assert_eq!(handed.to_string().parse(), Ok(handed));
        }
    });
}

#[test]
fn redis_reply_parser_never_panics() {
    feed("redis_reply", lease_redis::fuzzing::reply);
}

#[test]
fn redis_url_parser_never_panics() {
    feed("redis_url", lease_redis::fuzzing::url);
}

#[test]
fn dynamodb_item_parser_never_panics() {
    feed("dynamodb_item", lease_dynamodb::fuzzing::item);
}

#[test]
fn parsed_multilang_message_survives_its_text_form() {
    feed("multilang", |bytes| {
        let Ok(line) = std::str::from_utf8(bytes) else { return };
        for generation in [Generation::G0, Generation::G1, Generation::G2] {
            if let Ok(message) = FromChild::decode(line, generation) {
                let again = FromChild::decode(&message.encode(generation), generation);
                assert_eq!(again, Ok(message));
            }
        }
        if let Ok(message) = ToChild::decode(line) {
            // An old generation omits some fields. So only the second encoding must preserve the message.
            let first = ToChild::decode(&message.encode(Generation::G0)).unwrap();
            assert_eq!(ToChild::decode(&first.encode(Generation::G0)), Ok(first));
            let later = ToChild::decode(&message.encode(Generation::G2)).unwrap();
            assert_eq!(ToChild::decode(&later.encode(Generation::G2)), Ok(later));
        }
    });
}

fn feed(corpus: &str, read: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(corpus);
    let mut files: Vec<_> = folder.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let kept: Vec<_> = files.iter().map(|file| std::fs::read(file).unwrap()).collect();
    assert!(kept.len() >= 5, "the corpus is too small");
    for bytes in &kept {
        read(bytes);
    }

    let mut config = ProptestConfig::with_cases(4000);
    // Failing inputs belong in the corpus. Seeds would depend on proptest's version.
    config.failure_persistence = None;
    proptest!(config, |(bytes in changed(kept))| read(&bytes));
}

/// Replaces, inserts or removes bytes, or appends part of another input. One case in five consists
/// of random bytes.
fn changed(kept: Vec<Vec<u8>>) -> impl Strategy<Value = Vec<u8>> {
    let one = prop::sample::select(kept.clone());
    let other = prop::sample::select(kept);
    let edit = (any::<prop::sample::Index>(), any::<Option<u8>>(), any::<bool>());
    let edited = (one, other, prop::collection::vec(edit, 0..6), any::<prop::sample::Index>());
    let edited = edited.prop_map(|(mut bytes, other, edits, splice)| {
        for (place, byte, insert) in edits {
            let place = place.index(bytes.len() + 1);
            match byte {
                Some(byte) if insert => bytes.insert(place, byte),
                Some(byte) => bytes.get_mut(place).into_iter().for_each(|old| *old = byte),
                None if place < bytes.len() => drop(bytes.remove(place)),
                None => bytes.extend(other.iter().skip(splice.index(other.len() + 1))),
            }
        }
        bytes
    });
    prop_oneof![4 => edited, 1 => prop::collection::vec(any::<u8>(), 0..200)]
}
