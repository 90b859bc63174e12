//! The record of one key: its grant, its last release, its attributes.

use std::time::Duration;

use lease_core::store::{
    Beat, Claim, Grant, Heartbeat, LastGrant, LeaseRecord, Moment, Nonce, Obtained, Parent,
    RequestNumber, Reserved,
};
use lease_core::{
    Attributes, FencingToken, GrantId, Holder, LeaseKey, Lessee, LossCause, StoreError,
    StoreErrorKind,
};

#[derive(Debug, Default)]
pub(crate) struct Record {
    pub(crate) token: Option<FencingToken>,
    pub(crate) grant: Option<CurrentGrant>,
    released: Option<ReleasedGrant>,
    reservation: Option<Reservation>,
    pub(crate) attributes: Attributes,
    pub(crate) lifetime: Lifetime,
}

/// The grant may have expired.
#[derive(Debug)]
pub(crate) struct CurrentGrant {
    pub(crate) lessee: Lessee,
    pub(crate) nonce: Nonce,
    request: RequestNumber,
    pub(crate) ttl: Duration,
    pub(crate) expires: Moment,
    pub(crate) beat: Beat,
    pub(crate) evicted: bool,
    /// The session of the grant, if any. Such a grant does not expire.
    pub(crate) parent: Option<Parent>,
}

/// The store does not grant the nonce of the last released grant again.
#[derive(Debug)]
struct ReleasedGrant {
    lessee: Lessee,
    nonce: Nonce,
    ttl: Duration,
    at: Moment,
}

/// Only the lessee `only` may obtain the key, or no lessee if `only` is `None`.
#[derive(Debug)]
struct Reservation {
    only: Option<Lessee>,
    until: Moment,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lifetime {
    #[default]
    Temporary,
    /// The record was created or has attributes. The store keeps the record until its deletion.
    Lasting,
    /// The store still keeps the token and the nonce of the deleted record for some time.
    Deleted,
}

#[derive(Debug)]
pub(crate) enum Decision {
    Free,
    AlreadyGranted(RequestNumber, FencingToken),
    Held(Holder),
}

impl Record {
    pub(crate) fn decide(&self, claim: &Claim, now: Moment) -> Decision {
        let Some(token) = self.token else {
            return Decision::Free;
        };
        match &self.grant {
            Some(current) if current.nonce == claim.nonce && current.is_valid(now) => {
                return Decision::AlreadyGranted(current.request, token);
            }
            // If the nonces are equal, the claim is a duplicate, and its grant has expired.
            Some(current) if current.nonce == claim.nonce || current.is_valid(now) => {
                return Decision::Held(current.holder(token, now));
            }
            _ => (),
        }
        if let Some(released) = &self.released
            && released.nonce == claim.nonce
        {
            let holder = Holder::new(released.lessee.clone(), Some(Duration::ZERO));
            return Decision::Held(holder.with_token(token));
        }
        match &self.reservation {
            Some(reserved)
                if reserved.until > now && reserved.only.as_ref() != Some(&claim.lessee) =>
            {
                let former = self.released.as_ref().map(|released| &released.lessee);
                let lessee = reserved.only.as_ref().or(former).unwrap_or(&claim.lessee);
                let left = reserved.until.since(now);
                Decision::Held(Holder::new(lessee.clone(), Some(left)).with_token(token))
            }
            _ => Decision::Free,
        }
    }

    pub(crate) fn has_ended(&self, claim: &Claim, now: Moment) -> bool {
        let expired =
            |current: &CurrentGrant| current.nonce == claim.nonce && !current.is_valid(now);
        self.grant.as_ref().is_some_and(expired)
            || self.released.as_ref().is_some_and(|released| released.nonce == claim.nonce)
    }

    /// A first token is larger than `floor`.
    pub(crate) fn grant_above(
        &mut self,
        floor: u64,
        claim: &Claim,
        now: Moment,
    ) -> Result<Obtained, StoreError> {
        let previous = self.token.map_or(floor, FencingToken::get);
        let token = FencingToken::new(previous + 1)
            .map_err(|error| StoreError::new(StoreErrorKind::Corrupt, error))?;
        self.grant(claim, token, now);
        Ok(Obtained::Granted(claim.granted(token), self.attributes.clone()))
    }

    fn grant(&mut self, claim: &Claim, token: FencingToken, now: Moment) {
        self.token = Some(token);
        self.reservation = None;
        if self.lifetime == Lifetime::Deleted {
            self.lifetime = Lifetime::Temporary;
        }
        if !claim.attributes.is_empty() {
            self.attributes.extend(claim.attributes.clone());
            self.lifetime = Lifetime::Lasting;
        }
        self.grant = Some(CurrentGrant {
            lessee: claim.lessee.clone(),
            nonce: claim.nonce,
            request: claim.request,
            ttl: claim.ttl,
            expires: now + claim.ttl,
            beat: Beat::GRANTED,
            evicted: false,
            parent: claim.parent.clone(),
        });
    }

    pub(crate) fn heartbeat(&mut self, grant: &Grant, beat: Beat, now: Moment) -> Heartbeat {
        let cause = self.why_lost(grant);
        match &mut self.grant {
            Some(current) if current.is_of(grant, self.token) => {
                if !current.is_valid(now) {
                    Heartbeat::Lost(LossCause::Expired)
                } else if current.evicted {
                    Heartbeat::Lost(LossCause::Revoked)
                } else if beat <= current.beat {
                    Heartbeat::Overtaken
                } else {
                    current.beat = beat;
                    current.ttl = grant.ttl;
                    current.expires = now + grant.ttl;
                    // Under a session, only a hand-over sends a heartbeat. From now on, the lease has a
                    // ttl.
                    current.parent = None;
                    Heartbeat::Extended
                }
            }
            _ => Heartbeat::Lost(cause),
        }
    }

