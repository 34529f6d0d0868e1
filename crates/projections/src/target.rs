//! Where a projector's documents go.

use std::collections::HashMap;

use promethean_model::{CollectionName, TopicName};
use promethean_store::port::CollectionOp;

use crate::definition::{CollectionDeclared, Projector, shadow};
use crate::error::ProjectionError;

/// The collections that a projector may write, as its changes call them.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    places: HashMap<CollectionName, Place>,
}

/// One of them.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    /// What it is called in the store.
    pub(crate) stored_as: CollectionName,
    /// The topic of its changes.
    pub(crate) feed: Option<TopicName>,
    declared: CollectionDeclared,
}

impl Target {
    /// The collections that are served.
    pub(crate) fn live(projector: &Projector, declared: &[CollectionDeclared]) -> Self {
        let mut places = HashMap::new();
        for collection in
            declared.iter().filter(|collection| projector.collections.contains(&collection.name))
        {
            let feed = collection.history.then(|| collection.name.changed_topic().ok()).flatten();
            let place = Place { stored_as: collection.name.clone(), feed, declared: collection.clone() };
            places.insert(collection.name.clone(), place);
        }
        Self { places }
    }

    /// Others in their stead, of which nobody hears.
    pub(crate) fn shadow(&self) -> Result<Self, ProjectionError> {
        let mut places = HashMap::new();
        for (name, place) in &self.places {
            let place = Place { stored_as: shadow(name)?, feed: None, declared: place.declared.clone() };
            places.insert(name.clone(), place);
        }
        Ok(Self { places })
    }

    pub(crate) fn find(&self, name: &CollectionName) -> Result<&Place, String> {
        self.places.get(name).ok_or_else(|| {
            format!("collection `{name}` is none of the projector's; add it to its `collections`")
        })
    }

    /// Whether the store may refuse a document for the sake of another.
    pub(crate) fn has_unique_index(&self) -> bool {
        self.places.values().any(|place| place.declared.indexes.iter().any(|index| index.unique))
    }

    /// By name, so that it is the same each time.
    pub(crate) fn names(&self) -> Vec<(&CollectionName, &CollectionName)> {
        let mut names: Vec<_> = self.places.iter().map(|(name, place)| (name, &place.stored_as)).collect();
        names.sort();
        names
    }

    pub(crate) fn declarations(&self) -> impl Iterator<Item = CollectionOp> {
        self.places
            .values()
            .map(|place| CollectionOp::Declare(place.declared.to_store(place.stored_as.clone())))
    }

    pub(crate) fn drops(&self) -> impl Iterator<Item = CollectionOp> {
        self.places.values().map(|place| CollectionOp::Drop(place.stored_as.clone()))
    }

    /// Gives the collections of `from` the names of these.
    pub(crate) fn replacements(&self, from: &Self) -> Vec<CollectionOp> {
        let renamed = self.places.iter().filter_map(|(name, place)| {
            let from = from.places.get(name)?.stored_as.clone();
            Some(CollectionOp::Rename { from, to: place.stored_as.clone() })
        });
        renamed.collect()
    }
}
