//! The hash slots of a Cluster.

/// The store uses the key as the hash tag.
pub(crate) fn slot_of(key: &str) -> u16 {
    crc16::State::<crc16::XMODEM>::calculate(key.as_bytes()) % SLOTS
}

pub(crate) fn keys_in(slot: u16, count: usize) -> Vec<String> {
    let names = (0_u64..).map(|number| format!("probe-{number}"));
    names.filter(|name| slot_of(name) == slot).take(count).collect()
}

pub(crate) const SLOTS: u16 = 16_384;

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the Redis Cluster specification.
    #[test]
    fn slot_is_the_checksum_of_the_key() {
        assert_eq!(slot_of("123456789"), 0x31C3);
    }

    #[test]
    fn keys_share_the_slot() {
        let keys = keys_in(1000, 3);

        assert_eq!(keys.iter().map(|key| slot_of(key)).collect::<Vec<_>>(), [1000; 3]);
    }
}
