//! The limit: ask, read, check CRC32C. It says what clients say: see `../peers/client`.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Instant;

use anyhow::{Context as _, ensure};
use bytes::Bytes;
use sharegroup_wire::frame::{decode_response, encode_request};
use sharegroup_wire::id::{CorrelationId, SessionEpoch};
use sharegroup_wire::message::share_fetch::ShareFetchRequest;

const VERSION: i16 = 2;

pub(crate) fn run(servers: &str, records: u64, poll: i32) -> anyhow::Result<()> {
    let mut stream = TcpStream::connect(servers)?;
    stream.set_nodelay(true)?;
    let request = ShareFetchRequest {
        group_id: Some("raw".into()),
        member_id: Some("AAAAAAAAAAAAAAAAAAAAAA".into()),
        share_session_epoch: SessionEpoch(1),
        max_records: poll,
        ..Default::default()
    };
    let request = encode_request(&request, VERSION, CorrelationId(1), Some("raw"));
    println!("ready");
    let mut buffer = Vec::new();
    ask(&mut stream, &request, &mut buffer)?;
    // All frames look the same.
    let place = Place::of(&buffer)?;
    println!("first");
    let (start, mut read) = (Instant::now(), 0);
    while read < records {
        ask(&mut stream, &request, &mut buffer)?;
        read += place.check(&buffer)?;
    }
    let seconds = start.elapsed().as_secs_f64();
    println!(r#"done {{"records":{read},"seconds":{seconds:.6}}}"#);
    // Whatever ends it is an end.
    drop(std::io::stdin().read_to_end(&mut Vec::new()));
    Ok(())
}

fn ask(stream: &mut TcpStream, request: &[u8], buffer: &mut Vec<u8>) -> anyhow::Result<()> {
    stream.write_all(request)?;
    let mut size = [0; 4];
    stream.read_exact(&mut size)?;
    buffer.resize(u32::from_be_bytes(size) as usize, 0);
    Ok(stream.read_exact(buffer)?)
}

/// Where the records stand in a frame.
struct Place {
    start: usize,
    end: usize,
}

impl Place {
    fn of(frame: &[u8]) -> anyhow::Result<Self> {
        let whole = Bytes::copy_from_slice(frame);
        let response = decode_response::<ShareFetchRequest>(&whole, VERSION)?;
        let mut partitions = response
            .responses
            .iter()
            .flat_map(|topic| &topic.partitions);
        let records = &partitions.next().context("no partition")?.records;
        let start = records.as_ptr() as usize - whole.as_ptr() as usize;
        Ok(Self {
            start,
            end: start + records.len(),
        })
    }

    /// The number of records of a frame whose checksums are right.
    fn check(&self, frame: &[u8]) -> anyhow::Result<u64> {
        let mut rest = frame.get(self.start..self.end).context("a shorter frame")?;
        let mut records = 0;
        while !rest.is_empty() {
            let number = |at: usize| -> anyhow::Result<u32> {
                let bytes = rest.get(at..).and_then(|bytes| bytes.first_chunk());
                Ok(u32::from_be_bytes(*bytes.context("half a batch")?))
            };
            let size = number(8)? as usize + 12;
            let batch = rest.get(..size).context("half a batch")?;
            ensure!(
                crc32c::crc32c(&batch[21..]) == number(17)?,
                "a wrong checksum"
            );
            records += u64::from(number(57)?);
            rest = &rest[size..];
        }
        Ok(records)
    }
}
