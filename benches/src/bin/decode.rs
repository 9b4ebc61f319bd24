//! Decode beside `kafka-protocol`, in turn on the same bytes, as ratios of the thread's CPU time.
//!
//! Prints a line per workload, and ends with 1 where a ratio misses its target.

use std::hint::black_box;
use std::time::Duration;

use anyhow::ensure;
use bytes::Bytes;
use rustix::time::{ClockId, clock_gettime};
use sharegroup_benches::workload::{Response, checked_bytes, compressed_records};
use sharegroup_benches::{ours, peer};
use sharegroup_wire::compress::{Compression, DecompressLimits, decompress};

/// Rounds of one workload; figures are those of the least disturbed one.
const ROUNDS: usize = 15;
/// CPU time of one measurement.
const SLICE: Duration = Duration::from_millis(20);
/// Least advantage over the peer for values of 256 B without a codec, with the CRC's time.
const TARGET: f64 = 3.0;
/// The same without it.
const TARGET_WITHOUT_CRC: f64 = 5.0;

fn main() -> anyhow::Result<()> {
    println!("ns per record, least of {ROUNDS} rounds; ratio = kafka-protocol 0.18 / sharegroup");
    let mut workloads = Vec::new();
    for records in [500, 5_000] {
        for batch_records in [records, 60] {
            for keys_and_headers in [false, true] {
                workloads.push(Workload::new(Response {
                    batch_records,
                    keys_and_headers,
                    ..Response::of(records)
                })?);
            }
        }
    }
    // Each has its rounds spread over the whole time: what disturbs the machine for a second disturbs one.
    for _ in 0..ROUNDS {
        workloads.iter_mut().for_each(Workload::measure);
    }
    let missed = workloads.iter().filter(|workload| !workload.holds());
    let missed = missed.count();
    for codec in [
        Compression::Gzip,
        Compression::Snappy,
        Compression::Lz4,
        Compression::Zstd,
    ] {
        compressed(&Response {
            codec,
            ..Response::of(500)
        })?;
    }
    ensure!(missed == 0, "{missed} workloads miss their target");
    Ok(())
}

/// A response without a codec, and the least nanoseconds per record seen.
struct Workload {
    response: Response,
    body: Bytes,
    /// What the checksums are over.
    checked: Vec<Bytes>,
    ours: f64,
    peer: f64,
    crc: f64,
}

impl Workload {
    fn new(response: Response) -> anyhow::Result<Self> {
        let body = response.body()?;
        ensure!(
            ours::read(&body)? == peer::read(&body)?,
            "the checksums differ"
        );
        Ok(Self {
            checked: checked_bytes(&body)?,
            response,
            body,
            ours: f64::INFINITY,
            peer: f64::INFINITY,
            crc: f64::INFINITY,
        })
    }

    fn measure(&mut self) {
        let Self { body, checked, .. } = self;
        let [ours, peer, crc] = round(
            self.response.records,
            &mut [
                &mut || drop(black_box(ours::read(black_box(body)))),
                &mut || drop(black_box(peer::read(black_box(body)))),
                &mut || {
                    for bytes in &*checked {
                        black_box(crc32c::crc32c(black_box(bytes)));
                    }
                },
            ],
        );
        self.ours = self.ours.min(ours);
        self.peer = self.peer.min(peer);
        self.crc = self.crc.min(crc);
    }

    /// Prints the figures. Whether the targets hold; they are set for records without keys and headers only.
    fn holds(&self) -> bool {
        let Self {
            ours, peer, crc, ..
        } = self;
        let with_crc = peer / ours;
        let without_crc = (peer - crc) / (ours - crc);
        println!(
            "{:5} records, batches of {:4}, {}: sharegroup {ours:5.1}, kafka-protocol {peer:5.1}, ratio {with_crc:4.2}; \
             CRC {crc:4.1} ({:2.0} % of ours), without it {without_crc:4.2}",
            self.response.records,
            self.response.batch_records,
            if self.response.keys_and_headers {
                "key and 2 headers"
            } else {
                "values only      "
            },
            100.0 * crc / ours,
        );
        let holds = with_crc >= TARGET && without_crc >= TARGET_WITHOUT_CRC;
        holds || self.response.keys_and_headers
    }
}

fn compressed(response: &Response) -> anyhow::Result<()> {
    let body = response.body()?;
    let records = compressed_records(&body)?;
    ensure!(
        ours::read(&body)? == peer::read(&body)?,
        "the checksums differ"
    );
    let [ours, peer, codec] = least(
        response.records,
        [
            &mut || drop(black_box(ours::read(black_box(&body)))),
            &mut || drop(black_box(peer::read(black_box(&body)))),
            &mut || {
                for bytes in &records {
                    drop(black_box(decompress(
                        response.codec,
                        bytes,
                        &DecompressLimits::DEFAULT,
                    )));
                }
            },
        ],
    );
    println!(
        "{:6}: sharegroup {ours:6.1}, kafka-protocol with our codecs {peer:6.1}, ratio {:4.2}; \
         the codec alone {codec:6.1} ({:2.0} % of ours)",
        response.codec.name(),
        peer / ours,
        100.0 * codec / ours,
    );
    Ok(())
}

/// Nanoseconds per record of each job. They take turns, so that a busy machine is busy for all; and
/// since what shares the core only ever adds time, and not to all alike, the least counts.
fn least<const N: usize>(records: usize, mut jobs: [&mut dyn FnMut(); N]) -> [f64; N] {
    let mut figures = [f64::INFINITY; N];
    for _ in 0..ROUNDS {
        for (least, figure) in figures.iter_mut().zip(round(records, &mut jobs)) {
            *least = least.min(figure);
        }
    }
    figures
}

/// One measurement of each job.
fn round<const N: usize>(records: usize, jobs: &mut [&mut dyn FnMut(); N]) -> [f64; N] {
    let mut figures = [0.0; N];
    for (figure, job) in figures.iter_mut().zip(jobs) {
        *figure = per_call(job) / records as f64;
    }
    figures
}

/// Nanoseconds of the thread's CPU time for one call.
fn per_call(job: &mut dyn FnMut()) -> f64 {
    let start = cpu_time();
    let mut calls = 0_u32;
    loop {
        job();
        calls += 1;
        let used = cpu_time() - start;
        if used >= SLICE {
            return used.as_nanos() as f64 / f64::from(calls);
        }
    }
}

fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(
        time.tv_sec.unsigned_abs(),
        u32::try_from(time.tv_nsec).unwrap_or_default(),
    )
}
