//! `file`.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use sharegroup_connectors::registry;
use sharegroup_sink::{OwnedRecord, Registry};
use sharegroup_testkit::sink_suite::{
    Arrived, Delivery, Promises, Recipe, Report, SLOW, SinkSuite, Target, TargetError, Trouble,
    WorkerCommand,
};

/// A folder for each check.
struct Files {
    /// Of all folders.
    root: PathBuf,
    folder: PathBuf,
    /// Whether somebody else appends as well, slowly.
    is_slow: Arc<AtomicBool>,
}

impl Files {
    fn new(name: &str) -> Self {
        let root = std::env::temp_dir().join(format!("{name}-{}", std::process::id()));
        Self {
            folder: root.clone(),
            root,
            is_slow: Arc::default(),
        }
    }

    fn file(&self) -> PathBuf {
        self.folder.join("out")
    }

    /// Somebody else holds the file's lock nearly all the time.
    fn hold_lock(&mut self) -> Result<(), TargetError> {
        let path = self.file();
        let file = File::options().append(true).create(true).open(path)?;
        file.lock()?;
        self.is_slow = Arc::new(AtomicBool::new(true));
        let is_slow = Arc::clone(&self.is_slow);
        std::thread::spawn(move || {
            while is_slow.load(Ordering::SeqCst) {
                std::thread::sleep(SLOW);
                file.unlock()?;
                // Whoever waits is next.
                std::thread::sleep(SLOW / 40);
                file.lock()?;
            }
            file.unlock()
        });
        Ok(())
    }

    /// Where the folder is while nobody can reach it.
    fn gone(&self) -> PathBuf {
        self.folder.with_extension("gone")
    }
}

impl Target for Files {
    fn promises(&self) -> Promises {
        Promises::new(Delivery::AtLeastOnce)
    }

    fn registry(&self) -> Registry {
        registry()
    }

    async fn start(&mut self, topic: &str) -> Result<(), TargetError> {
        self.mend().await?;
        self.folder = self.root.join(topic);
        Ok(fs::create_dir_all(&self.folder)?)
    }

    fn properties(&self) -> Vec<(String, String)> {
        let file = self.file().display().to_string();
        let keys = [("connector.class", "file"), ("file", &file)];
        keys.map(|(key, value)| (key.to_owned(), value.to_owned()))
            .to_vec()
    }

    fn good_record(&self, recipe: &Recipe) -> OwnedRecord {
        let fill = "x".repeat(recipe.bytes);
        OwnedRecord {
            value: Some(format!("{};{fill};", recipe.number).into()),
            ..OwnedRecord::default()
        }
    }

    async fn read_back(&mut self) -> Result<Vec<Arrived>, TargetError> {
        let mut found: BTreeMap<u64, u64> = BTreeMap::new();
        for entry in fs::read_dir(&self.folder)? {
            let text = fs::read_to_string(entry?.path())?;
            // What a worker that was killed left of a line has no end.
            for line in text.lines().filter(|line| line.ends_with(';')) {
                let number = line.split(';').next().unwrap_or_default();
                let number = number.parse().map_err(TargetError::broken)?;
                *found.entry(number).or_default() += 1;
            }
        }
        let arrived = |(number, times)| Arrived { number, times };
        Ok(found.into_iter().map(arrived).collect())
    }

    async fn trouble(&mut self, trouble: Trouble) -> Result<(), TargetError> {
        match trouble {
            Trouble::Down => Ok(fs::rename(&self.folder, self.gone())?),
            Trouble::Slow => self.hold_lock(),
            // As logrotate does it.
            Trouble::Restarted => Ok(fs::rename(self.file(), self.folder.join("out.1"))?),
            Trouble::Full => Err(TargetError::cant_play(
                "a disk that can be filled is none of the test's",
            )),
            _ => Err(TargetError::cant_play("a file has no connections")),
        }
    }

    async fn mend(&mut self) -> Result<(), TargetError> {
        self.is_slow.store(false, Ordering::SeqCst);
        if self.gone().exists() {
            fs::rename(self.gone(), &self.folder)?;
        }
        Ok(())
    }

    async fn stop(&mut self) {
        drop(fs::remove_dir_all(&self.root));
    }
}

const SKIPPED: [&str; 12] = [
    "bad_record_is_named",
    "put_while_refusing",
    "put_while_silent",
    "put_while_full",
    "bad_record_stands_alone",
    "bad_record_fails_the_task",
    "refusing_connections",
    "silent",
    "full",
    "wrong_credentials",
    "shutdown_while_silent",
    "secrets",
];

/// Every check that the target can play has passed.
fn passed(report: &Report) {
    report.verdict().unwrap();
    let skipped = report.skipped();
    let unexpected = |name: &&&str| !SKIPPED.contains(name);
    assert_eq!(skipped.iter().find(unexpected), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn file_keeps_the_promises_of_a_sink() {
    let suite = SinkSuite::new(Files::new("file-suite"));
    let report = suite
        .worker_process(WorkerCommand::this_program("worker_process"))
        .run()
        .await;
    passed(&report);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn file_keeps_the_promises_of_a_sink_on_a_real_broker() {
    let Some(kafka) = super::kafka().await else {
        return;
    };
    let report = super::suite_on(&kafka, Files::new("file-suite-kafka"))
        .worker_process(WorkerCommand::this_program("worker_process"))
        .run()
        .await;
    passed(&report);
}
