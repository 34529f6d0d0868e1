//! Small families of keys: settings of topics, dedupe marks, the outbox, rows, counters.

use promethean_model::{EventId, TopicName, TopicSettings};

use super::super::keys::counter::StateCounter;
use super::super::keys::topic_intent::TopicIntent;
use super::super::keys::{
    counter as counter_keys, dedupe as dedupe_keys, outbox as outbox_keys, row as row_keys,
    settings as settings_keys, topic_intent as intent_keys,
};
use super::super::{Flow, RowSpan, StateFault, StateSpace, View};
use super::take;
use crate::port::{OutboxRow, OutboxStatus, Row, Table, TopicConfig};

pub(crate) fn counter(view: &dyn View, counter: StateCounter) -> Result<Option<u64>, StateFault> {
    let value = view.get(StateSpace::Meta, &counter_keys::key(counter))?;
    Ok(value.map(|value| counter_keys::decode(&value)).transpose()?)
}

pub(crate) fn settings(view: &dyn View, topic: &TopicName) -> Result<Option<TopicSettings>, StateFault> {
    let value = view.get(StateSpace::Meta, &settings_keys::key(topic))?;
    Ok(value.map(|value| settings_keys::decode(&value)).transpose()?)
}

pub(crate) fn settings_page(
    view: &dyn View,
    after: Option<&TopicName>,
    limit: usize,
) -> Result<Vec<TopicConfig>, StateFault> {
    let after = after.map(settings_keys::key);
    let span = RowSpan { prefix: &settings_keys::PREFIX, after: after.as_deref() };
    let mut page = Vec::new();
    take(view, StateSpace::Meta, span, limit, &mut |key, value| {
        let topic = settings_keys::decode_key(key)?;
        page.push(TopicConfig { topic, settings: settings_keys::decode(value)? });
        Ok(())
    })?;
    Ok(page)
}

pub(crate) fn topic_intent(view: &dyn View, topic: &TopicName) -> Result<Option<TopicIntent>, StateFault> {
    let value = view.get(StateSpace::Meta, &intent_keys::key(topic))?;
    Ok(value.map(|value| intent_keys::decode(&value)).transpose()?)
}

pub(crate) fn topics_with_intents(view: &dyn View) -> Result<Vec<TopicName>, StateFault> {
    let mut topics = Vec::new();
    view.scan(StateSpace::Meta, RowSpan::of(&intent_keys::PREFIX), &mut |key, _| {
        topics.push(intent_keys::decode_key(key)?);
        Ok(Flow::Continue(()))
    })?;
    Ok(topics)
}

pub(crate) fn seen(view: &dyn View, scope: &str, id: &str, now_ms: i64) -> Result<bool, StateFault> {
    if scope.len().max(id.len()) > dedupe_keys::MARK_BYTES_MAX {
        // A longer mark is refused when it is written.
        return Ok(false);
    }
    let value = view.get(StateSpace::Dedupe, &dedupe_keys::key(&dedupe_keys::name(scope, id)))?;
    let expires_at = value.map(|value| dedupe_keys::decode(&value)).transpose()?;
    Ok(expires_at.is_some_and(|expires_at| expires_at > now_ms))
}

pub(crate) fn marks(view: &dyn View, scope: &str, limit: usize) -> Result<Vec<String>, StateFault> {
    if scope.len() > dedupe_keys::MARK_BYTES_MAX {
        // A longer scope is refused when it is written.
        return Ok(Vec::new());
    }
    let prefix = dedupe_keys::scope_prefix(scope);
    let mut ids = Vec::new();
    take(view, StateSpace::Dedupe, RowSpan::of(&prefix), limit, &mut |key, _| {
        ids.push(dedupe_keys::decode_id(key, prefix.len())?);
        Ok(())
    })?;
    Ok(ids)
}

pub(crate) fn outbox(
    view: &dyn View,
    status: OutboxStatus,
    after: Option<u64>,
    limit: usize,
) -> Result<Vec<OutboxRow>, StateFault> {
    let after = after.map(|seq| outbox_keys::status_key(status, seq));
    let prefix = outbox_keys::status_prefix(status);
    let span = RowSpan { prefix: &prefix, after: after.as_deref() };
    let mut rows = Vec::new();
    take(view, StateSpace::Meta, span, limit, &mut |key, _| {
        let key = outbox_keys::key(outbox_keys::decode_status_key(key)?);
        if let Some(value) = view.get(StateSpace::Meta, &key)? {
            rows.push(outbox_keys::decode(&key, &value)?);
        }
        Ok(())
    })?;
    Ok(rows)
}

pub(crate) fn outbox_row(view: &dyn View, id: EventId) -> Result<Option<OutboxRow>, StateFault> {
    let Some(seq) = view.get(StateSpace::Meta, &outbox_keys::id_key(id))? else { return Ok(None) };
    let key = outbox_keys::key(outbox_keys::decode_id_value(&seq)?);
    let value = view.get(StateSpace::Meta, &key)?;
    Ok(value.map(|value| outbox_keys::decode(&key, &value)).transpose()?)
}

pub(crate) fn row(view: &dyn View, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, StateFault> {
    view.get(StateSpace::Meta, &row_keys::key(table, key))
}

pub(crate) fn rows(
    view: &dyn View,
    table: Table,
    prefix: &[u8],
    after: Option<&[u8]>,
    limit: usize,
) -> Result<Vec<Row>, StateFault> {
    let after = after.map(|after| row_keys::key(table, after));
    let prefix = row_keys::key(table, prefix);
    let mut rows = Vec::new();
    take(
        view,
        StateSpace::Meta,
        RowSpan { prefix: &prefix, after: after.as_deref() },
        limit,
        &mut |key, value| {
            rows.push(Row { key: row_keys::decode_key(key).to_vec(), value: value.to_vec() });
            Ok(())
        },
    )?;
    Ok(rows)
}
