//! Topics and what is set for them.

use promethean_model::TopicName;
use promethean_store::port::TopicInfo;

use crate::core::Core;
use crate::error::BusError;
use crate::pattern::Pattern;

/// Topics read at once.
const PAGE: usize = 1000;

/// All topics that a pattern matches.
pub(crate) async fn matching(core: &Core, pattern: &Pattern) -> Result<Vec<TopicName>, BusError> {
    let mut found = Vec::new();
    each(core, |info| {
        if pattern.matches(&info.name) {
            found.push(info.name);
        }
    })
    .await?;
    Ok(found)
}

/// Calls `see` for all topics, by name.
pub(crate) async fn each(core: &Core, mut see: impl FnMut(TopicInfo)) -> Result<(), BusError> {
    let mut after: Option<TopicName> = None;
    loop {
        let page = core.store.topics(after.as_ref(), PAGE).await?;
        page.topics.into_iter().for_each(&mut see);
        match page.next {
            Some(next) => after = Some(next),
            None => return Ok(()),
        }
    }
}
