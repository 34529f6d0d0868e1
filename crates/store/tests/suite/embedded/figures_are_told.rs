//! Figures for the operator: how long syncs of the journal took, and the space that is left.

use promethean_store::port::{Batch, Store};

use crate::suite::support::{Embedded, commit, event};

#[tokio::test(flavor = "multi_thread")]
async fn syncs_and_free_space_are_counted() {
    let subject = Embedded::new().await;
    let before = subject.store.figures().unwrap();
    for n in 0..5 {
        commit(&*subject.store, Batch::new().event(event("a", &n.to_string()))).await;
    }
    let after = subject.store.figures().unwrap();
    assert!(after.syncs.iter().sum::<u64>() >= before.syncs.iter().sum::<u64>() + 5, "{after:?}");
    assert!(after.free_bytes.is_some_and(|bytes| bytes > 0), "{after:?}");
    subject.store.close().await;
    assert_eq!(subject.store.figures(), None);
}
