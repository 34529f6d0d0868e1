//! The routes, over real sockets.

mod browsers;
mod client;
mod exporting;
mod forms;
mod grouping;
mod limits;
mod lingering;
mod publishing;
mod reading;
mod schemas;
mod server;
mod smuggling;
mod state;
mod streaming;
mod tokens;
mod world;
