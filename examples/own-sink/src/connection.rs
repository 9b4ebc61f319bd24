//! A connection to the server, and its protocol (RESP).

use std::io;

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

/// Where the server is, and who comes.
#[derive(Clone)]
pub(crate) struct Settings {
    pub(crate) address: String,
    pub(crate) password: Option<String>,
}

/// What the server says to a command.
#[derive(Debug)]
pub(crate) enum Reply {
    Done,
    /// Its error, which begins with a word in capitals: `OOM command not allowed`.
    Error(String),
}

/// A connection that has logged in.
#[derive(Debug)]
pub(crate) struct Connection(BufReader<TcpStream>);

impl Connection {
    /// Connects, and logs in where there is a password. The reason never has it.
    pub(crate) async fn open(settings: &Settings) -> Result<Self, String> {
        let address = &settings.address;
        let open = async {
            let mut connection = Self(BufReader::new(TcpStream::connect(address).await?));
            let login = settings.password.as_deref();
            let hello = login.map_or_else(
                || command(&[b"PING"]),
                |password| command(&[b"AUTH", password.as_bytes()]),
            );
            connection.send(&hello).await?;
            let reply = connection.reply().await?;
            io::Result::Ok((connection, reply))
        };
        match open.await {
            Ok((connection, Reply::Done)) => Ok(connection),
            Ok((_, Reply::Error(said))) => {
                Err(format!("{address} doesn't let this client in: {said}"))
            }
            Err(error) => Err(format!("no connection to {address}: {error}")),
        }
    }

    /// Sends commands that [`command`] has made.
    pub(crate) async fn send(&mut self, commands: &[u8]) -> io::Result<()> {
        self.0.get_mut().write_all(commands).await
    }

    /// The answer to the first command that has none yet.
    pub(crate) async fn reply(&mut self) -> io::Result<Reply> {
        let mut line = Vec::new();
        let mut bounded = (&mut self.0).take(REPLY_BYTES_MAX);
        bounded.read_until(b'\n', &mut line).await?;
        let text = String::from_utf8_lossy(&line);
        match text
            .strip_suffix("\r\n")
            .and_then(|line| line.split_at_checked(1))
        {
            Some(("+", _)) => Ok(Reply::Done),
            Some(("-", error)) => Ok(Reply::Error(error.to_owned())),
            Some(_) => Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "it doesn't speak RESP",
            )),
            None => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

/// A command, as its parts with their lengths.
pub(crate) fn command(parts: &[&[u8]]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", parts.len()).into_bytes();
    for part in parts {
        bytes.extend_from_slice(format!("${}\r\n", part.len()).as_bytes());
        bytes.extend_from_slice(part);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

/// The server is believed no more than this.
const REPLY_BYTES_MAX: u64 = 4096;
