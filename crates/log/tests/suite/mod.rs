mod basics;
mod crash;
mod damage;
mod faults;
#[cfg(feature = "planted-bugs")]
mod planted;
mod simulation;
mod world;
