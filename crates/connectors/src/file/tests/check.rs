//! What `validate --connect` says of files.

use sharegroup_sink::Checked;

use super::*;

async fn check(file: &Path, tasks: &str) -> Checked {
    let mut worker = Properties::new("worker.properties");
    worker.set("bootstrap.servers", "localhost:9092");
    worker.set("consumer.group.protocol", "share");
    let mut connector = Properties::new("file.properties");
    for (key, value) in [
        ("name", "out"),
        ("connector.class", "file"),
        ("topics", "orders"),
        ("tasks.max", tasks),
        ("file", file.to_str().unwrap()),
    ] {
        connector.set(key, value);
    }
    let registry = Registry::new().with(FileConnector);
    let mut loaded = load_properties(worker, vec![connector], false, &registry).unwrap();
    FileConnector.check(&loaded.connectors.remove(0), &[]).await
}

#[tokio::test]
async fn files_are_looked_at_and_none_is_made() {
    let folder = Folder::new("check");
    std::fs::write(folder.file("out-0.txt"), "").unwrap();
    let checked = check(&folder.file("out-${task}.txt"), "2").await;
    assert_eq!(checked.problems, []);
    assert!(checked.notes[0].ends_with("out-0.txt is there and is appended to"));
    assert!(checked.notes[1].ends_with("out-1.txt isn't there yet and can be made"));
    assert!(!folder.file("out-1.txt").exists());
}

/// Whom rights don't stop, such as root, a file system that takes no writes does.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_folder_that_takes_no_files_is_named() {
    let checked = check(Path::new("/proc/self/out.txt"), "1").await;
    assert_eq!(checked.problems.len(), 1, "{checked:?}");
    let text = checked.problems[0].to_string();
    assert!(
        text.contains("file=/proc/self/out.txt: the file /proc/self/out.txt can't be made"),
        "{text}"
    );
}
