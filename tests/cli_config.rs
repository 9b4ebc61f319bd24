//! `validate` and `describe`, and files of every kind: what the program says, and how it ends. No cluster.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod support;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use support::{Folder, binary};

/// How a command ended, and what it wrote.
#[derive(Debug)]
struct Said {
    code: Option<i32>,
    out: String,
    err: String,
}

fn say(command: &mut Command) -> Said {
    let output = command.stdin(Stdio::null()).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Said {
        code: output.status.code(),
        out: text(&output.stdout),
        err: text(&output.stderr),
    }
}

fn sharegroup(arguments: &[&str]) -> Said {
    say(Command::new(binary()).args(arguments))
}

fn validate(files: &[&Path]) -> Said {
    say(Command::new(binary()).arg("validate").args(files))
}

impl Said {
    #[track_caller]
    fn errs(&self, texts: &[&str]) -> &Self {
        for text in texts {
            assert!(self.err.contains(text), "`{text}` is not in {self:#?}");
        }
        self
    }

    #[track_caller]
    fn says(&self, texts: &[&str]) -> &Self {
        for text in texts {
            assert!(self.out.contains(text), "`{text}` is not in {self:#?}");
        }
        self
    }

    #[track_caller]
    fn ends(&self, code: i32) -> &Self {
        assert_eq!(self.code, Some(code), "{self:#?}");
        self
    }
}

const WORKER: &str = "bootstrap.servers=localhost:9092\n";
const SINK: &str = "name=out\nconnector.class=file\ntopics=orders\nfile=out.txt\nconsumer.override.group.protocol=share\n";

#[test]
fn validate_says_what_would_run() {
    let folder = Folder::new("config-fine");
    let worker = folder.write("worker.properties", WORKER);
    let sink = folder.write("sink.properties", SINK);
    let json = r#"{"name":"two","config":{"connector.class":"FileStreamSink","topics":"a,b","file":"b.txt",
        "tasks.max":2,"share.group.id":"g","consumer.override.group.protocol":"share"}}"#;
    let json = folder.write("two.json", json);
    validate(&[&worker, &sink, &json]).ends(0).says(&[
        "out: sink file, topics orders, share group connect-out, 1 task\n",
        "two: sink file, topics a, b, share group g, 2 tasks\n",
        "Nothing is wrong.\n",
    ]);
    validate(&[&worker]).ends(0);
    let foreign = folder.write("foreign.properties", &format!("{SINK}my.key=1\n"));
    validate(&[&worker, &foreign])
        .ends(0)
        .says(&["No errors, 1 warning."])
        .errs(&[
            "warning: ",
            "foreign.properties:6: my.key: is not a known key",
        ]);
    say(Command::new(binary())
        .args(["validate", "--strict"])
        .args([&worker, &foreign]))
    .ends(2)
    .errs(&["error: ", "foreign.properties:6: my.key"]);
}

#[test]
fn validate_finds_every_error_of_every_file_at_once() {
    let folder = Folder::new("config-wrong");
    let worker = folder.write(
        "worker.properties",
        "boostrap.servers=localhost:9092\noffset.flush.interval.ms=never\n",
    );
    let one = folder.write(
        "one.properties",
        "name=one\nconnector.class=fil\ntopics=orders\ntask.max=2\nconsumer.override.group.protocol=share\n",
    );
    let two = folder.write(
        "two.properties",
        &format!("{SINK}format=xml\nerrors.tolerance=some\nconsumer.override.auto.offset.reset=earliest\nconnection.url=jdbc:x://me:s3cret@db\n"),
    );
    let missing = folder.join("missing.properties");
    let said = validate(&[&worker, &one, &missing, &two]);
    said.ends(2).errs(&[
        "worker.properties:1: boostrap.servers: is not a key; did you mean bootstrap.servers?",
        "worker.properties: bootstrap.servers: must be set",
        "worker.properties:2: offset.flush.interval.ms=never: must be a whole number from 1",
        "one.properties:2: connector.class=fil: is not a known sink; did you mean file?",
        "one.properties:4: task.max: is not a key; did you mean tasks.max?",
        "missing.properties: can't be read",
        "two.properties:6: format=xml: must be one of value, jsonl",
        "two.properties:7: errors.tolerance=some: must be one of none, all",
        "two.properties:8: consumer.override.auto.offset.reset=earliest: can't be used here; where a share group starts",
        "9 errors and 1 warning: nothing would start",
    ]);
    assert!(!said.err.contains("s3cret"), "{said:#?}");
    assert_eq!(said.out, "");
}

