//! One backup is read at a time; it ends when it is ended, when it is not read for long, and with its bus.

use promethean_bus::{BackupError, BusError};
use promethean_testkit::{StoreKind, World};

fn refusal<T: std::fmt::Debug>(result: Result<T, BusError>) -> BackupError {
    match result {
        Err(BusError::Backup(error)) => error,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_backup_is_known_by_its_id() {
    let world = World::new(StoreKind::Embedded).await;
    world.fill("a.b", 0..3).await;
    let begun = world.bus.begin_backup(None).await.unwrap();
    assert_eq!(begun.point.topics.len(), 1);
    assert_eq!((begun.point.topics[0].earliest, begun.point.topics[0].end), (0, 3));
    assert_eq!(refusal(world.bus.begin_backup(None).await), BackupError::Running);
    let again = world.bus.begin_backup(Some(begun.id.parse().unwrap())).await.unwrap();
    assert_eq!(again.point, begun.point, "an answer that was lost is given again");
    for file in &begun.point.files {
        let piece = world.bus.backup_piece(&begun.id, &file.path, 0).await.unwrap();
        assert_eq!(piece.len() as u64, file.bytes, "{}", file.path);
        let beyond = refusal(world.bus.backup_piece(&begun.id, &file.path, 1).await);
        assert_eq!(beyond, BackupError::UnknownFile { path: file.path.clone() });
    }
    assert!(!world.bus.backup_state(&begun.id, None).await.unwrap().bytes.is_empty());
    assert_eq!(refusal(world.bus.backup("other").await), BackupError::NotRunning);
    world.bus.end_backup(&begun.id).await.unwrap();
    assert_eq!(refusal(world.bus.backup(&begun.id).await), BackupError::NotRunning);
    assert_eq!(refusal(world.bus.end_backup(&begun.id).await), BackupError::NotRunning);
    let next = world.bus.begin_backup(None).await.unwrap();
    assert_ne!(next.id, begun.id);
    // A backup that is read does not keep the store open.
    world.close().await;
}

#[tokio::test]
async fn a_backup_that_is_not_read_makes_room_for_another() {
    let world = World::new(StoreKind::Embedded).await;
    world.fill("a.b", 0..1).await;
    let old = world.bus.begin_backup(None).await.unwrap();
    world.clock.advance(4 * 60 * 1000);
    world.bus.backup(&old.id).await.unwrap();
    world.clock.advance(4 * 60 * 1000);
    assert_eq!(refusal(world.bus.begin_backup(None).await), BackupError::Running, "it was read meanwhile");
    world.clock.advance(60 * 1000);
    let new = world.bus.begin_backup(None).await.unwrap();
    assert_eq!(refusal(world.bus.backup(&old.id).await), BackupError::NotRunning);
    world.bus.backup(&new.id).await.unwrap();
    world.close().await;
}

#[tokio::test]
async fn a_store_without_files_offers_no_backup() {
    let world = World::new(StoreKind::Memory).await;
    assert_eq!(refusal(world.bus.begin_backup(None).await), BackupError::NotOffered);
    world.close().await;
}
