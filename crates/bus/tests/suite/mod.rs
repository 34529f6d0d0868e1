mod bench;
mod bus;
mod model;
mod publisher;
mod rules;
mod simulation;
mod support;
mod verdict;
