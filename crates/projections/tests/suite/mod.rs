mod crash;
mod failures;
mod feed;
mod projector;
mod rebuild;
mod travel;
mod world;
