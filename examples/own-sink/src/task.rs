//! A task: writes batches.

use sharegroup::sink::{
    OutcomeSender, PutError, SinkBatch, SinkRecord, SinkTask, TaskContext, TaskError,
};

use crate::connection::{Connection, Reply, Settings, command};

pub(crate) struct RedisTask {
    settings: Settings,
    /// None while a put has it: a put may be dropped at any await, and answers that nobody has read would be taken for
    /// those of the next one.
    connection: Option<Connection>,
}

impl RedisTask {
    pub(crate) const fn new(settings: Settings) -> Self {
        Self {
            settings,
            connection: None,
        }
    }
}

impl SinkTask for RedisTask {
    /// Before the task joins its group: one that can't start takes no records away from others.
    async fn start(&mut self, _: &TaskContext) -> Result<(), TaskError> {
        let connection = Connection::open(&self.settings).await;
        self.connection = Some(connection.map_err(TaskError::new)?);
        Ok(())
    }

    /// All has been written once this returns `Ok`, so there is nothing to flush. An `io::Error` is retriable: the
    /// connection is gone, and the next try opens another.
    async fn put(&mut self, batch: SinkBatch, outcomes: &OutcomeSender) -> Result<(), PutError> {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => Connection::open(&self.settings)
                .await
                .map_err(PutError::retriable)?,
        };
        let mut records = batch.records().peekable();
        while records.peek().is_some() {
            let mut commands = Vec::new();
            let mut sent = Vec::new();
            while commands.len() < PIPELINE_BYTES
                && sent.len() < PIPELINE_COMMANDS
                && let Some(record) = records.next()
            {
                let Some(value) = record.value else {
                    outcomes.refused(record.offset, "it has no value");
                    continue;
                };
                let key = key(&batch, &record);
                commands.extend(command(&[b"SET", key.as_bytes(), value]));
                sent.push(record.offset);
            }
            connection.send(&commands).await?;
            // Each record has its own outcome, so that one that is refused costs no other.
            for offset in sent {
                match connection.reply().await? {
                    Reply::Done => outcomes.written(offset),
                    Reply::Error(said) if may_pass(&said) => outcomes.later(offset, said),
                    Reply::Error(said) => outcomes.refused(offset, said),
                }
            }
        }
        self.connection = Some(connection);
        Ok(())
    }
}

/// Whether an error is about the server's state and not about the record.
fn may_pass(error: &str) -> bool {
    ["OOM", "LOADING", "READONLY", "MISCONF", "BUSY", "NOAUTH"]
        .iter()
        .any(|code| error.starts_with(code))
}

fn key(batch: &SinkBatch, record: &SinkRecord<'_>) -> String {
    let (topic, id) = (record.topic, batch.topic_id());
    format!("{topic}:{id}:{}:{}", record.partition, record.offset)
}

/// Commands that are sent before their answers are read: so few that the answers fit into the socket meanwhile.
const PIPELINE_COMMANDS: usize = 500;
const PIPELINE_BYTES: usize = 1 << 20;
