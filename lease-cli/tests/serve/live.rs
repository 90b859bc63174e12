//! Events: what changes in the store arrives at the browser.

use std::time::Duration;

use rustix::process::Signal;

use crate::site::{PATIENT, Site};

#[test]
fn release_arrives_as_an_event() {
    let site = Site::start(&[]);
    let locker = site.locker(Duration::from_secs(60));
    let (one, _two) = (site.obtain(&locker, "one"), site.obtain(&locker, "two"));
    let mut events = site.events("leases");
    let first = events.rows();
    let ids: Vec<_> = first["rows"].as_array().unwrap().iter().map(|row| row[0].clone()).collect();
    assert_eq!((ids, &first["whole"]), (vec!["one".into(), "two".into()], &true.into()));

    site.runtime.block_on(one.release()).unwrap();

    // Heartbeats of the other row may arrive first.
    loop {
        let event = events.rows();
        assert_eq!(event["whole"], false);
        for row in event["rows"].as_array().unwrap() {
            assert!(row[0] == "one" || row[2] == first["rows"][1][2], "{row}");
        }
        if event["gone"] == serde_json::json!(["one"]) {
            break;
        }
    }
}

#[test]
fn row_has_holder_grant_token_and_deadline() {
    let site = Site::start(&[]);
    let locker = site.locker(Duration::from_secs(60));
    let lease = site.obtain(&locker, "job");

    let event = site.events("leases").rows();

    let [id, deadline, fields] = event["rows"][0].as_array().unwrap().as_slice() else { panic!() };
    let left = deadline.as_u64().unwrap() - event["at"].as_u64().unwrap();
    assert!((1..=60_000).contains(&left), "{left}");
    assert_eq!(id, "job");
    assert_eq!(fields[0], lease.lessee().as_str());
    assert_eq!(fields[2], lease.token().to_string());
}

#[test]
fn only_keys_with_the_prefix_are_shown() {
    let site = Site::start(&["team/"]);
    let locker = site.locker(Duration::from_secs(60));
    let _leases = [site.obtain(&locker, "team/a"), site.obtain(&locker, "other")];

    let event = site.events("leases").rows();

    assert_eq!(event["rows"].as_array().unwrap().len(), 1);
    assert_eq!(event["rows"][0][0], "team/a");
}

#[test]
fn signal_ends_the_program_while_a_browser_listens() {
    let mut site = Site::start(&[]);
    let mut events = site.events("leases");
    events.rows();

    assert_eq!(site.terminate(), 128 + 15);
}

#[test]
fn several_browsers_get_all_rows() {
    let site = Site::start(&[]);
    let locker = site.locker(PATIENT);
    let _lease = site.obtain(&locker, "job");

    let mut all: Vec<_> = (0..8).map(|_| site.events("leases")).collect();

    for events in &mut all {
        assert_eq!(events.rows()["rows"][0][0], "job");
    }
}

#[test]
fn silence_of_the_program_is_shown() {
    let site = Site::start(&[]);
    let Some(mut browser) = site.browser() else { return };
    browser.wait("document.getElementById('state').textContent === 'live'");

    site.signal(Signal::STOP);
    browser.wait(
        "/^rows are old: .* for [0-9]+ s$/.test(document.getElementById('state').textContent)",
    );
    site.signal(Signal::CONT);

    browser.wait("document.getElementById('state').textContent === 'live'");
    browser.assert_no_errors();
}

#[test]
fn hidden_page_does_not_listen() {
    let site = Site::start(&[]);
    let lease = site.obtain(&site.locker(Duration::from_secs(60)), "job");
    let Some(mut browser) = site.browser() else { return };
    browser.wait("document.getElementById('count').textContent === '1'");
    let hide = |hidden: bool| {
        format!(
            "Object.defineProperty(document, 'hidden', {{ value: {hidden}, configurable: true }});
            document.dispatchEvent(new Event('visibilitychange'));
            document.getElementById('state').textContent"
        )
    };

    assert_eq!(browser.value(&hide(true)), "paused");
    let mut events = site.events("leases");
    events.rows();
    site.runtime.block_on(lease.release()).unwrap();
    while events.rows()["gone"] != serde_json::json!(["job"]) {}
    assert_eq!(browser.value("document.getElementById('count').textContent"), "1");
    assert_eq!(browser.value(&hide(false)), "connecting");

    browser.wait("document.getElementById('count').textContent === '0'");
    browser.assert_no_errors();
}

#[cfg(feature = "redis")]
#[test]
fn signal_ends_the_program_while_it_opens_the_store() {
    use std::net::TcpListener;
    use std::sync::mpsc::channel;
    use std::thread;

    use lease_test_servers::tools::memory_folder;
    use rustix::process::{Pid, kill_process};

    use crate::site::{command, ended};

    let folder = tempfile::tempdir_in(memory_folder()).unwrap();
    // A server that accepts connections, and answers nothing.
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut command = command(folder.path(), &[]);
    command.env("LEASE_STORE", format!("redis://{}", server.local_addr().unwrap()));
    let mut program = command.spawn().unwrap();
    let (send, accepted) = channel();
    thread::spawn(move || send.send(server.accept()));
    let connection = accepted.recv_timeout(PATIENT).unwrap().unwrap();

    kill_process(Pid::from_child(&program), Signal::TERM).unwrap();

    assert_eq!(ended(&mut program).code(), Some(128 + 15));
    drop(connection);
}
