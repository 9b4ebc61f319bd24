//! The clients beside each other, and how each is built.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;
use sharegroup_launcher::Tools;

use crate::run::Context;

/// Whose client it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Maker {
    Ours,
    Java,
    Krafka,
    Franz,
    /// The loop that only reads and checks.
    Raw,
}

impl Maker {
    const fn name(self) -> &'static str {
        match self {
            Self::Ours => "sharegroup",
            Self::Java => "java",
            Self::Krafka => "krafka",
            Self::Franz => "franz-go",
            Self::Raw => "raw",
        }
    }
}

/// A client in one of its modes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Contender {
    pub(super) name: &'static str,
    pub(super) maker: Maker,
    /// `fast`, `commit`, or `plain` outside of share groups.
    pub(super) mode: &'static str,
}

const fn contender(name: &'static str, maker: Maker, mode: &'static str) -> Contender {
    Contender { name, maker, mode }
}

/// The limit on the replay server.
pub(super) const RAW: Contender = contender("read and CRC32C only", Maker::Raw, "fast");

/// In the order of a round.
pub(super) const CONTENDERS: [Contender; 9] = [
    contender("sharegroup", Maker::Ours, "fast"),
    contender("Java commitAsync", Maker::Java, "fast"),
    contender("krafka", Maker::Krafka, "fast"),
    contender("franz-go", Maker::Franz, "fast"),
    contender("sharegroup, commit", Maker::Ours, "commit"),
    contender("Java commitSync", Maker::Java, "commit"),
    contender("krafka, commit", Maker::Krafka, "commit"),
    contender("franz-go, flush", Maker::Franz, "commit"),
    contender("Java, consumer group", Maker::Java, "plain"),
];

/// What could be built.
#[derive(Debug)]
pub(super) struct Clients {
    ours: PathBuf,
    krafka: Option<PathBuf>,
    franz: Option<PathBuf>,
    java: Tools,
    /// Java's classes, the helper's among them.
    pub(super) classes: PathBuf,
    /// Server and limit without a broker.
    replay: PathBuf,
    /// What could not be built.
    pub(super) missing: Vec<String>,
}

impl Clients {
    /// Builds all of them.
    ///
    /// # Errors
    /// Only where our own client, or Java for the helper, isn't there: a peer that can't be built is missing.
    pub(super) fn build(context: &Context, tools: &Tools) -> anyhow::Result<Self> {
        let peers = context.root.join("benches").join("peers");
        let target = context.target_dir().join("benches");
        fs::create_dir_all(&target)?;
        let classes = target.join("java");
        compile_java(&peers.join("java"), &classes, tools)?;
        let mut missing = Vec::new();
        let mut peer = |maker: Maker, built: anyhow::Result<PathBuf>| match built {
            Ok(program) => Some(program),
            Err(error) => {
                println!("{} can't be built: {error:#}", maker.name());
                missing.push(maker.name().to_owned());
                None
            }
        };
        let benches = context.root.join("benches");
        let ours = build_rust(context, &benches, "sharegroup-client", &target)?;
        let replay = build_rust(context, &benches, "sharegroup-replay", &target)?;
        let krafka = build_rust(context, &peers.join("krafka"), "krafka-client", &target);
        let franz = build_go(&peers.join("franz"), &target.join("franz"));
        Ok(Self {
            ours,
            krafka: peer(Maker::Krafka, krafka),
            franz: peer(Maker::Franz, franz),
            java: tools.clone(),
            classes,
            replay,
            missing,
        })
    }

    /// The command that runs a client; `None` where it is missing.
    pub(super) fn command(&self, maker: Maker) -> Option<Command> {
        let program = match maker {
            Maker::Ours => return Some(Command::new(&self.ours)),
            Maker::Raw => {
                let mut command = Command::new(&self.replay);
                command.arg("raw");
                return Some(command);
            }
            Maker::Krafka => &self.krafka,
            Maker::Franz => &self.franz,
            Maker::Java => {
                let mut command = self.java.java(&self.classes);
                // The heap that Kafka's own scripts give to console consumers.
                command.args(["-Xmx512m", "Client"]);
                return Some(command);
            }
        };
        program.as_ref().map(Command::new)
    }

