//! OpenTelemetry's protobuf of metrics (`opentelemetry/proto/metrics/v1/metrics.proto`, version 1), as far as it
//! is sent here: `MetricsData` with one resource, one scope, and metrics of one data point each.

use std::time::{SystemTime, UNIX_EPOCH};

/// A metric with its value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Value {
    /// A counter: a `Sum` that only grows.
    Count(u64),
    /// A `Gauge`.
    Level(f64),
}

/// What all metrics of a push have in common.
#[derive(Debug, Clone, Copy)]
pub(super) struct Frame<'a> {
    /// Attributes of the resource.
    pub(super) resource: &'a [(&'static str, String)],
    /// Counters are differences since `start`.
    pub(super) is_delta: bool,
    pub(super) start: SystemTime,
    pub(super) time: SystemTime,
}

/// `MetricsData`.
pub(super) fn encode(frame: Frame<'_>, metrics: &[(&str, Value)]) -> Vec<u8> {
    let mut resource = Vec::new();
    for (key, value) in frame.resource {
        message(&mut resource, 1, &attribute(key, value));
    }
    let mut scope = Vec::new();
    text(&mut scope, 1, env!("CARGO_PKG_NAME"));
    text(&mut scope, 2, env!("CARGO_PKG_VERSION"));
    let mut scope_metrics = Vec::new();
    message(&mut scope_metrics, 1, &scope);
    for (name, value) in metrics {
        message(&mut scope_metrics, 2, &metric(frame, name, *value));
    }
    let mut resource_metrics = Vec::new();
    message(&mut resource_metrics, 1, &resource);
    message(&mut resource_metrics, 2, &scope_metrics);
    let mut data = Vec::new();
    message(&mut data, 1, &resource_metrics);
    data
}

/// `KeyValue` of a string.
fn attribute(key: &str, value: &str) -> Vec<u8> {
    let mut any = Vec::new();
    text(&mut any, 1, value);
    let mut attribute = Vec::new();
    text(&mut attribute, 1, key);
    message(&mut attribute, 2, &any);
    attribute
}

/// `Metric`.
fn metric(frame: Frame<'_>, name: &str, value: Value) -> Vec<u8> {
    let mut point = Vec::new();
    if matches!(value, Value::Count(_)) {
        fixed64(&mut point, 2, unix_nanos(frame.start));
    }
    fixed64(&mut point, 3, unix_nanos(frame.time));
    let mut data = Vec::new();
    let field = match value {
        Value::Count(count) => {
            let count = i64::try_from(count).unwrap_or(i64::MAX);
            fixed64(&mut point, 6, count.cast_unsigned());
            message(&mut data, 1, &point);
            let temporality = if frame.is_delta { 1 } else { 2 };
            varint(&mut data, 2, temporality);
            let is_monotonic = 1;
            varint(&mut data, 3, is_monotonic);
            7
        }
        Value::Level(level) => {
            fixed64(&mut point, 4, level.to_bits());
            message(&mut data, 1, &point);
            5
        }
    };
    let mut metric = Vec::new();
    text(&mut metric, 1, name);
    message(&mut metric, field, &data);
    metric
}

fn unix_nanos(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// A field's number and wire type.
fn tag(out: &mut Vec<u8>, field: u64, wire_type: u64) {
    number(out, field << 3 | wire_type);
}

fn number(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn varint(out: &mut Vec<u8>, field: u64, value: u64) {
    tag(out, field, 0);
    number(out, value);
}

fn fixed64(out: &mut Vec<u8>, field: u64, value: u64) {
    tag(out, field, 1);
    out.extend(value.to_le_bytes());
}

fn message(out: &mut Vec<u8>, field: u64, bytes: &[u8]) {
    tag(out, field, 2);
    number(out, bytes.len() as u64);
    out.extend(bytes);
}

fn text(out: &mut Vec<u8>, field: u64, text: &str) {
    message(out, field, text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_is_written_as_protobuf_lays_it_down() {
        let frame = Frame {
            resource: &[],
            is_delta: true,
            start: UNIX_EPOCH,
            time: UNIX_EPOCH,
        };
        let bytes = metric(frame, "n", Value::Count(300));
        let point = [
            &[0x11][..], // field 2, fixed64
            &[0; 8],
            &[0x19], // field 3, fixed64
            &[0; 8],
            &[0x31], // field 6, fixed64
            &[0x2c, 1, 0, 0, 0, 0, 0, 0],
        ]
        .concat();
        let sum = [&[0x0a, 27][..], &point, &[0x10, 1, 0x18, 1]].concat();
        assert_eq!(bytes, [&[0x0a, 1, b'n', 0x3a, 33][..], &sum].concat());
    }
}
