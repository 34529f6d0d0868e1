//! The bus as its users see it, on both stores.

mod backlog_of_an_idle_member_is_bounded;
mod batches_are_as_durable_as_their_topics;
mod close_ends_all_tasks;
mod credit_is_shared_over_topics;
mod events_of_a_key_keep_their_order;
mod failed_events_become_dead_letters;
mod groups_are_listed_and_deleted;
mod groups_begin_where_told;
pub(crate) mod harness;
mod interrupted_deletion_is_finished_later;
mod interrupted_seek_loses_nothing;
mod lost_members_use_up_attempts;
mod members_share_the_work;
mod memory_of_many_groups_is_bounded;
mod missed_time_expires_nothing;
mod partitions_move_between_members;
mod patterns_follow_new_topics;
mod publishes_are_accepted_once;
mod reads_need_no_group;
mod redrives_outlive_seeks_and_deaths;
mod refusals_have_codes;
mod seek_moves_the_cursor;
mod subscriptions_end_with_their_topic;
mod topics_change_while_in_use;
mod waiting_groups_say_why;
