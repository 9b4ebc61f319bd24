//! A server of HTTP as a process of its own: the test's program, started once more.
//!
//! It keeps the number of each record once for each idempotency key, in a file for each last part of a path, before it answers. So what it
//! has kept outlives it.
#![allow(dead_code, reason = "a test uses what it needs")]

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use sharegroup_testkit::http_server::{HttpServer, HttpServerOptions, Reply, Seen};

/// The server's side of a test; the process ends with it.
pub(crate) struct WebServer {
    child: Child,
    commands: ChildStdin,
    answers: BufReader<ChildStdout>,
    port: u16,
}

impl WebServer {
    /// Starts the test `web_server_process` of this program, which calls [`serve_where_told`], on this port or, if it is 0, on
    /// any. `authorization`: what requests must have in that header.
    pub(crate) fn start(folder: &Path, port: u16, authorization: Option<&str>) -> io::Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args([
            "--exact",
            "web_server_process",
            "--nocapture",
            "--include-ignored",
        ]);
        command.env(FOLDER, folder).env(PORT, port.to_string());
        if let Some(authorization) = authorization {
            command.env(AUTHORIZATION, authorization);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let missing = || io::Error::other("no pipe");
        let mut server = Self {
            commands: child.stdin.take().ok_or_else(missing)?,
            answers: BufReader::new(child.stdout.take().ok_or_else(missing)?),
            child,
            port,
        };
        let port = server.answer()?;
        server.port = port.parse().map_err(io::Error::other)?;
        Ok(server)
    }

    /// Where it listens.
    pub(crate) const fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    /// Sends a signal to its process, by its name without `SIG`.
    pub(crate) fn signal(&self, name: &str) -> io::Result<()> {
        let kill = format!("kill -s {name} {}", self.child.id());
        let sent = Command::new("sh").args(["-c", &kill]).status()?;
        let failed = || io::Error::other(format!("{kill}: {sent}"));
        sent.success().then_some(()).ok_or_else(failed)
    }

    /// Has a command obeyed, one of [`Mood::obey`]'s; what it says to it.
    pub(crate) fn tell(&mut self, command: &str) -> io::Result<String> {
        writeln!(self.commands, "{command}")?;
        self.answer()
    }

    /// What it has counted since it was last asked.
    pub(crate) fn counts(&mut self) -> io::Result<Counts> {
        let text = self.tell("counts")?;
        let mut numbers = text.split(' ').map(str::parse::<u64>);
        let mut next = || {
            let number = numbers.next().transpose().map_err(io::Error::other)?;
            number.ok_or_else(|| io::Error::other(text.clone()))
        };
        let mut count = || usize::try_from(next()?).map_err(io::Error::other);
        Ok(Counts {
            calls: count()?,
            records: count()?,
            calls_max: count()?,
            overlaps: count()?,
            whole: Duration::from_micros(next()?),
            middle: Duration::from_micros(next()?),
        })
    }

    fn answer(&mut self) -> io::Result<String> {
        let mut line = String::new();
        while self.answers.read_line(&mut line)? > 0 {
            // The test harness prints as well, and not always whole lines.
            if let Some((_, answer)) = line.split_once(MARK) {
                return Ok(answer.trim_end().to_owned());
            }
            line.clear();
        }
        Err(io::ErrorKind::UnexpectedEof.into())
    }
}

impl Drop for WebServer {
    fn drop(&mut self) {
        // It may have ended.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// What a server has seen of the records that it got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) calls: usize,
    /// Different ones.
    pub(crate) records: usize,
    /// Most calls for one record.
    pub(crate) calls_max: usize,
    /// How often a record came while it was being worked on.
    pub(crate) overlaps: usize,
    /// From the first call to the answer to the last.
    pub(crate) whole: Duration,
    /// From when a tenth of the calls was there to when nine tenths were.
    pub(crate) middle: Duration,
}

impl Counts {
    /// Calls a second in the middle.
    pub(crate) fn rate(&self) -> f64 {
        self.calls as f64 * 0.8 / self.middle.as_secs_f64()
    }

