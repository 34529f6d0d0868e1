//! Time travel, compactor and warm-up from outside.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test stops where it fails")]

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
