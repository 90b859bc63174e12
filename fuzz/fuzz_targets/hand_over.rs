#![no_main]

use lease_core::HandOver;

libfuzzer_sys::fuzz_target!(|text: &str| {
    if let Ok(handed) = text.parse::<HandOver>() {
        assert_eq!(handed.to_string().parse(), Ok(handed));
    }
});
