//! The file sink against real files.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use bytes::Bytes;
use sharegroup_sink::config::{Properties, load_properties};
use sharegroup_sink::{
    Connector, ConnectorConfig, Outcome, Outcomes, OwnedRecord, PutError, Registry, SinkBatch,
    SinkTask, TaskContext,
};
use sharegroup_wire::TopicId;
use tokio::time::timeout;

use super::config::FileConfig;
use super::{FileConnector, FileTask};
use crate::line::Format;

/// A folder of this test's own, removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("file-sink-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

fn batch<V: AsRef<[u8]>>(first_offset: i64, values: &[Option<V>]) -> SinkBatch {
    let records = (first_offset..)
        .zip(values)
        .map(|(offset, value)| OwnedRecord {
            offset,
            value: value
                .as_ref()
                .map(|value| Bytes::copy_from_slice(value.as_ref())),
            delivery_count: 1,
            ..OwnedRecord::default()
        })
        .collect();
    SinkBatch::from_records("orders", TopicId::ZERO, 0, records)
}

fn task(path: &Path, fsync: bool) -> FileTask {
    let path = path.to_owned();
    FileTask::new(FileConfig {
        path,
        format: Format::Value,
        fsync,
    })
}

fn context(task_index: u32) -> TaskContext {
    TaskContext::new("out", task_index, 2, "connect-out")
}

async fn put(
    task: &mut FileTask,
    batch: SinkBatch,
) -> (Result<(), PutError>, Option<Vec<Option<Outcome>>>) {
    let outcomes = Outcomes::of(&batch);
    let sender = outcomes.sender();
    let result = task.put(batch, &sender).await;
    (result, outcomes.take())
}

fn configure(extra: &[(&str, &str)]) -> Result<ConnectorConfig, String> {
    let mut worker = Properties::new("worker.properties");
    worker.set("bootstrap.servers", "localhost:9092");
    worker.set("consumer.group.protocol", "share");
    let mut connector = Properties::new("out.properties");
    for (key, value) in [
        ("name", "out"),
        ("connector.class", "FileStreamSink"),
        ("topics", "orders"),
    ] {
        connector.set(key, value);
    }
    for (key, value) in extra {
        connector.set(*key, *value);
    }
    let registry = Registry::new().with(FileConnector);
    match load_properties(worker, vec![connector], false, &registry) {
        Ok(mut loaded) => Ok(loaded.connectors.remove(0)),
        Err(problems) => Err(problems
            .iter()
            .map(|problem| format!("{problem}\n"))
            .collect()),
    }
}

#[test]
fn keys_are_read_and_the_task_number_is_put_in() {
    let config = configure(&[
        ("file", "/tmp/out-${task}.txt"),
        ("format", "JSONL"),
        ("fsync", "true"),
    ])
    .unwrap();
    assert_eq!(
        FileConfig::of(&config, &context(1)),
        FileConfig {
            path: "/tmp/out-1.txt".into(),
            format: Format::Jsonl,
            fsync: true
        }
    );
    let config = configure(&[("file", "out.txt")]).unwrap();
    assert_eq!(
        FileConfig::of(&config, &context(0)),
        FileConfig {
            path: "out.txt".into(),
            format: Format::Value,
            fsync: false
        }
    );
}

#[test]
fn bad_keys_are_named() {
    for (extra, expected) in [
        (&[][..], "file: must be set"),
        (
            &[("file", "a"), ("format", "xml")],
            "format=xml: must be one of value, jsonl",
        ),
        (
            &[("file", "a"), ("fsync", "on")],
            "fsync=on: must be true or false",
        ),
        (&[("file", "a-${tsk}")], "only ${task}"),
        (&[("file", "a"), ("fiel", "b")], "did you mean file?"),
        (&[("file", "a"), ("fsnyc", "true")], "did you mean fsync?"),
    ] {
        let problems = configure(extra).unwrap_err();
        assert!(
            problems.contains(expected),
            "{expected} is not in {problems}"
        );
    }
}

#[tokio::test]
async fn values_are_appended_as_lines() {
    let folder = Folder::new("lines");
    let path = folder.file("out");
    let mut task = task(&path, true);
    task.start(&context(0)).await.unwrap();
    let (result, outcomes) = put(
        &mut task,
        batch(0, &[Some("one"), None, Some("two\nlines")]),
    )
    .await;
    result.unwrap();
    assert_eq!(outcomes, None);
    put(&mut task, batch(3, &[Some("four")])).await.0.unwrap();
    task.flush().await.unwrap();
    task.stop().await.unwrap();
    assert_eq!(
        std::fs::read_to_string(&path).unwrap(),
        "one\n\ntwo\nlines\nfour\n"
    );
}

