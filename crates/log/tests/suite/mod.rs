mod basics;
mod crash;
mod damage;
mod faults;
mod kill;
#[cfg(feature = "planted-bugs")]
mod planted;
mod simulation;
mod threads;
mod world;
