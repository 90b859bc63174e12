//! Evictions through the page, and switches.

use std::time::Duration;

use lease_core::{Lease, Locker, LossCause, Switch, TableSwitch};
use rustix::process::Signal;
use serde_json::json;
use tokio::time::timeout;

use crate::site::{PATIENT, Site};

#[test]
fn eviction_needs_the_grant_that_was_shown() {
    let site = Site::with_token();
    let locker = site.locker(Duration::from_secs(15));
    let mut events = site.events("leases");
    let former = site.obtain(&locker, "job");
    let shown = events.row("job", |_| true)[2][1].as_str().unwrap().to_owned();
    site.runtime.block_on(former.release()).unwrap();
    let lease = site.obtain(&locker, "job");
    let other = |row: &serde_json::Value| row[1] != *shown;
    let grant = events.row("job", other)[2][1].clone();
    let change = |grant: &serde_json::Value| json!({ "key": "job", "grant": grant, "who": "ann", "why": "it\nhangs" });

    let old = site.post("/changes/evict", &change(&json!(shown)));
    assert_eq!(old.status, 409, "{old:?}");
    assert!(lease.is_held());
    let evicted = site.post("/changes/evict", &change(&grant));

    assert_eq!(evicted.status, 200, "{evicted:?}");
    let lost = site.runtime.block_on(async { timeout(PATIENT, lease.lost()).await }).unwrap();
    assert_eq!(lost.cause, LossCause::Revoked);
    let line = format!("evict job, grant {}, by ann: it hangs: evicted", grant.as_str().unwrap());
    assert!(site.log().contains(&line), "{}", site.log());
}

#[test]
fn change_without_who_and_why_is_refused() {
    let site = Site::with_token();
    let lease = site.obtain(&site.locker(Duration::from_secs(60)), "job");
    let grant = lease.token().to_string();

    for (who, why) in [("", "x"), ("ann", " "), ("\n", "x")] {
        let change = json!({ "key": "job", "grant": grant, "who": who, "why": why });
        assert_eq!(site.post("/changes/evict", &change).status, 400, "{who:?} {why:?}");
    }
    let without = json!({ "key": "job", "grant": grant });
    assert_eq!(site.post("/changes/evict", &without).status, 422);
    let no_key = json!({ "key": "", "grant": grant, "who": "ann", "why": "x" });
    assert_eq!(site.post("/changes/evict", &no_key).status, 400);
    assert!(site.extends(&lease));
}

#[test]
fn signal_waits_for_the_result_of_a_change() {
    let mut site = Site::with_token();
    let lease = site.obtain(&site.locker(Duration::from_secs(60)), "job");
    let grant = lease.token().to_string();
    let lock = site.lock_store();
    let change = json!({ "key": "job", "grant": grant, "who": "ann", "why": "it hangs" });
    let change = site.start_post("/changes/evict", &change);
    site.wait_for_log(&format!("evict job, grant {grant}, by ann: it hangs: asked"));

    site.signal(Signal::TERM);
    site.wait_for_log("ends after the results of 1 changes");
    drop(lock);

    assert_eq!(site.exit_code(), 128 + 15);
    assert_eq!(site.log().matches("by ann: it hangs: ").count(), 2, "{}", site.log());
    drop(change);
}

#[test]
fn second_signal_ends_the_program_at_once() {
    let mut site = Site::with_token();
    let lease = site.obtain(&site.locker(Duration::from_secs(60)), "job");
    let grant = lease.token().to_string();
    let _lock = site.lock_store();
    let change = json!({ "key": "job", "grant": grant, "who": "ann", "why": "it hangs" });
    let _change = site.start_post("/changes/evict", &change);
    site.wait_for_log(": asked");

    site.signal(Signal::TERM);
    site.wait_for_log("ends after the results of 1 changes");
    site.signal(Signal::TERM);

    assert_eq!(site.exit_code(), 128 + 15);
    assert!(site.log().contains("the results of 1 changes are not known"), "{}", site.log());
}

