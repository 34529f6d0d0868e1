//! The routes, over real sockets.

mod answers_fit_their_schemas;
mod bodies_have_limits;
pub(super) mod client;
mod dashboard_is_served;
mod documents_are_read;
mod events_are_published;
mod events_are_read;
mod exports_are_exact;
mod groups_are_managed;
mod origins_are_checked;
mod requests_are_not_smuggled;
mod routes_need_a_token;
mod schemas_are_registered;
mod server_describes_itself;
mod slow_clients_are_cut;
mod streams_follow_a_topic;
