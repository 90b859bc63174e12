//! The dialog of a row, in a real browser.

use std::time::Duration;

use serde_json::Value;

use crate::browser::Browser;
use crate::site::{Site, TOKEN};

impl Browser {
    /// Opens the dialog of a row in sight, and asks for its eviction.
    pub(crate) fn ask_for_eviction(&mut self, key: &str) {
        let rows = "[...document.querySelectorAll('.row:not([hidden])')]";
        let row = format!("{rows}.find((row) => row.textContent.includes('{key}'))");
        self.wait(&row);
        self.value(&format!("{row}.click()"));
        self.click("#dialog-actions button");
        self.value("document.getElementById('change-who').value = 'ann'");
        self.value("document.getElementById('change-why').value = 'a test'");
    }

    fn result(&mut self) -> Value {
        self.value("document.getElementById('dialog-result').textContent")
    }
}

#[test]
fn answer_of_another_row_is_not_shown() {
    let site = Site::start(&["--allow-changes"]);
    let locker = site.locker(Duration::from_secs(60));
    let _leases = [site.obtain(&locker, "one"), site.obtain(&locker, "two")];
    let Some(mut browser) = site.browser() else { return };
    browser.ask_for_eviction("one");
    // The answer arrives when the test calls `answer`.
    browser.value("window.fetch = () => new Promise((done) => { window.answer = done; }); 0");
    browser.click("#change-confirm");
    browser.click("#dialog-close");
    browser.ask_for_eviction("two");

    browser.value(
        "window.answer({ status: 200, text: async () => 'evicted' });
        new Promise((done) => setTimeout(() => done(0)))",
    );

    assert_eq!(browser.result(), "");
    assert_eq!(browser.value("document.getElementById('change').hidden"), false);
    assert_eq!(browser.value("document.getElementById('change-confirm').disabled"), false);
    browser.assert_no_errors();
}

#[test]
fn token_that_no_header_has_is_asked_for_again() {
    let site = Site::with_token();
    let lease = site.obtain(&site.locker(Duration::from_secs(60)), "job");
    let Some(mut browser) = site.browser() else { return };
    browser.ask_for_eviction("job");

    browser.value("document.getElementById('change-token').value = 'gültig und geheim'");
    browser.click("#change-confirm");
    browser.wait("document.getElementById('dialog-result').textContent.includes('visible ASCII')");
    assert_eq!(browser.value("sessionStorage.getItem('token')"), Value::Null);
    browser.value(&format!("document.getElementById('change-token').value = '{TOKEN}'"));
    browser.click("#change-confirm");
    browser.wait("document.getElementById('dialog-result').textContent.startsWith('evicted')");

    assert!(!site.extends(&lease));
    assert_eq!(browser.value("sessionStorage.getItem('token')"), TOKEN);
    browser.assert_no_errors();
}

#[test]
fn names_of_a_store_are_text_on_the_page() {
    let site = Site::start(&["--allow-changes"]);
    let key = "<img src=x onerror=document.title=1>";
    let _lease = site.obtain(&site.locker(Duration::from_secs(60)), key);
    let Some(mut browser) = site.browser() else { return };

    browser.ask_for_eviction(key);

    assert_eq!(browser.value("document.getElementById('dialog-title').textContent"), key);
    assert_eq!(browser.value("document.querySelector('img')"), Value::Null);
    assert_eq!(browser.value("document.title"), "Leases");
    browser.assert_no_errors();
}
