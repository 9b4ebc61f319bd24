//! The file sink against real files.

mod check;
mod rotated;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use bytes::Bytes;
use sharegroup_sink::config::{ConfigProblem, Properties, load_properties};
use sharegroup_sink::{
    Connector, ConnectorConfig, Outcome, Outcomes, OwnedRecord, PutError, Registry, SinkBatch,
    SinkTask, TaskContext,
};
use sharegroup_wire::TopicId;
use sharegroup_wire::compress::{Compression, DecompressLimits, decompress};
use tokio::time::timeout;

use super::config::{FileConfig, Fsync};
use super::member::magic;
use super::rotation::Rotation;
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
        fsync: if fsync { Fsync::Each } else { Fsync::Never },
        ..FileConfig::default()
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

fn properties(name: &str, extra: &[(&str, &str)]) -> Properties {
    let mut connector = Properties::new(format!("{name}.properties"));
    for (key, value) in [
        ("name", name),
        ("connector.class", "FileStreamSink"),
        ("topics", "orders"),
    ] {
        connector.set(key, value);
    }
    for (key, value) in extra {
        connector.set(*key, *value);
    }
    connector
}

/// The connectors and their warnings, or the errors.
fn load(connectors: Vec<Properties>) -> Result<(Vec<ConnectorConfig>, String), String> {
    let mut worker = Properties::new("worker.properties");
    worker.set("bootstrap.servers", "localhost:9092");
    worker.set("consumer.group.protocol", "share");
    let registry = Registry::new().with(FileConnector);
    let text = |problems: Vec<ConfigProblem>| -> String {
        let lines = problems.iter().map(|problem| format!("{problem}\n"));
        lines.collect()
    };
    let loaded = load_properties(worker, connectors, false, &registry).map_err(text)?;
    Ok((loaded.connectors, text(loaded.warnings)))
}

fn configure(extra: &[(&str, &str)]) -> Result<ConnectorConfig, String> {
    Ok(load(vec![properties("out", extra)])?.0.remove(0))
}

#[test]
fn a_folder_that_is_missing_is_a_wrong_configuration() {
    let folder = Folder::new("missing-folder");
    let file = folder.file("${task}/out").display().to_string();
    std::fs::create_dir(folder.file("0")).unwrap();
    assert!(configure(&[("file", &file)]).is_ok());
    let errors = configure(&[("file", &file), ("tasks.max", "3")]).unwrap_err();
    let missing = folder.file("1").display().to_string();
    let says = format!("the folder {missing} does not exist; create it, or name another\n");
    assert!(errors.ends_with(&says), "{errors}");
    assert!(configure(&[("file", "out.txt")]).is_ok());
}

