//! The text of a lock on a node, as the head of `common.lua` describes it.

use std::time::Duration;

use lease_core::store::{Beat, Nonce};
use lease_core::{FencingToken, GrantId, Holder, Lessee};

/// The text of a lock that a claim holds, without the former bound: the node adds that.
pub(crate) fn text_of(nonce: Nonce, token: FencingToken, beat: Beat, lessee: &Lessee) -> String {
    format!("{}h-{token} {} {}", nonce.get().simple(), beat.get(), lessee.as_str())
}

/// The same for a restored grant. A client that marked the lost lock still waits.
pub(crate) fn restored_text(
    nonce: Nonce,
    token: FencingToken,
    beat: Beat,
    lessee: &Lessee,
) -> String {
    format!("{}hw{token} {} {}", nonce.get().simple(), beat.get(), lessee.as_str())
}

/// The beginning of the text of a held lock for which no client waits. The space ends the token.
pub(crate) fn beginning_of(nonce: Nonce, token: FencingToken) -> String {
    format!("{}h-{token} ", nonce.get().simple())
}

/// The nonce of a grant in texts and in the arguments of scripts: 32 characters.
pub(crate) fn nonce_text(nonce: Nonce) -> String {
    nonce.get().simple().to_string()
}

/// The holder of a key on one node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HolderOnNode {
    /// The holder, without the name of its grant if the key is only reserved.
    pub(crate) holder: Holder,
    pub(crate) nonce: String,
}

impl HolderOnNode {
    /// Returns `None` if the text is not that of a lock: another program wrote it.
    pub(crate) fn parse(text: &[u8], expires_in: Duration) -> Option<Self> {
        let text = std::str::from_utf8(text).ok()?;
        let (nonce, rest) = text.split_at_checked(32)?;
        let (state, rest) = rest.split_at_checked(1)?;
        let (_mark, rest) = rest.split_at_checked(1)?;
        let (rest, former) = rest.rsplit_once(' ')?;
        let _former: u64 = former.parse().ok()?;
        let mut parts = rest.splitn(3, ' ');
        let token = FencingToken::new(parts.next()?.parse().ok()?).ok()?;
        let _beat: u64 = parts.next()?.parse().ok()?;
        let lessee = Lessee::new(parts.next()?).ok()?;
        let holder = Holder::new(lessee, Some(expires_in)).with_token(token);
        let holder = match state {
            "h" | "x" => holder.with_grant(GrantId::new(nonce)),
            "r" => holder,
            _ => return None,
        };
        Some(Self { holder, nonce: nonce.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_a_vote_is_read_back() {
        let lessee = Lessee::new("worker 7 of shop").unwrap();
        let (nonce, token) = (Nonce::random(), FencingToken::new(17).unwrap());
        let text = text_of(nonce, token, Beat::GRANTED, &lessee) + " 9";

        let read = HolderOnNode::parse(text.as_bytes(), Duration::from_secs(1)).unwrap();

        let holder = Holder::new(lessee, Some(Duration::from_secs(1)));
        let holder = holder.with_token(token).with_grant(nonce);
        assert_eq!(read, HolderOnNode { holder, nonce: nonce_text(nonce) });
    }

    #[test]
    fn reserved_key_has_no_grant() {
        let text = format!("{}r-17 0 a 0", nonce_text(Nonce::random()));

        let read = HolderOnNode::parse(text.as_bytes(), Duration::ZERO).unwrap();

        assert_eq!(read.holder.grant, None);
    }

    #[test]
    fn foreign_text_is_refused() {
        for text in [
            "",
            "17",
            "0123456789abcdef0123456789abcdefh",
            "0123456789abcdef0123456789abcdefz-1 0 a",
        ] {
            assert_eq!(HolderOnNode::parse(text.as_bytes(), Duration::ZERO), None, "{text:?}");
        }
    }
}