#[test]
fn a_wrong_worker_file_hides_no_error_of_the_others() {
    let folder = Folder::new("config-wrong-worker");
    let out = folder.join("none/${task}.txt");
    let wrong = format!(
        "{}task.max=2\nheader.converter=${{env:CONVERTER}}\n",
        SINK.replace("out.txt", &out.display().to_string())
    );
    let sink = folder.write("sink.properties", &wrong);
    let unnamed = folder.write(
        "unnamed.properties",
        "connector.class=file\ntopics=orders\nconsumer.override.group.protocol=share\nfile=none/x\n",
    );
    let at = out.parent().unwrap().display();
    let none_exists = format!("the folder {at} does not exist; create it");
    let of_sink = [
        "sink.properties:6: task.max: is not a key; did you mean tasks.max?",
        &none_exists,
        "unnamed.properties: name: must be set",
        "unnamed.properties:4: file=none/x: the folder none does not exist",
    ];
    let provider = "config.providers=env\nconfig.providers.env.class=EnvVarConfigProvidr\n";
    for (name, worker, says) in [
        ("text", "a=\\u12\n", "text:1: has \\u12, which is not"),
        (
            "nothing",
            provider,
            "nothing: bootstrap.servers: must be set",
        ),
        (
            "servers",
            "bootstrap.servers=a:b:c\n",
            "servers:1: bootstrap.servers=a:b:c: is not a list of servers",
        ),
        ("json", "{\"a\": [1]}", "json: has a list or an object"),
        (
            "sink",
            SINK,
            "sink: is a connector's file in the place of the worker's",
        ),
    ] {
        let worker = folder.write(name, worker);
        let said = validate(&[&worker, &sink, &unnamed]);
        said.ends(2).errs(&of_sink).errs(&[says]);
        let names_servers = said.err.contains("doesn't name");
        assert_eq!(names_servers, name == "servers", "{name}: {said:#?}");
    }
    let other = folder.write("other.properties", WORKER);
    let worker = folder.write("worker.properties", WORKER);
    validate(&[&worker, &other, &unnamed]).ends(2).errs(&[
        "other.properties: is a worker's file in the place of a connector's",
        "unnamed.properties: name: must be set",
    ]);
}

#[test]
fn what_is_no_file_is_named_before_the_start() {
    let folder = Folder::new("config-no-file");
    let worker = folder.write("worker.properties", WORKER);
    std::fs::create_dir(folder.join("out")).unwrap();
    let taken = folder.write("taken", "");
    for (file, says) in [
        (folder.join("out"), "out is a folder; name a regular file"),
        (PathBuf::from("/dev/null"), "/dev/null is a device"),
        (taken.join("x"), "taken is not a folder; name another"),
        (taken.join("x/y"), "a part of it is none; name another"),
    ] {
        let file = format!("file={}", file.display());
        let sink = folder.write("sink.properties", &SINK.replace("file=out.txt", &file));
        let said = validate(&[&worker, &sink]);
        said.ends(2)
            .errs(&[&format!("sink.properties:4: {file}: "), says]);
        said.errs(&["1 error: nothing would start"]);
    }
}

