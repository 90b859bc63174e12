//! The checks of a worker's settings.

use std::time::Duration;

use lease_core::InvalidInput;
use thiserror::Error;

use crate::invalid::InvalidText;
use crate::position::InitialPosition;
use crate::worker::builder::WorkerBuilder;
use crate::worker::parts::Mode;

/// Reports a setting that is out of range.
#[derive(Debug, Error)]
#[error("worker not set up: {0}")]
pub struct InvalidSetup(Reason);

#[derive(Debug, Error)]
pub(super) enum Reason {
    #[error(transparent)]
    Text(#[from] InvalidText),
    #[error(transparent)]
    Input(#[from] InvalidInput),
    #[error("{0}")]
    Range(String),
}

impl WorkerBuilder {
    pub(super) fn agreed_position(&self) -> Result<InitialPosition, InvalidSetup> {
        let shared =
            self.coexistence.as_ref().and_then(|coexistence| coexistence.initial_position());
        match (self.initial, shared) {
            (Some(own), Some(shared)) if own != shared => {
                let rule = format!(
                    "the initial position must be {shared:?}, as for the other library's workers, \
                     but it is {own:?}"
                );
                Err(InvalidSetup(Reason::Range(rule)))
            }
            (own, shared) => Ok(own.or(shared).unwrap_or_default()),
        }
    }

    pub(super) fn check(&self) -> Result<(), InvalidSetup> {
        let settings = &self.settings;
        let rules = [
            ((1..=1000).contains(&self.weight), "the weight must be 1 to 1000"),
            (self.most != Some(0), "the maximum number of shards must be at least 1"),
            (
                self.replaces.is_none() || self.replaces != self.name,
                "a worker must not replace itself",
            ),
            (!self.sources.is_empty(), "a worker must read at least one stream"),
            (
                (1..=10_000).contains(&settings.pace.most_records),
                "the maximum number of records must be 1 to 10000",
            ),
            (settings.pace.idle >= MIN_IDLE, "the idle pause must be at least 200 ms"),
            (
                settings.batch_limit != Some(Duration::ZERO),
                "the batch limit must be more than zero",
            ),
            (settings.failures != Some(0), "the maximum number of failures must be at least 1"),
            (
                settings.most_hand_overs != Some(0),
                "the maximum number of hand-overs must be at least 1",
            ),
            (!settings.first_backoff.is_zero(), "the first backoff must be more than zero"),
            (
                settings.first_backoff <= settings.last_backoff,
                "the first backoff must not be longer than the last",
            ),
            (settings.last_backoff <= MAX_BACKOFF, "the last backoff must be at most an hour"),
            (settings.settling >= MIN_SETTLING, "the settling time must be at least 10 ms"),
            (!settings.sync_interval.is_zero(), "the sync interval must be more than zero"),
            (
                !matches!(settings.initial, InitialPosition::AtTimestamp(at) if i64::try_from(at).is_err()),
                "a timestamp must be in milliseconds since 1970, and fit into 63 bits",
            ),
        ];
        if let Some((_, rule)) = rules.into_iter().find(|(holds, _)| !holds) {
            return Err(InvalidSetup(Reason::Range(rule.to_owned())));
        }
        self.check_mode()?;
        self.check_start()?;
        self.check_ttl()
    }

    fn check_mode(&self) -> Result<(), InvalidSetup> {
        let rule = match self.mode {
            Mode::Session if self.coexistence.is_some() => {
                "a worker under a session cannot share the table with another library's workers"
            }
            Mode::Session if self.settings.table.sessions().is_none() => {
                "a worker under a session needs a table that keeps sessions"
            }
            _ => return Ok(()),
        };
        Err(InvalidSetup(Reason::Range(rule.to_owned())))
    }

    fn check_start(&self) -> Result<(), InvalidSetup> {
        let settings = &self.settings;
        if let InitialPosition::AtTimestamp(at) = settings.initial {
            let now = (settings.wall_clock)();
            if at > now {
                // The rows would keep a mistaken future time even after the operator corrected the setting.
                let rule = format!(
                    "a timestamp must be in milliseconds since 1970, and not in the future: {at} \
                     is after the current time, {now}"
                );
                return Err(InvalidSetup(Reason::Range(rule)));
            }
        }
        Ok(())
    }

    fn check_ttl(&self) -> Result<(), InvalidSetup> {
        if let Some(limit) = self.coexistence.as_ref().map(|coexistence| coexistence.max_ttl())
            && self.settings.options.ttl() > limit
        {
            let rule = format!(
                "the ttl must be at most {limit:?}: after this time, workers of the other library \
                 take a lease over"
            );
            return Err(InvalidSetup(Reason::Range(rule)));
        }
        Ok(())
    }
}

impl From<Reason> for InvalidSetup {
    fn from(fault: Reason) -> Self {
        Self(fault)
    }
}

const MIN_SETTLING: Duration = Duration::from_millis(10);

const MIN_IDLE: Duration = Duration::from_millis(200);

const MAX_BACKOFF: Duration = Duration::from_hours(1);
