//! Prints records to standard output, one line each.

use std::io::{self, Write};

use sharegroup_sink::config::KeyDef;
use sharegroup_sink::{
    Connector, ConnectorConfig, DynSinkTask, OutcomeSender, PutError, SinkBatch, SinkTask,
    TaskContext, TaskError,
};

use crate::lent::Lent;
use crate::line::Format;

/// The sink `console`. Key: `format`.
#[derive(Clone, Copy, Debug)]
pub struct ConsoleConnector;

impl Connector for ConsoleConnector {
    fn name(&self) -> &'static str {
        "console"
    }

    fn purpose(&self) -> &'static str {
        "prints records on standard output"
    }

    fn keys(&self) -> &'static [KeyDef] {
        &[Format::KEY]
    }

    fn is_concurrent(&self) -> bool {
        true
    }

    fn task(
        &self,
        config: &ConnectorConfig,
        _: &TaskContext,
    ) -> Result<Box<dyn DynSinkTask>, TaskError> {
        let format = Format::parse(config.own("format").unwrap_or_default());
        Ok(Box::new(ConsoleTask::new(format, io::stdout())))
    }
}

#[derive(Debug)]
struct ConsoleTask<W> {
    format: Format,
    /// A pipe that nobody reads blocks.
    printer: Lent<Printer<W>, io::Result<()>>,
}

#[derive(Debug)]
struct Printer<W> {
    output: W,
    lines: Vec<u8>,
}

impl<W: Write + Send + 'static> ConsoleTask<W> {
    const fn new(format: Format, output: W) -> Self {
        let lines = Vec::new();
        Self {
            format,
            printer: Lent::new(Printer { output, lines }),
        }
    }
}

impl<W: Write> Printer<W> {
    fn print(&mut self) -> io::Result<()> {
        self.output.write_all(&self.lines)?;
        self.output.flush()
    }
}

impl<W: Write + Send + 'static> SinkTask for ConsoleTask<W> {
    async fn put(&mut self, batch: SinkBatch, outcomes: &OutcomeSender) -> Result<(), PutError> {
        let lines = &mut self.printer.value().await?.lines;
        lines.clear();
        for record in batch.records() {
            self.format.write(&record, lines);
        }
        let printed = self.printer.work(Printer::print).await?;
        // Whoever reads the output has gone: that won't get better, and nobody knows what was read.
        printed.map_err(|error| {
            let text = format!("standard output can't be written: {error}");
            for record in batch.records() {
                outcomes.unknown(record.offset, text.as_str());
            }
            PutError::broken(text)
        })
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use sharegroup_sink::{Outcomes, OwnedRecord};
    use sharegroup_wire::TopicId;

    use super::*;

    #[tokio::test]
    async fn each_record_is_printed_as_a_line() {
        let records = ["one", "two"].map(|value| OwnedRecord {
            value: Some(Bytes::from(value)),
            ..OwnedRecord::default()
        });
        let batch = SinkBatch::from_records("t", TopicId::ZERO, 0, records.to_vec());
        let sender = Outcomes::of(&batch).sender();
        let mut task = ConsoleTask::new(Format::Value, Vec::new());
        SinkTask::put(&mut task, batch, &sender).await.unwrap();
        assert_eq!(task.printer.value().await.unwrap().output, b"one\ntwo\n");
    }
}
