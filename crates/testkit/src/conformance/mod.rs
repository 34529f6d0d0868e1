//! The conformance suite: what every store must do, one file per port. An adapter that passes it can replace any other.
//!
//! Each case gets a fresh store from the adapter's [`StoreUnderTest`], so cases share nothing.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a rule that does not hold must fail the test")]

pub mod atomicity;
pub mod catalog;
pub mod cursors;
pub mod dedupe;
pub mod docs;
pub mod docs_query;
pub mod events;
pub mod events_kept;
pub mod events_lookup;
pub mod outbox;
pub mod rows;
mod support;
pub mod watch;

use std::future::Future;
use std::sync::Arc;

use promethean_store::port::Store;

use crate::ManualClock;

/// A store under test, with the operations that a test needs besides the ports.
pub trait StoreUnderTest: Sized {
    /// The store.
    fn store(&self) -> Arc<dyn Store>;

    /// The clock of the store.
    fn clock(&self) -> Arc<ManualClock>;

    /// Closes the store and opens it again; `None` for a store that keeps nothing.
    fn reopen(self) -> impl Future<Output = Option<Self>>;

    /// Applies retention and compaction now.
    fn maintain(&self) -> impl Future<Output = ()>;
}

/// Runs the whole suite.
pub async fn run_all<S: StoreUnderTest>(make: &impl AsyncFn() -> S) {
    events::all(make).await;
    events_lookup::all(make).await;
    events_kept::all(make).await;
    cursors::all(make).await;
    docs::all(make).await;
    docs_query::all(make).await;
    catalog::all(make).await;
    dedupe::all(make).await;
    outbox::all(make).await;
    rows::all(make).await;
    atomicity::all(make).await;
    watch::all(make).await;
}
