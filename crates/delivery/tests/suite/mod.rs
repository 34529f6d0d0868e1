mod bench;
mod model;
mod rules;
mod simulation;
mod support;
mod verdict;