#[tokio::test]
async fn a_missing_folder_is_named() {
    let folder = Folder::new("missing");
    let mut task = task(&folder.file("no/such/out"), false);
    let error = task.start(&context(0)).await.unwrap_err().to_string();
    let missing = folder.file("no/such");
    let expected = format!("the folder {} of the file", missing.display());
    assert!(
        error.contains(&expected) && error.contains("does not exist: create it"),
        "{error}"
    );
}

#[tokio::test]
async fn a_half_line_of_a_killed_writer_is_left_on_a_line_of_its_own() {
    let folder = Folder::new("half");
    let path = folder.file("out");
    std::fs::write(&path, "whole\nhal").unwrap();
    let mut first = task(&path, false);
    first.start(&context(0)).await.unwrap();
    put(&mut first, batch(0, &[Some("next")])).await.0.unwrap();
    assert_eq!(
        std::fs::read_to_string(&path).unwrap(),
        "whole\nhal\nnext\n"
    );
    // Somebody else breaks off while the task is at work.
    let mut text = std::fs::read(&path).unwrap();
    text.extend_from_slice(b"broke");
    std::fs::write(&path, text).unwrap();
    put(&mut first, batch(1, &[Some("last")])).await.0.unwrap();
    assert_eq!(
        std::fs::read_to_string(&path).unwrap(),
        "whole\nhal\nnext\nbroke\nlast\n"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_tasks_that_share_a_file_append_whole_lines() {
    const PUTS: i64 = 200;
    let folder = Folder::new("shared");
    let path = folder.file("out");
    let writers = [0_u32, 1].map(|index| {
        let mut task = task(&path, false);
        tokio::spawn(async move {
            task.start(&context(index)).await.unwrap();
            for number in 0..PUTS {
                let values: Vec<_> = (0..50)
                    .map(|line| Some(format!("{index}-{number}-{line}")))
                    .collect();
                put(&mut task, batch(0, &values)).await.0.unwrap();
                tokio::task::yield_now().await;
            }
        })
    });
    for writer in writers {
        writer.await.unwrap();
    }
    let text = std::fs::read_to_string(&path).unwrap();
    let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
    lines.sort();
    let mut expected: Vec<_> = (0..2)
        .flat_map(|index| {
            (0..PUTS)
                .flat_map(move |number| (0..50).map(move |line| format!("{index}-{number}-{line}")))
        })
        .collect();
    expected.sort();
    assert_eq!(lines, expected);
}

#[tokio::test]
async fn what_is_no_regular_file_is_refused_at_start() {
    let folder = Folder::new("kinds");
    let pipe = folder.file("pipe");
    let made = Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    let socket = folder.file("socket");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    for (path, what) in [
        (pipe.as_path(), "a named pipe"),
        (&socket, "a socket"),
        (&folder.0, "a folder"),
        (Path::new("/dev/null"), "a device"),
    ] {
        let error = task(path, false).start(&context(0)).await.unwrap_err();
        let expected = format!("{} is {what}: ", path.display());
        let error = error.to_string();
        assert!(
            error.starts_with(&expected) && error.contains("connector.class=console"),
            "{error}"
        );
    }
}

#[tokio::test]
async fn a_file_that_is_moved_or_removed_is_made_anew() {
    let folder = Folder::new("moved");
    let (path, old) = (folder.file("out"), folder.file("out.1"));
    let read = |path: &Path| std::fs::read_to_string(path).unwrap();
    let mut task = task(&path, true);
    task.start(&context(0)).await.unwrap();
    put(&mut task, batch(0, &[Some("one")])).await.0.unwrap();
    std::fs::rename(&path, &old).unwrap();
    put(&mut task, batch(1, &[Some("two")])).await.0.unwrap();
    assert_eq!((read(&old), read(&path)), ("one\n".into(), "two\n".into()));
    std::fs::remove_file(&path).unwrap();
    put(&mut task, batch(2, &[Some("three")])).await.0.unwrap();
    assert_eq!(read(&path), "three\n");
    std::fs::write(&old, "somebody's\n").unwrap();
    std::fs::rename(&old, &path).unwrap();
    put(&mut task, batch(3, &[Some("four")])).await.0.unwrap();
    task.flush().await.unwrap();
    assert_eq!(read(&path), "somebody's\nfour\n");
}

#[tokio::test]
async fn a_file_that_can_not_be_made_anew_fails_the_task() {
    let folder = Folder::new("gone");
    let inner = folder.file("inner");
    std::fs::create_dir(&inner).unwrap();
    let mut task = task(&inner.join("out"), false);
    task.start(&context(0)).await.unwrap();
    std::fs::remove_dir_all(&inner).unwrap();
    let (result, outcomes) = put(&mut task, batch(0, &[Some("x")])).await;
    let error = result.unwrap_err();
    assert!(!error.is_retriable());
    assert!(error.to_string().contains("does not exist: create it"));
    assert_eq!(outcomes, None);
}

/// Whoever has the file's lock holds up each write, as a disk does that hangs.
fn hang(path: &Path) -> File {
    let file = File::open(path).unwrap();
    file.lock().unwrap();
    file
}

#[tokio::test]
async fn a_file_that_is_removed_during_a_write_gets_the_lines_again() {
    let folder = Folder::new("during");
    let path = folder.file("out");
    let mut task = task(&path, false);
    task.start(&context(0)).await.unwrap();
    let hanging = hang(&path);
    let meanwhile = async {
        tokio::task::yield_now().await;
        std::fs::remove_file(&path).unwrap();
        drop(hanging);
    };
    let ((result, _), ()) = tokio::join!(put(&mut task, batch(0, &[Some("kept")])), meanwhile);
    result.unwrap();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "kept\n");
}

#[tokio::test]
async fn a_write_that_hangs_leaves_the_thread_free_and_the_next_put_waits_for_it() {
    let folder = Folder::new("hang");
    let path = folder.file("out");
    let mut task = task(&path, false);
    task.start(&context(0)).await.unwrap();
    let hanging = hang(&path);
    // A put is dropped when its task must stop.
    let first = batch(0, &[Some("one"), Some("two")]);
    let cut_off = timeout(Duration::from_millis(50), put(&mut task, first)).await;
    assert!(cut_off.is_err());
    let second = batch(0, &[Some("one")]);
    let ((result, _), ()) = tokio::join!(put(&mut task, second), async { drop(hanging) });
    result.unwrap();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "one\ntwo\none\n");
}

