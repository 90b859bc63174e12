//! Buffers: order, room, and former holders.

use lease_export::{
    Appended, Capacity, EventBuffer, Fenced, Intake, Most, Overflow, Pending, StopCause,
};

use crate::world::{World, event, everywhere, token};

everywhere! {
    events_are_read_in_the_order_of_their_appends_and_stay
    what_is_removed_is_what_was_named
    reads_are_bounded_by_count_and_by_bytes
    a_former_holder_reads_and_removes_nothing
    what_is_full_refuses_all_of_an_append
    what_drops_the_oldest_counts_them
    what_pauses_takes_nothing_until_it_is_drained
    a_pause_that_was_there_already_is_no_other
    below_its_capacity_nothing_is_paused
    what_an_operator_stopped_stays_stopped_when_it_is_drained
    only_what_is_stopped_is_cleared_and_no_position_comes_twice
    whatever_is_in_an_event_comes_back_as_it_was
}

const ALL: usize = 1 << 20;

/// All of them, a piece at a time, as an exporter reads them.
async fn read(buffer: &dyn EventBuffer, number: u64) -> Vec<Pending> {
    let mut all: Vec<Pending> = Vec::new();
    loop {
        let after = all.last().map(Pending::position);
        match buffer.read(token(number), after, Most::new(1_000, ALL)).await.unwrap() {
            Fenced::Done(read) if read.is_empty() => return all,
            Fenced::Done(read) => all.extend(read),
            stale @ Fenced::Stale { .. } => panic!("{stale:?}"),
        }
    }
}

fn numbers(read: &[Pending]) -> Vec<String> {
    read.iter().map(|pending| pending.event().id().to_string()).collect()
}

fn capacity(events: u64, overflow: Overflow) -> Capacity {
    Capacity::new(events, overflow).unwrap()
}

async fn events_are_read_in_the_order_of_their_appends_and_stay(world: World) {
    let buffer = world.buffer();
    let _kept = buffer.append(&[event(1), event(2)]).await.unwrap();
    let _kept = buffer.append(&[event(3)]).await.unwrap();
    let _kept = buffer.append(&[]).await.unwrap();

    for _ in 0..2 {
        let read = read(&*buffer, 1).await;
        assert_eq!(numbers(&read), ["event-1", "event-2", "event-3"]);
        assert!(read.is_sorted_by_key(Pending::position));
    }
    assert_eq!(buffer.pending().await.unwrap(), 3);
}

async fn what_is_removed_is_what_was_named(world: World) {
    let buffer = world.buffer();
    for _ in 0..17 {
        world.append(1_000).await;
    }
    let before = read(&*buffer, 1).await;
    // Every other one: more than the 8,000 that fit on a script's stack at once.
    let odd: Vec<_> = before.iter().step_by(2).map(Pending::position).collect();
    let _kept = buffer.append(&[event(9_999)]).await.unwrap();

    let first = buffer.remove(token(1), &odd).await.unwrap();
    let again = buffer.remove(token(1), &odd).await.unwrap();

    assert_eq!((first, again), (Fenced::Done(8_500), Fenced::Done(0)));
    let after = read(&*buffer, 1).await;
    assert_eq!(after.len(), 8_501);
    assert_eq!(numbers(&after)[..2], ["event-2", "event-4"]);
}

async fn reads_are_bounded_by_count_and_by_bytes(world: World) {
    let buffer = world.buffer();
    world.append(1_000).await;
    let of = async |after, most| match buffer.read(token(1), after, most).await.unwrap() {
        Fenced::Done(read) => read,
        stale @ Fenced::Stale { .. } => panic!("{stale:?}"),
    };

    let by_count = of(None, Most::new(600, ALL)).await;
    assert_eq!(by_count.len(), 600);
    let rest = of(by_count.last().map(Pending::position), Most::new(600, ALL)).await;
    assert_eq!((rest.len(), numbers(&rest)[0].as_str()), (400, "event-601"));
    let nothing = of(rest.last().map(Pending::position), Most::new(600, ALL)).await;
    assert!(nothing.is_empty());

    let line = event(1).line().len();
    let by_bytes = of(None, Most::new(600, line * 5)).await;
    assert_eq!(by_bytes.len(), 5);
    let at_least_one = of(None, Most::new(600, 1)).await;
    assert_eq!(at_least_one.len(), 1);
}

async fn a_former_holder_reads_and_removes_nothing(world: World) {
    let buffer = world.buffer();
    world.append(2).await;
    let seen: Vec<_> = read(&*buffer, 7).await.iter().map(Pending::position).collect();
    // To have read is enough to overtake.
    read(&*buffer, 8).await;

    let stale = Fenced::Stale { largest: token(8) };
    assert_eq!(buffer.remove(token(7), &seen).await.unwrap(), stale);
    let read = buffer.read(token(7), None, Most::new(1, 1)).await.unwrap();
    assert_eq!(read, Fenced::Stale { largest: token(8) });

    assert_eq!(buffer.pending().await.unwrap(), 2);
    assert_eq!(buffer.remove(token(8), &seen).await.unwrap(), Fenced::Done(2));
}