#[test]
fn two_connectors_with_one_file_are_named() {
    let of = |name, file| properties(name, &[("file", file)]);
    let (_, warnings) = load(vec![of("a", "out"), of("b", "out"), of("c", "other")]).unwrap();
    assert_eq!(
        warnings,
        "b.properties: file=out: is where the connector a writes as well; give each connector its own unless you mean that\n"
    );
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
            fsync: Fsync::Each,
            ..FileConfig::default()
        }
    );
    let config = configure(&[("file", "out.txt")]).unwrap();
    assert_eq!(
        FileConfig::of(&config, &context(0)),
        FileConfig {
            path: "out.txt".into(),
            ..FileConfig::default()
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
            "fsync=on: must be one of false, true, finished",
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

/// Runs a test in a process of its own under `ulimit -f`.
fn run_child(test: &str, path: &Path) {
    let script = format!("ulimit -f 8 && exec \"$0\" --exact file::tests::{test} --nocapture");
    let output = Command::new("sh")
        .args(["-c", &script])
        .arg(std::env::current_exe().unwrap())
        .env(CHILD, path)
        .output()
        .unwrap();
    let shown = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{shown}");
}

#[test]
fn a_file_size_limit_leaves_whole_members_of_what_was_written() {
    let folder = Folder::new("limit-gzip");
    let path = folder.file("out.gz");
    run_child("compressing_child_under_a_file_size_limit", &path);
    assert!(!unpacked(&path, Compression::Gzip).is_empty());
}

#[tokio::test]
async fn compressing_child_under_a_file_size_limit() {
    let Some(path) = std::env::var_os(CHILD) else {
        return;
    };
    let path = PathBuf::from(path);
    let mut task = compressed(&path, Compression::Gzip);
    task.start(&context(0)).await.unwrap();
    let mut expected = String::new();
    for offset in 0.. {
        let line = (0..40).map(|n: u64| (n + offset).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let line: String = line.map(|number| format!("{number:x}")).collect();
        let record = batch(i64::try_from(offset).unwrap(), &[Some(&line)]);
        if let Err(error) = put(&mut task, record).await.0 {
            assert!(!error.is_retriable(), "{error}");
            break;
        }
        expected = expected + &line + "\n";
    }
    assert!(!expected.is_empty());
    assert_eq!(unpacked(&path, Compression::Gzip), expected);
}

#[test]
fn a_file_size_limit_leaves_whole_lines_and_reports_them() {
    let folder = Folder::new("limit");
    let path = folder.file("out");
    run_child("child_under_a_file_size_limit", &path);
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

const CODECS: [Compression; 3] = [Compression::Gzip, Compression::Lz4, Compression::Zstd];

fn compressed(path: &Path, compression: Compression) -> FileTask {
    FileTask::new(FileConfig {
        path: path.to_owned(),
        compression,
        ..FileConfig::default()
    })
}

/// What a file holds, as our own reader has it.
fn unpacked(path: &Path, codec: Compression) -> String {
    let mut bytes = std::fs::read(path).unwrap();
    // Kafka has no skippable frames in lz4.
    let mark = b"\x5e\x2a\x4d\x18\x0c\0\0\0SGL4";
    while codec == Compression::Lz4
        && let Some(at) = bytes.windows(mark.len()).position(|window| window == mark)
    {
        bytes.drain(at..at + mark.len() + 8);
    }
    let text = decompress(codec, &bytes, &DecompressLimits::default()).unwrap();
    String::from_utf8(text.to_vec()).unwrap()
}

/// The same as the codec's usual tool has it, where this machine has that.
fn unpacked_by_tool(path: &Path, codec: Compression) -> Option<String> {
    let mut tool = Command::new(codec.name());
    tool.args(["-d", "-c"]).stdin(File::open(path).unwrap());
    let output = tool.output().ok()?;
    assert!(output.status.success(), "{output:?}");
    Some(String::from_utf8(output.stdout).unwrap())
}

async fn append(path: &Path, codec: Compression, values: &[&str]) {
    let mut task = compressed(path, codec);
    task.start(&context(0)).await.unwrap();
    for (offset, value) in (0..).zip(values) {
        put(&mut task, batch(offset, &[Some(value)]))
            .await
            .0
            .unwrap();
    }
    task.stop().await.unwrap();
}

#[tokio::test]
async fn a_compressed_file_is_read_as_one_by_every_tool() {
    let folder = Folder::new("compressed");
    for codec in CODECS {
        let path = folder.file(codec.name());
        append(&path, codec, &["one", "two"]).await;
        append(&path, codec, &["three"]).await;
        assert_eq!(unpacked(&path, codec), "one\ntwo\nthree\n", "{codec:?}");
        if let Some(text) = unpacked_by_tool(&path, codec) {
            assert_eq!(text, "one\ntwo\nthree\n", "{codec:?}");
        }
    }
}

#[tokio::test]
async fn a_compressed_file_without_records_is_whole_and_never_rotated() {
    let folder = Folder::new("compressed-nothing");
    for codec in CODECS {
        let path = folder.file(codec.name());
        let mut task = FileTask::new(FileConfig {
            rotation: Rotation {
                bytes_max: Some(1),
                age_max: Some(Duration::ZERO),
            },
            ..compressed(&path, codec).config
        });
        task.start(&context(0)).await.unwrap();
        // Also while it runs, and where it is killed.
        assert_eq!(unpacked(&path, codec), "", "{codec:?}");
        if let Some(text) = unpacked_by_tool(&path, codec) {
            assert_eq!(text, "", "{codec:?}");
        }
        put(&mut task, batch(0, &[Some("one")])).await.0.unwrap();
        task.stop().await.unwrap();
        assert_eq!(unpacked(&path, codec), "one\n", "{codec:?}");
        let names = std::fs::read_dir(&folder.0).unwrap();
        assert_eq!(names.count(), 1, "{codec:?}");
        std::fs::remove_file(&path).unwrap();
    }
}

#[tokio::test]
async fn half_a_member_of_a_killed_writer_is_cut_off() {
    let folder = Folder::new("half-member");
    for codec in CODECS {
        let path = folder.file(codec.name());
        append(&path, codec, &["one"]).await;
        let whole = std::fs::read(&path).unwrap();
        append(&path, codec, &["two"]).await;
        let both = std::fs::read(&path).unwrap();
        for length in whole.len()..both.len() {
            std::fs::write(&path, &both[..length]).unwrap();
            append(&path, codec, &["three"]).await;
            assert_eq!(unpacked(&path, codec), "one\nthree\n", "{codec:?} {length}");
        }
        assert_eq!(std::fs::read_dir(&folder.0).unwrap().count(), 1);
        std::fs::remove_file(&path).unwrap();
    }
}

#[tokio::test]
async fn a_compressed_file_without_a_whole_member_of_ours_is_set_aside() {
    let folder = Folder::new("foreign");
    let (path, aside) = (folder.file("out.gz"), folder.file("out-000001.gz"));
    std::fs::write(&path, "somebody's").unwrap();
    append(&path, Compression::Gzip, &["one"]).await;
    assert_eq!(unpacked(&path, Compression::Gzip), "one\n");
    assert_eq!(std::fs::read_to_string(&aside).unwrap(), "somebody's");
    // Left in its very first write.
    let bytes = std::fs::read(&path).unwrap();
    std::fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
    append(&path, Compression::Gzip, &["two"]).await;
    assert_eq!(unpacked(&path, Compression::Gzip), "two\n");
    // Before there was anything of ours in it.
    std::fs::write(&path, &bytes[..7]).unwrap();
    append(&path, Compression::Gzip, &["three"]).await;
    assert_eq!(unpacked(&path, Compression::Gzip), "three\n");
    assert!(folder.file("out-000002.gz").exists());
}

/// Every line of every file of a folder, sorted; each file is of one kind.
fn all_lines(folder: &Folder) -> Vec<String> {
    let mut lines = Vec::new();
    for entry in std::fs::read_dir(&folder.0).unwrap() {
        let path = entry.unwrap().path();
        let bytes = std::fs::read(&path).unwrap();
        let codec = CODECS
            .into_iter()
            .find(|codec| bytes.starts_with(magic(*codec)));
        let text = match codec {
            Some(codec) => unpacked(&path, codec),
            None => String::from_utf8(bytes).unwrap(),
        };
        lines.extend(text.lines().map(str::to_owned));
    }
    lines.sort();
    lines
}

#[tokio::test]
async fn a_file_whose_compression_changes_loses_no_line() {
    let all = [&[Compression::None], &CODECS[..]].concat();
    for first in &all {
        for second in all.iter().filter(|second| *second != first) {
            let folder = Folder::new("changes");
            let path = folder.file("out");
            append(&path, *first, &["1"]).await;
            append(&path, *second, &["2", "3"]).await;
            append(&path, *first, &["4"]).await;
            append(&path, *first, &["5"]).await;
            assert_eq!(
                all_lines(&folder),
                ["1", "2", "3", "4", "5"],
                "{first:?}, {second:?}"
            );
        }
    }
}

#[tokio::test]
async fn tasks_that_compress_and_share_a_file_with_one_that_does_not_lose_no_line() {
    let folder = Folder::new("both-kinds");
    let path = folder.file("out");
    let mut tasks = [Compression::Gzip, Compression::None].map(|codec| compressed(&path, codec));
    for task in &mut tasks {
        task.start(&context(0)).await.unwrap();
    }
    let mut expected = Vec::new();
    for number in 100..140_i64 {
        let value = number.to_string();
        let task = &mut tasks[usize::from(number % 3 == 0)];
        put(task, batch(number, &[Some(&value)])).await.0.unwrap();
        expected.push(value);
    }
    for task in &mut tasks {
        task.stop().await.unwrap();
    }
    assert_eq!(all_lines(&folder), expected);
}

#[tokio::test]
async fn lines_that_somebody_else_appended_to_a_compressed_file_stay() {
    for codec in CODECS {
        let folder = Folder::new("by-hand");
        let path = folder.file("out");
        append(&path, codec, &["1"]).await;
        let before = std::fs::read(&path).unwrap();
        let with_note = [&before[..], b"a note\n"].concat();
        std::fs::write(&path, &with_note).unwrap();
        append(&path, codec, &["2"]).await;
        assert_eq!(unpacked(&path, codec), "2\n");
        assert_eq!(std::fs::read(folder.file("out-000001")).unwrap(), with_note);
    }
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
