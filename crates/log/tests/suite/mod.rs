mod basics;
mod crash;
mod simulation;
mod world;
