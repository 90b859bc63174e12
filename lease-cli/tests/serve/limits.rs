//! Limits of what browsers use.

use std::thread;
use std::time::Duration;

use crate::site::Site;

#[test]
fn browsers_beyond_the_limit_are_refused() {
    let site = Site::start(&[]);
    let mut all: Vec<_> = (0..32).map(|_| site.events("leases")).collect();
    for events in &mut all {
        events.rows();
    }

    let refused = site.get("/events/leases");
    assert_eq!(refused.status, 503, "{refused:?}");
    assert_eq!(site.get("/settings").status, 200);
    drop(all.pop());

    let is_served = |_| {
        thread::sleep(Duration::from_millis(10));
        site.events("leases").status() == 200
    };
    assert!((0..6000).any(is_served), "no place after a browser has left");
}
