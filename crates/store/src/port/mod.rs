//! The ports: all that the rest of the system may ask of a store. Reads are split by subject. A change is a [`Batch`]
//! given to [`Store::commit`], or an event given to [`Store::append_each`], which is a batch of its own.

mod backups;
mod batch;
mod catalog;
mod cursors;
mod dedupe;
mod doc_ops;
mod docs;
mod error;
mod events;
mod outbox;
mod rows;
mod store;
mod watch;

pub use backups::{BackupError, Backups, LogBackup, LogBackupFile, LogBackupTopic, StatePage};
pub use batch::{
    AppendEvent, Batch, Class, CursorOp, DedupeForget, DedupeMark, EventIdSource, OutboxOp, RowOp,
    SettingsOp, StateOp, TopicOp,
};
pub use catalog::{CatalogReads, TopicConfig};
pub use cursors::{Cursor, CursorReads, GroupCursor};
pub use dedupe::DedupeReads;
pub use doc_ops::{CollectionOp, DocOp, DocPut, Expect, Replaces};
pub use docs::{
    Collection, CollectionInfo, Direction, Doc, DocPage, DocQuery, DocReads, Field, INDEX_FIELDS_MAX,
    INDEXES_MAX, Index, Keeping,
};
pub use error::{CommitError, Damage, ReadError};
pub use events::{EventPage, EventReads, PageLimit, Render, RenderedPage, TopicInfo, TopicPage};
pub use outbox::{OutboxReads, OutboxRow, OutboxStatus};
pub use promethean_log::{LogFigures, SYNC_LIMITS_MS};
pub use promethean_model::{EventBody, EventRef, StoredEvent};
pub use rows::{ROW_KEY_BYTES_MAX, Row, RowReads, Table};
pub use store::{Appended, Health, Placed, Receipt, Store, Turn};
pub use watch::{EndWatch, TopicRoom, Watch};
