//! Backups: a point of the whole store, read piece by piece while the server works.

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use promethean_bus::backups::{BackupView, PIECE_BYTES};
use promethean_bus::{LogBackupFile, LogBackupTopic};
use serde_json::{Map, Value, json};

use super::collections::IF_NONE_MATCH;
use super::params::page_of;
use crate::http::call::Call;
use crate::http::etag;
use crate::http::operation::{Answer, Media, Need, Operation, Param, Verb};
use crate::http::param_type::{ParamType, from_hex};
use crate::http::reply::{self, Reply};
use crate::refusal::Refusal;

const LIMIT_DEFAULT: usize = 1_000;
const LIMIT_MAX: i64 = 10_000;
/// The largest number that every language reads exactly.
const NUMBER_MAX: i64 = (1 << 53) - 1;
/// The header with the place where the next page of state begins.
const NEXT: &str = "x-next";

const BACKUP: Param = Param::path("backup", ParamType::Text, "the backup");
const LIMIT: Param =
    Param::query("limit", ParamType::Int(1, LIMIT_MAX), "how many at most, 1000 if left out");
const AFTER: Param = Param::query(
    "after",
    ParamType::Int(0, NUMBER_MAX),
    "only those after this number: `next` of the page before",
);
const PIECE: Answer = Answer {
    media: &[Media::Bytes],
    schema: "Any",
    about: "The bytes, with an entity tag: their XXH3 hash of 128 bits",
};

pub(in crate::http) const OPERATIONS: &[Operation] = &[
    Operation {
        verb: Verb::Post,
        path: "/admin/backups",
        id: "beginBackup",
        summary: "Take a point of all topics and all state, to be read until it is ended or not read for 5 minutes. \
                  Publishing goes on. One backup is read at a time.",
        params: &[Param::query(
            "backup",
            ParamType::Id,
            "the id of the backup; if a backup with this id is read, the answer is its point",
        )],
        body: None,
        answer: Answer::json("Backup", "The point that was taken"),
        refusals: &[409, 507],
        need: Need::Admin,
        handler: |call| Box::pin(begin(call)),
    },
    Operation {
        verb: Verb::Get,
        path: "/admin/backups/{backup}/files",
        id: "backupFiles",
        summary: "The files of a backup, by path. While there is `next`, go on with `after=next`.",
        params: &[BACKUP, AFTER, LIMIT],
        body: None,
        answer: Answer::json("BackupFiles", "The files"),
        refusals: &[404],
        need: Need::Admin,
        handler: |call| Box::pin(files(call)),
    },
    Operation {
        verb: Verb::Get,
        path: "/admin/backups/{backup}/topics",
        id: "backupTopics",
        summary: "The topics of a backup and where they end in it. While there is `next`, go on with `after=next`.",
        params: &[BACKUP, AFTER, LIMIT],
        body: None,
        answer: Answer::json("BackupTopics", "The topics"),
        refusals: &[404],
        need: Need::Admin,
        handler: |call| Box::pin(topics(call)),
    },
    Operation {
        verb: Verb::Get,
        path: "/admin/backups/{backup}/piece",
        id: "backupPiece",
        summary: "A piece of a file of a backup. All pieces but the last have the same length.",
        params: &[
            BACKUP,
            Param::needed("file", ParamType::Text, "the path of the file"),
            Param::needed("piece", ParamType::Int(0, NUMBER_MAX), "the number of the piece, from 0"),
            IF_NONE_MATCH,
        ],
        body: None,
        answer: PIECE,
        refusals: &[304, 404],
        need: Need::Admin,
        handler: |call| Box::pin(piece(call)),
    },
    Operation {
        verb: Verb::Get,
        path: "/admin/backups/{backup}/state",
        id: "backupState",
        summary: "A page of the state of a backup. While there is a header `x-next`, go on with `after` set to it.",
        params: &[
            BACKUP,
            Param::query("after", ParamType::Hex, "`x-next` of the page before"),
            IF_NONE_MATCH,
        ],
        body: None,
        answer: PIECE,
        refusals: &[304, 404],
        need: Need::Admin,
        handler: |call| Box::pin(state(call)),
    },
    Operation {
        verb: Verb::Delete,
        path: "/admin/backups/{backup}",
        id: "endBackup",
        summary: "End a backup and free the space that it held",
        params: &[BACKUP],
        body: None,
        answer: Answer::json("BackupEnded", "The backup that ended"),
        refusals: &[404],
        need: Need::Admin,
        handler: |call| Box::pin(end(call)),
    },
];

