//! What only the embedded store promises.

mod cancelled;
mod crash_points;
mod damage;
mod durability;
mod faults;
mod refusals;
mod rolled_back;
mod stress;
