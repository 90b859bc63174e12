//! The text of a lock, as the head of `common.lua` describes it.

use std::fmt;

use lease_core::store::{Claim, Grant, Nonce, RequestNumber};
use lease_core::{FencingToken, GrantId, Holder, Lessee};

#[derive(Debug)]
pub(crate) struct ClaimedText<'a> {
    nonce: Nonce,
    request: u64,
    lessee: &'a Lessee,
}

impl<'a> ClaimedText<'a> {
    pub(crate) fn of_claim(claim: &'a Claim) -> Self {
        Self { nonce: claim.nonce, request: claim.request.get(), lessee: &claim.lessee }
    }

    /// For the grant of a record, no lock has this text.
    pub(crate) fn of_grant(grant: &'a Grant) -> Self {
        let request = grant.request.map_or(0, RequestNumber::get);
        Self { nonce: grant.nonce, request, lessee: &grant.lessee }
    }
}

impl fmt::Display for ClaimedText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { nonce, request, lessee } = self;
        write!(f, "{}h-{request} 0 0 {}", nonce.get().simple(), lessee.as_str())
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LockText {
    pub(crate) nonce: String,
    pub(crate) state: LockState,
    pub(crate) request: RequestNumber,
    /// `None` until a heartbeat has written the token.
    pub(crate) token: Option<FencingToken>,
    pub(crate) lessee: Lessee,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LockState {
    Held,
    Evicted,
    Reserved,
}

impl LockText {
    /// Returns `None` if another program wrote the text.
    pub(crate) fn parse(text: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(text).ok()?;
        let (nonce, rest) = text.split_at_checked(32)?;
        let (state, rest) = rest.split_at_checked(1)?;
        let (_mark, rest) = rest.split_at_checked(1)?;
        let mut parts = rest.splitn(4, ' ');
        let request = RequestNumber::new(parts.next()?.parse().ok()?);
        let _beat: u64 = parts.next()?.parse().ok()?;
        let token = token(parts.next()?).ok()?;
        let lessee = Lessee::new(parts.next()?).ok()?;
        let state = match state {
            "h" => LockState::Held,
            "x" => LockState::Evicted,
            "r" => LockState::Reserved,
            _ => return None,
        };
        Some(Self { nonce: nonce.to_owned(), state, request, token, lessee })
    }

    /// The holder has no time left, because the text does not contain it.
    pub(crate) fn into_holder(self) -> Holder {
        let mut holder = Holder::new(self.lessee, None);
        holder.token = self.token;
        if self.state != LockState::Reserved {
            holder.grant = Some(GrantId::new(self.nonce));
        }
        holder
    }
}

/// The number 0 means that the token is unknown.
pub(crate) fn token(text: &str) -> Result<Option<FencingToken>, NoToken> {
    let number: u64 = text.parse().map_err(|_| NoToken)?;
    if number == 0 {
        return Ok(None);
    }
    FencingToken::new(number).map(Some).map_err(|_| NoToken)
}

#[derive(Debug)]
pub(crate) struct NoToken;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use lease_core::store::Nonce;

    use super::*;
    use crate::scripts::nonce_text;

    #[test]
    fn text_of_a_claim_is_read_back() {
        let lessee = Lessee::new("worker 7 of shop").unwrap();
        let nonce = Nonce::random();
        let key = "payroll".parse().unwrap();
        let claim = Claim::new(key, lessee.clone(), nonce, Duration::from_secs(1)).repeated();

        let read = LockText::parse(ClaimedText::of_claim(&claim).to_string().as_bytes()).unwrap();

        let (nonce, request) = (nonce_text(nonce), RequestNumber::new(2));
        let state = LockState::Held;
        assert_eq!(read, LockText { nonce, state, request, token: None, lessee });
    }

    #[test]
    fn foreign_text_is_refused() {
        for text in [
            "",
            "17",
            "0123456789abcdef0123456789abcdefh",
            "0123456789abcdef0123456789abcdefz-1 0 0 a",
        ] {
            assert_eq!(LockText::parse(text.as_bytes()), None, "{text:?}");
        }
    }
}