#[test]
fn a_file_with_something_wrong_in_every_line_does_not_flood_the_screen() {
    let folder = Folder::new("config-flood");
    let lines: String = (0..1000)
        .map(|line| format!("task.max{line}=x\n"))
        .collect();
    let worker = folder.write("worker.properties", WORKER);
    let sink = folder.write("sink.properties", &format!("{SINK}{lines}"));
    let said = validate(&[&worker, &sink]);
    assert!(said.err.lines().count() < 500, "{}", said.err.len());
    said.errs(&[" more"]);
    let run = say(Command::new(binary())
        .arg("run")
        .args([&worker, &sink, &sink]));
    run.ends(2);
    assert!(run.err.lines().count() < 50, "{}", run.err.len());
}

#[test]
fn files_of_other_kinds_are_read_or_named() {
    let folder = Folder::new("config-kinds");
    let worker = folder.write("worker.properties", WORKER);
    let write = |name: &str, bytes: Vec<u8>| {
        let path = folder.join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    };
    let marked = write("marked", [b"\xef\xbb\xbf", SINK.as_bytes()].concat());
    validate(&[&worker, &marked]).ends(0);
    let wide = SINK.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let wide = write("wide", [vec![0xff, 0xfe], wide].concat());
    validate(&[&worker, &wide])
        .ends(2)
        .errs(&["wide: is UTF-16: save it as UTF-8"]);
    validate(&[&worker, &folder.join("missing")])
        .ends(2)
        .errs(&["can't be read: "]);
    let nothing = write("nothing", Vec::new());
    validate(&[&worker, &nothing]).ends(2).errs(&[
        "nothing: name: must be set",
        "nothing: connector.class: must be set",
    ]);
}

#[cfg(unix)]
#[test]
fn a_pipe_is_read_like_a_file() {
    let folder = Folder::new("config-pipe");
    let worker = folder.write("worker.properties", WORKER);
    let pipe = folder.join("pipe");
    let made = Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    let mut command = Command::new(binary());
    command.arg("validate").args([&worker, &pipe]);
    let reader = std::thread::spawn(move || say(&mut command));
    // Opening waits for the reader.
    std::fs::write(&pipe, SINK).unwrap();
    reader.join().unwrap().ends(0).says(&["out: sink file"]);
}

#[test]
fn secrets_of_providers_are_looked_up_and_never_shown() {
    let folder = Folder::new("config-secrets");
    let worker = folder.write(
        "worker.properties",
        &format!(
            "{WORKER}config.providers=env,dir\nconfig.providers.env.class=org.apache.kafka.common.config.provider.EnvVarConfigProvider\n\
             config.providers.dir.class=DirectoryConfigProvider\nconfig.providers.dir.param.trim=true\n"
        ),
    );
    folder.write("topic", "orders-s3cret\n");
    let at = folder.join("");
    let sink = |tasks: &str| {
        let topic = format!("${{dir:{}:topic}}", at.display());
        let text = SINK.replace("orders", &topic);
        folder.write("sink.properties", &format!("{text}tasks.max={tasks}\n"))
    };
    let with = |sink: &Path, value: &str| {
        let mut command = Command::new(binary());
        command.arg("validate").args([&worker, sink]);
        say(command.env("SINK_TASKS", value))
    };
    with(&sink("${env:SINK_TASKS}"), "3")
        .ends(0)
        .says(&["3 tasks"]);
    let wrong = with(&sink("${env:SINK_TASKS}"), "s3cret");
    wrong.ends(2).errs(&[
        "sink.properties:6: tasks.max=${env:SINK_TASKS}: must be a whole number from 1 to 1024",
    ]);
    assert!(!wrong.err.contains("s3cret"), "{wrong:#?}");
    with(&sink("${env:NO_SUCH_VARIABLE}"), "")
        .ends(2)
        .errs(&["the environment has no variable NO_SUCH_VARIABLE"]);
}

