//! The intake and the token check of buffers and buckets in memory.

use lease_core::FencingToken;

use crate::buffer::{Fenced, Intake, StopCause};

#[derive(Debug)]
pub(crate) struct Gate {
    intake: Intake,
    largest: Option<FencingToken>,
}

impl Gate {
    pub(crate) fn new(intake: Intake) -> Self {
        Self { intake, largest: None }
    }

    pub(crate) fn intake(&self) -> Intake {
        self.intake
    }

    /// If nothing is pending, first opens an intake that was stopped for lack of room.
    pub(crate) fn stopped(&mut self, is_drained: bool) -> Option<StopCause> {
        match self.intake {
            Intake::Open => None,
            Intake::Stopped(StopCause::Emergency) if is_drained => {
                self.intake = Intake::Open;
                None
            }
            Intake::Stopped(cause) => Some(cause),
        }
    }

    /// Opens an intake that was stopped for lack of room. Returns whether the intake was opened.
    pub(crate) fn resume(&mut self) -> bool {
        let is_paused = self.intake == Intake::Stopped(StopCause::Emergency);
        if is_paused {
            self.intake = Intake::Open;
        }
        is_paused
    }

    /// A stop for lack of room does not replace an operator's stop.
    pub(crate) fn set(&mut self, intake: Intake) -> Intake {
        let before = self.intake;
        if intake != Intake::Stopped(StopCause::Emergency) || before == Intake::Open {
            self.intake = intake;
        }
        before
    }

    pub(crate) fn admits(&mut self, token: FencingToken) -> Fenced<()> {
        match self.largest {
            Some(largest) if token < largest => Fenced::Stale { largest },
            _ => {
                self.largest = Some(token);
                Fenced::Done(())
            }
        }
    }
}