    /// Calls a second from the first to the last.
    pub(crate) fn whole_rate(&self) -> f64 {
        self.calls as f64 / self.whole.as_secs_f64()
    }
}

/// The numbers that are in the file of a path's last part, and how often.
pub(crate) fn kept(folder: &Path, path: &str) -> io::Result<BTreeMap<u64, u64>> {
    let mut found = BTreeMap::new();
    let text = match fs::read_to_string(file(folder, path)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(found),
        read => read?,
    };
    for line in text.lines() {
        let number = line.rsplit(' ').next().unwrap_or_default();
        let number = number.parse().map_err(io::Error::other)?;
        *found.entry(number).or_default() += 1;
    }
    Ok(found)
}

fn file(folder: &Path, path: &str) -> PathBuf {
    folder.join(path)
}

/// In a process that [`WebServer::start`] has started, serves until that is dropped. In any other it returns at once.
pub(crate) fn serve_where_told() {
    let (Some(folder), Ok(port)) = (std::env::var_os(FOLDER), std::env::var(PORT)) else {
        return;
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let options = HttpServerOptions {
        port: port.parse().unwrap(),
        is_forgetful: true,
        ..HttpServerOptions::default()
    };
    let mood = Arc::new(Mutex::new(Mood::new(folder.into())));
    let script = Arc::clone(&mood);
    let server = runtime.block_on(HttpServer::start_with(options, move |seen| {
        script.lock().unwrap().reply(seen)
    }));
    println!("{MARK}{}", server.address().port());
    for command in io::stdin().lines() {
        let command = command.unwrap();
        if let Some(state) = command.strip_prefix("door ") {
            runtime.block_on(server.open_door(state == "open"));
        }
        println!("{MARK}{}", mood.lock().unwrap().obey(&command));
    }
    std::process::exit(0);
}

/// What the server does, and what it knows.
struct Mood {
    folder: PathBuf,
    authorization: Option<String>,
    files: HashMap<String, Kept>,
    delay: Duration,
    is_full: bool,
    /// Whether one in twenty is answered 503 once, and one in a hundred 400 for ever.
    fails_some: bool,
    /// When the last call for a record ends, and how many there were.
    calls: HashMap<String, (Instant, usize)>,
    overlaps: usize,
    /// When calls came.
    times: Vec<Instant>,
}

/// What was kept of a path.
struct Kept {
    keys: HashSet<String>,
    file: File,
}

impl Mood {
    fn new(folder: PathBuf) -> Self {
        Self {
            folder,
            authorization: std::env::var(AUTHORIZATION).ok(),
            files: HashMap::new(),
            delay: Duration::ZERO,
            is_full: false,
            fails_some: false,
            calls: HashMap::new(),
            overlaps: 0,
            times: Vec::new(),
        }
    }

    /// `well`; `delay MILLISECONDS`; `full`; `fail`, some; `counts`, and begins anew; `door open` and `door closed` are
    /// the server's.
    fn obey(&mut self, command: &str) -> String {
        let (word, rest) = command.split_once(' ').unwrap_or((command, ""));
        match word {
            "well" => {
                self.delay = Duration::ZERO;
                self.is_full = false;
                self.fails_some = false;
            }
            "delay" => self.delay = Duration::from_millis(rest.parse().unwrap()),
            "full" => self.is_full = true,
            "fail" => self.fails_some = true,
            "counts" => return self.take_counts(),
            _ => {}
        }
        "done".to_owned()
    }

    fn take_counts(&mut self) -> String {
        let calls = std::mem::take(&mut self.calls);
        let counts = calls.values().map(|(_, calls)| *calls);
        let (all, max) = (counts.clone().sum::<usize>(), counts.max().unwrap_or(0));
        let overlaps = std::mem::take(&mut self.overlaps);
        let times = std::mem::take(&mut self.times);
        let at = |index: usize| times.get(index).or(times.last()).copied();
        let between = |from: usize, to: usize| {
            let times = at(from).zip(at(to));
            times.map_or(Duration::ZERO, |(from, to)| to - from)
        };
        let whole = (between(0, all) + self.delay).as_micros();
        let middle = between(all / 10, all * 9 / 10).as_micros();
        format!("{all} {} {max} {overlaps} {whole} {middle}", calls.len())
    }

    fn reply(&mut self, seen: &Seen) -> Reply {
        if let Some(wanted) = &self.authorization {
            let path_has_token = seen.target.ends_with(&format!("?token={URL_TOKEN}"));
            let had = seen.header("authorization");
            if !path_has_token || had != Some(wanted) {
                // As careless servers do.
                let echo = format!(
                    "{} may not {} {}",
                    had.unwrap_or("nobody"),
                    seen.method,
                    seen.target
                );
                return Reply::status(401).body(echo);
            }
        }
        let key = seen.header("idempotency-key").unwrap_or_default();
        let text = seen.text();
        let Ok(number) = text.split(';').next().unwrap_or_default().parse::<u64>() else {
            return Reply::status(400).body("that is no number");
        };
        let (now, ends) = (Instant::now(), self.delay - self.delay / 20);
        let (until, calls) = self.calls.entry(key.to_owned()).or_insert((now, 0));
        self.overlaps += usize::from(*until > now);
        *until = now + ends;
        self.times.push(now);
        *calls += 1;
        if self.is_full {
            return Reply::status(507).body("no room is left");
        }
        if self.fails_some && number % 100 == 50 {
            return Reply::status(400).after(self.delay);
        }
        if self.fails_some && number % 20 == 7 && *calls == 1 {
            return Reply::status(503).after(self.delay);
        }
        // In HTTP/2 it comes with scheme and host.
        let path = seen.target.split('?').next().unwrap_or_default();
        let path = path.rsplit('/').next().unwrap_or_default();
        self.keep(path, key, number).unwrap();
        Reply::status(200).after(self.delay)
    }

    fn keep(&mut self, path: &str, key: &str, number: u64) -> io::Result<()> {
        if !self.files.contains_key(path) {
            let name = file(&self.folder, path);
            let text = match fs::read_to_string(&name) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
                read => read?,
            };
            let keys = text.lines().filter_map(|line| line.split(' ').next());
            let kept = Kept {
                keys: keys.map(str::to_owned).collect(),
                file: File::options().append(true).create(true).open(name)?,
            };
            self.files.insert(path.to_owned(), kept);
        }
        if let Some(kept) = self.files.get_mut(path)
            && kept.keys.insert(key.to_owned())
        {
            kept.file
                .write_all(format!("{key} {number}\n").as_bytes())?;
        }
        Ok(())
    }
}

/// What the URL must have beside the header.
pub(crate) const URL_TOKEN: &str = "url-token-7c1e0d2b";

const FOLDER: &str = "WEB_SERVER_FOLDER";
const PORT: &str = "WEB_SERVER_PORT";
const AUTHORIZATION: &str = "WEB_SERVER_AUTHORIZATION";
/// Before what the server says.
const MARK: &str = "web-server: ";
