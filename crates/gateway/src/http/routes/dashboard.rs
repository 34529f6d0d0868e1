//! The dashboard and its files.

use super::collections::IF_NONE_MATCH;
use super::export::accepts_gzip;
use crate::http::call::Call;
use crate::http::dashboard;
use crate::http::operation::{Answer, Media, Need, Operation, Param, Verb};
use crate::http::param_type::ParamType;
use crate::http::reply::Reply;
use crate::refusal::Refusal;

const FILE: Param = Param::path("file", ParamType::Text, "the file");
const CODE: Answer = Answer {
    media: &[Media::JavaScript, Media::Css, Media::Svg, Media::Html],
    schema: "",
    about: "The file, with an entity tag of its bytes",
};

pub(in crate::http) const OPERATIONS: &[Operation] = &[
    Operation {
        verb: Verb::Get,
        path: dashboard::PATH,
        id: "dashboard",
        summary: "The dashboard, a page for browsers. A browser gets it at `/` too.",
        params: &[IF_NONE_MATCH],
        body: None,
        answer: Answer { media: &[Media::Html], schema: "", about: "The page" },
        refusals: &[304],
        need: Need::Nothing,
        handler: |call| Box::pin(page(call)),
    },
    Operation {
        verb: Verb::Get,
        path: "/dashboard/{file}",
        id: "dashboardFile",
        summary: "A file of the dashboard",
        params: &[FILE, IF_NONE_MATCH],
        body: None,
        answer: CODE,
        refusals: &[304, 404],
        need: Need::Nothing,
        handler: |call| Box::pin(file(call)),
    },
    Operation {
        verb: Verb::Get,
        path: "/dashboard/{folder}/{file}",
        id: "dashboardFileIn",
        summary: "A file in a folder of the dashboard",
        params: &[Param::path("folder", ParamType::Text, "the folder"), FILE, IF_NONE_MATCH],
        body: None,
        answer: CODE,
        refusals: &[304, 404],
        need: Need::Nothing,
        handler: |call| Box::pin(file(call)),
    },
];

async fn page(call: &mut Call) -> Reply {
    answer(call, dashboard::PAGE)
}

async fn file(call: &mut Call) -> Reply {
    let file: String = call.args.need("file")?;
    match call.args.get("folder") {
        Some(folder) => answer(call, &format!("{folder}/{file}")),
        None => answer(call, &file),
    }
}

fn answer(call: &Call, path: &str) -> Reply {
    let known = call.args.all("if-none-match");
    dashboard::serve(path, accepts_gzip(&call.headers), known).ok_or_else(Refusal::nothing_here)
}
