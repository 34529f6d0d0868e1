//! From the options of a SUBSCRIBE frame to a request to the bus.

use promethean_bus::rows::AskedOptions;
use promethean_bus::subscription::{MemberOptions, Subscribe};
use promethean_bus::{Backlog, BusError};
use promethean_delivery::{DeliveryError, Filter, Order, Subject};
use promethean_model::json::minify;
use promethean_model::plain::json_reason;
use promethean_model::wire::SubscribeOpts;
use promethean_model::{GroupName, MemberId};

use super::seek::start;
use crate::options::GatewayOptions;
use crate::refusal::Refusal;

/// Events in flight at a time, for a subscription that does not say how many.
const IN_FLIGHT_DEFAULT: usize = 100;

/// Bytes of the `meta` of a member, at most. The group keeps it as long as the member.
const META_BYTES_MAX: usize = 4 << 10;

/// The request to the bus for a SUBSCRIBE frame.
pub(super) fn subscribe_request(
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
        // `minify` refuses an object with the same name twice, which serde would read as either value.
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
            Some(serde_json::from_str(&meta).map_err(|error| bad(json_reason(&error)))?)
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
            shown_as: None,
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
