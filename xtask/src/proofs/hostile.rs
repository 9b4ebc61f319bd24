//! Memory of `sharegroup broker` while clients do what they can to it: it has to serve on, and to stay
//! within what `ServerLimits` states.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};

use super::embedded::Embedded;
use super::process::read;
use crate::run::{Context, Count};

const CONNECTIONS: usize = 1_000;
/// What `ServerLimits` states for large requests, for answers, and for small requests of all connections.
const STATED_MIB: u64 = 128 + 256 + 1_100 * 64 / 1024;
/// Of the program itself, and what its allocator keeps.
const OWN_MIB: u64 = 64;
/// Lines of a topic of about 100 MiB, and their size.
const LINES: usize = 100_000;
const LINE_BYTES: usize = 1_000;

pub(crate) fn prove(context: &Context) -> anyhow::Result<Count> {
    context.output(&mut context.cargo(["build", "--release", "-p", "sharegroup-cli"]))?;
    let program = context.target_dir().join("release").join("sharegroup");
    let broker = Embedded::start(&program)?;
    let look = |what: &str| -> anyhow::Result<u64> {
        serves(&broker.servers).with_context(|| format!("after {what}"))?;
        let usage = read(broker.process.id()).context("it is gone")?;
        println!("  {what}: peak RSS {} MiB", usage.peak_kib / 1024);
        Ok(usage.peak_kib / 1024)
    };
    println!("peak memory of `sharegroup broker`, each line with what came before:");
    look("nothing")?;
    let idle = connect(&broker.servers, CONNECTIONS)?;
    look("1,000 idle connections")?;
    send_all(
        &idle,
        &[&65_535_i32.to_be_bytes()[..], &[0; 60_000]].concat(),
    );
    look("60 kB of a 64 kB request on each")?;
    drop(idle);
    for bytes in [
        &[0xff_u8; 64][..],
        &[0, 0, 0, 8, 0x7f, 0xff, 0, 0, 0, 0, 0, 1],
    ] {
        send_all(&connect(&broker.servers, CONNECTIONS)?, bytes);
    }
    look("2,000 times bytes that are no request")?;
    let large = connect(&broker.servers, 200)?;
    send_all(&large, &(100 * 1024 * 1024_i32).to_be_bytes());
    pour(&large, Duration::from_secs(2))?;
    look("200 clients that send 100 MiB each, as fast as they may")?;
    drop(large);
    fill(&program, &broker.servers)?;
    let filled = look("a topic of 100 MiB")?;
    let greedy = connect(&broker.servers, 100)?;
    send_all(&greedy, &fetch_everything());
    // Waits until each has the beginning of its answer, or is cut.
    for mut stream in &greedy {
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        drop(stream.read(&mut [0; 4]));
    }
    let peak = look("100 clients that ask for all of it and read nothing")?;
    let log_mib = (LINES * LINE_BYTES / 1024 / 1024) as u64;
    let allowed = STATED_MIB + OWN_MIB + log_mib.max(filled.min(2 * log_mib));
    ensure!(
        peak <= allowed,
        "{peak} MiB, where {allowed} MiB are stated"
    );
    Ok(Count::ONE)
}

fn connect(servers: &str, count: usize) -> anyhow::Result<Vec<TcpStream>> {
    let streams = (0..count).map(|_| TcpStream::connect(servers));
    Ok(streams.collect::<Result<_, _>>()?)
}

/// A connection that was ended meanwhile takes nothing more.
fn send_all(streams: &[TcpStream], bytes: &[u8]) {
    for mut stream in streams {
        drop(stream.write_all(bytes));
    }
}

/// Sends whatever is taken.
fn pour(streams: &[TcpStream], time: Duration) -> anyhow::Result<()> {
    let bytes = vec![0; 1024 * 1024];
    let end = Instant::now() + time;
    for stream in streams {
        stream.set_nonblocking(true)?;
    }
    while Instant::now() < end {
        for mut stream in streams {
            drop(stream.write(&bytes));
        }
    }
    Ok(())
}

fn fill(program: &std::path::Path, servers: &str) -> anyhow::Result<()> {
    let server = ["--bootstrap-server", servers, "--topic", "all"];
    let create = ["topics", "create", "--partitions", "1"];
    let created = Command::new(program)
        .args(create)
        .args(server)
        .stdout(Stdio::null())
        .status()?;
    ensure!(created.success(), "no topic");
    let mut produce = Command::new(program)
        .arg("produce")
        .args(server)
        .stdin(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let mut stdin = produce.stdin.take().context("its input")?;
    let mut line = vec![b'x'; LINE_BYTES];
    line.push(b'\n');
    for _ in 0..LINES {
        stdin.write_all(&line)?;
    }
    drop(stdin);
    ensure!(produce.wait()?.success(), "nothing was produced");
    Ok(())
}

/// A Fetch 4 of the topic from its start, without any limit on bytes.
fn fetch_everything() -> Vec<u8> {
    let mut body = Vec::new();
    // Header 1: API, version, correlation id, no client id.
    body.extend([0, 1, 0, 4, 0, 0, 0, 1, 0xff, 0xff]);
    body.extend((-1_i32).to_be_bytes()); // replica
    body.extend(0_i32.to_be_bytes()); // longest wait
    body.extend(0_i32.to_be_bytes()); // fewest bytes
    body.extend(i32::MAX.to_be_bytes()); // most bytes
    body.push(0); // isolation
    body.extend([0, 0, 0, 1, 0, 3]); // one topic
    body.extend(b"all");
    body.extend([0, 0, 0, 1, 0, 0, 0, 0]); // one partition, 0
    body.extend(0_i64.to_be_bytes()); // offset
    body.extend(i32::MAX.to_be_bytes()); // most bytes
    let size = i32::try_from(body.len()).unwrap_or(0);
    [&size.to_be_bytes()[..], &body].concat()
}

/// Asks for ApiVersions 0.
fn serves(servers: &str) -> anyhow::Result<()> {
    let mut stream = TcpStream::connect(servers)?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    stream.write_all(&[0, 0, 0, 10, 0, 18, 0, 0, 0, 0, 0, 1, 0xff, 0xff])?;
    stream.read_exact(&mut [0; 4]).context("no answer")?;
    Ok(())
}
