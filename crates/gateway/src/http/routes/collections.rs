//! Collections and their current documents.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use promethean_model::CollectionName;
use promethean_projections::{CollectionInfo, Field, Index};
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::auth::Access;
use crate::http::call::Call;
use crate::http::etag;
use crate::http::operation::{Answer, Media, Need, Operation, Param, Verb};
use crate::http::param_type::ParamType;
use crate::http::reply::{self, Reply};
use crate::refusal::Refusal;

/// Documents of a page.
const LIMIT_DEFAULT: usize = 100;
const LIMIT_MAX: i64 = 1_000;
/// The largest offset into a list.
const OFFSET_MAX: i64 = 1_000_000;

pub(super) const COLLECTION: Param = Param::path("collection", ParamType::Collection, "the collection");
const KEY: Param = Param::path("key", ParamType::Text, "the document's key, percent-encoded");
pub(super) const IF_NONE_MATCH: Param = Param::header(
    "if-none-match",
    ParamType::Text,
    "entity tags that the client has; 304 if one of them is current",
)
.times(0, 100);
const OFFSET: Param = Param::query("offset", ParamType::Int(0, OFFSET_MAX), "documents to pass over");
const LIMIT: Param = Param::query("limit", ParamType::Int(1, LIMIT_MAX), "documents at most; default 100");
const FIELDS: Param = Param::fields("a declared field and the value it must have; all must match");
const SNAP: Answer = Answer::json("Document", "The document, with an entity tag of its bytes");
const LIST: Answer = Answer::json("Documents", "Documents, newest first");

pub(in crate::http) const OPERATIONS: &[Operation] = &[
    Operation {
        verb: Verb::Get,
        path: "/snap/{key}",
        id: "snap",
        summary: "A document of the default collection",
        params: &[KEY, IF_NONE_MATCH],
        body: None,
        answer: SNAP,
        refusals: &[304, 404],
        need: Need::ReadCollection,
        handler: |call| Box::pin(snap(call)),
    },
    Operation {
        verb: Verb::Get,
        path: "/list",
        id: "list",
        summary: "Documents of the default collection whose declared fields have given values",
        params: &[OFFSET, LIMIT, FIELDS],
        body: None,
        answer: LIST,
        refusals: &[404],
        need: Need::ReadCollection,
        handler: |call| Box::pin(list(call)),
    },
    Operation {
        verb: Verb::Get,
        path: "/collections",
        id: "collections",
        summary: "Collections that the token may read, with their fields and indexes",
        params: &[],
        body: None,
        answer: Answer::json("Collections", "The collections, by name"),
        refusals: &[],
        need: Need::Known,
        handler: |call| Box::pin(collections(call)),
    },
    Operation {
        verb: Verb::Get,
        path: "/collections/{collection}",
        id: "collection",
        summary: "One collection: its fields, indexes and number of documents",
        params: &[COLLECTION],
        body: None,
        answer: Answer::json("Collection", "The collection"),
        refusals: &[404],
        need: Need::ReadCollection,
        handler: |call| Box::pin(collection(call)),
    },
    Operation {
        verb: Verb::Delete,
        path: "/collections/{collection}",
        id: "dropCollection",
        summary: "Removes a collection that no projector writes",
        params: &[COLLECTION],
        body: None,
        answer: Answer::json("DroppedCollection", "It is gone"),
        refusals: &[404, 409],
        need: Need::Admin,
        handler: |call| Box::pin(drop_collection(call)),
    },
    Operation {
        verb: Verb::Get,
        path: "/collections/{collection}/snap/{key}",
        id: "snapIn",
        summary: "A document",
        params: &[COLLECTION, KEY, IF_NONE_MATCH],
        body: None,
        answer: SNAP,
        refusals: &[304, 404],
        need: Need::ReadCollection,
        handler: |call| Box::pin(snap(call)),
    },
    Operation {
        verb: Verb::Get,
        path: "/collections/{collection}/list",
        id: "listIn",
        summary: "Documents whose declared fields have given values",
        params: &[COLLECTION, OFFSET, LIMIT, FIELDS],
        body: None,
        answer: LIST,
        refusals: &[404],
        need: Need::ReadCollection,
        handler: |call| Box::pin(list(call)),
    },
];

