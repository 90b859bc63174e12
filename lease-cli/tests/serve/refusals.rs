//! Requests that the page refuses.

use std::process::Stdio;
use std::time::Duration;

use lease_core::Lease;
use lease_test_servers::tools::memory_folder;
use serde_json::json;

use crate::http::JSON;
use crate::site::{Site, TOKEN, command, ended};

/// Holds the key `job`, and returns the request that would evict its holder.
fn held(site: &Site) -> (Lease, String) {
    let lease = site.obtain(&site.locker(Duration::from_secs(60)), "job");
    let grant = lease.token().to_string();
    let change = json!({ "key": "job", "grant": grant, "who": "ann", "why": "a test" });
    (lease, change.to_string())
}

#[test]
fn wrong_host_is_refused() {
    let site = Site::with_token();
    let (lease, change) = held(&site);
    let port = site.host.split(':').nth(1).unwrap();
    let rebound = format!("evil.test:{port}");

    for host in ["evil.test", &rebound, "127.0.0.1", "localhost"] {
        for path in ["/", "/main.js", "/settings", "/events/leases"] {
            let answer = site.request(&format!("GET {path}"), &[("host", host)], "");
            assert_eq!(answer.status, 403, "{host} {path}");
            assert!(!answer.body.contains("script"), "{answer:?}");
        }
        let headers = [("host", host), ("lease-token", TOKEN), JSON];
        assert_eq!(site.request("POST /changes/evict", &headers, &change).status, 403, "{host}");
    }
    let named = format!("localhost:{port}");
    assert_eq!(site.request("GET /", &[("host", &named)], "").status, 200);
    assert!(site.extends(&lease));
}

#[test]
fn wrong_origin_is_refused() {
    let site = Site::with_token();
    let (lease, change) = held(&site);

    for origin in ["http://evil.test", "null", "http://127.0.0.1:1", "file://"] {
        let headers = [("host", &*site.host), ("origin", origin), ("lease-token", TOKEN), JSON];
        assert_eq!(site.request("POST /changes/evict", &headers, &change).status, 403, "{origin}");
        let read = [("host", &*site.host), ("origin", origin)];
        assert_eq!(site.request("GET /events/leases", &read, "").status, 403, "{origin}");
    }
    assert!(site.extends(&lease));
}

#[test]
fn get_changes_nothing() {
    let site = Site::with_token();
    let (lease, change) = held(&site);
    let headers = [("host", &*site.host), ("lease-token", TOKEN), JSON];

    for change_path in ["evict", "pause", "resume", "trigger"] {
        for method in ["GET", "HEAD", "PUT", "DELETE", "OPTIONS"] {
            let answer =
                site.request(&format!("{method} /changes/{change_path}"), &headers, &change);
            assert_eq!(answer.status, 405, "{method} {change_path}");
        }
    }
    assert!(site.extends(&lease));
}

#[test]
fn change_without_the_token_is_refused() {
    let site = Site::with_token();
    let (lease, change) = held(&site);
    let (longer, shorter) = (format!("{TOKEN}x"), &TOKEN[1..]);
    let bearer = format!("Bearer {TOKEN}");
    let cookie = format!("token={TOKEN}");

    let wrong = ["wrong", "", &longer, shorter, &bearer];
    let mut tries: Vec<_> = wrong.iter().map(|text| ("lease-token", *text)).collect();
    tries.extend([("cookie", &*cookie), ("authorization", &*bearer), ("x-other", "")]);
    for path in ["evict", "pause", "resume", "trigger"] {
        for header in &tries {
            let headers = [("host", &*site.host), *header, JSON];
            let answer = site.request(&format!("POST /changes/{path}"), &headers, &change);
            assert_eq!(answer.status, 401, "{path} {header:?}");
        }
    }
    let in_query = format!("POST /changes/evict?token={TOKEN}");
    assert_eq!(site.request(&in_query, &[("host", &site.host), JSON], &change).status, 401);
    assert!(site.extends(&lease));
    assert!(site.log().contains("refused /evict: wrong token, or none"), "{}", site.log());
}

#[test]
fn page_is_read_only_by_default() {
    let site = Site::start(&[]);
    let (lease, change) = held(&site);

    let settings = site.get("/settings");
    let refused = site.request("POST /changes/evict", &[("host", &site.host), JSON], &change);

    assert!(settings.body.contains("\"changes\":false"), "{settings:?}");
    assert_eq!(refused.status, 403, "{refused:?}");
    assert_eq!(site.token, None);
    assert!(site.extends(&lease));
}

#[test]
fn token_of_the_environment_is_needed() {
    let site = Site::with_token_in_environment();
    let (lease, change) = held(&site);
    let headers = [("host", &*site.host), JSON];

    assert_eq!(site.request("POST /changes/evict", &headers, &change).status, 401);
    assert!(site.extends(&lease));
    let change: serde_json::Value = serde_json::from_str(&change).unwrap();
    assert_eq!(site.post("/changes/evict", &change).status, 200);
    assert_eq!(site.token, None, "the token is not printed");
}

#[test]
fn unsafe_settings_exit_before_the_page_is_served() {
    let folder = tempfile::tempdir_in(memory_folder()).unwrap();
    std::fs::write(folder.path().join("short"), "123456789").unwrap();

    for (options, code) in [
        (&["--allow-changes", "--token-file", "short"][..], 78),
        (&["--allow-changes", "--token-file", "missing"], 78),
        (&["--token-file", "short"], 64),
        (&["--listen", "0.0.0.0:0"], 78),
    ] {
        let mut command = command(folder.path(), options);
        let mut program = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        ended(&mut program);
        let output = program.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{options:?} {output:?}");
        assert!(output.stdout.is_empty(), "{output:?}");
    }
}

#[test]
fn token_is_in_no_answer_and_no_log() {
    let given = Site::with_token();
    let random = Site::start(&["--allow-changes"]);

    for (site, token) in [(&given, TOKEN), (&random, random.token.as_deref().unwrap())] {
        for path in ["/", "/page.css", "/main.js", "/change.js", "/settings", "/unknown"] {
            let answer = site.get(path);
            assert!(!answer.body.contains(token) && !answer.head.contains(token), "{path}");
        }
        assert!(!site.log().contains(token));
    }
    assert!(!given.url.contains(TOKEN));
    assert_eq!(random.token.as_deref().map(str::len), Some(32));
}

#[test]
fn every_answer_limits_the_browser() {
    let site = Site::start(&[]);

    for path in ["/", "/main.js", "/settings", "/unknown", "/changes/evict"] {
        let head = site.get(path).head;
        for header in [
            "content-security-policy: default-src 'none'; script-src 'self'; style-src 'self'",
            "frame-ancestors 'none'",
            "x-content-type-options: nosniff",
            "referrer-policy: no-referrer",
            "cache-control: no-store",
            "cross-origin-resource-policy: same-origin",
        ] {
            assert!(head.contains(header), "{path}: {header}: {head}");
        }
        assert!(!head.contains("access-control-allow"), "{head}");
    }
}
