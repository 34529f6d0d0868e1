//! Row 15 of the fault model, the wall clock jumps back and forth: stamps never decrease, are not frozen by a jump, and
//! retention by age neither drops events because of a jump nor keeps them until its date.

use promethean_log::{Log, LogNeed, LogNotice, ReadLimit, Topic, TopicPolicy};
use promethean_model::Clock;
use promethean_testkit::{SeededRng, seeds};

use super::world::*;

const SECOND: u64 = 1_000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;
const JUMPS: [i64; 4] = [HOUR as i64, 3650 * DAY as i64, -(HOUR as i64), -3650 * (DAY as i64)];

fn keep_for(log: &Log, age_ms: u64) -> Topic {
    let topic = log.topic_or_create(&name("t")).unwrap();
    log.set_policy(&topic, TopicPolicy { age_ms: Some(age_ms), ..TopicPolicy::default() });
    topic
}

fn stamp_of_next(log: &Log, number: u64) -> i64 {
    append(log, "t", event(number, None, "x")).unwrap();
    log.topic(&name("t")).unwrap().info().last_stamp
}

/// Lets time pass in steps of a minute at most, with upkeep after each.
fn pass(world: &World, log: &Log, ms: u64) {
    let mut left = ms;
    while left > 0 {
        let step = left.min(MINUTE);
        world.clock.advance(step);
        log.maintain().unwrap();
        left -= step;
    }
}

fn all_gone(log: &Log) -> bool {
    let info = log.topic(&name("t")).unwrap().info();
    info.earliest == info.end
}

#[test]
fn row_15_a_jump_that_is_taken_back_leaves_no_trace() {
    for jump in JUMPS {
        let world = World::new();
        let log = world.open();
        let topic = keep_for(&log, HOUR);
        assert_eq!(stamp_of_next(&log, 0), world.clock.wall_ms());
        world.clock.advance_wall(jump);
        log.maintain().unwrap();
        assert_eq!(topic.info().earliest, 0, "jump {jump}");
        world.clock.advance(2_500);
        assert_eq!(stamp_of_next(&log, 1), world.clock.wall_ms() - jump, "jump {jump}");
        log.maintain().unwrap();
        world.clock.advance_wall(-jump);
        assert_eq!(stamp_of_next(&log, 2), world.clock.wall_ms(), "jump {jump}");
        drop((topic, log));
        let log = world.open();
        let topic = keep_for(&log, HOUR);
        world.clock.advance(SECOND);
        assert_eq!(stamp_of_next(&log, 3), world.clock.wall_ms(), "after a restart, jump {jump}");
        pass(&world, &log, 50 * MINUTE);
        assert_eq!(topic.info().earliest, 0, "jump {jump}");
        pass(&world, &log, 20 * MINUTE);
        assert!(all_gone(&log), "jump {jump}: {:?}", topic.info());
    }
}

#[test]
fn row_15_a_jump_that_lasts_drops_nothing_at_once() {
    let world = World::new();
    let log = world.open();
    let topic = keep_for(&log, DAY);
    stamp_of_next(&log, 0);
    world.clock.advance_wall(3650 * DAY as i64);
    pass(&world, &log, 9 * MINUTE);
    assert!(stamp_of_next(&log, 1) < world.clock.wall_ms(), "not followed yet");
    pass(&world, &log, 2 * MINUTE);
    assert_eq!(stamp_of_next(&log, 2), world.clock.wall_ms(), "followed");
    pass(&world, &log, 2 * HOUR);
    assert_eq!(topic.info().earliest, 0, "ages grow at ten times the speed of time at most");
    pass(&world, &log, HOUR);
    assert_eq!(
        topic.info().earliest,
        2,
        "what was appended after the jump is not taken for older than it is"
    );
}

/// A server that was idle or stopped for days ages its old events by that time, and its new events by their own.
#[test]
fn row_15_time_without_events_makes_no_new_event_old() {
    for restarts in [false, true] {
        let world = World::new();
        let mut log = world.open();
        keep_for(&log, DAY);
        stamp_of_next(&log, 0);
        log.checkpoint().unwrap();
        world.clock.advance(3 * DAY);
        if restarts {
            drop(log);
            log = world.open();
            keep_for(&log, DAY);
        }
        stamp_of_next(&log, 1);
        pass(&world, &log, DAY - HOUR);
        let earliest = log.topic(&name("t")).unwrap().info().earliest;
        assert_eq!(earliest, 1, "the old event is gone, the new one is not; restarts: {restarts}");
        pass(&world, &log, 2 * HOUR);
        assert!(all_gone(&log), "restarts: {restarts}");
    }
}

