//! Time travel, compactor and warm-up from outside.

#[path = "travel/compactor.rs"]
mod compactor;
#[path = "travel/feed.rs"]
mod feed;
#[path = "travel/gone.rs"]
mod gone;
#[path = "travel/model.rs"]
mod model;
#[path = "travel/properties.rs"]
mod properties;
#[path = "travel/world.rs"]
mod world;