#[test]
fn describe_teaches_the_keys() {
    sharegroup(&["describe", "connector"]).ends(0).says(&[
        "blackhole",
        "console",
        "file ",
        "FileStreamSinkConnector",
        "http ",
    ]);
    sharegroup(&["describe", "connector", "FileStreamSink"])
        .ends(0)
        .says(&[
            "file (must be set)  [",
            "format=value  [",
            "one of value, jsonl\n",
            "share.hold.max.ms=300000  [",
            "consumer.override.max.poll.records=500  [",
            "errors.tolerance=none  [",
        ]);
    sharegroup(&["describe", "worker", "override.policy"])
        .ends(0)
        .says(&[
            "connector.client.config.override.policy=All  [",
            "Principal",
        ]);
    let json = sharegroup(&["describe", "connector", "file", "--json"]);
    json.ends(0).says(&[
        "\"name\": \"tasks.max\"",
        "\"type\": \"INT\"",
        "\"default_value\": \"1\"",
        "\"importance\": \"HIGH\"",
        "\"order_in_group\": 1",
    ]);
    sharegroup(&["describe", "connector", "fiel"])
        .ends(2)
        .errs(&["fiel is not a known sink; did you mean file?"]);
    sharegroup(&["describe", "worker", "no.such.key"])
        .ends(2)
        .errs(&["no.such.key is in no key"]);
    for command in [&["validate", "--help"][..], &["describe", "--help"]] {
        sharegroup(command).ends(0).says(&["Examples:"]);
    }
}

#[test]
fn list_names_what_a_configuration_can_hold() {
    sharegroup(&["list"]).ends(0).says(&[
        "  postgres   writes rows into tables of PostgreSQL (JdbcSinkConnector)\n",
        "  json       JSON",
        "  env        variables of the environment",
    ]);
    sharegroup(&["list", "--json"]).ends(0).says(&[
        "\"name\": \"http\"",
        "\"config_providers\"",
        "io.debezium.connector.jdbc.JdbcSinkConnector",
    ]);
}

#[test]
fn describe_sink_has_purpose_classes_types_and_other_names() {
    sharegroup(&["describe", "sink", "JdbcSink"])
        .ends(0)
        .says(&[
            "connector.class=postgres: writes rows into tables of PostgreSQL\n",
            "io.confluent.connect.jdbc.JdbcSinkConnector",
            "  connection.url (must be set)  [password]\n",
            "  pk.mode=kafka  [string]\n",
            "      also primary.key.mode\n",
        ]);
    let json = sharegroup(&["describe", "sink", "http", "--json"]);
    json.ends(0)
        .says(&["\"alias_of\": \"http.url\"", "\"purpose\""]);
    sharegroup(&["describe", "sink", "postgress"])
        .ends(2)
        .errs(&["postgress is not a known sink; did you mean postgres?"]);
}

#[test]
fn init_writes_files_that_pass_once_edited_and_overwrites_none() {
    let folder = Folder::new("config-init");
    let at = folder.join("");
    let at = at.to_str().unwrap();
    let init = [
        "init",
        "file",
        "--dir",
        at,
        "--bootstrap-server",
        "kafka:9092",
    ];
    sharegroup(&init)
        .ends(0)
        .says(&["Edit two lines", "  topics= ", "  file= "]);
    let (worker, sink) = (
        folder.join("worker.properties"),
        folder.join("file.properties"),
    );
    validate(&[&worker, &sink])
        .ends(2)
        .errs(&["topics", "file"]);
    let text = std::fs::read_to_string(&sink).unwrap();
    let edited = text
        .replace("\ntopics=\n", "\ntopics=orders\n")
        .replace("\nfile=\n", &format!("\nfile={at}/out.txt\n"));
    std::fs::write(&sink, &edited).unwrap();
    validate(&[&worker, &sink])
        .ends(0)
        .says(&["file: sink file, topics orders", "Nothing is wrong.\n"]);
    sharegroup(&init)
        .ends(2)
        .errs(&["file.properties is there already, and nothing is overwritten"]);
    assert_eq!(std::fs::read_to_string(&sink).unwrap(), edited);
    sharegroup(&["init", "console", "--dir", at])
        .ends(0)
        .says(&[
            "worker.properties was there and stays as it is",
            "Edit one line",
        ]);
}
