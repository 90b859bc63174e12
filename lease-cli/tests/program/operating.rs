//! What operators do: `evict`, `release`, `doctor`, `bench`, and the generated texts.

use std::process::{Command, Stdio};

use crate::place::{Place, text};

fn grant(place: &Place, key: &str) -> String {
    let who = place.output(&["who", key]);
    text(&who.stdout).split('\t').nth(2).unwrap().to_owned()
}

#[test]
fn evicted_holder_stops_and_frees_the_key() {
    let place = Place::new();
    let holder = place.start_script(&["--ttl", "2s"], "exec sleep 600");

    let evicted = place.output(&["evict", "job", "--grant", &grant(&place, "job")]);

    assert_eq!(evicted.status.code(), Some(0));
    assert!(text(&evicted.stderr).contains("stops at its next heartbeat"), "{evicted:?}");
    assert_eq!(holder.wait(), 124);
    assert_eq!(place.code(&["run", "-w", "1m", "job", "--", "true"]), 0);
}

#[test]
fn wrong_grant_evicts_no_holder() {
    let place = Place::new();
    let mut holder = place.start_script(&[], "exec sleep 600");

    let evicted = place.output(&["evict", "job", "--grant", "1"]);

    assert_eq!(evicted.status.code(), Some(1));
    assert!(text(&evicted.stderr).contains("grant 1 does not hold job"), "{evicted:?}");
    assert!(!holder.has_ended());
}

#[test]
fn forced_release_frees_the_key_of_a_dead_holder() {
    let place = Place::new();
    assert_eq!(place.code(&["take", "job", "--ttl", "2s"]), 0);
    let grant = grant(&place, "job");

    assert_eq!(place.code(&["release", "job", "--grant", &grant]), 64, "without --force");
    let released = place.output(&["release", "job", "--grant", &grant, "--force"]);

    assert_eq!(released.status.code(), Some(0), "{released:?}");
    assert_eq!(text(&released.stdout), "job\n");
    assert!(place.is_free("job"));
    assert_eq!(place.code(&["release", "job", "--grant", &grant, "--force"]), 1);
}

#[test]
fn bench_measures_leases_and_heartbeats() {
    let place = Place::new();

    let output = place.output(&["--json", "bench", "--tasks", "2", "--time", "100ms"]);

    let shown = text(&output.stdout);
    for field in ["\"leases_per_second\":", "\"heartbeat_p99_ms\":", "\"tasks\":2"] {
        assert!(shown.contains(field), "{output:?}");
    }
    assert_eq!(text(&place.output(&["ls"]).stdout), "", "all keys are released");
}

#[test]
fn completions_are_valid_scripts() {
    let place = Place::new();

    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = place.output(&["completions", shell]);
        assert!(text(&output.stdout).contains("watch"), "{shell}");
    }
    let script = place.output(&["completions", "bash"]).stdout;
    std::fs::write(place.path("completions"), script).unwrap();
    let check = Command::new("bash").arg("-n").arg(place.path("completions")).status();
    assert!(check.unwrap().success());
}

#[test]
fn man_page_has_every_command() {
    let place = Place::new();

    let page = place.output(&["man"]).stdout;

    let page = text(&page);
    assert!(page.contains(".TH lease 1"), "{page}");
    for command in ["RUN", "HOLD", "TAKE", "GIVE", "LS", "WHO", "WATCH", "EVICT", "DOCTOR"] {
        assert!(page.contains(&format!(".SH \"LEASE {command}\"")), "{command}");
    }
    assert!(page.contains("Exit codes"));
}

#[test]
fn empty_list_of_jobs_and_shards_is_no_error() {
    let place = Place::new();

    for command in [&["jobs"][..], &["shards", "app"]] {
        let output = place.lease(command).stderr(Stdio::piped()).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{output:?}");
    }
}
