//! A PostgreSQL server of a test's own: a fresh cluster in a folder that goes away with it.
//!
//! The server listens on 127.0.0.1 and on a socket in its folder. Everything here blocks the calling thread. It ends
//! with its [`Postgres`], and also when the process that owns it ends without dropping it.

mod programs;

use std::fmt;
use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::{MetadataExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// A running server.
pub struct Postgres {
    programs: PathBuf,
    folder: PathBuf,
    port: u16,
    settings: Vec<(String, String)>,
    /// The shell that waits for this process to end.
    guard: Option<Child>,
}

impl fmt::Debug for Postgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Postgres")
            .field("folder", &self.folder)
            .field("port", &self.port)
            .finish_non_exhaustive()
    }
}

impl Postgres {
    /// Makes a cluster and starts a server on it. `settings` go into `postgresql.conf`; durability is as PostgreSQL has
    /// it by default.
    ///
    /// # Errors
    /// No programs, or the server doesn't come up within a minute; the end of its log is in the text.
    pub fn start(settings: &[(&str, &str)]) -> io::Result<Self> {
        let programs = programs::folder()?;
        let mut server = Self {
            programs,
            folder: new_folder()?,
            port: free_port()?,
            settings: settings
                .iter()
                .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
                .collect(),
            guard: None,
        };
        let data = server.data();
        let initdb = server.run("initdb", |command| {
            command
                .args(["-U", SUPERUSER, "-A", "trust", "-E", "UTF8", "--locale=C"])
                .args(["--no-sync", "-D"])
                .arg(&data);
        })?;
        must_succeed("initdb", &initdb)?;
        fs::write(data.join("pg_hba.conf"), HBA)?;
        server.restart()?;
        Ok(server)
    }

    /// The port on 127.0.0.1.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// The server's own folder, readable by its user: a place for its certificates.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// A URL of a database, with the superuser.
    #[must_use]
    pub fn url(&self, database: &str) -> String {
        format!(
            "postgresql://{SUPERUSER}@127.0.0.1:{}/{database}",
            self.port
        )
    }

    /// Process id of the postmaster.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        let file = fs::read_to_string(self.data().join("postmaster.pid")).ok()?;
        file.lines().next()?.trim().parse().ok()
    }

    /// Sets something in `postgresql.conf` for the next start.
    pub fn set(&mut self, key: &str, value: &str) {
        self.settings.push((key.to_owned(), value.to_owned()));
    }

    /// Hands a file over to the server's user, which alone may read it then, as keys must be.
    ///
    /// # Errors
    /// The file can't be written.
    pub fn write(&self, name: &str, contents: &str) -> io::Result<PathBuf> {
        use std::os::unix::fs::OpenOptionsExt;
        let path = self.folder.join(name);
        let mut file = fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&path)?;
        file.write_all(contents.as_bytes())?;
        if let Some((uid, gid)) = other_user()? {
            chown(&path, Some(uid), Some(gid))?;
        }
        Ok(path)
    }

    /// Starts the server, which must not run; on the same data and the same port as before.
    ///
    /// # Errors
    /// As [`Postgres::start`].
    pub fn restart(&mut self) -> io::Result<()> {
        let conf = self
            .settings
            .iter()
            .fold(self.conf(), |conf, (key, value)| {
                conf + &format!("{key} = '{value}'\n")
            });
        fs::write(self.data().join("conf"), conf)?;
        let log = fs::File::create(self.folder.join("log"))?;
        let mut command = Command::new("sh");
        command.args(["-c", GUARD, "sh"]);
        command.arg(self.programs.join("postgres")).arg(self.data());
        command.stdin(Stdio::piped()).stdout(log.try_clone()?);
        self.guard = Some(as_other_user(command.stderr(log))?.spawn()?);
        let deadline = Instant::now() + START_MAX;
        while !self.is_ready() {
            if Instant::now() > deadline || self.has_ended() {
                let log = fs::read_to_string(self.folder.join("log")).unwrap_or_default();
                return Err(io::Error::other(format!("no PostgreSQL came up: {log}")));
            }
            thread::sleep(POLL);
        }
        Ok(())
    }

    /// Ends the server as a crash does: at once, nothing written out.
    ///
    /// # Errors
    /// The signal can't be sent.
    pub fn kill(&mut self) -> io::Result<()> {
        if let Some(pid) = self.pid() {
            signal(pid, "QUIT")?;
        }
        self.wait()
    }

    /// Ends all of the server's processes with SIGKILL: none of them gets to do anything more.
    ///
    /// # Errors
    /// A signal can't be sent, or `/proc` isn't there.
    pub fn kill_hard(&mut self) -> io::Result<()> {
        if let Some(pid) = self.pid() {
            // It must not start others meanwhile.
            signal(pid, "STOP")?;
            for child in children(pid)? {
                // It may have ended.
                drop(signal(child, "KILL"));
            }
            signal(pid, "KILL")?;
        }
        self.wait()?;
        // It could not remove what says that it is ready.
        match fs::remove_file(self.data().join("postmaster.pid")) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Stops all of the server's processes where they are: it takes connections and bytes, and says nothing.
    ///
    /// # Errors
    /// A signal can't be sent, or `/proc` isn't there.
    pub fn pause(&self) -> io::Result<()> {
        let Some(pid) = self.pid() else { return Ok(()) };
        // First the one that starts others.
        signal(pid, "STOP")?;
        for child in children(pid)? {
            drop(signal(child, "STOP"));
        }
        Ok(())
    }

    /// Ends [`Postgres::pause`].
    ///
    /// # Errors
    /// As there.
    pub fn resume(&self) -> io::Result<()> {
        let Some(pid) = self.pid() else { return Ok(()) };
        for child in children(pid)? {
            drop(signal(child, "CONT"));
        }
        signal(pid, "CONT")
    }

    /// Waits for the end of a server that was told to end.
    fn wait(&mut self) -> io::Result<()> {
        if let Some(mut guard) = self.guard.take() {
            // To close it is to abandon the server, with its folder.
            let held = guard.stdin.take();
            guard.wait()?;
            drop(held);
        }
        Ok(())
    }

    fn conf(&self) -> String {
        format!(
            "listen_addresses = '127.0.0.1'\nport = {}\nunix_socket_directories = '{}'\n\
             shared_buffers = '128MB'\nmax_connections = 60\n",
            self.port,
            self.folder.display()
        )
    }

    fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    /// The server writes `ready` into its file once it takes connections.
    fn is_ready(&self) -> bool {
        fs::read_to_string(self.data().join("postmaster.pid"))
            .is_ok_and(|file| file.lines().nth(7).map(str::trim) == Some("ready"))
    }

    fn has_ended(&mut self) -> bool {
        let guard = self.guard.as_mut();
        guard.is_none_or(|guard| !matches!(guard.try_wait(), Ok(None)))
    }

    fn run(&self, program: &str, with: impl FnOnce(&mut Command)) -> io::Result<Output> {
        let mut command = Command::new(self.programs.join(program));
        with(&mut command);
        as_other_user(command.current_dir(&self.folder))?.output()
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        if let Some(pid) = self.pid() {
            drop(signal(pid, "QUIT"));
        }
        drop(self.resume());
        if let Some(mut guard) = self.guard.take() {
            drop(guard.stdin.take());
            drop(guard.wait());
        }
        drop(fs::remove_dir_all(&self.folder));
    }
}