    pub(crate) fn current_grant(
        &mut self,
        grant: &Grant,
        now: Moment,
    ) -> Result<&mut CurrentGrant, LossCause> {
        let cause = self.why_lost(grant);
        match &mut self.grant {
            Some(current) if current.is_of(grant, self.token) => {
                if current.is_valid(now) {
                    Ok(current)
                } else {
                    Err(LossCause::Expired)
                }
            }
            _ => Err(cause),
        }
    }

    pub(crate) fn release(&mut self, grant: &Grant, now: Moment) -> bool {
        let token = self.token;
        let Some(current) = self.grant.take_if(|current| current.is_of(grant, token)) else {
            return false;
        };
        let was_current = current.is_valid(now);
        let CurrentGrant { lessee, nonce, ttl, .. } = current;
        self.released = Some(ReleasedGrant { lessee, nonce, ttl, at: now });
        was_current
    }

    pub(crate) fn reserve(&mut self, only: Option<Lessee>, until: Moment) {
        self.reservation = Some(Reservation { only, until });
    }

    /// Evicts the holder, if `grant` names the holder's grant. Returns whether the holder was evicted.
    pub(crate) fn evict(&mut self, grant: &GrantId, now: Moment) -> bool {
        match &mut self.grant {
            Some(current) if current.is_valid(now) && self.token == grant.token() => {
                current.evicted = true;
                true
            }
            _ => false,
        }
    }

    pub(crate) fn end_expired(&mut self, now: Moment) -> bool {
        let Some(CurrentGrant { lessee, nonce, ttl, .. }) =
            self.grant.take_if(|current| !current.is_valid(now))
        else {
            return false;
        };
        self.released = Some(ReleasedGrant { lessee, nonce, ttl, at: now });
        true
    }

    pub(crate) fn is_child_of(&self, session: Option<&Parent>) -> bool {
        let parent = self.grant.as_ref().and_then(|current| current.parent.as_ref());
        parent.is_some() && parent == session
    }

    /// The holder or, if the key is free, the last holder, for a claim that names an old token.
    pub(crate) fn last_holder(&self, claim: &Claim, now: Moment) -> Holder {
        let former = || {
            let lessee = self.released.as_ref().map_or(&claim.lessee, |released| &released.lessee);
            let former = Holder::new(lessee.clone(), Some(Duration::ZERO));
            match self.token {
                Some(token) => former.with_token(token),
                None => former,
            }
        };
        self.holder(now).unwrap_or_else(former)
    }

    pub(crate) fn holder(&self, now: Moment) -> Option<Holder> {
        let current = self.grant.as_ref().filter(|current| current.is_valid(now))?;
        Some(current.holder(self.token?, now))
    }

    /// Returns `None` if the record is deleted.
    pub(crate) fn to_lease_record(&self, key: &LeaseKey, now: Moment) -> Option<LeaseRecord> {
        (self.lifetime != Lifetime::Deleted).then(|| {
            let holder = self.holder(now);
            LeaseRecord::new(key.clone(), holder, self.token, self.attributes.clone())
                .with_end(self.last_grant(), self.reserved(now))
        })
    }

    /// Returns the time from which the store may remove the record; `None` if it must keep the record.
    ///
    /// The store remembers a released nonce for another ttl, and for at least ten seconds. Within one
    /// process, a duplicate does not arrive later.
    pub(crate) fn removable_at(&self, now: Moment) -> Option<Moment> {
        const SHORTEST: Duration = Duration::from_secs(10);
        if self.lifetime == Lifetime::Lasting {
            return None;
        }
        // The key is held until its session ends, so the store checks the record again after some time.
        if self.grant.as_ref().is_some_and(|current| current.parent.is_some()) {
            return Some(now + SHORTEST);
        }
        let granted = self.grant.as_ref().map(|grant| grant.expires + grant.ttl.max(SHORTEST));
        let released = self.released.as_ref().map(|grant| grant.at + grant.ttl.max(SHORTEST));
        let reserved = self.reservation.as_ref().map(|reserved| reserved.until);
        Some(granted.max(released).max(reserved).unwrap_or_else(|| Moment::from_nanos(0)))
    }

    fn last_grant(&self) -> LastGrant {
        match (&self.grant, self.token) {
            (None, Some(_)) => LastGrant::Ended,
            _ => LastGrant::Open,
        }
    }

    fn reserved(&self, now: Moment) -> Option<Reserved> {
        let reserved = self.reservation.as_ref().filter(|reserved| reserved.until > now)?;
        Some(Reserved::new(reserved.only.clone(), reserved.until.since(now)))
    }

    fn why_lost(&self, grant: &Grant) -> LossCause {
        if self.token > Some(grant.token) {
            LossCause::Superseded
        } else if self.released.as_ref().is_some_and(|released| released.nonce == grant.nonce) {
            LossCause::Revoked
        } else {
            LossCause::Expired
        }
    }
}

impl CurrentGrant {
    fn is_valid(&self, now: Moment) -> bool {
        self.parent.is_some() || now < self.expires
    }

    /// Compares the token, too, because the store may have granted a late duplicate of the claim.
    fn is_of(&self, grant: &Grant, token: Option<FencingToken>) -> bool {
        self.nonce == grant.nonce && token == Some(grant.token)
    }

    fn holder(&self, token: FencingToken, now: Moment) -> Holder {
        let expires_in = self.parent.is_none().then(|| self.expires.since(now));
        let holder = Holder::new(self.lessee.clone(), expires_in);
        holder.named_by(token).with_parent(self.parent.clone())
    }
}
