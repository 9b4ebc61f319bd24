//! The stage between poll and put: a record's bytes become data.

use std::borrow::Cow;
use std::error::Error;
use std::fmt;

use bytes::Bytes;

use super::{ConvertError, Converter, HeaderConverter};
use crate::data::{SchemaAndValue, Value};
use crate::error::PutError;
use crate::record::SinkRecord;

/// Where a record failed, under Connect's names (`ErrorHandlingMetrics`, dead letters, logs).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Stage {
    /// The key's converter.
    KeyConverter,
    /// The value's converter.
    ValueConverter,
    /// The converter of headers.
    HeaderConverter,
    /// A transformation.
    Transformation,
    /// The task's `put`, or what it reports.
    TaskPut,
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::KeyConverter => "KEY_CONVERTER",
            Self::ValueConverter => "VALUE_CONVERTER",
            Self::HeaderConverter => "HEADER_CONVERTER",
            Self::Transformation => "TRANSFORMATION",
            Self::TaskPut => "TASK_PUT",
        })
    }
}

/// Why one record can't be put.
#[derive(Debug, thiserror::Error)]
#[error("{stage} ({class_name}): {error}")]
pub struct StageError {
    /// Where it failed.
    pub stage: Stage,
    /// What failed there: the converter's or transformation's class, or
    /// `org.apache.kafka.connect.sink.SinkTask`.
    pub class_name: Cow<'static, str>,
    /// The class of the exception that Connect throws there, by which tools tell dead letters apart.
    pub error_class: Cow<'static, str>,
    /// Why.
    #[source]
    pub error: Box<dyn Error + Send + Sync>,
    /// Whether the same record may pass later.
    pub is_retriable: bool,
}

impl StageError {
    /// Of a converter.
    pub(crate) fn of_converter(
        stage: Stage,
        class_name: &'static str,
        error: ConvertError,
    ) -> Self {
        Self {
            stage,
            class_name: class_name.into(),
            error_class: DATA_EXCEPTION.into(),
            is_retriable: error.is_retriable(),
            error: Box::new(error),
        }
    }

    /// Of a task's `put`.
    #[must_use]
    pub fn of_put(error: PutError) -> Self {
        let error_class = match &error {
            PutError::Retriable { .. } => RETRIABLE_EXCEPTION,
            PutError::Fatal { .. } | PutError::Broken { .. } => CONNECT_EXCEPTION,
        };
        Self {
            stage: Stage::TaskPut,
            class_name: SINK_TASK.into(),
            error_class: error_class.into(),
            is_retriable: matches!(error, PutError::Retriable { .. }),
            error: Box::new(error),
        }
    }

    /// Of one record, as a task reports it beside its `put`.
    pub fn reported(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self {
            stage: Stage::TaskPut,
            class_name: SINK_TASK.into(),
            error_class: CONNECT_EXCEPTION.into(),
            error: error.into(),
            is_retriable: false,
        }
    }

    /// Of records that can't be read.
    pub(crate) fn corrupt(error: &str) -> Self {
        Self {
            error_class: CORRUPT_EXCEPTION.into(),
            ..Self::reported(error)
        }
    }
}

/// What each of Connect's converters throws of bytes or values that it can't convert.
const DATA_EXCEPTION: &str = "org.apache.kafka.connect.errors.DataException";
const RETRIABLE_EXCEPTION: &str = "org.apache.kafka.connect.errors.RetriableException";
/// The base of what tasks throw and report.
const CONNECT_EXCEPTION: &str = "org.apache.kafka.connect.errors.ConnectException";
const CORRUPT_EXCEPTION: &str = "org.apache.kafka.common.errors.CorruptRecordException";

/// The converters of a task.
#[derive(Debug)]
pub struct Converters {
    /// Of keys.
    pub key: Box<dyn Converter>,
    /// Of values.
    pub value: Box<dyn Converter>,
    /// Of headers.
    pub header: Box<dyn HeaderConverter>,
}

/// A record's data.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ConvertedRecord {
    /// The key.
    pub key: SchemaAndValue,
    /// The value. JSON null looks as a tombstone does: only the record's own value tells.
    pub value: SchemaAndValue,
    /// The headers in order, duplicates included.
    pub headers: Vec<ConvertedHeader>,
}

/// A header's data.
#[derive(Clone, Debug, PartialEq)]
pub struct ConvertedHeader {
    /// Its key; what isn't UTF-8 in it became U+FFFD.
    pub key: String,
    /// Its value.
    pub data: SchemaAndValue,
}

impl ConvertedRecord {
    /// Bytes as they are, without schemas.
    pub(crate) fn of_bytes(record: &SinkRecord<'_>) -> Self {
        let data = |bytes: Option<Bytes>| {
            SchemaAndValue::schemaless(bytes.map_or(Value::Null, Value::Bytes))
        };
        let headers = record.headers().map(|(key, value)| ConvertedHeader {
            key: String::from_utf8_lossy(key).into_owned(),
            data: data(value.map(Bytes::copy_from_slice)),
        });
        Self {
            key: data(record.key_bytes()),
            value: data(record.value_bytes()),
            headers: headers.collect(),
        }
    }
}

