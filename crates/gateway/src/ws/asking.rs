//! From the options of a frame to what the bus is asked.

use promethean_bus::rows::{AskedOptions, Start};
use promethean_bus::subscription::{MemberOptions, Subscribe};
use promethean_bus::{Backlog, BusError};
use promethean_delivery::{DeliveryError, Filter, Order, Subject};
use promethean_model::json::minify;
use promethean_model::wire::SubscribeOpts;
use promethean_model::{EventId, GroupName, MemberId, Offset};

use crate::options::GatewayOptions;
use crate::refusal::Refusal;

/// Events unfinished at a time, of a subscription that does not say.
const IN_FLIGHT_DEFAULT: usize = 100;

/// Bytes of what a member says of itself, which is kept as long as it is there.
const META_BYTES_MAX: usize = 4 << 10;

/// The subscription that a frame asks for.
pub(super) fn subscribe(
    subject: Subject,
    group: GroupName,
    opts: &SubscribeOpts<'_>,
    gateway: &GatewayOptions,
    backlog: &Backlog,
) -> Result<Subscribe, Refusal> {
    let from = match &opts.from {
        Some(from) => Some(start(from, opts.ts, opts.after_id, opts.offset)?),
        None if opts.ts.is_some() || opts.after_id.is_some() || opts.offset.is_some() => {
            let message =
                "`ts`, `afterId` and `offset` need `from`; add \"from\": \"ts\", \"afterId\" or \"offset\"";
            return Err(Refusal::bad_request(message));
        }
        None => None,
    };
    let filter = match opts.filter {
        None => None,
        // A name that comes twice would be read as the one or the other.
        Some(filter) => match minify(filter.get()) {
            Ok(filter) => Some(Filter::from_json(&filter)?),
            Err(error) => return Err(DeliveryError::BadFilter { reason: error.to_string() }.into()),
        },
    };
    let meta = match opts.meta {
        None => None,
        Some(meta) if meta.get().len() > META_BYTES_MAX => {
            let (given, fix) = (format!("{} bytes long", meta.get().len()), "give at most 4096 bytes");
            return Err(BusError::BadOption { option: "meta", given, fix }.into());
        }
        Some(meta) => {
            let bad = |error: String| Refusal::bad_request(format!("`meta`: {error}; send valid JSON"));
            let meta = minify(meta.get()).map_err(|error| bad(error.to_string()))?;
            Some(serde_json::from_str(&meta).map_err(|error| bad(error.to_string()))?)
        }
    };
    let member_id: Option<MemberId> =
        opts.member_id.as_deref().map(str::parse).transpose().map_err(BusError::from)?;
    let defaults = MemberOptions::default();
    Ok(Subscribe {
        subject,
        group,
        options: AskedOptions {
            from,
            filter,
            order: opts.order.as_deref().map(order).transpose()?,
            partitions: opts.partitions,
            max_attempts: opts.max_attempts,
        },
        member: MemberOptions {
            batch_size: opts.batch_size.unwrap_or(defaults.batch_size),
            max_in_flight: opts.max_in_flight.unwrap_or(IN_FLIGHT_DEFAULT),
            ack_timeout_ms: opts.ack_timeout_ms.unwrap_or(defaults.ack_timeout_ms),
            manual_ack: opts.manual_ack.unwrap_or(true),
            member_id,
            meta,
            pull: opts.pull.unwrap_or(false),
            normalize: opts.normalize.unwrap_or(false),
            rate: gateway.delivery_rate,
            liveness: defaults.liveness,
            backlog: Some(backlog.clone()),
        },
    })
}

fn order(order: &str) -> Result<Order, Refusal> {
    match order {
        "none" => Ok(Order::None),
        "key" => Ok(Order::Key),
        _ => Err(Refusal::bad_request("`order` is unknown; use \"none\" or \"key\"")),
    }
}

/// A place in a topic.
pub(super) fn start(
    from: &str,
    ts: Option<i64>,
    after_id: Option<EventId>,
    offset: Option<Offset>,
) -> Result<Start, Refusal> {
    let needs = |field: &str| {
        Refusal::bad_request(format!("`from` is \"{field}\", but `{field}` is missing; add it"))
    };
    let given = [("ts", ts.is_some()), ("afterId", after_id.is_some()), ("offset", offset.is_some())];
    if let Some((field, _)) = given.into_iter().find(|(field, given)| *given && *field != from) {
        let message = format!("`{field}` does not go with `from`: \"{from}\"; leave out one of the two");
        return Err(Refusal::bad_request(message));
    }
    match from {
        "latest" => Ok(Start::Latest),
        "earliest" => Ok(Start::Earliest),
        "ts" => ts.map(Start::Ts).ok_or_else(|| needs("ts")),
        "afterId" => after_id.map(Start::AfterId).ok_or_else(|| needs("afterId")),
        "offset" => offset.map(Start::Offset).ok_or_else(|| needs("offset")),
        _ => Err(Refusal::bad_request(
            "`from` is unknown; use \"latest\", \"earliest\", \"ts\", \"afterId\" or \"offset\"",
        )),
    }
}
