mod crash;
mod failures;
mod feed;
mod projector;
mod rebuild;
mod world;