async fn snap(call: &mut Call) -> Reply {
    let collection = call.collection()?;
    let key: String = call.args.need("key")?;
    let doc = call.state()?.document(&collection, &key).await?;
    let tag = etag::of(doc.body.as_bytes());
    let fresh = etag::matches(call.args.all("if-none-match"), &tag);
    let mut response = match fresh {
        true => StatusCode::NOT_MODIFIED.into_response(),
        false => reply::with(Media::Json, doc.body),
    };
    cached(call, &mut response, &tag);
    Ok(response)
}

/// Adds the tag and the cache headers. With tokens, one client may see a document that another may not, so
/// shared caches may not keep it.
fn cached(call: &Call, response: &mut Response, tag: &str) {
    let open = call.app.auth.is_open();
    let age = call.app.options.snap_max_age_secs;
    let control = format!("{}, max-age={age}", if open { "public" } else { "private" });
    let headers = response.headers_mut();
    // Digits, quotes and ASCII words are valid in every header.
    let text = |text: &str| HeaderValue::from_str(text).unwrap_or(HeaderValue::from_static(""));
    headers.insert(header::ETAG, text(tag));
    headers.insert(header::CACHE_CONTROL, text(&control));
    if !open {
        headers.append(header::VARY, HeaderValue::from_static("Authorization"));
    }
}

async fn list(call: &mut Call) -> Reply {
    #[derive(Serialize)]
    struct Documents<'a> {
        offset: usize,
        limit: usize,
        count: usize,
        items: Vec<&'a RawValue>,
    }
    let collection = call.collection()?;
    let offset = call.args.parse("offset")?.unwrap_or(0);
    let limit = call.args.parse("limit")?.unwrap_or(LIMIT_DEFAULT);
    let page = call.state()?.list(&collection, call.args.fields(), offset, limit).await?;
    let items: Result<Vec<&RawValue>, _> =
        page.docs.iter().map(|doc| serde_json::from_str(&doc.body)).collect();
    let items = items.map_err(|_| Refusal::internal())?;
    reply::json(&Documents { offset, limit, count: items.len(), items })
}

async fn collections(call: &mut Call) -> Reply {
    let mut shown = Vec::new();
    if let Ok(state) = call.state() {
        for info in state.collections().await? {
            if call.may(&Access::Read(info.collection.name.as_str())) {
                shown.push(view(call, &info)?);
            }
        }
    }
    reply::json(&json!({"collections": shown}))
}

async fn collection(call: &mut Call) -> Reply {
    let info = call.state()?.collection(&call.collection()?).await?;
    reply::json(&view(call, &info)?)
}

fn view(call: &Call, info: &CollectionInfo) -> Result<Value, Refusal> {
    let state = call.state()?;
    let name = &info.collection.name;
    let fields: serde_json::Map<String, Value> = info
        .collection
        .fields
        .iter()
        .map(|Field { name, kind }| (name.clone(), kind.as_str().into()))
        .collect();
    let index = |index: &Index| json!({"fields": index.label(), "unique": index.unique});
    let indexes: Vec<Value> = info.collection.indexes.iter().map(index).collect();
    let is_default = state.default_collection().is_ok_and(|default| default == *name);
    Ok(json!({
        "name": name, "documents": info.docs, "fields": fields, "indexes": indexes, "default": is_default,
        "history": state.feed_of(name).is_ok(), "projector": state.writer_of(name),
    }))
}

async fn drop_collection(call: &mut Call) -> Reply {
    let name: CollectionName = call.collection()?;
    call.state()?.drop_collection(&name).await?;
    reply::json(&json!({"collection": name, "dropped": true}))
}