#[test]
fn change_outside_of_the_prefix_is_refused() {
    let site = Site::start(&["team/", "--allow-changes", "--token-file", "token"]);
    let locker = site.locker(Duration::from_secs(60));
    let (own, other) = (site.obtain(&locker, "team/a"), site.obtain(&locker, "other"));
    let change = |key: &str, lease: &Lease| {
        let grant = lease.token().to_string();
        json!({ "key": key, "grant": grant, "job": key, "id": "1", "who": "ann", "why": "x" })
    };

    let of_other = change("other", &other);
    for path in ["evict", "pause", "resume", "trigger"] {
        let answer = site.post(&format!("/changes/{path}"), &of_other);
        assert_eq!(answer.status, 403, "{path}: {answer:?}");
    }
    assert!(site.extends(&other));
    let evicted = site.post("/changes/evict", &change("team/a", &own));

    assert_eq!(evicted.status, 200, "{evicted:?}");
    assert!(evicted.body.contains("is free within"), "{evicted:?}");
    assert!(!site.extends(&own));
}

impl Site {
    fn switch(&self, key: &str) -> TableSwitch {
        let store = self.store();
        let table = store.table().unwrap();
        let _context = self.runtime.enter();
        TableSwitch::new(key.parse().unwrap(), &Locker::new(store), table)
    }
}

#[test]
fn switch_of_the_command_line_is_turned_on_and_off() {
    let options = ["--allow-changes", "--token-file", "token", "--switch", "export/switch"];
    let site = Site::start(&options);
    let switch = site.switch("export/switch");
    let mut events = site.events("switches");
    assert_eq!(events.row("export/switch", |_| true)[2]["on"], json!(null));
    let change = json!({ "key": "export/switch", "who": "ann", "why": "a test" });

    assert_eq!(site.post("/changes/turn-on", &change).status, 200);
    events.row("export/switch", |fields| fields["on"] == true);
    assert!(site.runtime.block_on(switch.is_on()).unwrap());
    assert_eq!(site.post("/changes/turn-off", &change).status, 200);
    events.row("export/switch", |fields| fields["on"] == false);

    assert!(!site.runtime.block_on(switch.is_on()).unwrap());
    assert!(site.log().contains("turn off export/switch, by ann: a test: turned off"));
}

#[test]
fn switch_that_the_page_does_not_have_is_not_turned() {
    let site = Site::start(&["--allow-changes", "--token-file", "token", "--switch", "one"]);
    let change = json!({ "key": "two", "who": "ann", "why": "a test" });

    let refused = site.post("/changes/turn-on", &change);

    assert_eq!(refused.status, 400, "{refused:?}");
    assert_eq!(site.runtime.block_on(site.switch("two").state()).unwrap(), None);
}

#[test]
fn browser_turns_a_switch_off() {
    let site = Site::start(&["--allow-changes", "--switch", "export/switch"]);
    let switch = site.switch("export/switch");
    site.runtime.block_on(switch.turn_on()).unwrap();
    let Some(mut browser) = site.browser() else { return };
    browser.click("[data-view=switches]");
    browser.wait("document.getElementById('table').textContent.includes('✓ on')");

    browser.click(".row");
    let actions = "document.querySelectorAll('#dialog-actions button')";
    assert_eq!(
        browser.value(&format!("[...{actions}].map((one) => one.textContent).join()")),
        "Turn off…"
    );
    browser.click("#dialog-actions button");
    assert!(site.runtime.block_on(switch.is_on()).unwrap(), "asked once more");
    browser.value("document.getElementById('change-who').value = 'ann'");
    browser.value("document.getElementById('change-why').value = 'a test'");
    browser.click("#change-confirm");
    browser.wait("document.getElementById('dialog-result').textContent.startsWith('turned off')");

    browser.wait("document.getElementById('table').textContent.includes('✕ off')");
    assert!(!site.runtime.block_on(switch.is_on()).unwrap());
    browser.assert_no_errors();
}
