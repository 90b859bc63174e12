//! Parses the answer of `CLUSTER SLOTS`: <https://redis.io/docs/latest/commands/cluster-slots/>

use std::ops::RangeInclusive;

use redis::Value;

use crate::connection::address::Address;
use crate::scripts::text;

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SlotRange {
    pub(crate) slots: RangeInclusive<u16>,
    pub(crate) master: Address,
}

/// A range has its first slot, its last slot, its master, then its replicas.
pub(crate) fn read_slots(answer: &Value, from: &Address) -> Option<Vec<SlotRange>> {
    items(answer)?.iter().map(|range| read_range(range, from)).collect()
}

fn read_range(range: &Value, from: &Address) -> Option<SlotRange> {
    let [first, last, master, ..] = items(range)? else { return None };
    let [host, port, ..] = items(master)? else { return None };
    // Null if the node does not know the host name by which clients connect to it.
    let host = text(host).unwrap_or_default();
    let master = Address::named(&host, number(port)?, from);
    Some(SlotRange { slots: number(first)?..=number(last)?, master })
}

fn items(value: &Value) -> Option<&[Value]> {
    match value {
        Value::Array(items) => Some(items),
        _ => None,
    }
}

fn number(value: &Value) -> Option<u16> {
    match value {
        Value::Int(number) => u16::try_from(*number).ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(first: i64, last: i64, host: Value, port: i64) -> Value {
        let master = Value::Array(vec![host, Value::Int(port), Value::Nil]);
        Value::Array(vec![Value::Int(first), Value::Int(last), master, Value::Nil])
    }

    #[test]
    fn slots_are_parsed_with_and_without_hosts() {
        let from = Address { host: "a".to_owned(), port: 1 };
        let host = |host: &str| Value::BulkString(host.as_bytes().to_vec());
        let answer = vec![range(0, 9, host("b"), 2), range(10, 16383, Value::Nil, 3)];

        let ranges = read_slots(&Value::Array(answer), &from).unwrap();

        let expected = |slots, host: &str, port| {
            let host = host.to_owned();
            SlotRange { slots, master: Address { host, port } }
        };
        assert_eq!(ranges, [expected(0..=9, "b", 2), expected(10..=16383, "a", 3)]);
    }

    #[test]
    fn unexpected_answer_is_no_slot_range() {
        let from = Address { host: "a".to_owned(), port: 1 };
        let too_large = Value::Array(vec![range(0, 70_000, Value::Nil, 2)]);
        for answer in [Value::Okay, Value::Array(vec![Value::Nil]), too_large] {
            assert_eq!(read_slots(&answer, &from), None);
        }
    }
}