#[test]
fn row_15_jumps_are_told() {
    let world = World::new();
    let (log, notices) = open_heard(&world);
    stamp_of_next(&log, 0);
    log.maintain().unwrap();
    assert_eq!(notices.take(), []);
    world.clock.advance_wall(DAY as i64);
    log.maintain().unwrap();
    log.maintain().unwrap();
    assert_eq!(notices.take(), [LogNotice::ClockLeapt { by_ms: DAY as i64 }]);
    world.clock.advance_wall(-(DAY as i64));
    log.maintain().unwrap();
    assert_eq!(notices.take(), [LogNotice::ClockSettled]);
}

/// A log that is opened while the clock is wrong has nothing to compare it with.
#[test]
fn row_15_events_of_a_wrong_date_are_not_kept_until_then() {
    let world = World::new();
    let year = 365 * DAY as i64;
    world.clock.advance_wall(year);
    let log = world.open();
    keep_for(&log, HOUR);
    let last = stamp_of_next(&log, 0);
    log.checkpoint().unwrap();
    drop(log);
    world.clock.advance_wall(-year);
    let (log, notices) = open_heard(&world);
    let topic = keep_for(&log, HOUR);
    assert_eq!(notices.take(), [LogNotice::StampsAhead { topics: 1, by_ms: year }]);
    assert_eq!(stamp_of_next(&log, 1), last, "stamps never decrease");
    pass(&world, &log, 11 * MINUTE);
    assert_eq!(topic.info().earliest, 0);
    assert!(matches!(notices.take()[..], [LogNotice::AppendTimesClamped { .. }]));
    pass(&world, &log, HOUR + 5 * MINUTE);
    assert!(all_gone(&log), "{:?}", topic.info());
}

/// An event of the model: its number is its offset.
struct Appended {
    uptime: u64,
}

/// `speed`: how much faster than time ages may grow.
fn check_model(world: &World, log: &Log, appended: &[Appended], (age, speed): (u64, u64), what: &str) {
    // A topic without events is forgotten at a restart.
    let Some(topic) = log.topic(&name("t")) else { return };
    let info = topic.info();
    let uptime = world.clock.uptime_ms();
    for (offset, event) in appended.iter().enumerate().take(info.earliest as usize) {
        let lived = uptime - event.uptime;
        assert!(lived * speed >= age, "{what}: offset {offset} was dropped after {lived} ms of {age}");
    }
    let mut next = info.earliest;
    let mut last = i64::MIN;
    while next < info.end {
        let page = log.read(&topic, next, ReadLimit { events: 100, bytes: 100_000 }).unwrap();
        for view in page.iter() {
            assert!(view.ts >= last, "{what}: stamps decrease at {}", view.offset);
            last = view.ts;
        }
        next = page.next;
    }
}

#[test]
fn row_15_random_jumps_of_an_hour_and_of_ten_years() {
    for seed in seeds("CLOCK", 80, &[], 40) {
        let mut rng = SeededRng::new(seed);
        let world = World::new();
        // Every second run has restarts in the place of jumps. After a restart, ages go on from the newest append time, and
        // so agree with a jump that was followed.
        let jumps = seed % 2 == 0;
        let speed = if jumps { 10 } else { 1 };
        let age = *rng.choose(&[10 * MINUTE, 3 * HOUR, 5 * DAY]).unwrap();
        let mut log = world.open();
        keep_for(&log, age);
        let mut appended: Vec<Appended> = Vec::new();
        for step in 0..150 {
            match rng.range(0..10) {
                0..=3 => {
                    for _ in 0..rng.range(1..20) {
                        stamp_of_next(&log, appended.len() as u64);
                        appended.push(Appended { uptime: world.clock.uptime_ms() });
                    }
                }
                4 | 5 => world.clock.advance(rng.range(0..20 * SECOND)),
                6 => world.clock.advance(rng.range(0..2 * HOUR)),
                7 if jumps => world.clock.advance_wall(*rng.choose(&JUMPS).unwrap()),
                9 if !jumps => {
                    drop(log);
                    log = world.open();
                    keep_for(&log, age);
                }
                _ => log.maintain().unwrap(),
            }
            check_model(&world, &log, &appended, (age, speed), &format!("CLOCK_SEED={seed} step {step}"));
        }
        stamp_of_next(&log, appended.len() as u64);
        // The clock is right at last. Nothing is kept for ever: age time makes up for a jump in a ninth of its length.
        for _ in 0..500 {
            world.clock.advance(30 * DAY);
            log.maintain().unwrap();
        }
        assert!(all_gone(&log), "CLOCK_SEED={seed}: {:?}", log.topic(&name("t")).unwrap().info());
    }
}

#[test]
fn a_start_below_the_reserve_is_told() {
    let mut world = World::new();
    world.options.reserve_bytes = u64::MAX >> 10;
    let (_log, notices) = open_heard(&world);
    assert_eq!(notices.take(), [LogNotice::ShortOf(LogNeed::Space)]);
}
