//! Bugs in the part of a store that sets the attributes of a claim.

use lease_core::store::{Claim, Grant, LeaseTable, LockStore, Obtained};
use lease_core::{Attributes, Change, LeaseKey, StoreError};

use crate::saboteur::{Sabotage, Sabotaged};

impl Sabotaged {
    pub(crate) async fn obtain_with_attributes(
        &self,
        claim: &Claim,
    ) -> Result<Obtained, StoreError> {
        let known = self.known(&claim.key);
        let before = self.attributes(&claim.key).await?;
        let answer = match self.sabotage {
            Sabotage::DropsAttributesOfClaims => self.store.obtain(&plain(claim)).await?,
            _ => self.store.obtain(claim).await?,
        };
        if claim.attributes.is_empty() {
            return Ok(answer);
        }
        match (answer, known) {
            (Obtained::Granted(grant, _), Some(known))
                if self.is(Sabotage::RepeatedClaimSetsAttributes)
                    && known.grant.nonce == claim.nonce =>
            {
                self.set(&grant, claim).await
            }
            (Obtained::Granted(grant, _), None)
                if self.is(Sabotage::ReturnsAttributesFromBefore) =>
            {
                Ok(Obtained::Granted(grant, before))
            }
            (held @ Obtained::Held(_), Some(known))
                if self.is(Sabotage::RefusedClaimSetsAttributes) =>
            {
                self.set(&known.grant, claim).await?;
                Ok(held)
            }
            (answer, _) => Ok(answer),
        }
    }

    pub(crate) async fn adopt_with_attributes(
        &self,
        grant: &Grant,
        claim: &Claim,
    ) -> Result<Obtained, StoreError> {
        let known = self.known(&grant.key).filter(|_| !claim.attributes.is_empty());
        let answer = match self.sabotage {
            Sabotage::AdoptionDropsAttributes => self.store.adopt(grant, &plain(claim)).await?,
            _ => self.store.adopt(grant, claim).await?,
        };
        match (answer, known) {
            (Obtained::Granted(adopted, _), Some(known))
                if self.is(Sabotage::RepeatedAdoptionSetsAttributes)
                    && known.grant.nonce == claim.nonce =>
            {
                self.set(&adopted, claim).await
            }
            (held @ Obtained::Held(_), Some(known))
                if self.is(Sabotage::RefusedAdoptionSetsAttributes) =>
            {
                self.set(&known.grant, claim).await?;
                Ok(held)
            }
            (answer, _) => Ok(answer),
        }
    }

    async fn set(&self, grant: &Grant, claim: &Claim) -> Result<Obtained, StoreError> {
        let _ = self.store.update(grant, &Change::from(claim.attributes.clone())).await?;
        Ok(Obtained::Granted(grant.clone(), self.attributes(&grant.key).await?))
    }

    async fn attributes(&self, key: &LeaseKey) -> Result<Attributes, StoreError> {
        let record = self.store.read(key).await?;
        Ok(record.map(|record| record.attributes).unwrap_or_default())
    }
}

fn plain(claim: &Claim) -> Claim {
    claim.clone().with_attributes(Attributes::new())
}
