//! A server that speaks as much of Redis' protocol as the sink does, and can be in trouble.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use sharegroup_testkit::sink_suite::{SLOW, Trouble};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::sleep;

pub(crate) const PASSWORD: &str = "open-sesame";

pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    rows: Mutex<BTreeMap<Vec<u8>, Vec<u8>>>,
    trouble: watch::Sender<Option<Trouble>>,
    /// Counts how often all connections were cut.
    cuts: watch::Sender<u64>,
}

impl Server {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let shared = Arc::new(Shared {
            rows: Mutex::default(),
            trouble: watch::Sender::new(None),
            cuts: watch::Sender::new(0),
        });
        let address = listener.local_addr().unwrap();
        tokio::spawn(accept(listener, Arc::clone(&shared)));
        Self { address, shared }
    }

    pub(crate) fn clear(&self) {
        self.end_trouble();
        self.shared.rows.lock().unwrap().clear();
    }

    pub(crate) fn values(&self) -> Vec<Vec<u8>> {
        self.shared.rows.lock().unwrap().values().cloned().collect()
    }

    pub(crate) fn set_trouble(&self, trouble: Trouble) {
        if trouble != Trouble::Restarted {
            self.shared.trouble.send_replace(Some(trouble));
        }
        if matches!(trouble, Trouble::Down | Trouble::Restarted) {
            self.shared.cuts.send_modify(|cuts| *cuts += 1);
        }
    }

    pub(crate) fn end_trouble(&self) {
        self.shared.trouble.send_replace(None);
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            continue;
        };
        // Closed at once: whoever comes meets nobody.
        if matches!(shared.trouble(), Some(Trouble::Down | Trouble::Refusing)) {
            continue;
        }
        let shared = Arc::clone(&shared);
        let mut cuts = shared.cuts.subscribe();
        tokio::spawn(async move {
            tokio::select! {
                served = serve(stream, &shared) => drop(served),
                _ = cuts.changed() => {}
            }
        });
    }
}

async fn serve(stream: TcpStream, shared: &Shared) -> io::Result<()> {
    let mut stream = BufReader::new(stream);
    let mut is_in = false;
    loop {
        // Commands that come together are one write to the target.
        let is_first = stream.buffer().is_empty();
        let parts = read_command(&mut stream).await?;
        let parts: Vec<_> = parts.iter().map(Vec::as_slice).collect();
        let answer = match parts.as_slice() {
            [b"AUTH", password] if *password == PASSWORD.as_bytes() => {
                is_in = true;
                "+OK"
            }
            [b"AUTH", _] => "-WRONGPASS invalid password",
            _ if !is_in => "-NOAUTH Authentication required.",
            [b"SET", key, value] => shared.set(key, value, is_first).await,
            _ => "-ERR unknown command",
        };
        let answer = format!("{answer}\r\n");
        stream.get_mut().write_all(answer.as_bytes()).await?;
    }
}

impl Shared {
    fn trouble(&self) -> Option<Trouble> {
        *self.trouble.borrow()
    }

    async fn set(&self, key: &[u8], value: &[u8], is_first: bool) -> &'static str {
        match self.trouble() {
            Some(Trouble::Full) => {
                return "-OOM command not allowed when used memory > 'maxmemory'.";
            }
            Some(Trouble::Slow) if is_first => self.wait().await,
            _ => {}
        }
        let mut rows = self.rows.lock().unwrap();
        rows.insert(key.to_vec(), value.to_vec());
        "+OK"
    }

    /// As long as a slow target takes, or until it isn't one any more.
    async fn wait(&self) {
        let mut trouble = self.trouble.subscribe();
        let mended = trouble.wait_for(|trouble| *trouble != Some(Trouble::Slow));
        tokio::select! {
            () = sleep(SLOW) => {}
            _ = mended => {}
        }
    }
}

async fn read_command(stream: &mut BufReader<TcpStream>) -> io::Result<Vec<Vec<u8>>> {
    let count = read_number(stream, '*').await?;
    let mut parts = Vec::new();
    for _ in 0..count {
        let mut part = vec![0; read_number(stream, '$').await? + 2];
        stream.read_exact(&mut part).await?;
        part.truncate(part.len() - 2);
        parts.push(part);
    }
    Ok(parts)
}

async fn read_number(stream: &mut BufReader<TcpStream>, kind: char) -> io::Result<usize> {
    let mut line = String::new();
    stream.read_line(&mut line).await?;
    let number = line.trim_end().strip_prefix(kind);
    let number = number.and_then(|number| number.parse().ok());
    number.ok_or_else(|| io::Error::other("no command"))
}
