//! Files of a data directory can be read by the server's user alone, those of the state engine too.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use promethean_store::port::{Batch, Keeping, Store, Table};

use crate::suite::support::{Embedded, clock, commit, declare, doc, event, row, try_open};

/// The paths in a folder that group or others have a right to.
fn open_to_others(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let mode = entry.metadata().unwrap().permissions().mode() & 0o777;
        if mode & 0o077 != 0 {
            found.push(format!("{} {mode:o}", entry.path().display()));
        }
        if entry.file_type().unwrap().is_dir() {
            found.extend(open_to_others(&entry.path()));
        }
    }
    found
}

async fn fill(store: &dyn Store) {
    let state = Batch::new().with(declare("c", Keeping::Durable)).with(doc("c", "k", 1));
    commit(store, state.event(event("a", "0")).with(row(Table::Attempts, "r", "1"))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn files_and_folders_are_private() {
    let subject = Embedded::new().await;
    assert_eq!(open_to_others(subject.dir.path()), Vec::<String>::new(), "after the creation");
    fill(&*subject.store).await;
    subject.store.checkpoint().await.unwrap();
    assert_eq!(open_to_others(subject.dir.path()), Vec::<String>::new(), "after a checkpoint");
    subject.store.close().await;
}

/// An earlier version left the files of the state engine as the process makes them.
#[tokio::test(flavor = "multi_thread")]
async fn files_of_an_earlier_version_become_private() {
    let subject = Embedded::new().await;
    fill(&*subject.store).await;
    subject.store.close().await;
    let open = std::fs::Permissions::from_mode;
    let state = subject.dir.path().join("state");
    for (path, mode) in
        [("", 0o755), ("version", 0o644), ("keyspaces", 0o755), ("keyspaces/1/current", 0o666)]
    {
        std::fs::set_permissions(state.join(path), open(mode)).unwrap();
    }
    assert_eq!(open_to_others(subject.dir.path()).len(), 4);
    let store = try_open(subject.dir.path(), &clock()).await.unwrap();
    assert_eq!(open_to_others(subject.dir.path()), Vec::<String>::new());
    store.close().await;
}
