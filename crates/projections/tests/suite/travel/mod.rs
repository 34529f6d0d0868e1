//! Time travel, compactor and warm-up from outside.

mod compactor;
mod feed;
mod gone;
mod model;
mod properties;
mod world;
