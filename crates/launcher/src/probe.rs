//! Asks a broker whether it is ready, with two small requests written by hand.
//!
//! ApiVersions v0 (key 18) shows that requests are served; Metadata v2 (key 3) names the cluster, for another's broker may
//! have taken the port meanwhile, and lists the brokers that the answering one
//! knows to be alive. A broker serves requests a moment before it may lead partitions; until then it is not in the list,
//! and a topic created in that moment would miss it.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

const IO_TIMEOUT: Duration = Duration::from_secs(2);
const RESPONSE_BYTES_MAX: usize = 1 << 20;

const API_VERSIONS: i16 = 18;
const METADATA: i16 = 3;

/// The node ids of the brokers that are alive in the view of the one on `port`.
///
/// # Errors
/// Any failure to connect, to write or to read within two seconds, answers that make no sense, and those of a broker of
/// another cluster.
pub(crate) fn live_brokers(port: u16, cluster_id: &str) -> io::Result<Vec<i32>> {
    let mut stream =
        TcpStream::connect_timeout(&SocketAddr::from((Ipv4Addr::LOCALHOST, port)), IO_TIMEOUT)?;
    stream.set_read_timeout(Some(IO_TIMEOUT))?;
    stream.set_write_timeout(Some(IO_TIMEOUT))?;
    let answer = call(&mut stream, &request(API_VERSIONS, 0, 1, &[]), 1)?;
    let error_code = Fields(&answer).int16()?;
    if error_code != 0 {
        return Err(io::Error::other(format!(
            "ApiVersions answered error code {error_code}"
        )));
    }
    // An empty list asks for no topic at all from version 1 on.
    let answer = call(
        &mut stream,
        &request(METADATA, 2, 2, &0_i32.to_be_bytes()),
        2,
    )?;
    let (brokers, cluster) = decode_brokers(&answer)?;
    if cluster != cluster_id.as_bytes() {
        let cluster = String::from_utf8_lossy(cluster);
        return Err(io::Error::other(format!(
            "port {port} is the cluster {cluster}'s"
        )));
    }
    Ok(brokers)
}

fn request(api_key: i16, version: i16, correlation_id: i32, body: &[u8]) -> Vec<u8> {
    let client_id = b"launcher";
    let mut bytes = vec![0; 4];
    bytes.extend(api_key.to_be_bytes());
    bytes.extend(version.to_be_bytes());
    bytes.extend(correlation_id.to_be_bytes());
    bytes.extend([0, client_id.len().to_le_bytes()[0]]);
    bytes.extend(client_id);
    bytes.extend(body);
    let size = u32::try_from(bytes.len() - 4).unwrap_or(0);
    bytes[..4].copy_from_slice(&size.to_be_bytes());
    bytes
}

/// Sends one request and reads the body of its response.
fn call(stream: &mut TcpStream, request: &[u8], correlation_id: i32) -> io::Result<Vec<u8>> {
    stream.write_all(request)?;
    let mut size = [0; 4];
    stream.read_exact(&mut size)?;
    let size = usize::try_from(u32::from_be_bytes(size)).unwrap_or(usize::MAX);
    if size > RESPONSE_BYTES_MAX {
        return Err(io::Error::other(format!("response of {size} bytes")));
    }
    let mut response = vec![0; size];
    stream.read_exact(&mut response)?;
    let mut fields = Fields(&response);
    if fields.int32()? != correlation_id {
        return Err(io::Error::other("response to another request"));
    }
    Ok(fields.0.to_vec())
}

/// The first fields of a Metadata v2 response: `[node_id int32, host string, port int32, rack nullable string]` and the
/// id of the cluster.
fn decode_brokers(body: &[u8]) -> io::Result<(Vec<i32>, &[u8])> {
    let mut fields = Fields(body);
    let mut brokers = Vec::new();
    for _ in 0..fields.int32()? {
        brokers.push(fields.int32()?);
        fields.string()?;
        fields.int32()?;
        fields.string()?;
    }
    Ok((brokers, fields.string()?))
}

/// The bytes of a response that are not read yet.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let (field, rest) = self
            .0
            .split_first_chunk::<N>()
            .ok_or(io::ErrorKind::UnexpectedEof)?;
        self.0 = rest;
        Ok(*field)
    }

    fn int16(&mut self) -> io::Result<i16> {
        self.take().map(i16::from_be_bytes)
    }

    fn int32(&mut self) -> io::Result<i32> {
        self.take().map(i32::from_be_bytes)
    }

    /// A string; a length of -1 is null, and as good as none.
    fn string(&mut self) -> io::Result<&'a [u8]> {
        let length = usize::try_from(self.int16()?).unwrap_or(0);
        let (string, rest) = self
            .0
            .split_at_checked(length)
            .ok_or(io::ErrorKind::UnexpectedEof)?;
        self.0 = rest;
        Ok(string)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_has_size_key_version_correlation_and_client() {
        let expected = b"\x00\x00\x00\x12\x00\x12\x00\x00\x00\x00\x00\x07\x00\x08launcher";
        assert_eq!(request(API_VERSIONS, 0, 7, &[]), expected);
    }

    #[test]
    fn live_brokers_are_read_with_and_without_rack() {
        let body = b"\x00\x00\x00\x02\x00\x00\x00\x01\x00\x01h\x00\x00\x23\x84\xff\xff\x00\x00\x00\x03\x00\x01h\x00\x00\x23\x85\x00\x01r\x00\x02id";
        let brokers = vec![1, 3];
        assert_eq!(decode_brokers(body).unwrap(), (brokers, &b"id"[..]));
    }

    #[test]
    fn truncated_response_is_an_error() {
        let body = b"\x00\x00\x00\x01\x00\x00\x00\x01\x00\x01h\x00\x00\x23\x84\xff\xff\x00\x02id";
        for end in 0..body.len() {
            assert!(decode_brokers(&body[..end]).is_err(), "{end} bytes");
        }
    }

    #[test]
    fn nobody_listening_is_an_error() {
        let port = crate::ports::choose(1, &[]).unwrap()[0];
        assert!(live_brokers(port, "id").is_err());
    }
}
