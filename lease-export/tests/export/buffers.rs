//! Tests of event buffers: order, capacity, and stale tokens.

use lease_export::{
    Appended, Capacity, EventBuffer, Fenced, Intake, Overflow, Pending, ReadLimit, StopCause,
};

use crate::world::{World, event, everywhere, token};

everywhere! {
    events_are_read_in_append_order_and_stay
    remove_removes_exactly_the_named_events
    read_is_bounded_by_count_and_bytes
    stale_token_reads_and_removes_nothing
    full_buffer_refuses_the_whole_append
    dropped_events_are_counted
    paused_buffer_takes_nothing_until_drained
    second_pause_is_not_logged
    buffer_below_capacity_is_not_paused
    operators_stop_outlasts_draining
    clear_needs_stopped_intake_and_reuses_no_position
    event_is_read_back_unchanged
}

const ALL: usize = 1 << 20;

async fn read(buffer: &dyn EventBuffer, number: u64) -> Vec<Pending> {
    let mut all: Vec<Pending> = Vec::new();
    loop {
        let after = all.last().map(Pending::position);
        match buffer.read(token(number), after, ReadLimit::new(1_000, ALL)).await.unwrap() {
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

async fn events_are_read_in_append_order_and_stay(world: World) {
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

async fn remove_removes_exactly_the_named_events(world: World) {
    let buffer = world.buffer();
    for _ in 0..17 {
        world.append(1_000).await;
    }
    let before = read(&*buffer, 1).await;
    // More than the 8,000 events that fit on a script's stack.
    let odd: Vec<_> = before.iter().step_by(2).map(Pending::position).collect();
    let _kept = buffer.append(&[event(9_999)]).await.unwrap();

    let first = buffer.remove(token(1), &odd).await.unwrap();
    let again = buffer.remove(token(1), &odd).await.unwrap();

    assert_eq!((first, again), (Fenced::Done(8_500), Fenced::Done(0)));
    let after = read(&*buffer, 1).await;
    assert_eq!(after.len(), 8_501);
    assert_eq!(numbers(&after)[..2], ["event-2", "event-4"]);
}

async fn read_is_bounded_by_count_and_bytes(world: World) {
    let buffer = world.buffer();
    world.append(1_000).await;
    let of = async |after, most| match buffer.read(token(1), after, most).await.unwrap() {
        Fenced::Done(read) => read,
        stale @ Fenced::Stale { .. } => panic!("{stale:?}"),
    };

    let by_count = of(None, ReadLimit::new(600, ALL)).await;
    assert_eq!(by_count.len(), 600);
    let rest = of(by_count.last().map(Pending::position), ReadLimit::new(600, ALL)).await;
    assert_eq!((rest.len(), numbers(&rest)[0].as_str()), (400, "event-601"));
    let nothing = of(rest.last().map(Pending::position), ReadLimit::new(600, ALL)).await;
    assert!(nothing.is_empty());

    let line = event(1).line().len();
    let by_bytes = of(None, ReadLimit::new(600, line * 5)).await;
    assert_eq!(by_bytes.len(), 5);
    let at_least_one = of(None, ReadLimit::new(600, 1)).await;
    assert_eq!(at_least_one.len(), 1);
}

async fn stale_token_reads_and_removes_nothing(world: World) {
    let buffer = world.buffer();
    world.append(2).await;
    let seen: Vec<_> = read(&*buffer, 7).await.iter().map(Pending::position).collect();
    read(&*buffer, 8).await;

    let stale = Fenced::Stale { largest: token(8) };
    assert_eq!(buffer.remove(token(7), &seen).await.unwrap(), stale);
    let read = buffer.read(token(7), None, ReadLimit::new(1, 1)).await.unwrap();
    assert_eq!(read, Fenced::Stale { largest: token(8) });

    assert_eq!(buffer.pending().await.unwrap(), 2);
    assert_eq!(buffer.remove(token(8), &seen).await.unwrap(), Fenced::Done(2));
}

async fn full_buffer_refuses_the_whole_append(world: World) {
    let world = world.with_capacity(capacity(3, Overflow::Refuse));
    let buffer = world.buffer();
    world.append(2).await;

    assert_eq!(buffer.append(&[event(3), event(4)]).await.unwrap(), Appended::Full);
    assert_eq!(buffer.append(&[event(3)]).await.unwrap(), Appended::Kept { dropped: 0 });
    assert_eq!(buffer.append(&[event(4)]).await.unwrap(), Appended::Full);

    assert_eq!(buffer.pending().await.unwrap(), 3);
    assert_eq!(buffer.state().await.unwrap().intake, Intake::Open);
}

async fn dropped_events_are_counted(world: World) {
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

async fn paused_buffer_takes_nothing_until_drained(world: World) {
    let world = world.with_capacity(capacity(3, Overflow::Pause));
    let buffer = world.buffer();
    world.append(3).await;
    let emergency = Appended::Stopped(StopCause::Emergency);

    assert_eq!(buffer.append(&[event(4)]).await.unwrap(), emergency);
    let state = buffer.state().await.unwrap();
    assert_eq!(state.intake, Intake::Stopped(StopCause::Emergency));

    // There is room for one event, but the buffer is not drained.
    let pending: Vec<_> = read(&*buffer, 1).await.iter().map(Pending::position).collect();
    assert_eq!(buffer.remove(token(1), &pending[..2]).await.unwrap(), Fenced::Done(2));
    assert_eq!(buffer.append(&[event(4)]).await.unwrap(), emergency);

    assert_eq!(buffer.remove(token(1), &pending[2..]).await.unwrap(), Fenced::Done(1));
    assert_eq!(buffer.append(&[event(4)]).await.unwrap(), Appended::Kept { dropped: 0 });
    assert_eq!(buffer.state().await.unwrap().intake, Intake::Open);
}

async fn second_pause_is_not_logged(world: World) {
    let buffer = world.buffer();
    let (emergency, stopped) =
        (Intake::Stopped(StopCause::Emergency), Intake::Stopped(StopCause::Operator));

    assert_eq!(buffer.set_intake(stopped).await.unwrap(), Intake::Open);
    assert_eq!(buffer.set_intake(emergency).await.unwrap(), stopped);

    assert_eq!(buffer.state().await.unwrap().intake, stopped);
}

async fn buffer_below_capacity_is_not_paused(world: World) {
    let world = world.with_capacity(capacity(3, Overflow::Pause));

    world.append(3).await;

    assert_eq!(world.buffer().state().await.unwrap().intake, Intake::Open);
}

async fn operators_stop_outlasts_draining(world: World) {
    let buffer = world.buffer();
    let stopped = Intake::Stopped(StopCause::Operator);
    buffer.set_intake(stopped).await.unwrap();

    assert_eq!(buffer.pending().await.unwrap(), 0);
    let appended = buffer.append(&[event(1)]).await.unwrap();

    assert_eq!(appended, Appended::Stopped(StopCause::Operator));
    assert_eq!(buffer.set_intake(Intake::Open).await.unwrap(), stopped);
    assert_eq!(buffer.append(&[event(1)]).await.unwrap(), Appended::Kept { dropped: 0 });
}

async fn clear_needs_stopped_intake_and_reuses_no_position(world: World) {
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

async fn event_is_read_back_unchanged(world: World) {
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
