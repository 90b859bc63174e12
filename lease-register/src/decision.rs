//! What a request does with the record that it finds: an answer, or a record to write.

use std::time::Duration;

use lease_core::store::{Beat, Claim, Grant, Heartbeat, Obtained, micros_since_1970};
use lease_core::{
    FencingToken, GrantId, Holder, LeaseKey, Lessee, LossCause, StoreError, StoreErrorKind, Written,
};

use crate::lease_state::LeaseState;
use crate::record::{Former, Held, Record, Reservation};
use crate::register::{Register, Version, Versions};
use crate::store::RegisterStore;

/// A record, its version and its state.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seen<'a> {
    pub(crate) record: &'a Record,
    pub(crate) version: &'a Version,
    pub(crate) state: LeaseState,
}

/// The next step of a request.
#[derive(Debug)]
pub(crate) enum Step<T> {
    /// Return the answer, without a write.
    Answer(T),
    /// Write the record if its version is the one that was seen, and then return the answer.
    Write(Record, T),
    /// Write the record, and decide again.
    Prepare(Record),
}

impl<R: Register> RegisterStore<R> {
    pub(crate) fn decide_claim(
        &self,
        claim: &Claim,
        seen: Option<Seen<'_>>,
    ) -> Result<Step<Obtained>, StoreError> {
        let Some(seen) = seen else {
            return match self.shared.register.versions() {
                Versions::Opaque => self.grant(claim, None),
                // The token is the version that the grant replaces.
                Versions::Growing => Ok(Step::Prepare(Record::blank(self.mark()))),
            };
        };
        let Seen { record, state, .. } = seen;
        if let Some(held) = &record.holder
            && held.nonce == claim.nonce
        {
            return Ok(Step::Answer(match state {
                // An earlier request was granted, and its answer was lost.
                LeaseState::Held(_) => {
                    let grant = claim.granted_to(Some(held.request), held.token);
                    Obtained::Granted(grant, record.attributes.clone())
                }
                _ => Obtained::Held(record.last_holder(&claim.lessee, Duration::ZERO)),
            }));
        }
        match (state, &record.reserved) {
            (LeaseState::Held(left), _) => {
                let holder = record.last_holder(&claim.lessee, left);
                return Ok(Step::Answer(Obtained::Held(holder)));
            }
            (LeaseState::Reserved(left), Some(reserved))
                if reserved.only.as_ref() != Some(&claim.lessee) =>
            {
                let holder = record.last_holder(&claim.lessee, left);
                return Ok(Step::Answer(Obtained::Held(holder)));
            }
            _ => (),
        }
        if let Some(former) = &record.former
            && former.nonce == claim.nonce
        {
            // A late duplicate of a claim whose grant has ended. The record may also name a later holder, whose lease
            // has expired.
            let holder = Holder::new(former.lessee.clone(), Some(Duration::ZERO));
            return Ok(Step::Answer(Obtained::Held(holder.with_token(former.token))));
        }
        self.grant(claim, Some(seen))
    }

    fn grant(&self, claim: &Claim, seen: Option<Seen<'_>>) -> Result<Step<Obtained>, StoreError> {
        let token = self.next_token(&claim.key, seen)?;
        let mut record = self.changed(seen.map(|seen| seen.record));
        record.free();
        record.holder = Some(Held {
            lessee: claim.lessee.clone(),
            nonce: claim.nonce,
            token,
            request: claim.request,
            beat: Beat::GRANTED,
            ttl: claim.ttl,
            expires_at: self.after(claim.ttl),
            evicted: false,
        });
        record.reserved = None;
        record.exists = true;
        record.attributes.extend(claim.attributes.clone());
        let obtained = Obtained::Granted(claim.granted(token), record.attributes.clone());
        Ok(Step::Write(record, obtained))
    }

