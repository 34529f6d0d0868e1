mod bench;
mod bus;
mod model;
mod rules;
mod simulation;
mod support;
mod verdict;
