//! Reading topics without a group: history, exports, and events as they come.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream::{self, BoxStream, StreamExt};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use super::{BodyLines, HttpCall, HttpClient};
use crate::backoff::Backoff;
use crate::error::ClientError;
use crate::event::TypedEvent;
use crate::start_from::StartFrom;

/// Events of a topic, in the order of their offsets.
pub type EventStream<T> = BoxStream<'static, Result<TypedEvent<T>, ClientError>>;

/// Reads topics. It creates no group, so it takes no event from others.
#[derive(Clone)]
pub struct TopicReader {
    http: Arc<HttpClient>,
    normalize: bool,
}

/// The part of a topic that is exported; the default is all of it up to now.
#[derive(Debug, Clone, Copy, Default)]
pub struct ExportRange {
    /// The earliest time, in milliseconds since 1970.
    pub from_ts: Option<i64>,
    /// The latest time, in milliseconds since 1970; now if left out.
    pub to_ts: Option<i64>,
    /// The first offset.
    pub from_offset: Option<u64>,
}

impl TopicReader {
    pub(crate) fn new(http: Arc<HttpClient>) -> Self {
        Self { http, normalize: false }
    }

    /// Reads events in the latest version of their schema.
    #[must_use]
    pub fn normalize(mut self) -> Self {
        self.normalize = true;
        self
    }

    /// One page of events, beginning at a position, and where the next one begins.
    pub async fn page<T: DeserializeOwned>(
        &self,
        topic: &str,
        from: StartFrom,
        limit: usize,
    ) -> Result<(Vec<TypedEvent<T>>, Option<u64>), ClientError> {
        #[derive(Deserialize)]
        struct Page<T> {
            events: Vec<TypedEvent<T>>,
            next: Option<u64>,
        }
        let call = started(HttpCall::get(&["replay"]).query("topic", topic), from).query("limit", limit);
        let Page { events, next } = self.http.json(call.flag("normalize", self.normalize)).await?;
        Ok((events, next))
    }

    /// The events of a topic up to its present end, page by page. `limit` is the size of a page, up to 10,000.
    pub fn replay<T: DeserializeOwned + Send + 'static>(
        &self,
        topic: impl Into<String>,
        from: StartFrom,
        limit: usize,
    ) -> EventStream<T> {
        let state = (self.clone(), topic.into(), Some(from), VecDeque::new());
        stream::try_unfold(state, move |(reader, topic, mut next, mut events)| async move {
            loop {
                if let Some(event) = events.pop_front() {
                    return Ok(Some((event, (reader, topic, next, events))));
                }
                let Some(from) = next else { return Ok(None) };
                let (page, after) = reader.page(&topic, from, limit).await?;
                (events, next) = (VecDeque::from(page), after.map(StartFrom::Offset));
            }
        })
        .boxed()
    }

    /// Exactly the events of a range of times, each once, as a stream in constant memory. A lost connection is
    /// continued.
    pub fn export<T: DeserializeOwned + Send + 'static>(
        &self,
        topic: impl Into<String>,
        range: ExportRange,
    ) -> EventStream<T> {
        let mut source =
            ExportSource { reader: self.clone(), topic: topic.into(), range, lines: None, tries: 0 };
        if source.range.to_ts.is_none() {
            // The end stays the same when a lost connection is continued.
            source.range.to_ts = Some(now_ms());
        }
        stream::try_unfold(source, |mut source| async move {
            Ok(source.next().await?.map(|event| (event, source)))
        })
        .boxed()
    }

    /// The lines of an export as the server writes them: one event as JSON on each.
    pub fn export_lines(
        &self,
        topic: impl Into<String>,
        range: ExportRange,
    ) -> BoxStream<'static, Result<Bytes, ClientError>> {
        let (reader, topic) = (self.clone(), topic.into());
        stream::try_unfold((reader, topic, range, None), |(reader, topic, range, lines)| async move {
            let mut lines = match lines {
                Some(lines) => lines,
                None => reader.open_export(&topic, range).await?,
            };
            loop {
                match lines.next().await? {
                    Some(line) if line.is_empty() => {}
                    Some(line) => return Ok(Some((line, (reader, topic, range, Some(lines))))),
                    None => return Ok(None),
                }
            }
        })
        .boxed()
    }

    /// The events of a topic as they come, without end, beginning at a position. A lost connection is continued
    /// without a gap and without a repetition.
    pub fn follow<T: DeserializeOwned + Send + 'static>(
        &self,
        topic: impl Into<String>,
        from: StartFrom,
    ) -> EventStream<T> {
        let source = FollowSource {
            reader: self.clone(),
            topic: topic.into(),
            from,
            last: None,
            lines: None,
            tries: 0,
        };
        stream::try_unfold(source, |mut source| async move { Ok(Some((source.next().await?, source))) })
            .boxed()
    }

    /// The latest event of each of up to 100 keys; `None` for a key without events.
    pub async fn latest_by_key<T: DeserializeOwned>(
        &self,
        topic: &str,
        keys: &[&str],
    ) -> Result<BTreeMap<String, Option<TypedEvent<T>>>, ClientError> {
        #[derive(Deserialize)]
        struct Latest<T> {
            events: BTreeMap<String, Option<TypedEvent<T>>>,
        }
        let call = HttpCall::get(&["latest-by-key"]).query("topic", topic);
        let call = keys.iter().fold(call, |call, key| call.query("key", key));
        let Latest { events } = self.http.json(call).await?;
        Ok(events)
    }

    /// The offset that the next event of a topic will have.
    pub async fn end(&self, topic: &str) -> Result<u64, ClientError> {
        #[derive(Deserialize)]
        struct Topic {
            end: u64,
        }
        match self.http.json(HttpCall::get(&["topics", topic])).await {
            Ok(Topic { end }) => Ok(end),
            Err(error) if error.is("unknown_topic") => Ok(0),
            Err(error) => Err(error),
        }
    }

    async fn open_export(&self, topic: &str, range: ExportRange) -> Result<BodyLines, ClientError> {
        let call = HttpCall::get(&["export"]).query("topic", topic).maybe("fromTs", range.from_ts);
        let call = call.maybe("toTs", range.to_ts).maybe("fromOffset", range.from_offset);
        self.http.send(call.flag("normalize", self.normalize)).await.map(BodyLines::new)
    }
}