    /// The token of a grant that replaces `seen`. It is larger than all earlier tokens of the key.
    fn next_token(
        &self,
        key: &LeaseKey,
        seen: Option<Seen<'_>>,
    ) -> Result<FencingToken, StoreError> {
        let corrupt = |text: String| StoreError::new(StoreErrorKind::Corrupt, text);
        let last = seen.and_then(|seen| seen.record.token()).map_or(0, FencingToken::get);
        let next = match (self.shared.register.versions(), seen) {
            (Versions::Growing, Some(seen)) => {
                let number = seen.version.number().ok_or_else(|| {
                    corrupt(format!(
                        "version {:?} of {:?} is no number",
                        seen.version,
                        key.as_str()
                    ))
                })?;
                // The version is larger anyway, unless the service was restored from a backup.
                number.max(last + 1)
            }
            (Versions::Opaque | Versions::Growing, _) if last > 0 => last + 1,
            // The record is new, and an earlier record of the key may have been deleted by hand.
            (Versions::Opaque | Versions::Growing, _) => {
                let now = self.server_now();
                now.map_or_else(micros_since_1970, |now| now.highest.as_micros()) + 1
            }
        };
        FencingToken::new(next).map_err(|error| corrupt(error.to_string()))
    }

    pub(crate) fn decide_heartbeat(
        &self,
        grant: &Grant,
        beat: Beat,
        seen: Option<Seen<'_>>,
    ) -> Result<Step<Heartbeat>, StoreError> {
        let (seen, held) = match current(grant, seen)? {
            Ok(current) => current,
            Err(cause) => return Ok(Step::Answer(Heartbeat::Lost(cause))),
        };
        if held.evicted {
            return Ok(Step::Answer(Heartbeat::Lost(LossCause::Revoked)));
        }
        if beat <= held.beat {
            return Ok(Step::Answer(Heartbeat::Overtaken));
        }
        let mut record = self.changed(Some(seen.record));
        let (ttl, expires_at) = (grant.ttl, self.after(grant.ttl));
        record.holder = Some(Held { beat, ttl, expires_at, ..held.clone() });
        Ok(Step::Write(record, Heartbeat::Extended))
    }

    /// Frees the key, also if the lease has expired and the key was not granted since: another process may not have
    /// observed the lease for long enough.
    pub(crate) fn decide_release(
        &self,
        grant: &Grant,
        reserved: Option<Duration>,
        seen: Option<Seen<'_>>,
    ) -> Result<Step<()>, StoreError> {
        let _ended = current(grant, seen)?;
        let Some(Seen { record, .. }) = seen.filter(|seen| seen.record.holds(grant)) else {
            // The key was released before, or has another holder.
            return Ok(Step::Answer(()));
        };
        let mut record = self.changed(Some(record));
        record.free();
        record.reserved =
            reserved.map(|length| Reservation { only: None, length, until: self.after(length) });
        Ok(Step::Write(record, ()))
    }

    /// Decides on a write that ends `grant`: `end` changes the record of the free key.
    pub(crate) fn decide_end(
        &self,
        grant: &Grant,
        seen: Option<Seen<'_>>,
        end: impl Fn(&mut Record),
    ) -> Result<Step<Written>, StoreError> {
        let seen = match current(grant, seen)? {
            Ok((seen, _)) => seen,
            Err(cause) => return Ok(Step::Answer(Written::Lost(cause))),
        };
        let mut record = self.changed(Some(seen.record));
        record.free();
        end(&mut record);
        Ok(Step::Write(record, Written::Applied))
    }

    pub(crate) fn decide_adoption(
        &self,
        grant: &Grant,
        claim: &Claim,
        seen: Option<Seen<'_>>,
    ) -> Result<Step<Obtained>, StoreError> {
        let former = grant.holder(Some(Duration::ZERO));
        let Some(seen) = seen else {
            return Ok(Step::Answer(Obtained::Held(former)));
        };
        // Fails first if the record is older than the grant: such a record says nothing about the grant.
        let current = current(grant, Some(seen))?;
        let (LeaseState::Held(left), Some(held)) = (seen.state, &seen.record.holder) else {
            return Ok(Step::Answer(Obtained::Held(former)));
        };
        if held.nonce == claim.nonce {
            // An earlier request adopted the grant, and its answer was lost.
            return self.decide_claim(claim, Some(seen));
        }
        match current {
            Ok(_) if !held.evicted => self.grant(claim, Some(seen)),
            _ => {
                let holder = seen.record.last_holder(&claim.lessee, left);
                Ok(Step::Answer(Obtained::Held(holder)))
            }
        }
    }