async fn begin(call: &mut Call) -> Reply {
    let BackupView { id, taken_ms, point } = call.app.bus.begin_backup(call.args.parse("backup")?).await?;
    reply::json(&json!({
        "backup": id,
        "taken": taken_ms,
        "position": point.lsn,
        "topics": point.topics.len(),
        "files": point.files.len(),
        "bytes": point.files.iter().map(|file| file.bytes).sum::<u64>(),
        "piece_bytes": PIECE_BYTES,
    }))
}

async fn files(call: &mut Call) -> Reply {
    let view = call.app.bus.backup(id(call)?).await?;
    page(call, "files", &view.point.files, file_view)
}

async fn topics(call: &mut Call) -> Reply {
    let view = call.app.bus.backup(id(call)?).await?;
    page(call, "topics", &view.point.topics, topic_view)
}

/// A page of a list whose items are numbered from 1.
fn page<T>(call: &Call, name: &str, items: &[T], view: impl Fn(&T) -> Value) -> Reply {
    let after: usize = call.args.parse("after")?.unwrap_or(0);
    let limit: usize = call.args.parse("limit")?.unwrap_or(LIMIT_DEFAULT);
    let rest = items.get(after..).unwrap_or_default();
    let shown: Vec<Value> = rest.iter().take(limit).map(view).collect();
    let next = (rest.len() > limit).then_some(after + limit);
    reply::json(&page_of(name, shown, next))
}

fn file_view(file: &LogBackupFile) -> Value {
    let mut view = Map::new();
    view.insert("file".to_owned(), json!(file.path));
    view.insert("bytes".to_owned(), json!(file.bytes));
    view.insert("length".to_owned(), json!(file.length));
    if let Some((topic, offsets)) = &file.events {
        view.insert("topic".to_owned(), json!(topic));
        view.insert("from".to_owned(), json!(offsets.start));
        view.insert("to".to_owned(), json!(offsets.end));
    }
    view.into()
}

fn topic_view(topic: &LogBackupTopic) -> Value {
    json!({"topic": topic.name, "number": topic.number, "earliest": topic.earliest, "end": topic.end})
}

async fn piece(call: &mut Call) -> Reply {
    let (file, piece): (String, u64) = (call.args.need("file")?, call.args.need("piece")?);
    let bytes = call.app.bus.backup_piece(id(call)?, &file, piece).await?;
    tagged(call, bytes)
}

async fn state(call: &mut Call) -> Reply {
    let after = call.args.get("after").and_then(from_hex);
    let page = call.app.bus.backup_state(id(call)?, after).await?;
    let mut response = tagged(call, page.bytes)?;
    if let Some(next) = page.next {
        let text: String = next.iter().map(|byte| format!("{byte:02x}")).collect();
        let value = HeaderValue::from_str(&text).map_err(|_| Refusal::internal())?;
        response.headers_mut().insert(NEXT, value);
    }
    Ok(response)
}

async fn end(call: &mut Call) -> Reply {
    let id = id(call)?;
    call.app.bus.end_backup(id).await?;
    reply::json(&json!({"ended": id}))
}

fn id(call: &Call) -> Result<&str, Refusal> {
    call.args.get("backup").ok_or_else(Refusal::internal)
}

/// Bytes with their entity tag; 304 if the client has them.
fn tagged(call: &Call, bytes: Vec<u8>) -> Reply {
    let tag = etag::of(&bytes);
    let known = call.headers.get_all(header::IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
    let mut response = if etag::matches(known, &tag) {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        response
    } else {
        reply::with(Media::Bytes, bytes)
    };
    let tag = HeaderValue::from_str(&tag).map_err(|_| Refusal::internal())?;
    response.headers_mut().insert(header::ETAG, tag);
    Ok(response)
}
