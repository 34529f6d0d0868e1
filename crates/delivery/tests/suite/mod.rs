mod driven_machine;
mod partitions_have_one_owner;
mod random_runs_match_the_reference;
mod rules_hold_one_by_one;
mod support;
