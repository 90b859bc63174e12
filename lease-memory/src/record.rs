//! One key's record: who has it, who had it, and what else is on it. Decides; keeps no time.

use std::time::Duration;

use lease_core::{
    Attributes, Beat, Claim, FencingToken, Grant, Heartbeat, Holder, LeaseKey, LeaseRecord, Lessee,
    LossCause, Moment, Nonce,
};

#[derive(Debug, Default)]
pub(crate) struct Record {
    /// Of the last grant.
    pub(crate) token: Option<FencingToken>,
    pub(crate) tenure: Option<Tenure>,
    former: Option<Former>,
    reservation: Option<Reservation>,
    pub(crate) attributes: Attributes,
    pub(crate) existence: Existence,
}

/// A grant that stands, until it expires.
#[derive(Debug)]
pub(crate) struct Tenure {
    pub(crate) lessee: Lessee,
    pub(crate) nonce: Nonce,
    pub(crate) ttl: Duration,
    pub(crate) expires: Moment,
    pub(crate) beat: Beat,
    pub(crate) evicted: bool,
}

/// The last grant that was given back: its nonce is not granted again.
#[derive(Debug)]
struct Former {
    lessee: Lessee,
    nonce: Nonce,
    ttl: Duration,
    at: Moment,
}

/// Keeps the key from being granted, but for one lessee.
#[derive(Debug)]
struct Reservation {
    only: Option<Lessee>,
    until: Moment,
}

/// Why the record is there.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Existence {
    /// Because the key is leased, or was a moment ago.
    #[default]
    Passing,
    /// Because it was created or carries attributes: it stays until it is deleted.
    Lasting,
    /// It was deleted; only its token and nonce are remembered.
    Deleted,
}

/// Whether a claim may have the key.
#[derive(Debug)]
pub(crate) enum Verdict {
    Free,
    /// The claim was granted before.
    AlreadyGranted(FencingToken),
    Held(Holder),
}

impl Record {
    pub(crate) fn judge(&self, claim: &Claim, now: Moment) -> Verdict {
        let Some(token) = self.token else {
            return Verdict::Free;
        };
        match &self.tenure {
            Some(tenure) if tenure.nonce == claim.nonce && tenure.stands(now) => {
                return Verdict::AlreadyGranted(token);
            }
            // Granted before, and run out since: a duplicate that nobody waits for.
            Some(tenure) if tenure.nonce == claim.nonce || tenure.stands(now) => {
                return Verdict::Held(tenure.holder(token, now));
            }
            _ => (),
        }
        if let Some(former) = &self.former
            && former.nonce == claim.nonce
        {
            let holder = Holder::new(former.lessee.clone(), token, Some(Duration::ZERO));
            return Verdict::Held(holder);
        }
        match &self.reservation {
            Some(reserved)
                if reserved.until > now && reserved.only.as_ref() != Some(&claim.lessee) =>
            {
                let former = self.former.as_ref().map(|former| &former.lessee);
                let lessee = reserved.only.as_ref().or(former).unwrap_or(&claim.lessee);
                let left = reserved.until.since(now);
                Verdict::Held(Holder::new(lessee.clone(), token, Some(left)))
            }
            _ => Verdict::Free,
        }
    }

    pub(crate) fn grant(&mut self, claim: &Claim, token: FencingToken, now: Moment) {
        self.token = Some(token);
        self.reservation = None;
        if self.existence == Existence::Deleted {
            self.existence = Existence::Passing;
        }
        self.tenure = Some(Tenure {
            lessee: claim.lessee.clone(),
            nonce: claim.nonce,
            ttl: claim.ttl,
            expires: now + claim.ttl,
            beat: Beat::GRANTED,
            evicted: false,
        });
    }

