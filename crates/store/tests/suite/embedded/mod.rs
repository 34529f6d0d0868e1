//! Promises of the embedded store alone.

mod acks_say_what_they_promise;
mod bad_directories_are_refused;
mod concurrent_writers_agree;
mod cursors_end_with_their_topic;
mod damage_is_found_and_named;
mod damaged_directories_are_repaired;
mod data_is_private;
mod dropped_commits_are_carried_out;
mod failing_disk_refuses_writes;
mod figures_are_told;
mod full_disk_refuses_and_resumes;
mod lost_state_is_redone;
mod missing_descriptors_stop_nothing;
mod power_cut_keeps_whole_batches;
mod torn_state_is_redone;
mod waiting_for_room_parks_no_thread;
