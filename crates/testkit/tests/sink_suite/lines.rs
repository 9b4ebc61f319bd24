//! A sink that appends lines to a file, for workers that are processes of their own.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::PathBuf;

use sharegroup_sink::config::{KeyDef, ValueKind};
use sharegroup_sink::{
    Connector, ConnectorConfig, DynSinkTask, OutcomeSender, OwnedRecord, PutError, Registry,
    SinkBatch, SinkTask, TaskContext, TaskError,
};
use sharegroup_testkit::sink_suite::{Arrived, Delivery, Promises, Recipe, Target, TargetError};

/// The target: a file for each check.
pub(crate) struct Lines {
    folder: PathBuf,
    file: PathBuf,
    flaw: &'static str,
}

impl Lines {
    /// `flaw`: `none`, `late` (a put is written by the next one) or `hoards`.
    pub(crate) fn new(flaw: &'static str) -> Self {
        let name = format!("sink-suite-lines-{flaw}-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        Self {
            file: folder.clone(),
            folder,
            flaw,
        }
    }
}

pub(crate) fn registry() -> Registry {
    Registry::new().with(LinesConnector)
}

impl Target for Lines {
    fn promises(&self) -> Promises {
        Promises::new(Delivery::AtLeastOnce)
    }

    fn registry(&self) -> Registry {
        registry()
    }

    async fn start(&mut self, topic: &str) -> Result<(), TargetError> {
        fs::create_dir_all(&self.folder)?;
        self.file = self.folder.join(topic);
        File::create(&self.file)?;
        Ok(())
    }

    fn properties(&self) -> Vec<(String, String)> {
        vec![
            ("connector.class".to_owned(), "lines".to_owned()),
            ("file".to_owned(), self.file.display().to_string()),
            ("flaw".to_owned(), self.flaw.to_owned()),
        ]
    }

    fn good_record(&self, recipe: &Recipe) -> OwnedRecord {
        let fill = "x".repeat(recipe.bytes);
        OwnedRecord {
            value: Some(format!("{};{fill}", recipe.number).into()),
            ..OwnedRecord::default()
        }
    }

    async fn read_back(&mut self) -> Result<Vec<Arrived>, TargetError> {
        let mut found: BTreeMap<u64, u64> = BTreeMap::new();
        for line in fs::read_to_string(&self.file)?.lines() {
            // Half a line of a worker that was killed has no end.
            if let Some((number, _)) = line.split_once(';') {
                let number = number.parse().map_err(TargetError::broken)?;
                *found.entry(number).or_default() += 1;
            }
        }
        let arrived = |(number, times)| Arrived { number, times };
        Ok(found.into_iter().map(arrived).collect())
    }

    async fn stop(&mut self) {
        drop(fs::remove_dir_all(&self.folder));
    }
}

struct LinesConnector;

const KEYS: &[KeyDef] = &[
    KeyDef::required("file", ValueKind::NonBlank, "where lines go"),
    KeyDef::required("flaw", ValueKind::NonBlank, "what is wrong with the sink"),
];

impl Connector for LinesConnector {
    fn name(&self) -> &'static str {
        "lines"
    }

    fn keys(&self) -> &'static [KeyDef] {
        KEYS
    }

    fn task(
        &self,
        config: &ConnectorConfig,
        _: &TaskContext,
    ) -> Result<Box<dyn DynSinkTask>, TaskError> {
        let file = config.own("file").unwrap_or_default();
        let open = File::options().append(true).open(file);
        Ok(Box::new(LinesTask {
            file: open.map_err(|error| TaskError::new(error.to_string()))?,
            is_late: config.own("flaw") == Some("late"),
            hoards: config.own("flaw") == Some("hoards"),
            late: Vec::new(),
            hoard: Vec::new(),
        }))
    }
}

struct LinesTask {
    file: File,
    is_late: bool,
    hoards: bool,
    late: Vec<u8>,
    hoard: Vec<Vec<u8>>,
}

impl SinkTask for LinesTask {
    async fn put(&mut self, batch: SinkBatch, _: &OutcomeSender) -> Result<(), PutError> {
        let mut lines = std::mem::take(&mut self.late);
        let mut new = Vec::new();
        for record in batch.records() {
            new.extend(record.value.unwrap_or_default());
            new.push(b'\n');
        }
        if self.hoards {
            self.hoard.push(new.clone());
        }
        if self.is_late {
            self.late = new;
        } else {
            lines.append(&mut new);
        }
        Ok(self.file.write_all(&lines)?)
    }

    async fn close(&mut self) -> Result<(), TaskError> {
        let lines = std::mem::take(&mut self.late);
        let written = self.file.write_all(&lines);
        written.map_err(|error| TaskError::new(error.to_string()))
    }
}
