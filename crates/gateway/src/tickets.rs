//! Tickets: texts for a URL that stand for a token, once and for a short time.
//!
//! A browser's `EventSource`, and a link, cannot send a header. So a client with a token asks for a ticket for one path
//! and puts the ticket into the URL. The token itself is looked up again when the ticket is used.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};

use axum::http::StatusCode;
use data_encoding::BASE64URL_NOPAD;
use promethean_model::IgnorePoison;
use ring::digest::{SHA256, digest};

use crate::auth::{AuthError, Identity, IdentityKind, Secret};
use crate::refusal::Refusal;

/// How every ticket begins, so that no other value of a query is taken for one.
const PREFIX: &str = "ticket_";
/// How long a ticket is valid.
pub(crate) const LIFETIME_MS: u64 = 60_000;
/// Tickets that are kept, used or not, until they expire: of all clients together.
const TICKETS_MAX: usize = 10_000;
/// Tickets of one identity. On a server without tokens all clients are one identity, which may have all tickets.
const OWN_MAX: usize = 1_000;
const RANDOM_BYTES: usize = 32;

/// Only the hash of a ticket is kept, so that the time of a lookup says nothing about other tickets.
type TicketHash = [u8; 32];
type TicketOwner = (IdentityKind, Arc<str>);

/// The tickets of one gateway.
#[derive(Debug, Default)]
pub(crate) struct Tickets(Mutex<TicketState>);

#[derive(Debug, Default)]
struct TicketState {
    unused: HashMap<TicketHash, Ticket>,
    /// Every ticket that has not expired, the oldest first.
    made: VecDeque<(u64, TicketHash, TicketOwner)>,
    /// How many tickets of `made` each identity has.
    owned: HashMap<TicketOwner, usize>,
}

#[derive(Debug)]
struct Ticket {
    token: Option<Secret>,
    /// The path, and the query if the ticket is for one query only.
    path: String,
}

impl Tickets {
    /// Makes a ticket for a path. `token` is what the client showed, if the server needs tokens.
    pub(crate) fn make(
        &self,
        identity: &Identity,
        token: Option<Secret>,
        path: String,
        now_ms: u64,
    ) -> Result<String, Refusal> {
        let mut bytes = [0; RANDOM_BYTES];
        getrandom::fill(&mut bytes).map_err(|_| Refusal::internal())?;
        let text = format!("{PREFIX}{}", BASE64URL_NOPAD.encode(&bytes));
        let owner = (identity.kind, Arc::clone(&identity.name));
        let mut state = self.0.lock().ignore_poison();
        state.forget_expired(now_ms);
        state.check_room(&owner, now_ms)?;
        *state.owned.entry(owner.clone()).or_default() += 1;
        let hash = hash(&text);
        state.made.push_back((now_ms, hash, owner));
        state.unused.insert(hash, Ticket { token, path });
        Ok(text)
    }

    /// The token behind a ticket. The ticket is used up, also if it is for another path.
    pub(crate) fn redeem(
        &self,
        text: &str,
        path: &str,
        query: &str,
        now_ms: u64,
    ) -> Result<Option<Secret>, AuthError> {
        let mut state = self.0.lock().ignore_poison();
        state.forget_expired(now_ms);
        let unknown =
            AuthError::BadToken("the ticket is unknown, was used before, or is older than a minute");
        let ticket = state.unused.remove(&hash(text)).ok_or(unknown)?;
        let fits = match ticket.path.split_once('?') {
            None => ticket.path == path,
            Some(asked) => asked == (path, query),
        };
        if fits { Ok(ticket.token) } else { Err(AuthError::BadToken("the ticket is for another path")) }
    }
}

impl TicketState {
    fn forget_expired(&mut self, now_ms: u64) {
        while let Some((made_ms, ..)) = self.made.front()
            && now_ms.saturating_sub(*made_ms) >= LIFETIME_MS
        {
            let Some((_, hash, owner)) = self.made.pop_front() else { return };
            self.unused.remove(&hash);
            if let Some(count) = self.owned.get_mut(&owner) {
                *count = count.saturating_sub(1);
                if *count == 0 {
                    self.owned.remove(&owner);
                }
            }
        }
    }

