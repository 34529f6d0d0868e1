//! The access rules of `docs/auth.md` and `docs/http.md`, written again without the code under test.

/// The access that a call needs, from `docs/http.md`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Need {
    Nothing,
    Known,
    Publish,
    Subscribe,
    SubscribeAs,
    Letters,
    Any,
    Manage,
    ManageLetters,
    Admin,
    /// Reads a collection; here it has the name of the topic.
    Read,
    /// Needs a subscription, which the connection does not have.
    Subscription,
}

/// The group of every call that has one.
pub(super) const GROUP: &str = "g";

/// Whether one scope, without its `!`, covers the access.
fn is_about(scope: &str, verb: &str, topic: &str, group: Option<&str>) -> bool {
    if scope == "admin" {
        return true;
    }
    let Some((granted, object)) = scope.split_once(':') else { return false };
    let (object, only) = object.split_once('@').map_or((object, None), |(object, only)| (object, Some(only)));
    // Subscribe and manage on a topic include its dead-letter topic.
    let belongs = verb != "publish" && topic.strip_suffix(".dlq") == Some(object);
    granted == verb && (object == "**" || object == topic || belongs) && (only.is_none() || only == group)
}

fn may(scopes: &str, verb: &str, topic: &str, group: Option<&str>) -> bool {
    let (denied, allowed): (Vec<&str>, Vec<&str>) =
        scopes.split_whitespace().partition(|scope| scope.starts_with('!'));
    allowed.iter().any(|scope| is_about(scope, verb, topic, group))
        && !denied.iter().any(|scope| is_about(&scope[1..], verb, topic, group))
}

/// Whether a token with these scopes is allowed the call.
pub(super) fn allowed(need: Need, scopes: &str, topic: &str) -> bool {
    let letters = format!("{topic}.dlq");
    let subscribe_as = |topic: &str| may(scopes, "subscribe", topic, Some(GROUP));
    let manage = |topic: &str| may(scopes, "manage", topic, None);
    match need {
        Need::Nothing | Need::Known | Need::Subscription => true,
        Need::Publish => may(scopes, "publish", topic, None),
        Need::Subscribe => may(scopes, "subscribe", topic, None),
        Need::SubscribeAs => subscribe_as(topic),
        Need::Letters => subscribe_as(topic) && subscribe_as(&letters),
        Need::Manage => manage(topic),
        Need::ManageLetters => manage(topic) && manage(&letters),
        Need::Any => {
            may(scopes, "publish", topic, None) || may(scopes, "subscribe", topic, None) || manage(topic)
        }
        Need::Read => may(scopes, "read", topic, None),
        Need::Admin => may(scopes, "admin", topic, None),
    }
}
