//! Queues: no job is lost with its worker.

use std::time::Duration;

use lease_core::store::{BootClock, Clock};

use crate::world::{VISIBILITY, World, everywhere};

everywhere! {
    jobs_come_in_the_order_in_which_they_were_enqueued
    a_job_that_was_taken_is_out_of_sight_until_its_visibility_is_over
    a_job_that_is_kept_stays_out_of_sight
    a_late_worker_changes_nothing_of_a_job_that_another_has
    a_job_that_is_given_back_comes_again_after_its_delay
    a_job_that_comes_again_is_at_the_end
    one_job_replaces_all_that_nobody_has
    a_job_that_is_finished_never_comes_again
    a_worker_that_waits_gets_a_job_that_comes_meanwhile
    a_worker_that_waits_briefly_gets_a_job_that_comes_meanwhile
}

const NOW: Duration = Duration::ZERO;

async fn jobs_come_in_the_order_in_which_they_were_enqueued(world: World) {
    let queue = world.queue();
    for body in ["a", "b", "c"] {
        queue.enqueue(body).await.unwrap();
    }

    for body in ["a", "b", "c"] {
        let delivery = queue.take(NOW).await.unwrap().unwrap();
        assert_eq!((delivery.body(), delivery.number()), (body, 1));
    }
    assert_eq!(queue.take(NOW).await.unwrap(), None);
    assert_eq!(queue.count().await.unwrap(), 3);

    // They come again in that order, too.
    for body in ["a", "b", "c"] {
        let delivery = queue.take(VISIBILITY * 4).await.unwrap().unwrap();
        assert_eq!((delivery.body(), delivery.number()), (body, 2));
    }
}

async fn a_job_that_was_taken_is_out_of_sight_until_its_visibility_is_over(world: World) {
    let queue = world.queue();
    let id = queue.enqueue("a").await.unwrap();

    let first = queue.take(NOW).await.unwrap().unwrap();
    assert_eq!(queue.take(NOW).await.unwrap(), None);
    let second = queue.take(VISIBILITY * 4).await.unwrap().unwrap();

    assert_eq!((first.id(), first.number()), (id, 1));
    assert_eq!((second.id(), second.number()), (id, 2));
    assert!(second.waited() >= VISIBILITY, "{second:?}");
}

async fn a_job_that_is_kept_stays_out_of_sight(world: World) {
    let queue = world.queue();
    queue.enqueue("a").await.unwrap();
    let delivery = queue.take(NOW).await.unwrap().unwrap();

    for _ in 0..6 {
        assert!(queue.keep(&delivery).await.unwrap());
        assert_eq!(queue.take(VISIBILITY / 3).await.unwrap(), None);
    }
}

async fn a_late_worker_changes_nothing_of_a_job_that_another_has(world: World) {
    let queue = world.queue();
    queue.enqueue("a").await.unwrap();
    let late = queue.take(NOW).await.unwrap().unwrap();
    let last = queue.take(VISIBILITY * 4).await.unwrap().unwrap();

    assert!(!queue.keep(&late).await.unwrap());
    assert!(!queue.give_back(&late, NOW).await.unwrap());
    assert!(!queue.finish(&late).await.unwrap());

    assert_eq!(queue.take(NOW).await.unwrap(), None);
    assert!(queue.finish(&last).await.unwrap());
    assert_eq!(queue.count().await.unwrap(), 0);
}

async fn a_job_that_is_given_back_comes_again_after_its_delay(world: World) {
    let queue = world.queue();
    queue.enqueue("a").await.unwrap();
    let delivery = queue.take(NOW).await.unwrap().unwrap();

    assert!(queue.give_back(&delivery, VISIBILITY / 2).await.unwrap());

    assert_eq!(queue.take(NOW).await.unwrap(), None);
    let again = queue.take(VISIBILITY * 2).await.unwrap().unwrap();
    assert_eq!(again.number(), 2);
}

async fn a_job_that_comes_again_is_at_the_end(world: World) {
    let queue = world.queue();
    for body in ["a", "b"] {
        queue.enqueue(body).await.unwrap();
    }
    let returned = queue.take(NOW).await.unwrap().unwrap();

    assert!(queue.give_back(&returned, NOW).await.unwrap());

    for body in ["b", "a"] {
        let delivery = queue.take(NOW).await.unwrap().unwrap();
        assert_eq!(delivery.body(), body);
    }
}

async fn one_job_replaces_all_that_nobody_has(world: World) {
    let queue = world.queue();
    for body in ["a", "b", "c"] {
        queue.enqueue(body).await.unwrap();
    }
    let at_work = queue.take(NOW).await.unwrap().unwrap();
    let returned = queue.take(NOW).await.unwrap().unwrap();
    assert!(queue.give_back(&returned, NOW).await.unwrap());

    let id = queue.replace("d").await.unwrap();

    assert_eq!(queue.count().await.unwrap(), 2);
    let only = queue.take(NOW).await.unwrap().unwrap();
    assert_eq!((only.id(), only.body(), only.number()), (id, "d", 1));
    assert_eq!(queue.take(NOW).await.unwrap(), None);
    assert!(queue.finish(&at_work).await.unwrap(), "its worker has it");
    assert!(!queue.finish(&returned).await.unwrap());
}

async fn a_job_that_is_finished_never_comes_again(world: World) {
    let queue = world.queue();
    queue.enqueue("a").await.unwrap();
    let delivery = queue.take(NOW).await.unwrap().unwrap();

    assert!(queue.finish(&delivery).await.unwrap());
    assert!(!queue.finish(&delivery).await.unwrap());

    assert_eq!(queue.take(VISIBILITY * 2).await.unwrap(), None);
    assert_eq!(queue.count().await.unwrap(), 0);
}

async fn a_worker_that_waits_gets_a_job_that_comes_meanwhile(world: World) {
    let queue = world.queue();
    let taking = queue.take(Duration::from_secs(30));
    let enqueuing = async {
        tokio::task::yield_now().await;
        world.queue().enqueue("a").await.unwrap()
    };

    let (taken, id) = tokio::join!(taking, enqueuing);

    assert_eq!(taken.unwrap().unwrap().id(), id);
}

async fn a_worker_that_waits_briefly_gets_a_job_that_comes_meanwhile(world: World) {
    let queue = world.queue();

    let (patience, clock) = (Duration::from_millis(80), BootClock::new());
    loop {
        let since = clock.now();
        let (taken, after) = tokio::join!(queue.take(patience), async {
            // So that the first question is over.
            tokio::time::sleep(Duration::from_millis(20)).await;
            queue.enqueue("a").await.unwrap();
            clock.now().since(since)
        });
        if let Some(taken) = taken.unwrap() {
            assert_eq!(taken.body(), "a");
            return;
        }

        assert!(after >= patience, "it came {after:?} after the first question");
        // The machine stood still, and the job came too late: once more.
        let late = queue.take(NOW).await.unwrap().unwrap();
        assert!(queue.finish(&late).await.unwrap());
    }
}