    pub(crate) fn decide_eviction(&self, grant: &GrantId, seen: Option<Seen<'_>>) -> Step<bool> {
        match seen {
            Some(seen) if seen.names(grant) => {
                let mut record = self.changed(Some(seen.record));
                if let Some(held) = &mut record.holder {
                    held.evicted = true;
                }
                Step::Write(record, true)
            }
            _ => Step::Answer(false),
        }
    }

    /// A copy of `record` for the next write, or a blank record.
    pub(crate) fn changed(&self, record: Option<&Record>) -> Record {
        let mark = self.mark();
        record.map_or_else(|| Record::blank(mark), |record| Record { mark, ..record.clone() })
    }
}

/// Returns the record and the holder if `grant` is current, and otherwise why it was lost.
///
/// Fails if the record is older than `grant`: then the read was not current.
pub(crate) fn current<'a>(
    grant: &Grant,
    seen: Option<Seen<'a>>,
) -> Result<Result<(Seen<'a>, &'a Held), LossCause>, StoreError> {
    let Some(seen) = seen else {
        return Ok(Err(LossCause::Expired));
    };
    let record = seen.record;
    if record.token() < Some(grant.token) {
        let text = format!("a read of {:?} was older than its grant", grant.key.as_str());
        return Err(StoreError::new(StoreErrorKind::Unavailable, text));
    }
    match &record.holder {
        Some(held) if record.holds(grant) => match seen.state {
            LeaseState::Held(_) => Ok(Ok((seen, held))),
            _ => Ok(Err(LossCause::Expired)),
        },
        _ if record.token() > Some(grant.token) => Ok(Err(LossCause::Superseded)),
        _ => Ok(Err(LossCause::Revoked)),
    }
}

impl Seen<'_> {
    fn names(&self, grant: &GrantId) -> bool {
        let is_held = matches!(self.state, LeaseState::Held(_));
        is_held && grant.token().is_some_and(|token| self.record.token() == Some(token))
    }
}

impl Record {
    /// Whether the last grant is `grant`, and was not released. Both numbers: a record that was deleted by hand may
    /// have the same token again, and a late duplicate of a claim the same nonce.
    pub(crate) fn holds(&self, grant: &Grant) -> bool {
        let is_of = |held: &Held| held.nonce == grant.nonce && held.token == grant.token;
        self.holder.as_ref().is_some_and(is_of)
    }

    /// Ends the current grant, if there is one: it becomes [`former`](Self::former).
    pub fn free(&mut self) {
        if let Some(Held { lessee, nonce, token, .. }) = self.holder.take() {
            self.former = Some(Former { lessee, nonce, token });
        }
    }

    /// The holder, or the lessee that the key is reserved for, or the last holder.
    pub(crate) fn last_holder(&self, claimant: &Lessee, left: Duration) -> Holder {
        let held = self.holder.as_ref().map(|held| &held.lessee);
        let reserved = self.reserved.as_ref().and_then(|reserved| reserved.only.as_ref());
        let former = self.former.as_ref().map(|former| &former.lessee);
        let lessee = held.or(reserved).or(former).unwrap_or(claimant);
        let holder = Holder::new(lessee.clone(), Some(left));
        match (self.token(), &self.holder) {
            (Some(token), Some(_)) => holder.named_by(token),
            (Some(token), None) => holder.with_token(token),
            (None, _) => holder,
        }
    }

    /// The holder, if the lease has not expired.
    pub(crate) fn holder(&self, state: LeaseState) -> Option<Holder> {
        let (LeaseState::Held(left), Some(held)) = (state, &self.holder) else { return None };
        Some(Holder::new(held.lessee.clone(), Some(left)).named_by(held.token))
    }
}
