//! The folder under a model, with files that fail or go away.

use std::path::PathBuf;

use sharegroup_wire::compress::Compression;
use sharegroup_wire::frame::{decode_response, encode_request};
use sharegroup_wire::message::Request;
use sharegroup_wire::message::api_versions::ApiVersionsRequest;
use sharegroup_wire::message::metadata::{MetadataRequest, MetadataRequestTopic};
use sharegroup_wire::message::produce::{PartitionProduceData, ProduceRequest, TopicProduceData};
use sharegroup_wire::record::RecordBatchBuilder;
use sharegroup_wire::{BrokerId, CorrelationId, ErrorCode};

use super::*;
use crate::model::{ModelConfig, Output};

const REFUSED: (ErrorCode, i64) = (ErrorCode::KafkaStorageError, -1);

struct World {
    model: Model,
    folder: Folder,
    now: Instant,
}

impl World {
    fn open(path: &Path) -> Self {
        Self::try_open(path).unwrap()
    }

    fn try_open(path: &Path) -> Result<Self, FolderError> {
        let now = Instant::now();
        let mut model = Model::new(now, ModelConfig::default());
        let folder = Folder::open(path, &mut model, now)?;
        Ok(Self { model, folder, now })
    }

    /// A new folder with a topic, and a record in it.
    fn with_record(path: &Path) -> Self {
        let mut world = Self::open(path);
        world.model.create_topic("orders", 1, 1);
        assert_eq!(world.produce(0), (ErrorCode::None, 0));
        world
    }

    /// Asks as the server does it.
    fn ask<R: Request>(&mut self, request: &R, version: i16) -> R::Response {
        let frame = encode_request(request, version, CorrelationId(1), None);
        let link = self.model.connect(BrokerId(1), "/127.0.0.1");
        self.folder.retry(&mut self.model);
        self.model.handle_request(self.now, link, frame.slice(4..));
        self.folder.write(&mut self.model, self.now);
        let Some(Output::Send { frame, .. }) = self.model.poll_output() else {
            panic!("no answer");
        };
        decode_response::<R>(&frame.slice(4..), version).unwrap()
    }

    /// Produces a batch; returns the result and the offset.
    fn produce(&mut self, sequence: i32) -> (ErrorCode, i64) {
        let mut builder = RecordBatchBuilder::new(Compression::None).producer(7, 0, sequence);
        builder.push(1000, None, Some(b"value"), []).unwrap();
        let data = PartitionProduceData {
            index: 0,
            records: Some(builder.build(0).unwrap()),
        };
        let request = ProduceRequest {
            transactional_id: None,
            acks: -1,
            timeout_ms: 1000,
            topic_data: vec![TopicProduceData {
                name: "orders".into(),
                partition_data: vec![data],
                ..Default::default()
            }],
        };
        let answer = self.ask(&request, 9);
        let result = &answer.responses[0].partition_responses[0];
        (result.error_code, result.base_offset)
    }

    /// Asks for a topic, which is made where it isn't there.
    fn find_topic(&mut self, name: &str) -> ErrorCode {
        let topic = MetadataRequestTopic {
            name: Some(name.into()),
            ..Default::default()
        };
        let request = MetadataRequest {
            topics: Some(vec![topic]),
            allow_auto_topic_creation: true,
            ..Default::default()
        };
        self.ask(&request, 12).topics[0].error_code
    }

    fn find_versions(&mut self) -> ErrorCode {
        self.ask(&ApiVersionsRequest::default(), 3).error_code
    }

    /// Puts `/dev/full`, which takes no byte, in the journal's place; returns the journal.
    fn fill_disk(&mut self) -> File {
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        std::mem::replace(&mut self.folder.journal, full)
    }
}

/// A path of a test's own; what is there is removed at the end.
struct TestDir(PathBuf);

