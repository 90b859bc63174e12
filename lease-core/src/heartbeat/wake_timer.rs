//! The timer of the heartbeater.

use std::future::{Future, pending, poll_fn};
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use tokio::time::Sleep;

use crate::clock::Moment;
use crate::settings::Settings;

/// A timer that is reset only if it would fire too late.
#[derive(Default)]
pub(crate) struct WakeTimer {
    timer: Option<Pin<Box<Sleep>>>,
    set_for: Option<Moment>,
}

impl WakeTimer {
    /// Completes at `moment`, or sometimes earlier. Never completes if `moment` is `None`.
    pub(crate) async fn wait_until(
        self: Pin<&mut Self>,
        moment: Option<Moment>,
        settings: &Settings,
    ) {
        let Some(moment) = moment else {
            return pending().await;
        };
        let this = self.get_mut();
        let now = settings.clock.now();
        if moment <= now {
            return;
        }
        if this.set_for.is_none_or(|set_for| set_for > moment || set_for <= now) {
            // tokio's timers stop while the machine is suspended, so the task checks the clock at
            // least once per `RECHECK`.
            let wait = moment.since(now).min(RECHECK);
            let length = settings.clock.timer_for(wait);
            this.set_for = Some(now + wait);
            this.timer = Some(Box::pin(tokio::time::sleep(length)));
        }
        poll_fn(|context| match &mut this.timer {
            Some(timer) if settings.clock.now() < moment => timer.as_mut().poll(context),
            _ => Poll::Ready(()),
        })
        .await;
        if settings.clock.now() >= moment || this.has_fired() {
            this.set_for = None;
        }
    }

    fn has_fired(&self) -> bool {
        self.timer.as_ref().is_none_or(|timer| timer.is_elapsed())
    }
}

const RECHECK: Duration = Duration::from_secs(1);