fn must_succeed(program: &str, output: &Output) -> io::Result<()> {
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(format!("{program}: {text}")))
}

/// PostgreSQL refuses to run as root: whom it runs as then.
fn other_user() -> io::Result<Option<(u32, u32)>> {
    let is_root = fs::metadata("/proc/self")?.uid() == 0;
    Ok(is_root.then_some((NOBODY, NOBODY)))
}

fn as_other_user(command: &mut Command) -> io::Result<&mut Command> {
    Ok(match other_user()? {
        Some((uid, gid)) => command.uid(uid).gid(gid),
        None => command,
    })
}

fn new_folder() -> io::Result<PathBuf> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    // Short: a path of a socket has at most 107 bytes.
    let folder = std::env::temp_dir().join(format!("sg-pg-{}-{number}", std::process::id()));
    drop(fs::remove_dir_all(&folder));
    fs::create_dir_all(&folder)?;
    if let Some((uid, gid)) = other_user()? {
        chown(&folder, Some(uid), Some(gid))?;
    }
    Ok(folder)
}

/// A port that nobody listens on, below those of outgoing connections, so that a server that is down finds it free.
fn free_port() -> io::Result<u16> {
    let start = RandomState::new().hash_one(std::process::id());
    (0..1000_u64)
        .filter_map(|step| u16::try_from(15_000 + (start % 16_000 + step * 257) % 16_000).ok())
        .find(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok())
        .ok_or_else(|| io::Error::other("no free port"))
}

/// Processes that a process has started.
fn children(parent: u32) -> io::Result<Vec<u32>> {
    let mut children = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let entry = entry?;
        let pid: Option<u32> = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok());
        let Ok(stat) = fs::read_to_string(entry.path().join("stat")) else {
            continue;
        };
        // proc(5): behind the name, which may hold spaces, stand the state and the parent.
        let parent_of = stat
            .rsplit_once(')')
            .and_then(|(_, rest)| rest.split_whitespace().nth(1)?.parse().ok());
        if parent_of == Some(parent) {
            children.extend(pid);
        }
    }
    Ok(children)
}

fn signal(pid: u32, name: &str) -> io::Result<()> {
    let kill = format!("kill -s {name} {pid}");
    let output = Command::new("sh").args(["-c", &kill]).output()?;
    must_succeed("kill", &output)
}

/// Name of the superuser, who needs no password.
pub const SUPERUSER: &str = "sharegroup";
const NOBODY: u32 = 65_534;
const START_MAX: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(20);

/// Ends the server once nobody holds the other end of its standard input any more, and removes its folder then.
const GUARD: &str = r#"
folder=${2%/data}
"$1" -D "$2" -c config_file="$2/conf" </dev/null &
server=$!
exec 3<&0
( read -r _ <&3; : >"$folder/abandoned"
# One that is about to start ignores it yet.
while kill -s QUIT $server; do sleep 0.2; done ) >/dev/null 2>&1 &
watcher=$!
wait $server
kill $watcher 2>/dev/null
if [ -e "$folder/abandoned" ]; then rm -rf "$folder"; fi
"#;

/// Users whose names say how they must identify themselves, and how they must connect.
const HBA: &str = "\
local all all trust
hostssl all tls_only 127.0.0.1/32 trust
hostnossl all tls_only 127.0.0.1/32 reject
host all scram 127.0.0.1/32 scram-sha-256
host all md5 127.0.0.1/32 md5
host all plain 127.0.0.1/32 password
host all all 127.0.0.1/32 trust
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_comes_up_is_killed_and_comes_back() {
        let mut server = Postgres::start(&[("fsync", "off")]).unwrap();
        let first = server.pid().unwrap();
        server.kill().unwrap();
        server.restart().unwrap();
        assert_ne!(server.pid(), Some(first));
        server.kill_hard().unwrap();
        server.restart().unwrap();
        let folder = server.folder().to_owned();
        drop(server);
        assert!(!folder.exists());
    }
}
