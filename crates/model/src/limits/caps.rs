//! The caps, as constants. Those named `_DEFAULT` can be configured, through [`super::Limits`] or a setting.

/// Bytes of a topic's name.
pub const TOPIC_NAME_BYTES_MAX: usize = 180;
/// Bytes of the name of a group, member or collection.
pub const PLAIN_NAME_BYTES_MAX: usize = 120;

/// Bytes of an event's payload as JSON text.
pub const PAYLOAD_BYTES_MAX_DEFAULT: usize = 1 << 20;
/// Headers of one event.
pub const HEADERS_MAX_DEFAULT: usize = 64;
/// Bytes of the names and values of one event's headers together.
pub const HEADER_BYTES_MAX_DEFAULT: usize = 8 << 10;
/// Bytes of a key.
pub const KEY_BYTES_MAX_DEFAULT: usize = 1 << 10;
/// Tags of one event.
pub const TAGS_MAX_DEFAULT: usize = 32;
/// Bytes of one event's tags together.
pub const TAG_BYTES_MAX_DEFAULT: usize = 2 << 10;
/// Causes named by one event.
pub const CAUSED_BY_MAX_DEFAULT: usize = 64;
/// Bytes of a session id.
pub const SID_BYTES_MAX_DEFAULT: usize = 256;
/// Events of one batch.
pub const BATCH_EVENTS_MAX_DEFAULT: usize = 1_000;
/// Bytes of one message or request body.
pub const MESSAGE_BYTES_MAX_DEFAULT: usize = 16 << 20;
/// Topics of one server.
pub const TOPICS_MAX_DEFAULT: usize = 100_000;

/// Bytes of a key that no configuration may exceed: the log keeps a key's length in 16 bits.
pub const KEY_BYTES_CEILING: usize = u16::MAX as usize;
/// Bytes of a message that no configuration may exceed: the log keeps a record's length in 32 bits, and a journal
/// frame holds a whole message.
pub const MESSAGE_BYTES_CEILING: usize = 256 << 20;

/// Partitions of a topic or group.
pub const PARTITIONS_MAX: u32 = 4_096;
/// Deliveries of one event to one group before it becomes a dead letter.
pub const ATTEMPTS_MAX: u32 = 1_000;
/// As `ATTEMPTS_MAX`, where nothing is set.
pub const ATTEMPTS_DEFAULT: u32 = 5;

// A full event in a frame of its own must fit into a message. JSON may write a byte of text as six (`\u0001`).
const _: () = assert!(
    PAYLOAD_BYTES_MAX_DEFAULT
        + 6 * (HEADER_BYTES_MAX_DEFAULT
            + KEY_BYTES_MAX_DEFAULT
            + TAG_BYTES_MAX_DEFAULT
            + SID_BYTES_MAX_DEFAULT)
        + 40 * CAUSED_BY_MAX_DEFAULT
        + (64 << 10)
        <= MESSAGE_BYTES_MAX_DEFAULT
);
// A full batch of small events must fit into a message.
const _: () = assert!(BATCH_EVENTS_MAX_DEFAULT * (8 << 10) <= MESSAGE_BYTES_MAX_DEFAULT);
const _: () = assert!(KEY_BYTES_MAX_DEFAULT <= KEY_BYTES_CEILING);
const _: () = assert!(MESSAGE_BYTES_MAX_DEFAULT <= MESSAGE_BYTES_CEILING);
const _: () = assert!(MESSAGE_BYTES_CEILING <= u32::MAX as usize);
// `<collection>.changed` of the longest collection is still a topic.
const _: () = assert!(PLAIN_NAME_BYTES_MAX + ".changed".len() <= TOPIC_NAME_BYTES_MAX);
const _: () = assert!(ATTEMPTS_DEFAULT >= 1 && ATTEMPTS_DEFAULT <= ATTEMPTS_MAX);
