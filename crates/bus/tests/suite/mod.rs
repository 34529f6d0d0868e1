mod bench;
mod bus;
mod model;
mod rules;
mod run;
mod simulation;
mod support;
mod verdict;
