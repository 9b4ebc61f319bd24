//! Rows in the form that goes to the database.

use std::collections::HashSet;
use std::error::Error;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use sharegroup_sink::SinkRecord;
use sharegroup_sink::convert::ConvertedRecord;
use sharegroup_sink::data::Value;
use tokio_postgres::types::{Format, IsNull, ToSql, Type, to_sql_checked};

use super::encode::{self, Class, Misfit};
use super::layout::{Layout, Source};
use super::table::{Kind, Table};

/// Records whose rows go into one statement.
#[derive(Clone, Debug)]
pub(super) struct Rows {
    pub(super) layout: Arc<Layout>,
    /// Places of the records in their batch.
    pub(super) records: Vec<usize>,
}

/// How rows are laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// Row after row, as COPY takes them.
    Rows,
    /// Column after column, for arrays.
    Columns,
}

/// Rows in binary form.
#[derive(Debug)]
pub(super) struct Request {
    order: Order,
    /// One for each column, or one for all.
    buffers: Vec<BytesMut>,
    count: usize,
    keys: HashSet<u64>,
    hasher: RandomState,
    /// Whether a key is there more than once.
    pub(super) repeats: bool,
}

impl Request {
    pub(super) fn new(order: Order, layout: &Layout, rows: usize) -> Self {
        let buffers = match order {
            Order::Rows => 1,
            Order::Columns => layout.cells.len(),
        };
        let mut request = Self {
            order,
            buffers: std::iter::repeat_with(|| BytesMut::with_capacity(rows * FIELD_BYTES))
                .take(buffers)
                .collect(),
            count: 0,
            keys: HashSet::new(),
            hasher: RandomState::new(),
            repeats: false,
        };
        if order == Order::Rows {
            request.buffer(0).put_slice(COPY_HEADER);
        }
        request
    }

    /// Appends a record's row.
    ///
    /// # Errors
    /// What in the record doesn't fit, with the column; nothing of it is in the request then.
    pub(super) fn push(
        &mut self,
        table: &Table,
        layout: &Layout,
        record: &SinkRecord<'_>,
        data: &ConvertedRecord,
    ) -> Result<(), Misfit> {
        let mut row = self.hasher.build_hasher();
        if self.order == Order::Rows {
            let start = self.buffer(0).len();
            let count =
                i16::try_from(layout.cells.len()).map_err(|_| "has too many columns".to_owned())?;
            self.buffer(0).put_i16(count);
            let pushed = self.push_fields(table, layout, record, data, &mut row);
            if pushed.is_err() {
                self.buffer(0).truncate(start);
            }
            pushed?;
        } else {
            let starts: Vec<_> = self.buffers.iter().map(BytesMut::len).collect();
            let pushed = self.push_fields(table, layout, record, data, &mut row);
            if pushed.is_err() {
                let ends = self.buffers.iter_mut().zip(starts);
                ends.for_each(|(buffer, start)| buffer.truncate(start));
            }
            pushed?;
            if !layout.shape.key.is_empty() && !self.keys.insert(row.finish()) {
                self.repeats = true;
            }
        }
        self.count += 1;
        Ok(())
    }

    fn push_fields(
        &mut self,
        table: &Table,
        layout: &Layout,
        record: &SinkRecord<'_>,
        data: &ConvertedRecord,
        row: &mut impl Hasher,
    ) -> Result<(), Misfit> {
        let cells = layout.cells.iter().zip(&layout.shape.columns).enumerate();
        for (number, ((source, class), (place, form))) in cells {
            let Some(column) = table.columns.get(*place) else {
                continue;
            };
            let out = match self.order {
                Order::Rows => self.buffer(0),
                Order::Columns => self.buffer(number),
            };
            let start = out.len();
            let told = |reason| format!("column {} {reason}", column.name);
            let is_null = match source {
                Source::Topic => put(encode::put_bytes(record.topic.as_bytes(), out)),
                Source::TopicId if column.kind == Kind::Uuid => {
                    put(encode::put_bytes(&record.topic_id.0, out))
                }
                Source::TopicId => put(encode::put_bytes(
                    record.topic_id.to_string().as_bytes(),
                    out,
                )),
                Source::Partition => {
                    let value = Value::Int32(record.partition);
                    put(encode::put(&value, Class::Integer, column.kind, *form, out))
                }
                Source::Offset => {
                    let value = Value::Int64(record.offset);
                    put(encode::put(&value, Class::Integer, column.kind, *form, out))
                }
                Source::Deletes(deletes) => {
                    let value = Value::Boolean(*deletes);
                    put(encode::put(&value, Class::Boolean, column.kind, *form, out))
                }
                Source::Timestamp => {
                    let value = Value::Timestamp(record.timestamp);
                    put(encode::put(
                        &value,
                        Class::Timestamp,
                        column.kind,
                        *form,
                        out,
                    ))
                }
                source => {
                    let value = source.of(data).unwrap_or(&Value::Null);
                    let put = encode::put(value, *class, column.kind, *form, out);
                    put.map(|()| value.is_null())
                }
            };
            let is_key = layout.shape.key.contains(&number);
            // Of keys with a null no two are the same.
            if is_null.map_err(told)? && (column.is_required || is_key) {
                return Err(told("doesn't take null".to_owned()));
            }
            if is_key && self.order == Order::Columns {
                row.write(self.buffer(number).get(start..).unwrap_or_default());
            }
        }
        Ok(())
    }

    fn buffer(&mut self, number: usize) -> &mut BytesMut {
        // INVARIANT: there is one for each column, and at least one.
        debug_assert!(number < self.buffers.len());
        if number >= self.buffers.len() {
            self.buffers.resize_with(number + 1, BytesMut::new);
        }
        &mut self.buffers[number]
    }

    pub(super) const fn len(&self) -> usize {
        self.count
    }

    /// Whether enough is in it for one statement.
    pub(super) fn is_full(&self) -> bool {
        self.buffers.iter().map(BytesMut::len).sum::<usize>() >= BYTES_MAX
    }

    /// All that COPY takes.
    pub(super) fn into_copy(mut self) -> Bytes {
        self.buffer(0).put_i16(COPY_END);
        self.buffer(0).split().freeze()
    }

    /// The columns as arrays of these types.
    pub(super) fn arrays<'a>(&'a self, types: impl Iterator<Item = u32> + 'a) -> Vec<Array<'a>> {
        let arrays = self
            .buffers
            .iter()
            .zip(types)
            .map(|(fields, element)| Array {
                element,
                count: self.count,
                fields,
            });
        arrays.collect()
    }
}

fn put(put: Result<(), Misfit>) -> Result<bool, Misfit> {
    put.map(|()| false)
}

/// A column's values, as a parameter.
#[derive(Debug)]
pub(super) struct Array<'a> {
    element: u32,
    count: usize,
    fields: &'a [u8],
}

impl ToSql for Array<'_> {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        // One dimension from 1, perhaps with nulls.
        out.reserve(20 + self.fields.len());
        out.put_i32(1);
        out.put_i32(1);
        out.put_u32(self.element);
        out.put_i32(i32::try_from(self.count)?);
        out.put_i32(1);
        out.put_slice(self.fields);
        Ok(IsNull::No)
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    fn encode_format(&self, _: &Type) -> Format {
        Format::Binary
    }

    to_sql_checked!();
}

/// Signature, flags, no extension.
const COPY_HEADER: &[u8] = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";
const COPY_END: i16 = -1;
/// Bytes of one statement, but for its last row: what the server holds of it at a time, too.
const BYTES_MAX: usize = 16 << 20;
/// What a field may take, at first.
const FIELD_BYTES: usize = 16;