impl TestDir {
    fn new(name: &str) -> Self {
        let name = format!("sharegroup-broker-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        drop(fs::remove_dir_all(&path));
        Self(path)
    }
}

impl Drop for TestDir {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

#[test]
fn a_full_disk_refuses_and_what_was_acknowledged_before_and_after_is_there() {
    let dir = TestDir::new("full");
    let mut world = World::with_record(&dir.0);
    let journal = world.fill_disk();
    assert_eq!(world.produce(1), REFUSED);
    assert_eq!(world.produce(1), REFUSED);
    assert_eq!(world.folder.unwritten_records(), Some(1));
    world.folder.journal = journal;
    // It was appended, but not written: what was owed comes first, and nothing comes twice.
    assert_eq!(world.produce(1), (ErrorCode::None, 1));
    assert_eq!(world.folder.unwritten_records(), None);
    assert_eq!(world.produce(2), (ErrorCode::None, 2));
    drop(world);

    let mut world = World::open(&dir.0);
    assert_eq!(world.produce(2), (ErrorCode::None, 2));
    assert_eq!(world.produce(3), (ErrorCode::None, 3));
}

#[test]
fn a_full_disk_keeps_nobody_from_connecting() {
    let dir = TestDir::new("full-connect");
    let mut world = World::with_record(&dir.0);
    let journal = world.fill_disk();
    // It would make a topic, which nobody may be told of.
    assert_eq!(world.find_topic("new"), ErrorCode::KafkaStorageError);
    assert_eq!(world.produce(1), REFUSED);
    assert_eq!(world.find_versions(), ErrorCode::None);
    assert_eq!(world.find_topic("orders"), ErrorCode::None);
    assert_eq!(world.produce(1), REFUSED);
    world.folder.journal = journal;
    assert_eq!(world.produce(1), (ErrorCode::None, 1));
}

#[test]
fn what_could_not_be_written_is_tried_again_at_the_end() {
    let dir = TestDir::new("full-end");
    let mut world = World::with_record(&dir.0);
    let journal = world.fill_disk();
    assert_eq!(world.produce(1), REFUSED);
    world.folder.journal = journal;
    world.folder.end();

    assert_eq!(World::open(&dir.0).produce(1), (ErrorCode::None, 1));
}

#[test]
fn a_folder_that_was_deleted_acknowledges_nothing() {
    let dir = TestDir::new("deleted");
    let mut world = World::with_record(&dir.0);
    fs::remove_dir_all(&dir.0).unwrap();
    assert_eq!(world.produce(1), REFUSED);
    assert_eq!(world.produce(1), REFUSED);
    assert_eq!(world.find_versions(), ErrorCode::None);
    assert!(!dir.0.exists());
}

#[test]
fn a_folder_that_is_back_goes_on() {
    let (dir, elsewhere) = (TestDir::new("moved"), TestDir::new("moved-elsewhere"));
    let mut world = World::with_record(&dir.0);
    fs::rename(&dir.0, &elsewhere.0).unwrap();
    assert_eq!(world.produce(1), REFUSED);
    fs::rename(&elsewhere.0, &dir.0).unwrap();
    assert_eq!(world.produce(1), (ErrorCode::None, 1));
    drop(world);

    let mut world = World::open(&dir.0);
    assert_eq!(world.produce(1), (ErrorCode::None, 1));
    assert_eq!(world.produce(2), (ErrorCode::None, 2));
}

#[test]
fn a_broker_whose_folder_was_made_anew_by_another_leaves_that_alone() {
    let dir = TestDir::new("anew");
    let mut old = World::with_record(&dir.0);
    fs::remove_dir_all(&dir.0).unwrap();
    let mut new = World::with_record(&dir.0);
    assert_eq!(old.produce(1), REFUSED);
    old.folder.compact_at = 0;
    old.folder.compact(&old.model);
    assert_eq!(old.produce(1), REFUSED);
    assert_eq!(new.produce(1), (ErrorCode::None, 1));
    new.folder.compact_at = 0;
    new.folder.compact(&new.model);
    assert_eq!(new.produce(2), (ErrorCode::None, 2));
    drop((old, new));

    let mut world = World::open(&dir.0);
    assert_eq!(world.produce(2), (ErrorCode::None, 2));
    assert_eq!(world.produce(3), (ErrorCode::None, 3));
}

#[test]
fn a_folder_whose_lock_was_deleted_is_in_use_all_the_same() {
    let dir = TestDir::new("unlocked");
    let mut world = World::with_record(&dir.0);
    for _ in 0..2 {
        fs::remove_file(dir.0.join("lock")).unwrap();
        let refused = World::try_open(&dir.0).map(|_| ());
        assert!(matches!(refused, Err(FolderError::InUse(_))), "{refused:?}");
        // So it is with a journal that was made anew.
        world.folder.compact_at = 0;
        world.folder.compact(&world.model);
    }
    assert_eq!(world.produce(1), (ErrorCode::None, 1));
}

/// It is a link to itself: whether it is there can't be said.
#[test]
fn a_journal_that_cannot_be_looked_at_is_not_made_anew() {
    let dir = TestDir::new("loop");
    fs::create_dir_all(&dir.0).unwrap();
    let journal = dir.0.join("journal");
    std::os::unix::fs::symlink("journal", &journal).unwrap();
    let refused = World::try_open(&dir.0).map(|_| ());
    assert!(
        matches!(refused, Err(FolderError::Io { .. })),
        "{refused:?}"
    );
    assert!(fs::symlink_metadata(&journal).unwrap().is_symlink());
}
