//! Whole configurations: what is taken, what is refused, and what is said about it.

mod secrets;
mod security;
mod typed;

use super::*;
use crate::connector::{Connector, DynSinkTask, TaskContext};
use crate::error::TaskError;

struct TestSink;

impl Connector for TestSink {
    fn name(&self) -> &'static str {
        "test"
    }

    fn aliases(&self) -> &'static [&'static str] {
        &["org.example.TestSinkConnector"]
    }

    fn keys(&self) -> &'static [KeyDef] {
        const {
            &[
                KeyDef::required("target", ValueKind::NonBlank, "where to write"),
                KeyDef::optional("mode", ValueKind::OneOf(&["a", "b"]), "a", "how to write"),
                KeyDef::unset("opener", ValueKind::Password, "opens the target"),
            ]
        }
    }

    fn validate(&self, config: &ConnectorConfig) -> Vec<ConfigProblem> {
        match config.own("target") {
            Some("nowhere") => vec![config.problem("target", "does not exist")],
            _ => Vec::new(),
        }
    }

    fn put_records_max(&self, config: &ConnectorConfig) -> Option<usize> {
        (config.own("mode") == Some("b")).then_some(3000)
    }

    fn task(
        &self,
        _: &ConnectorConfig,
        _: &TaskContext,
    ) -> Result<Box<dyn DynSinkTask>, TaskError> {
        Err(TaskError::new("not made in these tests"))
    }
}

const WORKER: &str = "bootstrap.servers=localhost:9092\n";
const CONNECTOR: &str = "name=out\nconnector.class=TestSink\ntopics=orders\ntarget=x\n";
const SHARE: &str = "consumer.override.group.protocol=share\n";

fn read(file: &str, text: &str) -> Properties {
    Properties::parse(Path::new(file), text, &mut Vec::new()).unwrap()
}

fn load_strictly(
    strict: bool,
    worker: &str,
    connectors: &[&str],
) -> Result<Loaded, Vec<ConfigProblem>> {
    let worker = read("worker.properties", &format!("{WORKER}{worker}"));
    let connectors = connectors
        .iter()
        .enumerate()
        .map(|(index, text)| read(&format!("c{index}.properties"), text))
        .collect();
    load_properties(worker, connectors, strict, &Registry::new().with(TestSink))
}

/// One connector on top of the usual keys and the switch to share groups.
fn with(worker: &str, connector: &str) -> Result<Loaded, Vec<ConfigProblem>> {
    load_strictly(false, worker, &[&format!("{CONNECTOR}{SHARE}{connector}")])
}

fn texts(problems: &[ConfigProblem]) -> Vec<String> {
    problems.iter().map(ToString::to_string).collect()
}

fn errors(result: Result<Loaded, Vec<ConfigProblem>>) -> Vec<String> {
    let problems = result.unwrap_err();
    let errors: Vec<_> = problems
        .into_iter()
        .filter(ConfigProblem::is_error)
        .collect();
    texts(&errors)
}

fn warnings(result: Result<Loaded, Vec<ConfigProblem>>) -> Vec<String> {
    match result {
        Ok(loaded) => texts(&loaded.warnings),
        Err(problems) => panic!("{:#?}", texts(&problems)),
    }
}

fn consumer(worker: &str, connector: &str) -> ConsumerSettings {
    match with(worker, connector) {
        Ok(mut loaded) => loaded.connectors.remove(0).consumer,
        Err(problems) => panic!("{:#?}", texts(&problems)),
    }
}

#[test]
fn a_plain_configuration_has_kafka_connects_defaults() {
    let loaded = with("", "").unwrap();
    assert!(loaded.warnings.is_empty(), "{:?}", texts(&loaded.warnings));
    assert_eq!(loaded.worker.bootstrap_servers, "localhost:9092");
    assert_eq!(loaded.worker.shutdown_timeout.as_millis(), 5000);
    assert_eq!(loaded.worker.flush_interval.as_secs(), 60);
    assert_eq!(loaded.worker.override_policy, OverridePolicy::All);
    let connector = &loaded.connectors[0];
    assert_eq!((connector.name.as_str(), connector.tasks_max), ("out", 1));
    assert_eq!(connector.topics, ["orders"]);
    assert_eq!(connector.own("mode"), Some("a"));
    let consumer = &connector.consumer;
    assert_eq!(consumer.group_id, "connect-out");
    assert_eq!(
        consumer.client.client_id.as_deref(),
        Some("connector-consumer-out")
    );
    assert_eq!(consumer.max_poll_records, 500);
    assert_eq!(consumer.start_position, StartPosition::Earliest);
    assert!(!consumer.start_position_is_set && consumer.prepare);
    assert_eq!(consumer.acknowledgement_mode, AcknowledgementMode::Explicit);
}

