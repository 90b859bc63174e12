//! How a daemon ends.

use rustix::process::Signal;

use crate::daemon::is_there;
use crate::place::{Place, raw};

#[tokio::test(flavor = "multi_thread")]
async fn after_a_stop_in_good_order_nothing_is_read_twice_and_no_child_is_left() {
    let Some(command) = raw() else { return };
    let place = Place::of_shards(4, command).await;
    let producer = place.stream.produce();
    let first = place.start("first");
    place.until("100 are read", &[&first], |notes| notes.distinct() >= 100).await;
    first.signal(Signal::TERM);
    let mut first = first;
    assert!(first.ended().await.success(), "{}", first.log());
    let notes = place.notes();
    assert_eq!(notes.of("requested").len(), 4, "{notes}");
    assert_eq!(notes.of("lost").len(), 4, "{notes}");
    assert_eq!(notes.of("gone").len(), 4, "each has read the end of its stdin\n{notes}");
    assert!(!notes.children().into_iter().any(is_there));

    let second = place.start("second");
    producer.has_put_more(50).await;
    let put = producer.end().await;
    let total: usize = put.values().sum();
    let notes = place.until("all is read", &[&second], |notes| notes.distinct() >= total).await;

    assert_eq!(notes.of("record").len(), total, "{notes}");
    notes.are_right(&put, &place.stream.shards().await);
    second.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_signal_ends_it_at_once_and_its_children_with_it() {
    let Some(command) = raw() else { return };
    let place = Place::of_shards(2, command).await.with_variable("TROUBLE", "hangs");
    let place = place.with_variable("TROUBLED", "0");
    let trouble = place.folder.join("trouble").display().to_string();
    let place = place.with_variable("TROUBLE_FILE", trouble);
    let producer = place.stream.produce();
    let mut daemon = place.start("one");
    place.until("one hangs", &[&daemon], |notes| !notes.of("trouble").is_empty()).await;
    producer.end().await;

    daemon.signal(Signal::INT);
    daemon.until_logged("told to stop").await;
    daemon.signal(Signal::INT);

    let status = daemon.ended().await;
    assert_eq!(status.code(), Some(1), "{}", daemon.log());
    let children = place.notes().children();
    let gone = || !children.iter().any(|child| is_there(*child));
    daemon.until("no child is left", gone).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_child_that_does_not_stop_is_killed_when_the_grace_time_is_over() {
    let Some(command) = raw() else { return };
    let place = Place::of_shards(2, command).await.with_variable("TROUBLE", "hangs");
    let trouble = place.folder.join("trouble").display().to_string();
    let place = place.with_variable("TROUBLED", "0").with_variable("TROUBLE_FILE", trouble);
    let place = place.with("shutdownGraceMillis = 500");
    let producer = place.stream.produce();
    let mut daemon = place.start("one");
    place.until("one hangs", &[&daemon], |notes| !notes.of("trouble").is_empty()).await;
    producer.end().await;

    daemon.signal(Signal::TERM);

    assert!(daemon.ended().await.success(), "{}", daemon.log());
    assert!(!place.notes().children().into_iter().any(is_there));
    assert_eq!(place.notes().of("requested").len(), 1, "the other one was asked");
}

/// One that reads its stdin ends by itself: this one does not.
#[tokio::test(flavor = "multi_thread")]
#[cfg(target_os = "linux")]
async fn a_child_that_hangs_does_not_outlive_a_daemon_that_is_killed() {
    let Some(command) = raw() else { return };
    let place = Place::of_shards(1, command).await.with_variable("TROUBLE", "hangs");
    let trouble = place.folder.join("trouble").display().to_string();
    let place = place.with_variable("TROUBLED", "0").with_variable("TROUBLE_FILE", trouble);
    let producer = place.stream.produce();
    let daemon = place.start("one");
    place.until("it hangs", &[&daemon], |notes| !notes.of("trouble").is_empty()).await;
    producer.end().await;
    let child = place.notes().of("trouble")[0].child;

    daemon.signal(Signal::KILL);

    daemon.until("the child is gone", || !is_there(child)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn where_that_is_wanted_a_child_that_fails_ends_the_daemon() {
    let Some(command) = raw() else { return };
    let place = Place::of_shards(2, command).await.with("onChildFailure = exit");
    let trouble = place.folder.join("trouble").display().to_string();
    let place = place.with_variable("TROUBLE", "dies in a line").with_variable("TROUBLED", "0");
    let place = place.with_variable("TROUBLE_FILE", trouble);
    let producer = place.stream.produce();
    let mut daemon = place.start("one");

    let status = daemon.ended().await;

    producer.end().await;
    assert_eq!(status.code(), Some(1), "{}", daemon.log());
    assert!(daemon.log().contains("a child has failed"), "{}", daemon.log());
    assert_eq!(place.notes().of("requested").len(), 1, "the other one was asked to stop");
}
