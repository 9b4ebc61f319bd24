use super::cursor::Cursor;
use super::*;

fn varint(bytes: &[u8]) -> Result<i32, RecordErrorKind> {
    Cursor::new(bytes, 0).varint()
}

fn varlong(bytes: &[u8]) -> Result<i64, RecordErrorKind> {
    Cursor::new(bytes, 0).varlong()
}

#[test]
fn varints_are_zigzag_of_at_most_five_bytes() {
    let cases: [(&[u8], i32); 7] = [
        (&[0], 0),
        (&[1], -1),
        (&[2], 1),
        (&[0x7e], 63),
        (&[0x80, 1], 64),
        (&[0xfe, 0xff, 0xff, 0xff, 0x0f], i32::MAX),
        (&[0xff, 0xff, 0xff, 0xff, 0x0f], i32::MIN),
    ];
    for (bytes, value) in cases {
        assert_eq!(varint(bytes), Ok(value));
        assert_eq!(varlong(bytes), Ok(i64::from(value)));
        for size in 0..bytes.len() {
            assert_eq!(varint(&bytes[..size]), Err(RecordErrorKind::Truncated));
        }
    }
    assert_eq!(
        varint(&[0x80, 0x80, 0x80, 0x80, 0x80, 0]),
        Err(RecordErrorKind::VarintTooLong)
    );
    assert_eq!(varint(&[0x80, 0x80, 0x80, 0x80, 0]), Ok(0));
}

#[test]
fn varlongs_are_zigzag_of_at_most_ten_bytes() {
    let mut bytes = [0xff; 10];
    bytes[9] = 1;
    assert_eq!(varlong(&bytes), Ok(i64::MIN));
    bytes[0] = 0xfe;
    assert_eq!(varlong(&bytes), Ok(i64::MAX));
    bytes[9] = 0x81;
    assert_eq!(varlong(&bytes), Err(RecordErrorKind::VarintTooLong));
    assert_eq!(varlong(&bytes[..9]), Err(RecordErrorKind::Truncated));
}

#[test]
fn reading_records_allocates_only_the_index() {
    let mut builder = RecordBatchBuilder::new(crate::compress::Compression::None);
    for number in 0..1000_i64 {
        let headers: [(&[u8], Option<&[u8]>); 2] = [(b"a", Some(b"1")), (b"b", None)];
        builder
            .push(number, Some(b"key"), Some(b"value"), headers)
            .unwrap();
    }
    let batch = RecordBatch::read(builder.build(0).unwrap()).unwrap();
    let limits = crate::compress::DecompressLimits::DEFAULT;
    let measured = allocation_counter::measure(|| {
        for record in batch.records(&limits).unwrap() {
            assert_eq!(record.unwrap().headers.count(), 2);
        }
    });
    // The slice of the frame is shared, which may cost one small allocation.
    assert!(measured.count_total <= 1, "{measured:?}");

    let mut index = Vec::with_capacity(1000);
    let measured = allocation_counter::measure(|| {
        batch.index_into(&limits, &mut index, |_| true).unwrap();
    });
    assert_eq!(measured.count_total, 0);
}

#[test]
fn a_builder_refuses_offsets_that_do_not_ascend() {
    let mut builder = RecordBatchBuilder::new(crate::compress::Compression::None);
    builder.push_at(4, 0, None, None, []).unwrap();
    let bytes = builder.build(0).unwrap();
    assert_eq!(
        builder.push_at(4, 0, None, None, []),
        Err(BuildError::Offset { delta: 4, last: 4 })
    );
    assert_eq!(builder.build(0).unwrap(), bytes);
    assert_eq!(
        builder.build(i64::MAX),
        Err(BuildError::BaseOffset {
            base_offset: i64::MAX
        })
    );
    builder.push(0, None, None, []).unwrap();
    assert_eq!(
        RecordBatch::read(builder.build(0).unwrap())
            .unwrap()
            .last_offset(),
        5
    );
}

#[test]
fn an_error_does_not_print_the_payload() {
    let mut bytes = {
        let mut builder = RecordBatchBuilder::new(crate::compress::Compression::None);
        builder.push(0, None, Some(b"secret"), []).unwrap();
        builder.build(3).unwrap().to_vec()
    };
    bytes[17] ^= 1;
    let error = RecordBatch::read(bytes.into()).unwrap_err();
    let text = format!("{error} {error:?}");
    assert!(
        text.contains("offset 3") && !text.contains("secret"),
        "{text}"
    );
}
