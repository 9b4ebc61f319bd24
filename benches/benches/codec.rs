//! Decode of ShareFetch responses and encode of acknowledgements, beside `kafka-protocol`.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use sharegroup_benches::workload::{Accepted, Response};
use sharegroup_benches::{ours, peer};
use sharegroup_wire::compress::Compression;

const CODECS: [Compression; 5] = [
    Compression::None,
    Compression::Gzip,
    Compression::Snappy,
    Compression::Lz4,
    Compression::Zstd,
];

fn decode(criterion: &mut Criterion) {
    for codec in CODECS {
        let mut group = criterion.benchmark_group(format!("decode/{}", codec.name()));
        for records in [500, 5_000] {
            for value_bytes in [100, 256, 1_024] {
                let response = Response {
                    value_bytes,
                    codec,
                    ..Response::of(records)
                };
                let Ok(body) = response.body() else {
                    continue;
                };
                let name = format!("{records}x{value_bytes}B");
                group.throughput(Throughput::Elements(records as u64));
                group.bench_with_input(BenchmarkId::new("sharegroup", &name), &body, |b, body| {
                    b.iter(|| ours::read(black_box(body)));
                });
                group.bench_with_input(
                    BenchmarkId::new("kafka-protocol", &name),
                    &body,
                    |b, body| b.iter(|| peer::read(black_box(body))),
                );
            }
        }
        group.finish();
    }
}

fn encode(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("encode");
    for (name, accepted) in [
        ("1", Accepted::Contiguous(1)),
        ("500_scattered", Accepted::Scattered(500)),
        ("5000_contiguous", Accepted::Contiguous(5_000)),
    ] {
        let ranges = accepted.ranges();
        group.bench_with_input(
            BenchmarkId::new("sharegroup", name),
            &ranges,
            |b, ranges| {
                b.iter(|| ours::accept(black_box(ranges)));
            },
        );
        group.bench_with_input(
            BenchmarkId::new("kafka-protocol", name),
            &ranges,
            |b, ranges| b.iter(|| peer::accept(black_box(ranges))),
        );
    }
    group.finish();
}

criterion_group!(benches, decode, encode);
criterion_main!(benches);
