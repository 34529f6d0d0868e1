//! SEEK: moves a group to another offset of a topic. The client need not be subscribed with that group.

use promethean_bus::BusError;
use promethean_bus::rows::StartPosition;
use promethean_delivery::Subject;
use promethean_model::wire::SeekOpts;
use promethean_model::wire::client::FrameTarget;
use promethean_model::{EventId, GroupName, Offset};

use super::auth::ClientAuth;
use super::connection::{PendingOp, PendingOutcome};
use crate::audit::AuditRecord;
use crate::auth::Access;
use crate::refusal::Refusal;

/// Starts a seek. It goes to the audit topic when it is done.
pub(super) fn seek(
    auth: &ClientAuth,
    target: &FrameTarget<'_>,
    opts: &SeekOpts<'_>,
) -> Result<PendingOp, Refusal> {
    let subject: Subject = target.topic.parse()?;
    if !auth.may(&Access::Manage(&subject)) {
        return Err(auth.forbidden_to_manage(&subject));
    }
    let Subject::Topic(topic) = subject else {
        return Err(Refusal::bad_request(
            "a group is moved on one topic at a time; name a topic, not a pattern",
        ));
    };
    let group: GroupName = target.group.parse().map_err(BusError::from)?;
    let Some(from) = &opts.from else {
        return Err(Refusal::bad_request("`opts.from` is missing; say where to move the group"));
    };
    let to = start(from, opts.ts, opts.after_id, opts.offset)?;
    let (app, dry_run, record) = (auth.app.clone(), opts.dry_run, auth.audit_record("SEEK", "ok"));
    Ok(Box::pin(async move {
        let report = app.bus.seek(&topic, &group, to, dry_run).await;
        let outcome = report.as_ref().err().map_or("ok", BusError::code);
        app.record(|| AuditRecord { on: Some(format!("{topic} {group}")), outcome, ..record });
        PendingOutcome::Sought(report.map_err(Refusal::from))
    }))
}

/// The start position that the fields of a frame name.
pub(super) fn start(
    from: &str,
    ts: Option<i64>,
    after_id: Option<EventId>,
    offset: Option<Offset>,
) -> Result<StartPosition, Refusal> {
    let needs = |field: &str| {
        Refusal::bad_request(format!("`from` is \"{field}\", but `{field}` is missing; add it"))
    };
    let given = [("ts", ts.is_some()), ("afterId", after_id.is_some()), ("offset", offset.is_some())];
    if let Some((field, _)) = given.into_iter().find(|(field, given)| *given && *field != from) {
        let message = format!("`{field}` does not go with `from`: \"{from}\"; leave out one of the two");
        return Err(Refusal::bad_request(message));
    }
    match from {
        "latest" => Ok(StartPosition::Latest),
        "earliest" => Ok(StartPosition::Earliest),
        "ts" => ts.map(StartPosition::Ts).ok_or_else(|| needs("ts")),
        "afterId" => after_id.map(StartPosition::AfterId).ok_or_else(|| needs("afterId")),
        "offset" => offset.map(StartPosition::Offset).ok_or_else(|| needs("offset")),
        _ => Err(Refusal::bad_request(
            "`from` is unknown; use \"latest\", \"earliest\", \"ts\", \"afterId\" or \"offset\"",
        )),
    }
}