#[test]
fn the_stock_worker_file_of_kafka_is_taken_with_warnings() {
    let warnings = warnings(with(
        "key.converter=org.apache.kafka.connect.json.JsonConverter\n\
         value.converter=org.apache.kafka.connect.json.JsonConverter\n\
         key.converter.schemas.enable=true\nvalue.converter.schemas.enable=true\n\
         offset.storage.file.filename=/tmp/connect.offsets\noffset.flush.interval.ms=10000\n\
         plugin.path=/opt\ngroup.id=connect-cluster\n",
        "key.converter=org.apache.kafka.connect.converters.ByteArrayConverter\n",
    ));
    let expected = [
        "worker.properties:8: plugin.path=/opt: is ignored: no Java classes are loaded",
        "worker.properties:9: group.id=connect-cluster: is ignored: workers don't form a group here",
        "worker.properties:6: offset.storage.file.filename=/tmp/connect.offsets: is ignored",
    ];
    for start in expected {
        assert!(
            warnings.iter().any(|text| text.starts_with(start)),
            "{start}: {warnings:#?}"
        );
    }
    assert!(
        !warnings
            .iter()
            .any(|text| text.starts_with("c0.properties")),
        "{warnings:#?}"
    );
}

#[test]
fn a_key_that_is_nearly_known_is_an_error_with_the_right_name() {
    for (line, right) in [
        ("task.max=2", "tasks.max"),
        ("topic=orders", "topics"),
        ("conector.class=x", "connector.class"),
        ("moed=b", "mode"),
        ("share.auto.offset.rest=earliest", "share.auto.offset.reset"),
        (
            "consumer.override.max.poll.record=5",
            "consumer.override.max.poll.records",
        ),
        (
            "consumer.overide.max.poll.records=5",
            "consumer.override.max.poll.records",
        ),
        // A known key without its prefix, or with that of the other file.
        ("max.poll.records=5", "consumer.override.max.poll.records"),
        ("group.protocol=share", "consumer.override.group.protocol"),
        (
            "consumer.max.poll.records=5",
            "consumer.override.max.poll.records",
        ),
        ("group.id=g", "consumer.override.group.id"),
    ] {
        let errors = errors(with("", &format!("{line}\n")));
        let key = line.split('=').next().unwrap();
        assert_eq!(errors.len(), 1, "{errors:#?}");
        assert!(
            errors[0].starts_with("c0.properties:6: ") && errors[0].contains(key),
            "{}",
            errors[0]
        );
        assert!(
            errors[0].ends_with(&format!("did you mean {right}?")),
            "{}",
            errors[0]
        );
    }
    for (line, right) in [
        ("boostrap.servers=a:1", "bootstrap.servers"),
        ("offset_flush_interval_ms=1", "offset.flush.interval.ms"),
        (
            "consumer.override.max.poll.records=5",
            "consumer.max.poll.records",
        ),
        ("max.poll.records=5", "consumer.max.poll.records"),
        ("share.loss.file=x", "consumer.share.loss.file"),
    ] {
        let errors = errors(with(&format!("{line}\n"), ""));
        assert!(
            errors[0].ends_with(&format!("did you mean {right}?")),
            "{errors:#?}"
        );
    }
}

#[test]
fn a_foreign_key_is_a_warning_and_strictly_an_error() {
    let connector = format!("{CONNECTOR}{SHARE}my.own.setting=1\noffset.flush.interval.ms=1\n");
    let warnings = warnings(load_strictly(false, "topics=orders\n", &[&connector]));
    assert_eq!(
        warnings,
        [
            "worker.properties:2: topics=orders: has no effect here; it belongs in a connector's file",
            "c0.properties:6: my.own.setting: is not a known key; it has no effect",
            "c0.properties:7: offset.flush.interval.ms=1: has no effect here; it belongs in the worker's file",
        ]
    );
    assert_eq!(
        errors(load_strictly(true, "topics=orders\n", &[&connector])).len(),
        3
    );
}

