//! Tests of the index as a whole, on a disk in memory.

mod damage_is_noticed;
mod equals_a_plain_list;
pub(crate) mod mem_disk;
mod readers_miss_nothing;
