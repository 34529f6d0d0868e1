//! The suite must catch each planted bug. `cargo xtask planted` runs these tests.

use promethean_log::planted::{Bug, plant};

use super::{damage_is_noticed, power_cuts_lose_nothing};

/// Plants a bug and returns the failure that power cuts or damage show, if there is one.
fn caught(bug: Bug) -> Option<String> {
    plant(Some(bug));
    let found = power_cuts_lose_nothing::hunt(0..20, 40).or_else(damage_is_noticed::hunt);
    plant(None);
    found
}

macro_rules! planted {
    ($($test:ident: $bug:ident,)*) => {$(
        #[test]
        fn $test() {
            let found = caught(Bug::$bug);
            println!("{:?}: {}", Bug::$bug, found.as_deref().unwrap_or("NOT CAUGHT"));
            assert!(found.is_some());
        }
    )*};
}

planted! {
    planted_skip_sync: SkipSync,
    planted_skip_dir_sync: SkipDirSync,
    planted_ack_before_write: AckBeforeWrite,
    planted_ignore_crc: IgnoreCrc,
    planted_read_past_durable_end: ReadPastDurableEnd,
    planted_drop_dedupe_on_restart: DropDedupeOnRestart,
    planted_reuse_offset: ReuseOffset,
    planted_serve_unsynced: ServeUnsynced,
    planted_skip_segment_sync: SkipSegmentSync,
    planted_skip_state_sync: SkipStateSync,
    planted_compact_before_checkpoint: CompactBeforeCheckpoint,
}

#[test]
fn planted_nothing_finds_nothing() {
    plant(None);
    assert_eq!(power_cuts_lose_nothing::hunt(0..20, 40), None);
}
