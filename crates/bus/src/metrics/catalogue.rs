//! The metric families of the bus. Dashboards and alarms depend on the names: never change one.

use super::value::Bounds;

crate::series! {
    /// Counts of one topic.
    pub struct TopicSeries ["topic"] {
        /// Events added.
        pub published: Counter = "events_published_total", "Events added to the topic.";
        /// Publishes with an id that the topic already had.
        pub duplicates: Counter = "events_duplicate_total", "Publishes whose id was already there.";
        /// Publishes refused by the rate limit.
        pub rate_limited: Counter = "events_rate_limited_total", "Events refused because they came too fast.";
        /// Payloads that did not fit the schema.
        pub schema_rejected: Counter =
            "schema_rejected_total", "Payloads refused because they do not fit the topic's schema.";
        /// Events that could not be lifted to the latest version for a reader.
        pub lift_failures: Counter =
            "schema_lift_failures_total",
            "Deliveries of events that could not be lifted to the latest schema version.";
    }
}

crate::series! {
    /// Counts of one group on one topic.
    pub struct GroupSeries ["topic", "group"] {
        /// Deliveries, including repeated ones.
        pub delivered: Counter = "events_delivered_total", "Deliveries to members, repeated ones included.";
        /// Events acked.
        pub acked: Counter = "events_acked_total", "Events acked.";
        /// Nacks.
        pub nacked: Counter = "events_nacked_total", "Deliveries nacked.";
        /// Deliveries beyond an event's first.
        pub redelivered: Counter = "events_redelivered_total", "Deliveries beyond the first of an event.";
        /// Leases that expired.
        pub lease_expired: Counter = "leases_expired_total", "Leases that ran out unanswered.";
        /// Events given up.
        pub dead_lettered: Counter =
            "events_dead_lettered_total", "Events given up after their last attempt.";
        /// Events that retention removed before the group got them.
        pub expired: Counter =
            "events_expired_total", "Events that retention dropped before the group was given them.";
        /// Events leased now.
        pub inflight: Gauge = "events_inflight", "Events leased to members.";
        /// Events leased to sockets now.
        pub ws_inflight: Gauge = "ws_inflight", "Events leased to WebSocket subscriptions.";
        /// Events not finished.
        pub lag: Gauge = "events_lag", "Events of the topic that the group has not finished.";
        /// Open dead letters.
        pub dead_letters: Gauge = "dead_letters_open", "Dead letters that wait to be redriven or dropped.";
        /// Members of the group.
        pub members: Gauge = "group_members", "Members of the group.";
        /// Keys whose events wait for an earlier event of the key.
        pub blocked_keys: Gauge =
            "group_blocked_keys", "Keys whose events wait for an earlier event of the key.";
        /// Milliseconds from publish to ack.
        pub latency_ms: Histogram(Bounds::DELIVERY_MS) =
            "delivery_latency_ms", "Milliseconds from publish, or from the t0 header, to ack.";
    }
}

crate::series! {
    /// Refusals by their code.
    pub struct RejectSeries ["code"] {
        /// Requests refused.
        pub rejected: Counter = "requests_rejected_total", "Requests refused, by code.";
    }
}

crate::series! {
    /// Figures of a store with files. A store in memory has none.
    pub struct StoreSeries [] {
        /// How long syncs of the journal took, in milliseconds.
        pub sync_ms: Histogram(Bounds::SYNC_MS) =
            "sync_latency_ms", "Milliseconds that a sync of the journal took.";
        /// Bytes free on the device of the data directory.
        pub disk_free_bytes: Gauge =
            "disk_free_bytes", "Bytes free on the device of the data directory.";
    }
}

crate::series! {
    /// Counts of the whole server.
    pub struct ServerSeries [] {
        /// Number of topics.
        pub topics: Gauge = "topics", "Topics there are.";
        /// Bytes the log keeps.
        pub log_bytes: Gauge = "log_bytes", "Bytes that the log keeps.";
        /// Events that retention keeps only because a projector has still to read them.
        pub held: Gauge =
            "retention_held_events",
            "Events that retention would have taken, if no projector had still to read them.";
        /// Projectors that stopped and wait for a person.
        pub projectors_halted: Gauge =
            "projectors_halted", "Projectors that stopped and wait for a person.";
        /// Threads that stuck jq programs did not give back.
        pub jq_lost: Gauge = "jq_threads_lost", "Threads that stuck jq programs did not give back.";
        /// How long commits took, in microseconds.
        pub commit_us: Histogram(Bounds::COMMIT_US) =
            "commit_latency_ms", "Milliseconds from handing a batch to the store to its answer.";
    }
}