#[test]
fn every_error_is_found_at_once() {
    let errors = errors(load_strictly(
        false,
        "task.shutdown.graceful.timeout.ms=soon\n",
        &[
            "name=a\nconnector.class=test\ntasks.max=0\ntarget=nowhere\nmode=c\nshare.loss.file=/dev/null\n",
            "name=a\nconnector.class=Nothing\ntopics=x,y,x,bad topic\n",
        ],
    ));
    let expected = [
        "worker.properties:2: task.shutdown.graceful.timeout.ms=soon: must be a whole number of at least 0",
        "c0.properties:3: tasks.max=0: must be a whole number from 1 to 1024",
        "c0.properties: topics: must name at least one topic",
        "c0.properties:4: target=nowhere: does not exist",
        "c0.properties:5: mode=c: must be one of a, b",
        "c0.properties:6: share.loss.file=/dev/null: is no regular file",
        "c0.properties: consumer.override.group.protocol: is not set",
        "c1.properties:2: connector.class=Nothing: is not a known sink; known here: test",
        "c1.properties:3: topics=x,y,x,bad topic: names x twice",
        "c1.properties:3: topics=x,y,x,bad topic: \"bad topic\" is not a legal topic name",
    ];
    for start in expected {
        assert!(
            errors.iter().any(|text| text.starts_with(start)),
            "{start}: {errors:#?}"
        );
    }
    let two = [CONNECTOR, CONNECTOR].map(|text| format!("{text}{SHARE}"));
    let result = load_strictly(false, "", &[&two[0], &two[1]]);
    assert_eq!(
        self::errors(result),
        [
            "c1.properties:1: name=out: is the name of c0.properties as well; give each connector its own name"
        ]
    );
}

#[test]
fn what_is_found_only_at_the_first_loss_is_found_at_the_start() {
    let connector = format!("{CONNECTOR}{SHARE}share.loss.file=/no/such/folder/lost\n");
    let errors = errors(load_strictly(false, "", &[&connector]));
    assert_eq!(errors.len(), 1, "{errors:#?}");
    let says = "share.loss.file=/no/such/folder/lost: the folder /no/such/folder does not exist; create it";
    assert!(errors[0].contains(says), "{errors:#?}");
}

#[test]
fn a_reference_that_can_not_be_resolved_is_one_error() {
    let connector = format!("{CONNECTOR}{SHARE}tasks.max=${{env:NO_SUCH}}\n");
    let errors = errors(load_strictly(false, "", &[&connector]));
    assert_eq!(errors.len(), 1, "{errors:#?}");
    assert!(
        errors[0].contains("refers to the provider env"),
        "{errors:#?}"
    );
}

#[cfg(feature = "tls")]
#[test]
fn what_kafka_connect_reads_otherwise_is_named() {
    let letters =
        "errors.deadletterqueue.topic.name=dead\nproducer.override.security.protocol=SSL\n";
    let connector = format!("{CONNECTOR}{SHARE}{letters}");
    let ours = connector.replace(
        "name=out\nconnector.class=TestSink",
        "name=b\nconnector.class=test",
    );
    let loaded = load_strictly(false, "security.protocol=SSL\n", &[&connector, &ours]).unwrap();
    let problems = unlike_connect(&loaded);
    let texts: Vec<_> = problems.iter().map(ToString::to_string).collect();
    assert_eq!(
        texts,
        [
            "c1.properties:2: connector.class=test: is no class of Kafka Connect's; write org.example.TestSinkConnector",
            "worker.properties:2: security.protocol=SSL: stands for consumer.security.protocol here; Kafka Connect inherits nothing there; set consumer.security.protocol, too",
        ]
    );
    assert!(unlike_connect(&load_strictly(false, "", &[&connector]).unwrap()).is_empty());
}

#[test]
fn share_mode_has_to_be_selected_by_one_of_two_keys() {
    for line in [
        "",
        "consumer.override.group.protocol=consumer\n",
        "consumer.override.group.protocol=Classic\n",
    ] {
        let errors = errors(load_strictly(false, "", &[&format!("{CONNECTOR}{line}")]));
        assert_eq!(errors.len(), 1, "{errors:#?}");
        for key in [
            "consumer.override.group.protocol=share",
            "consumer.group.protocol=share",
        ] {
            assert!(errors[0].contains(key), "{errors:#?}");
        }
    }
    for (worker, connector) in [
        ("consumer.group.protocol=share\n", ""),
        ("consumer.group.protocol=SHARE\n", ""),
        (
            "consumer.group.protocol=consumer\n",
            "consumer.override.group.protocol=share\n",
        ),
    ] {
        let result = load_strictly(false, worker, &[&format!("{CONNECTOR}{connector}")]);
        assert!(result.is_ok(), "{:?}", texts(&result.unwrap_err()));
    }
    let errors = errors(load_strictly(
        false,
        "",
        &[&format!(
            "{CONNECTOR}consumer.override.group.protocol=shared\n"
        )],
    ));
    assert!(
        errors
            .iter()
            .any(|text| text.contains("must be one of share, consumer, classic")),
        "{errors:#?}"
    );
}

