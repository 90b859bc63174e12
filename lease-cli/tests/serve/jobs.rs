//! The view of jobs: what it shows, and what it changes.

use serde_json::{Value, json};

use crate::http::Events;
use crate::site::Site;

fn change(job: &str) -> Value {
    json!({ "job": job, "who": "ann", "why": "a test" })
}

/// Waits until the row of a job is as wanted, and returns its fields.
fn fields(events: &mut Events, job: &str, is_wanted: impl FnMut(&Value) -> bool) -> Value {
    events.row(job, is_wanted)[2].clone()
}

#[test]
fn job_is_paused_and_resumed_from_the_page() {
    let site = Site::with_token();
    let jobs = site.start_jobs();
    let mut events = site.events("jobs");
    let shown = fields(&mut events, "nightly", |_| true);
    assert!(shown["next"].as_str().unwrap().ends_with("-01-01T03:00:00Z"), "{shown}");
    assert_eq!(shown["paused"], Value::Null);

    assert_eq!(site.post("/changes/pause", &change("nightly")).status, 200);
    let shown = fields(&mut events, "nightly", |fields| fields["paused"] != Value::Null);
    assert_eq!(shown["why"], "ann: a test");
    let status = site.runtime.block_on(jobs.control.job("nightly")).unwrap().unwrap();
    assert!(status.paused.is_some());
    assert_eq!(site.post("/changes/resume", &change("nightly")).status, 200);
    fields(&mut events, "nightly", |fields| fields["paused"] == Value::Null);

    assert!(site.log().contains("pause nightly, by ann: a test: paused"), "{}", site.log());
}

#[test]
fn job_is_triggered_once_with_arguments() {
    let site = Site::with_token();
    let jobs = site.start_jobs();
    let mut events = site.events("jobs");
    fields(&mut events, "import", |_| true);
    let mut trigger = change("import");
    trigger["id"] = "click-1".into();
    trigger["arguments"] = json!({ "day": "monday" });

    assert_eq!(site.post("/changes/trigger", &trigger).status, 200);
    fields(&mut events, "import", |fields| fields["runs"][0]["ending"] == "running");
    let repeated = site.post("/changes/trigger", &trigger);
    assert_eq!(repeated.status, 200);
    assert!(repeated.body.contains("was sent before"), "{repeated:?}");
    jobs.finish.notify_one();

    let shown = fields(&mut events, "import", |fields| fields["runs"][0]["ending"] == "finished");
    assert_eq!(shown["runs"].as_array().unwrap().len(), 1);
    assert_eq!(shown["runs"][0]["note"], "monday");
}

#[test]
fn unknown_job_is_refused() {
    let site = Site::with_token();
    let mut unknown = change("unknown");
    unknown["id"] = "1".into();

    for path in ["pause", "resume", "trigger"] {
        let answer = site.post(&format!("/changes/{path}"), &unknown);
        assert_eq!(answer.status, 400, "{path}: {answer:?}");
        assert!(answer.body.contains("no job has the name"), "{answer:?}");
    }
}

#[test]
fn browser_runs_and_pauses_a_job() {
    let site = Site::start(&["--allow-changes"]);
    let jobs = site.start_jobs();
    let Some(mut browser) = site.browser() else { return };
    browser.resize(1000, 420);
    browser.tab_to("tab-leases");
    browser.press("ArrowRight");
    browser.press("Enter");
    browser.wait("document.getElementById('count').textContent === '2'");

    for (button, arguments, result) in
        [("Run now…", "day=friday", "trigger"), ("Pause…", "", "paused")]
    {
        browser.click(".row");
        browser.value(&format!(
            "[...document.querySelectorAll('#dialog-actions button')]
                .find((button) => button.textContent === '{button}').click()"
        ));
        for (field, text) in [("arguments", arguments), ("who", "ann"), ("why", "a test")] {
            browser.value(&format!("document.getElementById('change-{field}').value = '{text}'"));
        }
        browser.click("#change-confirm");
        browser.wait(&format!(
            "document.getElementById('dialog-result').textContent.startsWith('{result}')"
        ));
        browser.click("#dialog-close");
        jobs.finish.notify_one();
    }

    browser.wait("document.querySelector('.run.finished')");
    assert_eq!(browser.value("document.querySelector('.run.finished').textContent"), "✓");
    assert_eq!(
        browser.value("document.querySelector('.bar').getAttribute('aria-label')"),
        "finished"
    );
    browser.wait("document.getElementById('table').textContent.includes('paused')");
    browser.picture("jobs");
    let status = site.runtime.block_on(jobs.control.job("import")).unwrap().unwrap();
    assert_eq!(status.runs[0].note, "friday");
    assert!(status.paused.is_some());
    browser.assert_no_errors();
}
