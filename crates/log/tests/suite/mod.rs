//! One file per behaviour; `world` and `simulation` are what they share.

mod backups_hold_one_point;
mod busy_batches_are_told_when_to_try_again;
mod clock_jumps_lose_nothing;
mod coinciding_faults_lose_nothing;
mod damage_is_noticed;
mod damage_is_repaired;
mod damaged_directories_lose_only_the_damage;
mod disk_errors_are_reported;
mod faults_during_maintenance_lose_nothing;
mod kills_lose_nothing;
mod maintenance_does_what_it_must;
mod old_formats_open;
#[cfg(feature = "planted-bugs")]
mod planted_bugs_are_caught;
mod power_cuts_lose_nothing;
mod power_cuts_with_threads_lose_nothing;
mod reports_name_the_damage;
mod rewriting_spares_the_reserve;
mod shortages_are_told;
mod shortages_pass_without_a_restart;
mod simulation;
mod slow_syncs_delay_no_reader;
mod small_topics_are_compacted;
mod works_when_nothing_fails;
mod world;
