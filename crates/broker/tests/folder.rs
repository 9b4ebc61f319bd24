//! A cluster's folder: what is in it after a restart, a crash, damage.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::path::PathBuf;

use sharegroup_broker::{Broker, BrokerBuilder, FolderError, StartError};

/// A folder of a test's own, removed at its end.
struct TestDir(PathBuf);

impl TestDir {
    fn new(name: &str) -> Self {
        let folder = format!("sharegroup-broker-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(folder);
        drop(std::fs::remove_dir_all(&path));
        Self(path)
    }

    fn broker(&self) -> BrokerBuilder {
        Broker::builder().in_memory().dir(&self.0)
    }
}

impl Drop for TestDir {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

#[tokio::test]
async fn a_second_broker_on_the_same_folder_is_refused_until_the_first_has_ended() {
    let dir = TestDir::new("lock");
    let first = dir.broker().topic("orders", 1).start().await.unwrap();
    let id = first.model(|model| model.topics.named("orders").unwrap().id);
    let refused = dir.broker().start().await.unwrap_err();
    assert!(
        matches!(&refused, StartError::Folder(FolderError::InUse(path)) if *path == dir.0),
        "{refused}"
    );
    drop(first);
    let second = dir.broker().topic("orders", 1).start().await.unwrap();
    let again = second.model(|model| model.topics.named("orders").unwrap().id);
    assert_eq!(again, id);
}
