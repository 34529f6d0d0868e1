mod bus;
mod consumer_handles_every_event;
mod dead_letters_are_redriven_and_dropped;
mod events_count_exactly_once;
mod letter_support;
mod publisher_is_refused_beyond_its_rate;
mod random_runs;
mod schemas;