    fn check_room(&self, owner: &TicketOwner, now_ms: u64) -> Result<(), Refusal> {
        let own_max = if owner.0 == IdentityKind::Open { TICKETS_MAX } else { OWN_MAX };
        let own = self.owned.get(owner).copied().unwrap_or_default();
        if self.made.len() < TICKETS_MAX && own < own_max {
            return Ok(());
        }
        let whose = if own < own_max { "the server's clients" } else { "the token" };
        let oldest = self.made.front().map_or(0, |(made_ms, ..)| now_ms.saturating_sub(*made_ms));
        let retry_ms = LIFETIME_MS.saturating_sub(oldest);
        let message = format!(
            "{whose} asked for as many tickets as a minute allows; try again in {retry_ms} ms, or send the token in a \
             header"
        );
        Err(Refusal::new(StatusCode::TOO_MANY_REQUESTS, "rate_limited", message).retry_after(retry_ms))
    }
}

fn hash(text: &str) -> TicketHash {
    let mut bytes = TicketHash::default();
    bytes.copy_from_slice(digest(&SHA256, text.as_bytes()).as_ref());
    bytes
}

/// Takes the ticket out of a query; gives it and the rest of the query.
pub(crate) fn split_query(query: &str) -> (Option<&str>, String) {
    let ticket = |part: &str| part.strip_prefix("ticket=").is_some_and(|text| text.starts_with(PREFIX));
    let mut parts: Vec<&str> = query.split('&').collect();
    let found = parts.iter().position(|part| ticket(part)).map(|at| parts.remove(at));
    (found.and_then(|part| part.strip_prefix("ticket=")), parts.join("&"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::Grants;

    fn someone(name: &str) -> Identity {
        Identity::new(name, Grants::everything())
    }

    fn make(tickets: &Tickets, path: &str, now_ms: u64) -> String {
        tickets.make(&someone("a"), Some("secret".into()), path.to_owned(), now_ms).unwrap()
    }

    #[test]
    fn a_ticket_works_once_for_its_path_within_a_minute() {
        let tickets = Tickets::default();
        let redeem = |text: &str, path: &str, query: &str, now_ms| {
            tickets
                .redeem(text, path, query, now_ms)
                .map(|token| token.unwrap().reveal_text().unwrap().to_owned())
        };
        let text = make(&tickets, "/a", 5);
        assert_eq!(redeem(&text, "/a", "x=1", 5 + LIFETIME_MS - 1).unwrap(), "secret");
        assert!(redeem(&text, "/a", "", 6).is_err(), "a second time");
        let late = make(&tickets, "/a", 5);
        assert!(redeem(&late, "/a", "", 5 + LIFETIME_MS).is_err(), "late");
        let other = make(&tickets, "/a", 5);
        assert!(redeem(&other, "/b", "", 5).is_err(), "another path");
        assert!(redeem(&other, "/a", "", 5).is_err(), "it is used up");
        let exact = make(&tickets, "/a?x=1", 5);
        assert!(redeem(&exact, "/a", "x=2", 5).is_err(), "another query");
        assert!(redeem(&make(&tickets, "/a?x=1", 5), "/a", "x=1", 5).is_ok());
        assert!(redeem("ticket_", "/a", "", 5).is_err());
    }

    #[test]
    fn the_number_of_tickets_is_bounded_for_each_client_and_for_all() {
        let tickets = Tickets::default();
        let make = |name: &str, now_ms| tickets.make(&someone(name), None, "/".to_owned(), now_ms);
        for _ in 0..OWN_MAX {
            // Tickets that are used count too: a client cannot make them without end.
            let text = make("a", 0).unwrap();
            tickets.redeem(&text, "/", "", 0).unwrap();
        }
        let refused = make("a", 1).unwrap_err();
        assert_eq!((refused.code, refused.retry_after_ms), ("rate_limited", Some(LIFETIME_MS - 1)));
        for name in 1..TICKETS_MAX / OWN_MAX {
            (0..OWN_MAX).for_each(|_| drop(make(&name.to_string(), 1).unwrap()));
        }
        assert!(make("new", 1).is_err());
        assert!(make("a", LIFETIME_MS).is_ok(), "the first ones have expired");
        make("a", 3 * LIFETIME_MS).unwrap();
        let state = tickets.0.lock().unwrap();
        assert_eq!((state.made.len(), state.unused.len(), state.owned.len()), (1, 1, 1));
    }

    #[test]
    fn the_ticket_is_taken_out_of_the_query() {
        assert_eq!(split_query("a=1&ticket=ticket_x&b=2"), (Some("ticket_x"), "a=1&b=2".to_owned()));
        assert_eq!(split_query("ticket=ticket_x"), (Some("ticket_x"), String::new()));
        assert_eq!(split_query("ticket=7&a=1"), (None, "ticket=7&a=1".to_owned()));
        assert_eq!(split_query(""), (None, String::new()));
    }
}