#[test]
fn b_096_keys_that_share_consumers_refuse_are_named_with_their_replacement() {
    for (key, replacement) in [
        ("auto.offset.reset", "share.auto.offset.reset"),
        ("enable.auto.commit", "share.acknowledgement.mode"),
        ("auto.commit.interval.ms", "share.acknowledgement.mode"),
        ("group.instance.id", "no static members"),
        ("isolation.level", "share.isolation.level"),
        ("partition.assignment.strategy", "the broker assigns"),
        ("interceptor.classes", "aren't supported"),
        ("session.timeout.ms", "share.session.timeout.ms"),
        ("heartbeat.interval.ms", "share.heartbeat.interval.ms"),
        ("group.remote.assignor", "group.share.assignors"),
    ] {
        // Refused even when empty, as the Java client does.
        for value in ["1", ""] {
            for (worker, connector, shown) in [
                (
                    String::new(),
                    format!("consumer.override.{key}={value}\n"),
                    "consumer.override.",
                ),
                (
                    format!("consumer.{key}={value}\n"),
                    String::new(),
                    "consumer.",
                ),
            ] {
                let errors = errors(with(&worker, &connector));
                assert_eq!(errors.len(), 1, "{errors:#?}");
                assert!(errors[0].contains(&format!("{shown}{key}")), "{errors:#?}");
                assert!(errors[0].contains(replacement), "{errors:#?}");
            }
        }
    }
}

#[test]
fn a_sink_says_how_many_records_a_put_has_unless_a_file_does() {
    for (worker, connector, records) in [
        ("", "", 500),
        ("", "mode=b\n", 3000),
        ("", "mode=b\nconsumer.override.max.poll.records=7\n", 7),
        ("consumer.max.poll.records=8\n", "mode=b\n", 8),
    ] {
        assert_eq!(consumer(worker, connector).max_poll_records, records);
    }
}

#[test]
fn b_100_overrides_are_in_force_or_refused_by_a_policy_that_is_named() {
    let consumer = consumer(
        "",
        "consumer.override.max.poll.records=7\nconsumer.override.client.id=me\n",
    );
    assert_eq!(consumer.max_poll_records, 7);
    assert_eq!(consumer.client.client_id.as_deref(), Some("me"));
    assert!(
        consumer
            .in_force
            .contains(&"max.poll.records=7 (c0.properties)".to_owned()),
        "{:?}",
        consumer.in_force
    );

    let key = "connector.client.config.override.policy";
    for policy in ["None", "Principal", "Allowlist"] {
        let worker = format!("consumer.group.protocol=share\n{key}={policy}\n");
        let connector = format!("{CONNECTOR}consumer.override.max.poll.records=7\n");
        let errors = errors(load_strictly(false, &worker, &[&connector]));
        assert_eq!(errors.len(), 1, "{errors:#?}");
        assert!(
            errors[0].contains(&format!("is refused by {key}={policy}")),
            "{errors:#?}"
        );
        assert!(
            errors[0].contains("consumer.max.poll.records"),
            "{errors:#?}"
        );
    }
    let allowed = format!(
        "consumer.group.protocol=share\n{key}=Allowlist\n{}=max.poll.records, fetch.min.bytes\n",
        "connector.client.config.override.allowlist"
    );
    let connector = format!("{CONNECTOR}consumer.override.max.poll.records=7\n");
    assert!(load_strictly(false, &allowed, &[&connector]).is_ok());
    // A share key under its plain name isn't an override.
    let worker = format!("consumer.group.protocol=share\n{key}=None\n");
    let connector = format!("{CONNECTOR}share.group.id=g\n");
    assert!(load_strictly(false, &worker, &[&connector]).is_ok());
    assert!(
        errors(with(&format!("{key}=Some\n"), ""))[0]
            .contains("must be one of All, Principal, Allowlist, None")
    );
}