    /// The command that runs the replay server.
    pub(super) fn replay(&self, value_bytes: u64) -> Command {
        let mut command = Command::new(&self.replay);
        command.args(["serve", "--value-bytes", &value_bytes.to_string()]);
        command
    }

    /// The versions of what is compared.
    pub(super) fn versions(&self, context: &Context) -> serde_json::Value {
        let peers = context.root.join("benches").join("peers");
        let first_line = |program: &str, args: &[&str]| {
            let output = Command::new(program).args(args).output().ok();
            let text = output.map(|output| [output.stdout, output.stderr].concat());
            let text = String::from_utf8_lossy(&text.unwrap_or_default()).into_owned();
            text.lines().next().unwrap_or_default().to_owned()
        };
        let mut head = Command::new("git");
        head.current_dir(&context.root)
            .args(["rev-parse", "--short", "HEAD"]);
        let head = head
            .output()
            .map(|output| output.stdout)
            .unwrap_or_default();
        serde_json::json!({
            "sharegroup": format!("{} {}", env!("CARGO_PKG_VERSION"), String::from_utf8_lossy(&head).trim()),
            "kafka": sharegroup_launcher::DEFAULT_VERSION,
            "krafka": quoted(&peers.join("krafka").join("Cargo.toml"), "krafka = "),
            "franz-go": quoted(&peers.join("franz").join("go.mod"), "franz-go v"),
            "java": first_line("java", &["-version"]),
            "rust": first_line("rustc", &["--version"]),
            "go": first_line("go", &["version"]),
        })
    }
}

/// What follows a mark in a file, up to the end of the line, without quotes and comments.
fn quoted(file: &Path, mark: &str) -> String {
    let text = fs::read_to_string(file).unwrap_or_default();
    let rest = text.split_once(mark).map_or("", |(_, rest)| rest);
    let rest = rest.lines().next().unwrap_or_default();
    let rest = rest.split(['#', ',']).next().unwrap_or_default();
    rest.trim()
        .trim_matches(['"', '='])
        .trim_matches('"')
        .to_owned()
}

/// Builds a package of a workspace under `benches`.
pub(super) fn build_rust(
    context: &Context,
    folder: &Path,
    package: &str,
    target: &Path,
) -> anyhow::Result<PathBuf> {
    let mut command = context.cargo(["build", "--release", "--locked", "--package", package]);
    command.current_dir(folder).env("CARGO_TARGET_DIR", target);
    context.output(&mut command)?;
    Ok(target.join("release").join(package))
}

fn build_go(folder: &Path, program: &Path) -> anyhow::Result<PathBuf> {
    let mut command = Command::new("go");
    command
        .current_dir(folder)
        .args(["build", "-trimpath", "-o"]);
    finish(command.arg(program).arg("."))?;
    Ok(program.to_path_buf())
}

fn compile_java(folder: &Path, classes: &Path, tools: &Tools) -> anyhow::Result<()> {
    let files = fs::read_dir(folder)?
        .map(|entry| Ok(entry?.path()))
        .filter(|path: &anyhow::Result<PathBuf>| {
            path.as_ref()
                .map_or(true, |path| path.extension() == Some(OsStr::new("java")))
        })
        .collect::<anyhow::Result<Vec<_>>>()?;
    let mut command = Command::new("javac");
    command
        .env("CLASSPATH", tools.class_path())
        .arg("-d")
        .arg(classes);
    finish(command.args(files))
}

fn finish(command: &mut Command) -> anyhow::Result<()> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command
        .output()
        .with_context(|| format!("{program} can't be run"))?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    anyhow::ensure!(output.status.success(), "{program} failed:\n{text}");
    Ok(())
}
