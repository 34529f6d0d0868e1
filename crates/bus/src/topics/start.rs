//! From a start that a user names to an offset.

use promethean_model::{GroupName, Offset, TopicName};

use super::Topics;
use crate::error::BusError;
use crate::rows::StartPosition;

/// The offset that a start means in a topic, and the durable end of the topic. The offset may be beyond the end if the
/// user named an offset.
pub(crate) async fn resolve_start(
    topics: &Topics,
    topic: &TopicName,
    from: StartPosition,
) -> Result<(Offset, Offset), BusError> {
    let store = &topics.base.store;
    let info = store.topic_info(topic).await?;
    let (earliest, end) = info.map_or((Offset::ZERO, Offset::ZERO), |info| (info.earliest, info.end));
    let offset = match from {
        StartPosition::Latest => end,
        StartPosition::Earliest => earliest,
        StartPosition::Ts(ts) => store.offset_at(topic, ts).await?.unwrap_or(end),
        StartPosition::AfterId(id) => {
            let event = store.by_id(topic, id).await?;
            event.ok_or_else(|| BusError::UnknownEvent { topic: topic.clone(), id })?.offset.next()
        }
        StartPosition::Offset(offset) => offset,
    };
    Ok((offset, end))
}

/// The offset that a group's floor is set to. An offset beyond the end of the topic is refused.
pub(crate) async fn floor_of(
    topics: &Topics,
    group: &GroupName,
    topic: &TopicName,
    from: StartPosition,
) -> Result<Offset, BusError> {
    let (floor, end) = resolve_start(topics, topic, from).await?;
    match from {
        StartPosition::Offset(_) if floor > end => {
            Err(BusError::BeyondEnd { group: group.clone(), topic: topic.clone(), floor, end })
        }
        // The end may have moved since it was read, which is no mistake of the caller.
        _ => Ok(floor),
    }
}
