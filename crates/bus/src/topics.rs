//! Topics and what is set for them.

use promethean_delivery::Pattern;
use promethean_model::{Offset, TopicName};
use promethean_store::port::TopicInfo;

use crate::core::Core;
use crate::error::BusError;
use crate::rows::Start;

/// Topics read at once.
const PAGE: usize = 1000;

/// The offset that a place in a topic is, which may be beyond the end if an offset was named; and the durable end.
pub(crate) async fn place(core: &Core, topic: &TopicName, from: Start) -> Result<(Offset, Offset), BusError> {
    let info = core.store.topic_info(topic).await?;
    let (earliest, end) = info.map_or((Offset::ZERO, Offset::ZERO), |info| (info.earliest, info.end));
    let offset = match from {
        Start::Latest => end,
        Start::Earliest => earliest,
        Start::Ts(ts) => core.store.offset_at(topic, ts).await?.unwrap_or(end),
        Start::AfterId(id) => {
            let event = core.store.by_id(topic, id).await?;
            event.ok_or_else(|| BusError::UnknownEvent { topic: topic.clone(), id })?.offset.next()
        }
        Start::Offset(offset) => offset,
    };
    Ok((offset, end))
}

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