    pub(crate) fn heartbeat(&mut self, grant: &Grant, beat: Beat, now: Moment) -> Heartbeat {
        let cause = self.why_lost(grant);
        match &mut self.tenure {
            Some(tenure) if tenure.is_of(grant, self.token) => {
                if !tenure.stands(now) {
                    Heartbeat::Lost(LossCause::Expired)
                } else if tenure.evicted {
                    Heartbeat::Lost(LossCause::Revoked)
                } else if beat <= tenure.beat {
                    Heartbeat::Overtaken
                } else {
                    tenure.beat = beat;
                    tenure.ttl = grant.ttl;
                    tenure.expires = now + grant.ttl;
                    Heartbeat::Extended
                }
            }
            _ => Heartbeat::Lost(cause),
        }
    }

    /// The standing tenure of `grant`, or how it was lost.
    pub(crate) fn tenure_of(
        &mut self,
        grant: &Grant,
        now: Moment,
    ) -> Result<&mut Tenure, LossCause> {
        let cause = self.why_lost(grant);
        match &mut self.tenure {
            Some(tenure) if tenure.is_of(grant, self.token) => {
                if tenure.stands(now) {
                    Ok(tenure)
                } else {
                    Err(LossCause::Expired)
                }
            }
            _ => Err(cause),
        }
    }

    /// Ends the tenure of `grant` and remembers it; says whether it stood.
    pub(crate) fn vacate(&mut self, grant: &Grant, now: Moment) -> bool {
        let token = self.token;
        let Some(tenure) = self.tenure.take_if(|tenure| tenure.is_of(grant, token)) else {
            return false;
        };
        let stood = tenure.stands(now);
        let Tenure { lessee, nonce, ttl, .. } = tenure;
        self.former = Some(Former { lessee, nonce, ttl, at: now });
        stood
    }

    pub(crate) fn reserve(&mut self, only: Option<Lessee>, until: Moment) {
        self.reservation = Some(Reservation { only, until });
    }

    pub(crate) fn holder(&self, now: Moment) -> Option<Holder> {
        let tenure = self.tenure.as_ref().filter(|tenure| tenure.stands(now))?;
        Some(tenure.holder(self.token?, now))
    }

    /// The record as readers see it, if they do.
    pub(crate) fn seen(&self, key: &LeaseKey, now: Moment) -> Option<LeaseRecord> {
        (self.existence != Existence::Deleted).then(|| {
            LeaseRecord::new(key.clone(), self.holder(now), self.token, self.attributes.clone())
        })
    }

    /// When the record may be dropped, if nothing else happens to it; `None` where it stays.
    ///
    /// A released nonce is remembered for another ttl, and for ten seconds at least: late
    /// duplicates are not later than that within one process.
    pub(crate) fn fades(&self) -> Option<Moment> {
        const AT_LEAST: Duration = Duration::from_secs(10);
        if self.existence == Existence::Lasting {
            return None;
        }
        let tenure = self.tenure.as_ref().map(|t| t.expires + t.ttl.max(AT_LEAST));
        let former = self.former.as_ref().map(|f| f.at + f.ttl.max(AT_LEAST));
        let reserved = self.reservation.as_ref().map(|reserved| reserved.until);
        Some(tenure.max(former).max(reserved).unwrap_or_else(|| Moment::from_nanos(0)))
    }

    fn why_lost(&self, grant: &Grant) -> LossCause {
        if self.token > Some(grant.token) {
            LossCause::Superseded
        } else if self.former.as_ref().is_some_and(|former| former.nonce == grant.nonce) {
            LossCause::Revoked
        } else {
            LossCause::Expired
        }
    }
}

impl Tenure {
    fn stands(&self, now: Moment) -> bool {
        now < self.expires
    }

    /// By token, too: a late duplicate of a claim may have been granted the key again.
    fn is_of(&self, grant: &Grant, token: Option<FencingToken>) -> bool {
        self.nonce == grant.nonce && token == Some(grant.token)
    }

    fn holder(&self, token: FencingToken, now: Moment) -> Holder {
        Holder::new(self.lessee.clone(), token, Some(self.expires.since(now)))
    }
}
