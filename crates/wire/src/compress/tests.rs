use proptest::prelude::*;

use super::*;

fn limits(bytes: usize) -> DecompressLimits {
    DecompressLimits::default().with_decompressed_bytes_max(bytes)
}

#[test]
fn names_and_ids_are_kafkas() {
    for (id, name) in ["none", "gzip", "snappy", "lz4", "zstd"].iter().enumerate() {
        let codec: Compression = name.parse().unwrap();
        assert_eq!(usize::from(codec.id()), id);
        assert_eq!(Compression::from_id(codec.id()), Some(codec));
        assert_eq!(codec.to_string(), *name);
    }
    assert_eq!(Compression::from_id(5), None);
    let error = "brotli".parse::<Compression>().unwrap_err();
    assert_eq!(error, ParseCompressionError("brotli".to_owned()));
}