#[test]
fn the_connectors_settings_win_over_the_workers() {
    let consumer = consumer(
        "consumer.max.poll.records=1\nconsumer.fetch.max.wait.ms=77\nconsumer.share.ack.linger.ms=3\n",
        "consumer.override.max.poll.records=2\nshare.ack.linger.ms=4\n",
    );
    assert_eq!(consumer.max_poll_records, 2);
    assert_eq!(consumer.fetch_max_wait.unwrap().as_millis(), 77);
    assert_eq!(consumer.acknowledge_linger.as_millis(), 4);
}

#[test]
fn the_group_id_is_resolved_from_the_connector_to_the_worker() {
    let id = |worker: &str, connector: &str| consumer(worker, connector).group_id;
    assert_eq!(id("", ""), "connect-out");
    assert_eq!(id("consumer.group.id=w\n", ""), "w");
    assert_eq!(id("consumer.share.group.id=w\n", ""), "w");
    assert_eq!(
        id("consumer.group.id=w\n", "consumer.override.group.id=c\n"),
        "c"
    );
    assert_eq!(id("consumer.group.id=w\n", "share.group.id=c\n"), "c");
    assert_eq!(id("", "consumer.override.share.group.id=c\n"), "c");
    assert_eq!(
        id("", "share.group.id=c\nconsumer.override.group.id=c\n"),
        "c"
    );
    for (worker, connector) in [
        ("consumer.group.id=a\nconsumer.share.group.id=b\n", ""),
        ("", "share.group.id=a\nconsumer.override.group.id=b\n"),
        ("", "share.group.id=a\nconsumer.override.share.group.id=b\n"),
    ] {
        let errors = errors(with(worker, connector));
        assert!(errors[0].contains("contradicts"), "{errors:#?}");
    }
    let second = format!("{CONNECTOR}{SHARE}").replace("name=out", "name=other");
    let first = format!("{CONNECTOR}{SHARE}");
    let warnings = warnings(load_strictly(
        false,
        "consumer.group.id=w\n",
        &[&first, &second],
    ));
    assert!(
        warnings
            .iter()
            .any(|text| text.contains("shares the group w with the connector out")),
        "{warnings:#?}"
    );
}

#[test]
fn a_share_group_does_not_begin_at_itself() {
    let errors = errors(with("", "share.group.id=g\nshare.start.from.group=g\n"));
    assert_eq!(errors.len(), 1, "{errors:#?}");
    assert!(errors[0].contains("g can't be both groups"), "{errors:#?}");
    assert!(warnings(with("", "share.group.id=g\nshare.start.from.group=h\n")).is_empty());
}

#[test]
fn a_misspelt_setting_of_a_converter_is_an_error_and_a_foreign_one_a_warning() {
    let converter = "value.converter=json\nvalue.converter.";
    let errors = errors(with("", &format!("{converter}schemas.enabel=false\n")));
    assert_eq!(errors.len(), 1, "{errors:#?}");
    let meant = "did you mean value.converter.schemas.enable?";
    assert!(errors[0].contains(meant), "{errors:#?}");
    let warnings = warnings(with("", &format!("{converter}encoding=klingon\n")));
    assert!(warnings[0].contains("is not a setting"), "{warnings:#?}");
    for known in [
        "schemas.enable=false",
        "schemas.cache.size=9",
        "converter.type=value",
    ] {
        let warnings = self::warnings(with("", &format!("{converter}{known}\n")));
        assert!(warnings.is_empty(), "{warnings:#?}");
    }
}

#[test]
fn what_would_write_other_records_than_meant_is_refused() {
    let errors = errors(with("", "transforms=a\n"));
    assert_eq!(errors.len(), 1, "{errors:#?}");
    let says = "transformations are not supported yet";
    assert!(
        errors[0].contains("transforms=a") && errors[0].contains(says),
        "{errors:#?}"
    );
}

#[test]
fn a_sink_that_puts_one_batch_at_a_time_says_so_where_more_are_wanted() {
    for (worker, connector) in [
        ("", "share.concurrency=2\n"),
        ("consumer.share.concurrency=2\n", ""),
    ] {
        let loaded = with(worker, connector).unwrap();
        assert_eq!(loaded.connectors[0].delivery.concurrency, 1);
        let warnings = texts(&loaded.warnings);
        assert_eq!(warnings.len(), 1, "{warnings:#?}");
        assert!(
            warnings[0].contains("share.concurrency=2: has no effect")
                && warnings[0].contains("raise tasks.max"),
            "{warnings:#?}"
        );
    }
    assert!(errors(with("", "share.concurrency=1001\n"))[0].contains("from 1 to 1000"));
}

