//! Which master has which slot, as a node of a Cluster answers.

use std::ops::RangeInclusive;

use redis::Value;

use crate::address::Address;
use crate::script::text;

/// Slots in a row that one master has.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) slots: RangeInclusive<u16>,
    pub(crate) master: Address,
}

/// Reads the answer to `CLUSTER SLOTS` of the node at `from`: for each range its first slot, its
/// last, its master's host, port and further details; then its replicas.
pub(crate) fn read_slots(answer: &Value, from: &Address) -> Option<Vec<Range>> {
    items(answer)?.iter().map(|range| read_range(range, from)).collect()
}

fn read_range(range: &Value, from: &Address) -> Option<Range> {
    let [first, last, master, ..] = items(range)? else { return None };
    let [host, port, ..] = items(master)? else { return None };
    // Null where the node does not know by which of its names it is reached.
    let host = text(host).unwrap_or_default();
    let master = Address::named(&host, number(port)?, from);
    Some(Range { slots: number(first)?..=number(last)?, master })
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
    fn slots_are_read_with_and_without_hosts() {
        let from = Address { host: "a".to_owned(), port: 1 };
        let host = |host: &str| Value::BulkString(host.as_bytes().to_vec());
        let answer = vec![range(0, 9, host("b"), 2), range(10, 16383, Value::Nil, 3)];

        let ranges = read_slots(&Value::Array(answer), &from).unwrap();

        let expected = |slots, host: &str, port| {
            let host = host.to_owned();
            Range { slots, master: Address { host, port } }
        };
        assert_eq!(ranges, [expected(0..=9, "b", 2), expected(10..=16383, "a", 3)]);
    }

    #[test]
    fn other_answers_are_not_taken_for_slots() {
        let from = Address { host: "a".to_owned(), port: 1 };
        let too_large = Value::Array(vec![range(0, 70_000, Value::Nil, 2)]);
        for answer in [Value::Okay, Value::Array(vec![Value::Nil]), too_large] {
            assert_eq!(read_slots(&answer, &from), None);
        }
    }
}
