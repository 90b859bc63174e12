#![no_main]

use lease_multilang::protocol::{FromChild, Generation, ToChild};

libfuzzer_sys::fuzz_target!(|line: &str| {
    for generation in [Generation::G0, Generation::G1, Generation::G2] {
        if let Ok(message) = FromChild::decode(line, generation) {
            let again = FromChild::decode(&message.encode(generation), generation);
            assert_eq!(again, Ok(message));
        }
    }
    if let Ok(message) = ToChild::decode(line) {
        let later = ToChild::decode(&message.encode(Generation::G2)).unwrap();
        assert_eq!(ToChild::decode(&later.encode(Generation::G2)), Ok(later));
    }
});