async fn what_is_full_refuses_all_of_an_append(world: World) {
    let world = world.with_capacity(capacity(3, Overflow::Refuse));
    let buffer = world.buffer();
    world.append(2).await;

    assert_eq!(buffer.append(&[event(3), event(4)]).await.unwrap(), Appended::Full);
    assert_eq!(buffer.append(&[event(3)]).await.unwrap(), Appended::Kept { dropped: 0 });
    assert_eq!(buffer.append(&[event(4)]).await.unwrap(), Appended::Full);

    assert_eq!(buffer.pending().await.unwrap(), 3);
    assert_eq!(buffer.state().await.unwrap().intake, Intake::Open);
}

async fn what_drops_the_oldest_counts_them(world: World) {
    let world = world.with_capacity(capacity(3, Overflow::DropOldest));
    let buffer = world.buffer();
    world.append(3).await;

    let appended = buffer.append(&[event(4), event(5)]).await.unwrap();
    let too_many = buffer.append(&[1, 2, 3, 4].map(event)).await.unwrap();

    assert_eq!(appended, Appended::Kept { dropped: 2 });
    assert_eq!(too_many, Appended::Full);
    assert_eq!(numbers(&read(&*buffer, 1).await), ["event-3", "event-4", "event-5"]);
    assert_eq!(buffer.state().await.unwrap().dropped, 2);
}

async fn what_pauses_takes_nothing_until_it_is_drained(world: World) {
    let world = world.with_capacity(capacity(3, Overflow::Pause));
    let buffer = world.buffer();
    world.append(3).await;
    let emergency = Appended::Stopped(StopCause::Emergency);

    assert_eq!(buffer.append(&[event(4)]).await.unwrap(), emergency);
    let state = buffer.state().await.unwrap();
    assert_eq!(state.intake, Intake::Stopped(StopCause::Emergency));

    // There is room for one, but it is not drained.
    let pending: Vec<_> = read(&*buffer, 1).await.iter().map(Pending::position).collect();
    assert_eq!(buffer.remove(token(1), &pending[..2]).await.unwrap(), Fenced::Done(2));
    assert_eq!(buffer.append(&[event(4)]).await.unwrap(), emergency);

    assert_eq!(buffer.remove(token(1), &pending[2..]).await.unwrap(), Fenced::Done(1));
    assert_eq!(buffer.append(&[event(4)]).await.unwrap(), Appended::Kept { dropped: 0 });
    assert_eq!(buffer.state().await.unwrap().intake, Intake::Open);
}

async fn a_pause_that_was_there_already_is_no_other(world: World) {
    let buffer = world.buffer();
    let (emergency, stopped) =
        (Intake::Stopped(StopCause::Emergency), Intake::Stopped(StopCause::Operator));

    assert_eq!(buffer.set_intake(stopped).await.unwrap(), Intake::Open);
    assert_eq!(buffer.set_intake(emergency).await.unwrap(), stopped);

    assert_eq!(buffer.state().await.unwrap().intake, stopped);
}

async fn below_its_capacity_nothing_is_paused(world: World) {
    let world = world.with_capacity(capacity(3, Overflow::Pause));

    world.append(3).await;

    assert_eq!(world.buffer().state().await.unwrap().intake, Intake::Open);
}

async fn what_an_operator_stopped_stays_stopped_when_it_is_drained(world: World) {
    let buffer = world.buffer();
    let stopped = Intake::Stopped(StopCause::Operator);
    buffer.set_intake(stopped).await.unwrap();

    assert_eq!(buffer.pending().await.unwrap(), 0);
    let appended = buffer.append(&[event(1)]).await.unwrap();

    assert_eq!(appended, Appended::Stopped(StopCause::Operator));
    assert_eq!(buffer.set_intake(Intake::Open).await.unwrap(), stopped);
    assert_eq!(buffer.append(&[event(1)]).await.unwrap(), Appended::Kept { dropped: 0 });
}

async fn only_what_is_stopped_is_cleared_and_no_position_comes_twice(world: World) {
    let buffer = world.buffer();
    world.append(3).await;
    let last = read(&*buffer, 1).await.last().unwrap().position();

    assert_eq!(buffer.clear().await.unwrap(), None);
    assert_eq!(buffer.pending().await.unwrap(), 3);

    buffer.set_intake(Intake::Stopped(StopCause::Operator)).await.unwrap();
    assert_eq!(buffer.clear().await.unwrap(), Some(3));
    assert_eq!(buffer.pending().await.unwrap(), 0);

    buffer.set_intake(Intake::Open).await.unwrap();
    world.append(1).await;
    assert!(read(&*buffer, 1).await[0].position() > last);
}

async fn whatever_is_in_an_event_comes_back_as_it_was(world: World) {
    let buffer = world.buffer();
    let bodies = ["\"\\u0000\\n\"", "{\"a\":[1,2.5,null]}", "\"日本 🦀 \u{2028}\"", "0"];
    let events: Vec<_> = bodies
        .iter()
        .zip(["a", "b b", "日本", "{}%"])
        .map(|(line, id)| lease_export::Event::from_line(id.parse().unwrap(), *line).unwrap())
        .collect();

    let _kept = buffer.append(&events).await.unwrap();

    let read = read(&*buffer, 1).await;
    assert_eq!(read.iter().map(|pending| pending.event().clone()).collect::<Vec<_>>(), events);
}
