//! Files that are finished, by one task and by many.

use super::super::rotation::Rotation;
use super::*;

#[tokio::test]
async fn a_full_file_is_renamed_and_the_next_record_begins_a_new_one() {
    let folder = Folder::new("rotated");
    let path = folder.file("out.txt");
    let mut task = FileTask::new(FileConfig {
        path: path.clone(),
        fsync: Fsync::Finished,
        rotation: Rotation {
            bytes_max: Some(8),
            age_max: None,
        },
        ..FileConfig::default()
    });
    task.start(&context(0)).await.unwrap();
    for (offset, value) in (0..).zip(["one", "two", "three", "longer than a file"]) {
        put(&mut task, batch(offset, &[Some(value)]))
            .await
            .0
            .unwrap();
    }
    task.stop().await.unwrap();
    let read = |name: &str| std::fs::read_to_string(folder.file(name)).unwrap();
    assert_eq!(read("out-000001.txt"), "one\ntwo\n");
    assert_eq!(read("out-000002.txt"), "three\n");
    assert_eq!(read("out.txt"), "longer than a file\n");
}

#[tokio::test]
async fn an_old_file_is_renamed_before_more_is_written() {
    let folder = Folder::new("aged");
    let path = folder.file("out");
    std::fs::write(&path, "old\n").unwrap();
    let mut task = FileTask::new(FileConfig {
        path: path.clone(),
        rotation: Rotation {
            bytes_max: None,
            age_max: Some(Duration::from_nanos(1)),
        },
        ..FileConfig::default()
    });
    task.start(&context(0)).await.unwrap();
    put(&mut task, batch(0, &[Some("new")])).await.0.unwrap();
    assert_eq!(
        std::fs::read_to_string(folder.file("out-000001")).unwrap(),
        "old\n"
    );
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "new\n");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_tasks_that_share_a_file_rotate_it_and_write_each_line_once() {
    const PUTS: i64 = 100;
    let folder = Folder::new("shared-rotated");
    let path = folder.file("out.gz");
    let writers = [0_u32, 1].map(|index| {
        let mut task = FileTask::new(FileConfig {
            path: path.clone(),
            compression: Compression::Gzip,
            rotation: Rotation {
                bytes_max: Some(1000),
                age_max: None,
            },
            ..FileConfig::default()
        });
        tokio::spawn(async move {
            task.start(&context(index)).await.unwrap();
            for number in 0..PUTS {
                let line = format!("{index}-{number}");
                put(&mut task, batch(0, &[Some(line)])).await.0.unwrap();
            }
        })
    });
    for writer in writers {
        writer.await.unwrap();
    }
    let mut lines = Vec::new();
    let files = std::fs::read_dir(&folder.0).unwrap();
    for file in files {
        let text = unpacked(&file.unwrap().path(), Compression::Gzip);
        lines.extend(text.lines().map(str::to_owned));
    }
    lines.sort();
    let of_both = (0..2).flat_map(|index| (0..PUTS).map(move |number| format!("{index}-{number}")));
    let mut expected: Vec<_> = of_both.collect();
    expected.sort();
    assert_eq!(lines, expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn many_tasks_that_finish_a_file_for_each_other_all_write_and_none_makes_it_too_large() {
    const TASKS: u32 = 8;
    const PUTS: i64 = 25;
    const BYTES_MAX: u64 = 40;
    let folder = Folder::new("all-rotate");
    let path = folder.file("out.txt");
    let writers = (0..TASKS).map(|index| {
        let mut task = FileTask::new(FileConfig {
            path: path.clone(),
            rotation: Rotation {
                bytes_max: Some(BYTES_MAX),
                age_max: None,
            },
            ..FileConfig::default()
        });
        tokio::spawn(async move {
            task.start(&context(index)).await.unwrap();
            for number in 0..PUTS {
                let line = format!("{index}-{number:020}");
                put(&mut task, batch(0, &[Some(line)])).await.0.unwrap();
            }
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await.unwrap();
    }
    let mut lines = 0;
    for file in std::fs::read_dir(&folder.0).unwrap() {
        let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
        assert!(text.len() as u64 <= BYTES_MAX, "{text}");
        lines += text.lines().count();
    }
    assert_eq!(lines as i64, i64::from(TASKS) * PUTS);
}
