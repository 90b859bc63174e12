//! The text of a lock on a node, as the head of `common.lua` describes it.

use std::time::Duration;

use lease_core::store::{Beat, Nonce};
use lease_core::{FencingToken, GrantId, Holder, Lessee};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mark {
    Unwatched,
    Watched,
}

pub(crate) fn text_of(
    nonce: Nonce,
    token: FencingToken,
    beat: Beat,
    mark: Mark,
    lessee: &Lessee,
) -> String {
    format!("{}{} {}", head_of(mark, nonce, token), beat.get(), lessee.as_str())
}

/// The counter and the bound equal the token, and no client waits for the key.
pub(crate) fn beginning_of(nonce: Nonce, token: FencingToken) -> String {
    head_of(Mark::Unwatched, nonce, token)
}

fn head_of(mark: Mark, nonce: Nonce, token: FencingToken) -> String {
    let mark = match mark {
        Mark::Unwatched => '-',
        Mark::Watched => 'w',
    };
    let (nonce, token) = (nonce.get().simple(), digits(token.get()));
    format!("h{mark}{nonce}{token}{token}{token}")
}

/// Scripts compare numbers as texts. No token has more than 16 digits.
pub(crate) fn digits(number: u64) -> String {
    format!("{number:016}")
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HolderOnNode {
    pub(crate) holder: Holder,
    pub(crate) nonce: String,
}

impl HolderOnNode {
    /// Returns `None` if another program wrote the text.
    pub(crate) fn parse(text: &[u8], expires_in: Duration) -> Option<Self> {
        let text = std::str::from_utf8(text).ok()?;
        let (state, rest) = text.split_at_checked(1)?;
        let (_mark, rest) = rest.split_at_checked(1)?;
        let (nonce, rest) = rest.split_at_checked(NONCE)?;
        let (token, rest) = rest.split_at_checked(NUMBER)?;
        let (_counter_and_bound, rest) = rest.split_at_checked(2 * NUMBER)?;
        let end = rest.len().checked_sub(2 * NUMBER)?;
        let (rest, _former_and_end) = rest.split_at_checked(end)?;
        let token = FencingToken::new(token.parse().ok()?).ok()?;
        let (beat, lessee) = rest.split_once(' ')?;
        let _beat: u64 = beat.parse().ok()?;
        let lessee = Lessee::new(lessee).ok()?;
        let holder = Holder::new(lessee, Some(expires_in)).with_token(token);
        let holder = match state {
            "h" | "x" => holder.with_grant(GrantId::new(nonce)),
            "r" => holder,
            _ => return None,
        };
        Some(Self { holder, nonce: nonce.to_owned() })
    }
}

const NONCE: usize = 32;

const NUMBER: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scripts::nonce_text;

    #[test]
    fn text_of_a_vote_is_read_back() {
        let lessee = Lessee::new("worker 7 of shop").unwrap();
        let (nonce, token) = (Nonce::random(), FencingToken::new(17).unwrap());
        let text = text_of(nonce, token, Beat::GRANTED, Mark::Unwatched, &lessee)
            + &digits(9)
            + &digits(99);

        let read = HolderOnNode::parse(text.as_bytes(), Duration::from_secs(1)).unwrap();

        let holder = Holder::new(lessee, Some(Duration::from_secs(1)));
        let holder = holder.with_token(token).with_grant(nonce);
        assert_eq!(read, HolderOnNode { holder, nonce: nonce_text(nonce) });
    }

    #[test]
    fn reserved_key_has_no_grant() {
        let a = Lessee::new("a").unwrap();
        let held = text_of(
            Nonce::random(),
            FencingToken::new(17).unwrap(),
            Beat::GRANTED,
            Mark::Unwatched,
            &a,
        );
        let text = format!("r{}{}", &held[1..], "0".repeat(32));

        let read = HolderOnNode::parse(text.as_bytes(), Duration::ZERO).unwrap();

        assert_eq!(read.holder.grant, None);
    }

    #[test]
    fn foreign_text_is_refused() {
        for text in [
            "",
            "17",
            "1767225600000000",
            "0123456789abcdef0123456789abcdefh-1767225600000000 0 an earlier version 1767225500000000",
        ] {
            assert_eq!(HolderOnNode::parse(text.as_bytes(), Duration::ZERO), None, "{text:?}");
        }
    }
}
