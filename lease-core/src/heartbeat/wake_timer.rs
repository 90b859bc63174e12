//! When the heartbeater looks up next.

use std::future::{Future, pending, poll_fn};
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use tokio::time::Sleep;

use crate::clock::Moment;
use crate::settings::Settings;

/// A timer that is set anew only when it would ring too late.
#[derive(Default)]
pub(crate) struct Alarm {
    timer: Option<Pin<Box<Sleep>>>,
    set_for: Option<Moment>,
}

impl Alarm {
    /// Completes at `moment`, or a little earlier for nothing; never, where there is none.
    pub(crate) async fn ring_at(self: Pin<&mut Self>, moment: Option<Moment>, settings: &Settings) {
        let Some(moment) = moment else {
            return pending().await;
        };
        let alarm = self.get_mut();
        let now = settings.clock.now();
        if moment <= now {
            return;
        }
        if alarm.set_for.is_none_or(|set_for| set_for > moment || set_for <= now) {
            // tokio's timers stand still while the machine is suspended: look up now and then.
            let wait = moment.since(now).min(RECHECK);
            let ring = settings.clock.timer_for(wait);
            alarm.set_for = Some(now + wait);
            alarm.timer = Some(Box::pin(tokio::time::sleep(ring)));
        }
        poll_fn(|context| match &mut alarm.timer {
            Some(timer) if settings.clock.now() < moment => timer.as_mut().poll(context),
            _ => Poll::Ready(()),
        })
        .await;
        if settings.clock.now() >= moment || alarm.has_rung() {
            alarm.set_for = None;
        }
    }

    fn has_rung(&self) -> bool {
        self.timer.as_ref().is_none_or(|timer| timer.is_elapsed())
    }
}

/// The longest time without a look at the clock while leases are held.
const RECHECK: Duration = Duration::from_secs(1);
