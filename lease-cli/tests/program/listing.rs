//! The commands `ls`, `who` and `watch`.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use crate::place::{Place, text};

#[test]
fn held_keys_are_listed_by_prefix_in_order() {
    let place = Place::new();
    for key in ["b/2", "b/1", "a"] {
        assert_eq!(place.code(&["take", key, "--ttl", "1h"]), 0);
    }

    let all = place.output(&["ls"]);
    let some = place.output(&["ls", "b/"]);

    let keys = |output: &[u8]| -> Vec<String> {
        text(output).lines().map(|line| line.split('\t').next().unwrap().to_owned()).collect()
    };
    assert_eq!(keys(&all.stdout), ["a", "b/1", "b/2"]);
    assert_eq!(keys(&some.stdout), ["b/1", "b/2"]);
    assert_eq!(text(&all.stdout).lines().next().unwrap().split('\t').count(), 6);
}

#[test]
fn long_list_has_free_keys_and_attributes() {
    let place = Place::new();
    // The record of a released key stays for a while.
    assert_eq!(place.code(&["run", "job", "--keep-for", "1h", "--", "true"]), 0);
    assert_eq!(place.code(&["take", "held", "--ttl", "1h"]), 0);

    let long = place.output(&["--json", "ls", "--long"]);

    let shown = text(&long.stdout);
    assert!(shown.contains("\"key\":\"held\""), "{shown}");
    assert!(shown.lines().all(|line| line.contains("\"attributes\":{}")), "{shown}");
}

#[test]
fn who_exits_with_0_for_a_held_key_and_1_for_a_free_one() {
    let place = Place::new();
    assert_eq!(place.code(&["take", "job", "--ttl", "1h"]), 0);

    let held = place.output(&["--json", "who", "job"]);
    let free = place.output(&["--json", "who", "other"]);

    assert_eq!((held.status.code(), free.status.code()), (Some(0), Some(1)));
    let held = text(&held.stdout);
    for field in
        ["\"expires_in\":3", "\"holder\":\"", "\"grant\":\"", "\"token\":", "\"started\":\"2"]
    {
        assert!(held.contains(field), "{held}");
    }
    assert!(text(&free.stdout).contains("\"holder\":null"));
}

#[test]
fn unknown_value_is_a_dash() {
    let place = Place::new();

    let free = place.output(&["who", "job"]);

    assert_eq!(text(&free.stdout), "job\t–\t–\t–\t–\t–\n");
}

#[test]
fn watch_prints_a_line_per_change() {
    let place = Place::new();
    let taken = place.output(&["take", "job/1", "--ttl", "1h"]);
    let mut command = place.lease(&["watch", "job/", "--interval", "10ms"]);
    let mut watcher = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(watcher.stdout.take().unwrap()).lines();
    let mut next = || {
        let line = lines.next().unwrap().unwrap();
        let fields: Vec<_> = line.split('\t').map(str::to_owned).collect();
        (fields[1].clone(), fields[2].clone())
    };
    let pair = |state: &str, key: &str| (state.to_owned(), key.to_owned());

    assert_eq!(next(), pair("held", "job/1"));
    assert_eq!(place.code(&["take", "job/2", "--ttl", "1h"]), 0);
    assert_eq!(next(), pair("held", "job/2"));
    assert_eq!(place.code(&["give", text(&taken.stdout).trim_end()]), 0);
    // `give` resumes the lease before it releases the key, which the watch may see.
    let mut changes = std::iter::repeat_with(next).skip_while(|change| change.0 == "held");
    assert_eq!(changes.next(), Some(pair("free", "job/1")));

    watcher.kill().unwrap();
    watcher.wait().unwrap();
}

#[test]
fn closed_pipe_ends_the_output_without_a_message() {
    let place = Place::new();
    for number in 0..3 {
        assert_eq!(place.code(&["take", &format!("job/{number}"), "--ttl", "1h"]), 0);
    }
    let mut command = place.lease(&["watch", "--interval", "10ms"]);
    let mut watcher = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();

    drop(watcher.stdout.take());
    // A change makes the watch write again.
    assert_eq!(place.code(&["take", "more", "--ttl", "1h"]), 0);
    let output = watcher.wait_with_output().unwrap();

    assert_eq!(output.status.code(), Some(0));
    assert!(output.stderr.is_empty(), "{output:?}");
}