#[tokio::test]
async fn a_task_whose_write_hangs_can_be_stopped() {
    let folder = Folder::new("stop");
    let path = folder.file("out");
    let mut task = task(&path, true);
    task.start(&context(0)).await.unwrap();
    let _hanging = hang(&path);
    let record = batch(0, &[Some("x")]);
    assert!(
        timeout(Duration::from_millis(1), put(&mut task, record))
            .await
            .is_err()
    );
    task.stop().await.unwrap();
}

const CHILD: &str = "FILE_SINK_LIMITED_FILE";

/// Runs `child_under_a_file_size_limit` in a process of its own under `ulimit -f`.
#[test]
fn a_file_size_limit_leaves_whole_lines_and_reports_them() {
    let folder = Folder::new("limit");
    let path = folder.file("out");
    let script =
        "ulimit -f 8 && exec \"$0\" --exact file::tests::child_under_a_file_size_limit --nocapture";
    let output = Command::new("sh")
        .args(["-c", script])
        .arg(std::env::current_exe().unwrap())
        .env(CHILD, &path)
        .output()
        .unwrap();
    let shown = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{shown}");
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(!text.is_empty() && text.ends_with('\n'), "{text}");
    // The records are two lines each: the file ends with a whole record, not just a whole line.
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines.len() % 2, 0);
    for (index, pair) in lines.chunks(2).enumerate() {
        assert_eq!(
            pair,
            [
                format!("record {index:032}"),
                format!("of two lines {index:032}")
            ]
        );
    }
}

#[tokio::test]
async fn child_under_a_file_size_limit() {
    let Some(path) = std::env::var_os(CHILD) else {
        return;
    };
    let mut task = task(Path::new(&path), false);
    task.start(&context(0)).await.unwrap();
    let values: Vec<_> = (0..1000)
        .map(|n| Some(format!("record {n:032}\nof two lines {n:032}")))
        .collect();
    let (result, outcomes) = put(&mut task, batch(0, &values)).await;
    assert!(!result.unwrap_err().is_retriable());
    let outcomes = outcomes.unwrap();
    let written = outcomes
        .iter()
        .filter(|outcome| **outcome == Some(Outcome::Written))
        .count();
    let text = std::fs::read_to_string(&path).unwrap();
    assert_eq!(text.lines().count(), 2 * written);
    assert!(written > 0 && outcomes[written..].iter().all(Option::is_none));
    // Another try finds a file that ends with a whole record.
    let again = batch(
        i64::try_from(written).unwrap(),
        &values[written..written + 1],
    );
    assert!(put(&mut task, again).await.0.is_err());
    assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
    // The next start takes no records that it could not write.
    let mut next = self::task(Path::new(&path), false);
    let error = next.start(&context(0)).await.unwrap_err().to_string();
    assert!(error.contains("ulimit -f"), "{error}");
}

#[test]
fn the_java_names_find_the_sink() {
    let registry = Registry::new().with(FileConnector);
    for class in [
        "file",
        "FileStreamSink",
        "FileStreamSinkConnector",
        "org.apache.kafka.connect.file.FileStreamSinkConnector",
    ] {
        assert_eq!(registry.find(class).unwrap().name(), FileConnector.name());
    }
}
