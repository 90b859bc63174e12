//! Job queues: the job of a crashed worker is delivered again.

use std::time::Duration;

use lease_core::store::{BootClock, Clock};

use crate::world::{VISIBILITY, World, everywhere};

everywhere! {
    jobs_are_delivered_in_order
    taken_job_is_invisible_until_visibility_ends
    kept_job_stays_invisible
    stale_delivery_changes_nothing
    returned_job_is_redelivered_after_its_delay
    redelivered_job_is_at_the_end
    replace_removes_all_jobs_without_worker
    finished_job_is_not_redelivered
    waiting_worker_gets_new_job
    briefly_waiting_worker_gets_new_job
}

const NOW: Duration = Duration::ZERO;

async fn jobs_are_delivered_in_order(world: World) {
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

    for body in ["a", "b", "c"] {
        let delivery = queue.take(VISIBILITY * 4).await.unwrap().unwrap();
        assert_eq!((delivery.body(), delivery.number()), (body, 2));
    }
}

async fn taken_job_is_invisible_until_visibility_ends(world: World) {
    let queue = world.queue();
    let id = queue.enqueue("a").await.unwrap();

    let first = queue.take(NOW).await.unwrap().unwrap();
    assert_eq!(queue.take(NOW).await.unwrap(), None);
    let second = queue.take(VISIBILITY * 4).await.unwrap().unwrap();

    assert_eq!((first.id(), first.number()), (id, 1));
    assert_eq!((second.id(), second.number()), (id, 2));
    assert!(second.waited() >= VISIBILITY, "{second:?}");
}

async fn kept_job_stays_invisible(world: World) {
    let queue = world.queue();
    queue.enqueue("a").await.unwrap();
    let delivery = queue.take(NOW).await.unwrap().unwrap();

    for _ in 0..6 {
        assert!(queue.keep(&delivery).await.unwrap());
        assert_eq!(queue.take(VISIBILITY / 3).await.unwrap(), None);
    }
}

async fn stale_delivery_changes_nothing(world: World) {
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

async fn returned_job_is_redelivered_after_its_delay(world: World) {
    let queue = world.queue();
    queue.enqueue("a").await.unwrap();
    let delivery = queue.take(NOW).await.unwrap().unwrap();

    assert!(queue.give_back(&delivery, VISIBILITY / 2).await.unwrap());

    assert_eq!(queue.take(NOW).await.unwrap(), None);
    let again = queue.take(VISIBILITY * 2).await.unwrap().unwrap();
    assert_eq!(again.number(), 2);
}

async fn redelivered_job_is_at_the_end(world: World) {
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

async fn replace_removes_all_jobs_without_worker(world: World) {
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
    assert!(queue.finish(&at_work).await.unwrap(), "a taken job stays in the queue");
    assert!(!queue.finish(&returned).await.unwrap());
}

async fn finished_job_is_not_redelivered(world: World) {
    let queue = world.queue();
    queue.enqueue("a").await.unwrap();
    let delivery = queue.take(NOW).await.unwrap().unwrap();

    assert!(queue.finish(&delivery).await.unwrap());
    assert!(!queue.finish(&delivery).await.unwrap());

    assert_eq!(queue.take(VISIBILITY * 2).await.unwrap(), None);
    assert_eq!(queue.count().await.unwrap(), 0);
}

async fn waiting_worker_gets_new_job(world: World) {
    let queue = world.queue();
    let taking = queue.take(Duration::from_secs(30));
    let enqueuing = async {
        tokio::task::yield_now().await;
        world.queue().enqueue("a").await.unwrap()
    };

    let (taken, id) = tokio::join!(taking, enqueuing);

    assert_eq!(taken.unwrap().unwrap().id(), id);
}

async fn briefly_waiting_worker_gets_new_job(world: World) {
    let queue = world.queue();

    let (patience, clock) = (Duration::from_millis(80), BootClock::new());
    loop {
        let since = clock.now();
        let (taken, after) = tokio::join!(queue.take(patience), async {
            // Waits until `take` has polled once without a job.
            tokio::time::sleep(Duration::from_millis(20)).await;
            queue.enqueue("a").await.unwrap();
            clock.now().since(since)
        });
        if let Some(taken) = taken.unwrap() {
            assert_eq!(taken.body(), "a");
            return;
        }

        assert!(after >= patience, "no delivery, although the job was enqueued after {after:?}");
        // The machine stalled, so the test enqueued the job after `patience`. The test tries again.
        let late = queue.take(NOW).await.unwrap().unwrap();
        assert!(queue.finish(&late).await.unwrap());
    }
}