impl std::fmt::Debug for TopicReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TopicReader").field("normalize", &self.normalize).finish_non_exhaustive()
    }
}

/// An export that is under way.
struct ExportSource {
    reader: TopicReader,
    topic: String,
    range: ExportRange,
    lines: Option<BodyLines>,
    tries: u32,
}

impl ExportSource {
    async fn next<T: DeserializeOwned>(&mut self) -> Result<Option<TypedEvent<T>>, ClientError> {
        loop {
            match self.next_line().await {
                Ok(None) => return Ok(None),
                Ok(Some(line)) => {
                    let event: TypedEvent<T> = read_event(&line)?;
                    self.range.from_offset = Some(event.offset + 1);
                    self.tries = 0;
                    return Ok(Some(event));
                }
                Err(error) => {
                    self.lines = None;
                    self.tries += 1;
                    wait_to_continue(error, self.tries).await?;
                }
            }
        }
    }

    async fn next_line(&mut self) -> Result<Option<Bytes>, ClientError> {
        let lines = match &mut self.lines {
            Some(lines) => lines,
            None => self.lines.insert(self.reader.open_export(&self.topic, self.range).await?),
        };
        loop {
            match lines.next().await? {
                Some(line) if line.is_empty() => {}
                line => return Ok(line),
            }
        }
    }
}

/// A stream that follows a topic.
struct FollowSource {
    reader: TopicReader,
    topic: String,
    from: StartFrom,
    /// The offset of the last event that came.
    last: Option<u64>,
    lines: Option<BodyLines>,
    tries: u32,
}

impl FollowSource {
    async fn next<T: DeserializeOwned>(&mut self) -> Result<TypedEvent<T>, ClientError> {
        loop {
            match self.next_message().await {
                Ok(data) => {
                    let event: TypedEvent<T> = read_event(&data)?;
                    (self.last, self.tries) = (Some(event.offset), 0);
                    return Ok(event);
                }
                Err(error) => {
                    self.lines = None;
                    self.tries += 1;
                    wait_to_continue(error, self.tries).await?;
                }
            }
        }
    }

    /// The data of the next event.
    async fn next_message(&mut self) -> Result<Bytes, ClientError> {
        if self.lines.is_none() {
            if self.from == StartFrom::Latest {
                // A stream that is lost before its first event must not skip what comes meanwhile.
                self.from = StartFrom::Offset(self.reader.end(&self.topic).await?);
            }
            let call = HttpCall::get(&["stream", &self.topic]).flag("normalize", self.reader.normalize);
            let call = match self.last {
                Some(last) => call.header("last-event-id", last.to_string()),
                None => started(call, self.from),
            };
            self.lines = self.reader.http.send(call).await.map(BodyLines::new).map(Some)?;
        }
        let (mut data, mut is_event) = (Bytes::new(), true);
        let ended = || ClientError::new("disconnected", "the stream ended").with_side_effects(false);
        let lines = self.lines.as_mut().ok_or_else(ended)?;
        loop {
            let line = lines.next().await?.ok_or_else(ended)?;
            if line.is_empty() {
                if is_event && !data.is_empty() {
                    return Ok(data);
                }
                (data, is_event) = (Bytes::new(), true);
            } else if let Some(word) = line.strip_prefix(b"event:") {
                // `expired` tells that retention removed events before they were read.
                is_event = word.trim_ascii() == b"message";
            } else if let Some(text) = line.strip_prefix(b"data:") {
                data = line.slice_ref(text.trim_ascii_start());
            }
        }
    }
}

fn started(call: HttpCall, from: StartFrom) -> HttpCall {
    let call = call.query("from", from.word());
    match from.parameter() {
        Some((name, value)) => call.query(name, value),
        None => call,
    }
}

fn read_event<T: DeserializeOwned>(json: &[u8]) -> Result<TypedEvent<T>, ClientError> {
    serde_json::from_slice(json).map_err(|cause| {
        let start = String::from_utf8_lossy(json.get(..80).unwrap_or(json)).into_owned();
        let message = format!("an event does not fit the type ({cause}): {start}");
        ClientError::new("bad_payload", message).because(cause)
    })
}

/// Waits before a reader continues, or fails with what only the user can change.
async fn wait_to_continue(error: ClientError, tries: u32) -> Result<(), ClientError> {
    if !error.is_retryable() {
        return Err(error);
    }
    let wait = error.retry_after().unwrap_or_else(|| Backoff::default().after(tries));
    tokio::time::sleep_until(Instant::now() + wait).await;
    Ok(())
}

fn now_ms() -> i64 {
    promethean_model::Clock::wall_ms(&promethean_model::SystemClock::new())
}
