//! The page in a real browser. Each test is skipped if Chromium is not installed.

use std::time::Duration;

use lease_core::LossCause;
use tokio::time::timeout;

use crate::browser::Browser;
use crate::site::{PATIENT, Site, TOKEN};

/// The number of rows in sight that have this text.
fn rows_with(text: &str) -> String {
    format!(
        "[...document.querySelectorAll('.row:not([hidden])')]
            .filter((row) => row.textContent.includes('{text}')).length"
    )
}

#[test]
fn released_lease_leaves_the_page() {
    let site = Site::start(&[]);
    let locker = site.locker(Duration::from_secs(60));
    let lease = site.obtain(&locker, "nightly-backup");
    let _other = site.obtain(&locker, "leader");
    let Some(mut browser) = site.browser() else { return };
    browser.wait(&format!("{} === 1", rows_with("nightly-backup")));
    browser.value(
        "window.gone = new Promise((done) => new MutationObserver(() => {
            if (document.getElementById('count').textContent === '1') done(Date.now());
        }).observe(document.getElementById('count'), { childList: true })); 0",
    );

    site.runtime.block_on(lease.release()).unwrap();
    let released = browser.value("Date.now()");
    let gone = browser.value("window.gone");

    let taken = gone.as_i64().unwrap() - released.as_i64().unwrap();
    println!("a release is on the page after {taken} ms");
    assert_eq!(browser.value(&rows_with("nightly-backup")), 0);
    assert_eq!(browser.value(&rows_with("leader")), 1);
    browser.assert_no_errors();
}

#[test]
fn holder_is_evicted_with_the_keyboard_only() {
    let site = Site::start(&["--allow-changes"]);
    let locker = site.locker(Duration::from_secs(15));
    let _first = site.obtain(&locker, "job-1");
    let lease = site.obtain(&locker, "job-2");
    let Some(mut browser) = site.browser() else { return };
    browser.wait(&format!("{} === 1", rows_with("job-2")));
    assert_eq!(browser.value("location.hash"), "", "the token leaves the address");

    browser.tab_to("table");
    browser.press("ArrowDown");
    browser.press("ArrowDown");
    browser.press("Enter");
    browser.wait("document.getElementById('dialog').open");
    assert_eq!(browser.value("document.getElementById('dialog-title').textContent"), "job-2");
    browser.wait("document.activeElement.textContent === 'Evict…'");
    browser.press("Enter");
    assert_eq!(browser.value("document.activeElement.id"), "change-who");
    assert!(lease.is_held(), "asked once more");
    browser.picture("evict");
    browser.write("ann");
    browser.press("Tab");
    browser.write("it hangs");
    browser.tab_to("change-confirm");
    browser.press("Enter");
    browser.wait("document.getElementById('dialog-result').textContent.startsWith('evicted')");
    browser.press("Escape");

    browser.wait("!document.getElementById('dialog').open");
    let lost = site.runtime.block_on(async { timeout(PATIENT, lease.lost()).await }).unwrap();
    assert_eq!(lost.cause, LossCause::Revoked);
    assert!(site.log().contains("by ann: it hangs: evicted"), "{}", site.log());
    browser.assert_no_errors();
}

/// Opens the first row, and asks for its eviction.
fn ask_for_eviction(browser: &mut Browser) {
    browser.wait(&format!("{} === 1", rows_with("job")));
    browser.click(".row");
    browser.click("#dialog-actions button");
    browser.value("document.getElementById('change-who').value = 'ann'");
    browser.value("document.getElementById('change-why').value = 'a test'");
}

#[test]
fn wrong_token_is_refused_and_asked_for_again() {
    let site = Site::with_token();
    let lease = site.obtain(&site.locker(Duration::from_secs(60)), "job");
    let Some(mut browser) = site.browser() else { return };
    ask_for_eviction(&mut browser);

    browser.click("#change-confirm");
    assert_eq!(
        browser.value("document.getElementById('change-token').validity.valueMissing"),
        true
    );
    browser.value("document.getElementById('change-token').value = 'a-wrong-token'");
    browser.click("#change-confirm");
    browser.wait("document.getElementById('dialog-result').textContent.includes('wrong token')");
    assert!(site.extends(&lease));
    browser.value(&format!("document.getElementById('change-token').value = '{TOKEN}'"));
    browser.click("#change-confirm");
    browser.wait("document.getElementById('dialog-result').textContent.startsWith('evicted')");

    assert!(!site.extends(&lease));
}

