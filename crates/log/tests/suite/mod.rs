mod basics;
mod crash;
mod damage;
mod faults;
mod fixture;
mod kill;
#[cfg(feature = "planted-bugs")]
mod planted;
mod regressions;
mod reports;
mod simulation;
mod slow;
mod threads;
mod trouble;
mod upkeep;
mod world;
