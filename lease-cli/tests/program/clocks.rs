//! Wall clocks that are wrong by an hour. libfaketime changes the clock of the program and its
//! command.

use lease_test_servers::gate_log::worker::set_wall_clock;
use lease_test_servers::tools::libfaketime;
use rustix::process::Signal;

use crate::place::{Place, Running};

#[test]
fn wall_clock_an_hour_off_changes_no_lease() {
    let Some(library) = libfaketime() else { return };
    for clock in ["+1h", "-1h"] {
        let place = Place::new();
        let script = "echo $LEASE_TOKEN > token; exec sleep 600";
        let mut command = place.lease(&["run", "job", "--ttl", "1s", "--", "sh", "-c", script]);
        set_wall_clock(&mut command, &library, clock);
        let mut off = Running::of(&mut command);
        let first: u64 = place.content("token").parse().unwrap();

        assert_eq!(place.code(&["run", "-q", "-w", "2s", "job", "--", "true"]), 75, "{clock}");
        assert!(!off.has_ended(), "{clock}");
        off.signal(Signal::KILL);
        let script = format!("test $LEASE_TOKEN -gt {first}");
        let second = place.code(&["run", "-w", "1m", "job", "--", "sh", "-c", &script]);

        assert_eq!(second, 0, "{clock}: a larger token, after the ttl");
    }
}
