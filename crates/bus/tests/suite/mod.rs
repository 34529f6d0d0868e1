mod bus;
mod consumer;
mod exactly_once;
mod letters;
mod publisher;
mod run;
mod schemas;
mod world;