#[test]
fn grant_that_has_ended_is_not_evicted() {
    let site = Site::start(&["--allow-changes"]);
    let locker = site.locker(Duration::from_secs(60));
    let former = site.obtain(&locker, "job");
    let Some(mut browser) = site.browser() else { return };
    ask_for_eviction(&mut browser);

    site.runtime.block_on(former.release()).unwrap();
    let lease = site.obtain(&locker, "job");
    browser.click("#change-confirm");
    browser.wait("document.getElementById('dialog-result').textContent.includes('not hold')");

    assert!(site.extends(&lease));
}

#[test]
fn page_without_changes_has_no_buttons_for_them() {
    let site = Site::start(&[]);
    let _lease = site.obtain(&site.locker(Duration::from_secs(60)), "job");
    let Some(mut browser) = site.browser() else { return };
    browser.wait(&format!("{} === 1", rows_with("job")));

    browser.click(".row");

    assert_eq!(browser.value("document.getElementById('dialog').open"), true);
    assert_eq!(browser.value("document.querySelectorAll('#dialog-actions button').length"), 0);
    browser.assert_no_errors();
}

#[test]
fn narrow_screen_needs_no_sideways_scrolling() {
    let site = Site::start(&["--allow-changes", "--application", "orders"]);
    let locker = site.locker(Duration::from_secs(60));
    let long = format!("team/{}", "a-long-name-".repeat(20));
    let _leases = [site.obtain(&locker, &long), site.obtain(&locker, "nightly-backup")];
    let Some(mut browser) = site.browser() else { return };
    browser.resize(360, 640);
    browser.wait(&format!("{} === 1", rows_with("nightly-backup")));

    let mut widths = Vec::new();
    let width = "Math.max(document.documentElement.scrollWidth, \
                 document.getElementById('table').scrollWidth, \
                 document.getElementById('dialog').scrollWidth)";
    for view in ["shards", "jobs", "leases"] {
        browser.click(&format!("[data-view={view}]"));
        browser.wait("document.getElementById('state').textContent === 'live'");
        widths.push(browser.value(width));
    }
    browser.picture("narrow");
    ask_for_eviction_of_first(&mut browser);
    widths.push(browser.value(width));

    for found in widths {
        assert!(found.as_u64().unwrap() <= 360, "{found}");
    }
}

fn ask_for_eviction_of_first(browser: &mut Browser) {
    browser.wait("document.querySelector('.row:not([hidden])')");
    browser.click(".row:not([hidden])");
    browser.click("#dialog-actions button");
}

#[test]
fn colours_follow_the_scheme() {
    let site = Site::start(&[]);
    let locker = site.locker(Duration::from_secs(60));
    let _leases = ["leader", "nightly-backup", "team/report"].map(|key| site.obtain(&locker, key));
    let Some(mut browser) = site.browser() else { return };
    browser.resize(900, 300);
    browser.wait(&format!("{} === 1", rows_with("leader")));
    let brightness = |browser: &mut Browser, what: &str| {
        let colour = browser.value(&format!("getComputedStyle(document.body)['{what}']"));
        let digits = colour.as_str().unwrap().trim_matches(|one: char| !one.is_ascii_digit());
        digits.split(", ").map(|part| part.parse::<u32>().unwrap()).sum::<u32>()
    };

    for (scheme, page_is_bright) in [("light", true), ("dark", false)] {
        browser.prefer(scheme);
        let (page, text) =
            (brightness(&mut browser, "backgroundColor"), brightness(&mut browser, "color"));
        assert_eq!(page > text, page_is_bright, "{scheme}: {page} {text}");
        assert!(page.abs_diff(text) > 400, "{scheme}: {page} {text}");
        browser.picture(&format!("leases-{scheme}"));
    }
}

#[test]
fn filter_and_keys_find_a_row_among_many() {
    let site = Site::start(&[]);
    let locker = site.locker(Duration::from_secs(300));
    let _leases: Vec<_> =
        (0..300).map(|number| site.obtain(&locker, &format!("key-{number:03}"))).collect();
    let Some(mut browser) = site.browser() else { return };
    browser.wait("document.getElementById('count').textContent === '300'");
    assert!(browser.value("document.querySelectorAll('.row').length").as_u64().unwrap() < 100);

    browser.tab_to("table");
    browser.press("End");
    browser.press("End");
    browser.wait(&format!("{} === 1", rows_with("key-299")));
    let chosen = "document.querySelector('[aria-selected=true].row').textContent";
    assert!(browser.value(chosen).as_str().unwrap().starts_with("key-299"));
    browser.press("/");
    assert_eq!(browser.value("document.activeElement.id"), "filter");
    browser.write("-012");
    browser.wait("document.getElementById('count').textContent === '1 of 300'");

    assert_eq!(browser.value(&rows_with("key-012")), 1);
    browser.assert_no_errors();
}
