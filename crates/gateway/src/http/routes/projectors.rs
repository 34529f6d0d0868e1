//! Projectors: their status, rebuilding their state, resuming them.

use promethean_delivery::Subject;
use promethean_model::GroupName;
use promethean_projections::{CompactorView, ProjectorStatus};
use serde_json::json;

use crate::http::call::Call;
use crate::http::operation::{Answer, Need, Operation, Param, Verb};
use crate::http::param_type::ParamType;
use crate::http::reply::{self, Reply};

const PROJECTOR: Param = Param::path("projector", ParamType::Group, "the projector");

pub(in crate::http) const OPERATIONS: &[Operation] = &[
    Operation {
        verb: Verb::Get,
        path: "/projectors",
        id: "projectors",
        summary: "The state of projectors that the token may see: position, lag and last error",
        params: &[],
        body: None,
        answer: Answer::json("Projectors", "The projectors, by name"),
        refusals: &[],
        need: Need::Known,
        handler: |call| Box::pin(projectors(call)),
    },
    Operation {
        verb: Verb::Post,
        path: "/projectors/{projector}/rebuild",
        id: "rebuildProjector",
        summary: "Makes a projector's state anew beside the one that is served, and puts it in its place when it is done; \
                  see `/projectors` for how far it is",
        params: &[
            PROJECTOR,
            Param::query("accept_loss", ParamType::Flag, "1: also if the beginning of the topic is gone"),
        ],
        body: None,
        answer: Answer::json("Projector", "It has begun"),
        refusals: &[404, 409, 410],
        need: Need::Admin,
        handler: |call| Box::pin(rebuild(call)),
    },
    Operation {
        verb: Verb::Post,
        path: "/projectors/{projector}/resume",
        id: "resumeProjector",
        summary: "Lets a projector that is halted go on, at the event that it halted at",
        params: &[PROJECTOR],
        body: None,
        answer: Answer::json("Projector", "It goes on"),
        refusals: &[404, 409],
        need: Need::Admin,
        handler: |call| Box::pin(resume(call)),
    },
];

async fn projectors(call: &mut Call) -> Reply {
    reply::json(&json!({"projectors": visible(call), "compactors": visible_compactors(call)}))
}

/// The projectors whose topic the client may see.
pub(super) fn visible(call: &Call) -> Vec<ProjectorStatus> {
    let mut shown = call.app.projections.as_ref().map(|state| state.projectors()).unwrap_or_default();
    shown.retain(|status| call.viewer().may_see_group(&Subject::Topic(status.topic.clone()), &status.name));
    shown
}

/// The compactors whose topic the client may see.
pub(super) fn visible_compactors(call: &Call) -> Vec<CompactorView> {
    let mut shown = call.app.projections.as_ref().map(|state| state.compactors()).unwrap_or_default();
    shown.retain(|view| call.may_see(&Subject::Topic(view.topic.clone())));
    shown
}

async fn rebuild(call: &mut Call) -> Reply {
    let name: GroupName = call.args.need("projector")?;
    let accept_loss = call.args.flag("accept_loss", false);
    let state = call.state()?;
    state.rebuild(&name, accept_loss).await?;
    reply::json(&state.projector(&name)?)
}

async fn resume(call: &mut Call) -> Reply {
    let name: GroupName = call.args.need("projector")?;
    let state = call.state()?;
    state.resume(&name).await?;
    reply::json(&state.projector(&name)?)
}