#[test]
fn what_has_no_effect_yet_says_so_and_is_checked() {
    let warnings = warnings(with("rest.port=8083\n", ""));
    assert_eq!(warnings.len(), 1, "{warnings:#?}");
    assert!(warnings[0].contains("has no effect yet"), "{warnings:#?}");
    assert!(self::warnings(with("", "errors.tolerance=none\nshare.concurrency=1\n")).is_empty());
    assert!(errors(with("", "errors.tolerance=some\n"))[0].contains("must be one of none, all"));
    assert!(
        errors(with("", "share.auto.offset.reset=newest\n"))[0]
            .contains("must be earliest, latest, broker")
    );
    assert!(
        errors(with("consumer.bootstrap.servers=nowhere\n", ""))[0]
            .contains("is not a list of servers")
    );
}

#[test]
fn files_are_read_as_properties_or_json() {
    let folder = std::env::temp_dir().join(format!("sink-config-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let worker = write(
        "worker.json",
        r#"{"bootstrap.servers":"a:1","consumer.group.protocol":"share"}"#,
    );
    let flat = write(
        "flat.json",
        r#"{"name":"f","connector.class":"test","topics":"t","target":"x","tasks.max":3}"#,
    );
    let nested = write(
        "nested.json",
        r#"{"name":"n","config":{"connector.class":"test","topics":"t","target":"x"}}"#,
    );
    let properties = write("p.properties", CONNECTOR);
    let registry = Registry::new().with(TestSink);
    let loaded = load(&worker, &[flat, nested, properties], false, &registry).unwrap();
    let names: Vec<_> = loaded
        .connectors
        .iter()
        .map(|c| (c.name.as_str(), c.tasks_max))
        .collect();
    assert_eq!(names, [("f", 3), ("n", 1), ("out", 1)]);
    let missing = folder.join("missing.properties");
    let problems = load(&worker, std::slice::from_ref(&missing), false, &registry).unwrap_err();
    std::fs::remove_dir_all(&folder).unwrap();
    assert!(
        problems[0]
            .to_string()
            .starts_with(&format!("{}: can't be read", missing.display())),
        "{}",
        problems[0]
    );
}

#[test]
fn a_class_that_is_nearly_a_sink_or_its_source_gets_a_hint() {
    for (class, says) in [
        ("TestSnk", "did you mean TestSink?"),
        (
            "org.example.TestSinkConector",
            "did you mean TestSinkConnector?",
        ),
        (
            "TestSource",
            "is a source, and only sinks run here; the sink of that name is TestSink",
        ),
        (
            "org.example.TestSourceConnector",
            "the sink of that name is TestSinkConnector",
        ),
        (
            "io.example.OtherSink",
            "is not a known sink; known here: test",
        ),
    ] {
        let connector = format!("name=out\nconnector.class={class}\ntopics=orders\n{SHARE}");
        let errors = errors(load_strictly(false, "", &[&connector]));
        assert!(errors.iter().any(|text| text.contains(says)), "{errors:#?}");
    }
}

#[test]
fn files_in_the_wrong_order_are_the_one_thing_that_is_said() {
    let load = |worker, connector| {
        let registry = Registry::new().with(TestSink);
        let (worker, connector) = (read("a", worker), read("b", connector));
        errors(load_properties(worker, vec![connector], false, &registry))
    };
    assert_eq!(
        load(CONNECTOR, WORKER),
        [
            "a: is a connector's file in the place of the worker's; the worker's file comes first, then the connectors'",
            "b: is a worker's file in the place of a connector's; the worker's file comes first, then the connectors'",
        ]
    );
    assert_eq!(load(WORKER, WORKER).len(), 1);
}

#[test]
fn a_rest_listener_that_is_asked_for_is_warned_about() {
    let warnings = warnings(with("rest.port=8083\n", ""));
    assert!(
        warnings[0].contains("there is no REST listener yet"),
        "{warnings:?}"
    );
    assert!(self::warnings(with("listeners=http://:8083\n", "")).is_empty());
    let secret = errors(with("listeners=http://me:s3cret@h:1\n", ""));
    assert!(
        secret[0].contains("listeners: must be http://host:port"),
        "{secret:?}"
    );
}
