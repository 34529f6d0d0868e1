//! Time travel, compactor and warm-up from outside.

mod any_history_matches_the_model;
mod collection_is_the_fold_of_its_feed;
mod compactor_publishes_changed_keys;
mod dropped_history_is_refused;
mod model;
mod world;
