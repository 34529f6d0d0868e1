//! A bounded number of locks for any number of names.

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher, Hash};

use tokio::sync::{Mutex, MutexGuard};

/// Locks that all names share. Two names of one lock wait for each other, which costs a few commits of time at most.
const STRIPES: usize = 64;

/// One lock for each name, as far as its users can tell.
#[derive(Debug)]
pub(crate) struct StripedLock {
    stripes: [Mutex<()>; STRIPES],
}

impl StripedLock {
    /// Waits until no other task holds the lock of this name.
    ///
    /// A task that holds the lock of one name must not wait for that of another name in the same set: the two may be one
    /// lock.
    pub(crate) async fn lock(&self, name: &impl Hash) -> MutexGuard<'_, ()> {
        let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(name);
        let [first, ..] = &self.stripes;
        self.stripes.get(hash as usize % STRIPES).unwrap_or(first).lock().await
    }
}

impl Default for StripedLock {
    fn default() -> Self {
        Self { stripes: std::array::from_fn(|_| Mutex::new(())) }
    }
}
