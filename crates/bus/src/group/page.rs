//! Pages of events for a machine.

use std::sync::Arc;

use promethean_delivery::Input;
use promethean_model::Offset;
use promethean_store::port::PageLimit;

use super::Owner;
use crate::core::Core;
use crate::error::BusError;

/// Bytes of events read at once.
const PAGE_BYTES: usize = 1 << 20;

/// A read that failed.
pub(super) struct Unread {
    pub(super) request: u64,
    pub(super) error: BusError,
}

/// Reads a page and makes it what the machine wants to hear.
pub(super) async fn read(
    core: Arc<Core>,
    owner: Arc<Owner>,
    request: u64,
    from: Offset,
    limit: usize,
) -> Result<Input, Unread> {
    let limit = PageLimit { events: limit, bytes: PAGE_BYTES };
    let page = core.store.read(&owner.topic, from, limit).await;
    let page = page.map_err(|error| Unread { request, error: error.into() })?;
    Ok(Input::Page { request, events: page.events, next: page.next, expired: page.expired })
}