impl Converters {
    /// Whether keys and values stay as they are.
    #[must_use]
    pub fn are_raw(&self) -> bool {
        self.key.is_raw() && self.value.is_raw()
    }

    /// Whether no record can fail.
    #[must_use]
    pub fn never_fail(&self) -> bool {
        self.key.never_fails() && self.value.never_fails() && self.header.never_fails()
    }

    /// Converts a record: key, value, then headers. With raw converters and without headers nothing is
    /// copied or allocated.
    ///
    /// # Errors
    /// [`StageError`] of the first part that fails; the record will fail again.
    pub fn convert(&self, record: &SinkRecord<'_>) -> Result<ConvertedRecord, StageError> {
        let failed = |stage, class_name| {
            move |error: ConvertError| StageError::of_converter(stage, class_name, error)
        };
        let topic = record.topic;
        let key = self.key.to_connect(topic, record.key_bytes().as_ref());
        let key = key.map_err(failed(Stage::KeyConverter, self.key.class_name()))?;
        let value = self.value.to_connect(topic, record.value_bytes().as_ref());
        let value = value.map_err(failed(Stage::ValueConverter, self.value.class_name()))?;
        let header = |(key, value): (&[u8], Option<&[u8]>)| {
            let key = String::from_utf8_lossy(key).into_owned();
            let data = self.header.to_connect_header(topic, &key, value);
            let data = data.map_err(failed(Stage::HeaderConverter, self.header.class_name()))?;
            Ok(ConvertedHeader { key, data })
        };
        let headers: Result<Vec<_>, StageError> = record.headers().map(header).collect();
        Ok(ConvertedRecord {
            key,
            value,
            headers: headers?,
        })
    }
}

/// The class that Connect names for errors of `put`.
const SINK_TASK: &str = "org.apache.kafka.connect.sink.SinkTask";

#[cfg(test)]
mod tests {
    use sharegroup_wire::TopicId;

    use super::*;
    use crate::convert::{ConverterSettings, find, find_header};
    use crate::record::{OwnedRecord, SinkBatch};

    fn converters(key: &str, value: &str, header: &str) -> Converters {
        let settings = ConverterSettings::new();
        Converters {
            key: find(key, &settings).unwrap(),
            value: find(value, &settings).unwrap(),
            header: find_header(header, &settings).unwrap(),
        }
    }

    fn batch(record: OwnedRecord) -> SinkBatch {
        SinkBatch::from_records("t", TopicId::ZERO, 0, vec![record])
    }

    #[test]
    fn raw_records_are_neither_copied_nor_looked_into() {
        let value = Bytes::from(vec![0xff; 100]);
        let batch = batch(OwnedRecord {
            value: Some(value.clone()),
            ..OwnedRecord::default()
        });
        let converters = converters("bytes", "bytes", "simple");
        assert!(converters.are_raw());
        let converted = converters
            .convert(&batch.records().next().unwrap())
            .unwrap();
        assert!(converted.key.value.is_null());
        assert_eq!(converted.headers.capacity(), 0);
        let Value::Bytes(passed) = converted.value.value else {
            panic!("not bytes");
        };
        assert_eq!(passed.as_ptr(), value.as_ptr());
    }

    #[test]
    fn headers_are_converted_in_order_with_duplicates_and_nulls() {
        let header = |value: &'static str| ("h".to_owned(), Some(Bytes::from(value)));
        let batch = batch(OwnedRecord {
            headers: vec![header("1"), header("x"), ("h".to_owned(), None)],
            ..OwnedRecord::default()
        });
        let converters = converters("string", "string", "simple");
        let converted = converters
            .convert(&batch.records().next().unwrap())
            .unwrap();
        let values: Vec<_> = converted
            .headers
            .iter()
            .map(|header| &header.data.value)
            .collect();
        assert_eq!(values, [&Value::Int8(1), &Value::from("x"), &Value::Null]);
    }

    #[test]
    fn a_failure_names_stage_and_class() {
        let bad = || Some(Bytes::from_static(b"{bad"));
        let batch = batch(OwnedRecord {
            key: bad(),
            value: bad(),
            headers: vec![("h".to_owned(), bad())],
            ..OwnedRecord::default()
        });
        let record = batch.records().next().unwrap();
        for (names, stage) in [
            (["json", "json", "json"], "KEY_CONVERTER"),
            (["string", "json", "json"], "VALUE_CONVERTER"),
            (["string", "bytes", "json"], "HEADER_CONVERTER"),
        ] {
            let [key, value, header] = names;
            let error = converters(key, value, header).convert(&record).unwrap_err();
            assert_eq!(error.stage.to_string(), stage);
            assert_eq!(
                error.class_name,
                "org.apache.kafka.connect.json.JsonConverter"
            );
            assert_eq!(error.error_class, DATA_EXCEPTION);
        }
    }
}
