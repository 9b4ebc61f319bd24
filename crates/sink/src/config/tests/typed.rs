//! What is read from the files: defaults, values, and what contradicts what.

use sharegroup_consumer::client::ClientConfig;
use sharegroup_consumer::producer::ProducerConfig;

use super::super::keys::{CONNECTOR as CONNECTOR_KEYS, CONSUMER, Effect, PRODUCER, find};
use super::*;

fn connector(worker: &str, connector: &str) -> ConnectorConfig {
    match with(worker, connector) {
        Ok(mut loaded) => loaded.connectors.remove(0),
        Err(problems) => panic!("{:#?}", texts(&problems)),
    }
}

#[test]
fn what_is_not_set_has_the_documented_default() {
    let connector = connector("", "");
    let millis = |duration: std::time::Duration| duration.as_millis();
    let delivery = &connector.delivery;
    assert_eq!(millis(delivery.hold_max), 300_000);
    assert_eq!(delivery.breaker_failures, 5);
    assert_eq!(millis(delivery.breaker_probe), 1000);
    assert_eq!(millis(delivery.put_stall), 600_000);
    assert_eq!(delivery.concurrency, 1);
    assert_eq!(delivery.dead_letter_writer, DeadLetterWriter::Worker);
    assert_eq!(delivery.dead_letter_net_topic, None);
    let errors = &connector.errors;
    assert_eq!(errors.tolerance, ErrorTolerance::None);
    assert_eq!(errors.retry_timeout.map(millis), Some(0));
    assert_eq!(millis(errors.retry_delay_max), 60_000);
    assert_eq!((errors.log, errors.log_records), (false, false));
    assert_eq!(errors.dead_letters, None);
    let restart = connector.restart;
    assert_eq!(restart.restarts_max, 0);
    assert_eq!(
        (millis(restart.backoff), millis(restart.backoff_max)),
        (1000, 60_000)
    );
    let consumer = &connector.consumer;
    assert_eq!(millis(consumer.acknowledge_linger), 10);
    assert_eq!(consumer.bytes_held_max, 32 << 20);
    assert_eq!(consumer.start_from_group, None);
    let converters = &connector.converters;
    assert!(converters.key.class.ends_with("ByteArrayConverter"));
    assert!(converters.header.class.ends_with("SimpleHeaderConverter"));
    let id = connector.producer.client.client_id.as_deref();
    assert_eq!(id, Some("connector-dlq-producer-out"));
}

#[test]
fn what_is_set_is_read_as_its_type() {
    let connector = connector(
        "consumer.share.hold.max.ms=7\nproducer.linger.ms=1\nproducer.compression.type=zstd\n",
        "share.hold.max.ms=8\nshare.breaker.failures=9\nshare.breaker.probe.ms=10\nshare.put.stall.ms=11\n\
         share.dead.letter=Broker\nshare.dead.letter.net.topic=net\nshare.credit.bytes=12\n\
         errors.tolerance=ALL\nerrors.retry.timeout=-1\nerrors.retry.delay.max.ms=13\n\
         errors.log.enable=true\nerrors.log.include.messages=true\nerrors.deadletterqueue.topic.name= dead \n\
         errors.deadletterqueue.topic.replication.factor=1\nerrors.deadletterqueue.topic.partitions=10\nerrors.deadletterqueue.context.headers.enable=true\n\
         task.restart.max=3\ntask.restart.backoff.ms=4\ntask.restart.max.ms=5\n\
         producer.override.linger.ms=2\n",
    );
    let delivery = &connector.delivery;
    assert_eq!(delivery.hold_max.as_millis(), 8);
    assert_eq!(delivery.breaker_failures, 9);
    assert_eq!(delivery.breaker_probe.as_millis(), 10);
    assert_eq!(delivery.put_stall.as_millis(), 11);
    assert_eq!(delivery.dead_letter_writer, DeadLetterWriter::Broker);
    assert_eq!(delivery.dead_letter_net_topic.as_deref(), Some("net"));
    assert_eq!(connector.consumer.bytes_held_max, 12);
    let errors = &connector.errors;
    assert_eq!(errors.tolerance, ErrorTolerance::All);
    assert_eq!(errors.retry_timeout, None);
    assert_eq!(errors.retry_delay_max.as_millis(), 13);
    assert!(errors.log && errors.log_records);
    let letters = errors.dead_letters.as_ref().unwrap();
    assert_eq!(
        (
            letters.topic.as_str(),
            letters.replication_factor,
            letters.partitions
        ),
        ("dead", 1, 10)
    );
    assert!(letters.context_headers);
    assert_eq!(connector.restart.restarts_max, 3);
    assert_eq!(connector.restart.backoff_max.as_millis(), 5);
    assert_eq!(connector.producer.linger.as_millis(), 2);
    let compression = format!("{:?}", connector.producer.compression);
    assert_eq!(compression, "Zstd");
}

#[test]
fn b_101_contradictions_are_told_before_anything_starts() {
    let headers = "errors.deadletterqueue.context.headers.enable=true\n";
    let topic = "errors.deadletterqueue.topic.name=dead\n";
    for (lines, says) in [
        (
            headers.to_owned(),
            "has no effect without a dead-letter topic",
        ),
        (
            topic.to_owned(),
            "a record that can't be written fails the task: errors.tolerance is none",
        ),
        (
            format!(
                "errors.tolerance=all\n{topic}share.dead.letter=broker\nshare.dead.letter.net.topic=net\n"
            ),
            "leaves errors.deadletterqueue.topic.name without letters",
        ),
    ] {
        let warnings = warnings(with("", &lines));
        assert!(
            warnings.iter().any(|text| text.contains(says)),
            "{says}: {warnings:#?}"
        );
    }
    let net = "errors.tolerance=all\nshare.dead.letter=broker\nshare.dead.letter.net.topic=net\n";
    assert_eq!(warnings(with("", net)), [""; 0], "the group keeps them");
    for (lines, says) in [
        (
            "errors.deadletterqueue.topic.name=orders\n",
            "is among the topics that are read",
        ),
        (
            "errors.deadletterqueue.topic.name=dead letters\n",
            "is not a legal topic name",
        ),
        (
            "share.dead.letter.net.topic=orders\n",
            "is among the topics that are read",
        ),
        (
            "share.dead.letter.net.topic=dead\nerrors.deadletterqueue.topic.name=dead\n",
            "is errors.deadletterqueue.topic.name as well",
        ),
        (
            "share.dead.letter=broker\n",
            "needs share.dead.letter.net.topic",
        ),
        (
            "task.restart.max.ms=10\n",
            "task.restart.backoff.ms is longer than task.restart.max.ms",
        ),
        ("topics.regex=o.*\n", "can't be set beside topics"),
        (
            "topics.regex=(o\n",
            "is not a pattern that can be used here",
        ),
    ] {
        let errors = errors(with("", lines));
        assert!(
            errors.iter().any(|text| text.contains(says)),
            "{says}: {errors:#?}"
        );
    }
    // Said once it is so.
    let acts = find(&[CONNECTOR_KEYS], "errors.tolerance").unwrap().effect == Effect::Acts;
    let warnings = warnings(with("", "errors.tolerance=all\n"));
    let is_told = |text: &String| text.contains("are rejected and not kept");
    assert_eq!(warnings.iter().any(is_told), acts, "{warnings:#?}");
    // A pattern is another way to read the dead letters.
    let matching = CONNECTOR.replace("topics=orders", "topics.regex=o.*");
    let text = format!("{matching}{SHARE}errors.deadletterqueue.topic.name=other\n");
    let errors = errors(load_strictly(false, "", &[&text]));
    assert!(
        errors
            .iter()
            .any(|text| text.contains("is among the topics that are read")),
        "{errors:#?}"
    );
}

#[test]
fn b_099_a_pattern_never_matches_internal_topics() {
    let topics = Topics::Matching(Pattern::new(".*").unwrap());
    assert!(topics.read("t-2") && topics.read("__mine"));
    for internal in ["__consumer_offsets", "__share_group_state"] {
        assert!(!topics.read(internal), "{internal}");
    }
    let topics = Topics::Matching(Pattern::new("t-.*").unwrap());
    assert!(topics.read("t-2") && !topics.read("not-t-2"));
}

#[test]
fn a_connector_without_a_converter_has_the_workers_with_the_workers_settings() {
    let json = "org.apache.kafka.connect.json.JsonConverter";
    let worker = format!("value.converter={json}\nvalue.converter.schemas.enable=false\n");
    let inherited = connector(&worker, "").converters.value;
    assert_eq!(inherited.class, json);
    assert_eq!(inherited.settings["schemas.enable"], "false");
    let problem = inherited.problem("is not here").to_string();
    assert!(
        problem.starts_with("worker.properties:2: value.converter="),
        "{problem}"
    );

    // Its own settings count with a class of its own only, as in Kafka Connect.
    let own = "value.converter.schemas.enable=true\n";
    let loaded = with(&worker, own).unwrap();
    let value = &loaded.connectors[0].converters.value;
    assert_eq!(value.settings["schemas.enable"], "false");
    let warnings = texts(&loaded.warnings);
    assert!(
        warnings
            .iter()
            .any(|text| text.contains("without value.converter in this file")),
        "{warnings:#?}"
    );
    let value = connector(&worker, &format!("value.converter=json\n{own}")).converters;
    assert_eq!(value.value.class, "json");
    assert_eq!(value.value.settings.len(), 1);
    assert_eq!(value.value.settings["schemas.enable"], "true");
    let debug = format!("{value:?}");
    assert!(
        debug.contains("schemas.enable") && !debug.contains("true"),
        "{debug}"
    );
}

#[test]
fn a_converter_that_can_not_be_had_is_an_error_at_its_place() {
    for (line, says) in [
        ("value.converter=x.Y", "is not a known converter"),
        ("key.converter=simple", "is not a known converter"),
        (
            "value.converter=io.confluent.connect.avro.AvroConverter",
            "is not supported yet",
        ),
        (
            "value.converter=json\nvalue.converter.schemas.enable=perhaps",
            "must be true or false",
        ),
        (
            "header.converter=string\nheader.converter.converter.encoding=EBCDIC",
            "must be",
        ),
    ] {
        let errors = errors(with("", &format!("{line}\n")));
        assert_eq!(errors.len(), 1, "{errors:#?}");
        let last = line.lines().last().unwrap();
        assert!(
            errors[0].contains(last) && errors[0].contains(says),
            "{errors:#?}"
        );
    }
}

#[test]
fn the_producer_of_dead_letters_writes_to_the_workers_cluster() {
    let other = "consumer.override.bootstrap.servers=elsewhere:1\n";
    let servers = |connector: &ConnectorConfig| {
        let servers = &connector.producer.client.bootstrap_servers;
        servers.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(servers(&connector("", other)), ["localhost:9092"]);
    let letters = "producer.override.bootstrap.servers=there:2\n";
    assert_eq!(servers(&connector("", letters)), ["there:2"]);
    for (line, says) in [
        ("producer.override.acks=1", "must be one of all, -1"),
        (
            "producer.override.transactional.id=x",
            "without transactions",
        ),
        (
            "producer.linger.ms=1",
            "did you mean producer.override.linger.ms?",
        ),
        (
            "producer.override.lingerms=1",
            "did you mean producer.override.linger.ms?",
        ),
    ] {
        let errors = errors(with("", &format!("{line}\n")));
        assert_eq!(errors.len(), 1, "{errors:#?}");
        assert!(errors[0].contains(says), "{errors:#?}");
    }
    let policy = "connector.client.config.override.policy=None\nconsumer.group.protocol=share\n";
    let line = format!("{CONNECTOR}producer.override.linger.ms=1\n");
    let errors = errors(load_strictly(false, policy, &[&line]));
    assert!(errors[0].contains("producer.linger.ms"), "{errors:#?}");
}

#[test]
fn documented_defaults_of_clients_are_those_of_the_clients() {
    let client = ClientConfig::new("a:1").unwrap();
    for key in ClientConfig::keys() {
        let known = find(&[CONSUMER, super::super::security::SECURITY], key);
        let known = known.unwrap_or_else(|| panic!("{key} is not known"));
        assert_eq!(known.effect, Effect::Acts, "{key}");
        if let Some(default) = known.def.default.filter(|default| !default.is_empty()) {
            let mut set = client.clone();
            assert_eq!(set.set(key, default), Ok(true), "{key}");
            assert_eq!(format!("{set:?}"), format!("{client:?}"), "{key}");
        }
    }
    let producer = ProducerConfig::new(client);
    for key in ProducerConfig::keys() {
        let default = find(&[PRODUCER], key).unwrap().def.default.unwrap();
        let mut set = producer.clone();
        assert_eq!(set.set(key, default), Ok(true), "{key}");
        assert_eq!(format!("{set:?}"), format!("{producer:?}"), "{key}");
    }
}

#[test]
fn what_is_wrong_with_a_value_is_said_once_and_of_every_line() {
    let load = |worker: &str, connector: &str| {
        let mut problems = Vec::new();
        let mut read = |file: &str, text: &str| {
            let read = Properties::parse(Path::new(file), text, &mut problems);
            read.map_err(|problem| problem.to_string())
        };
        let (worker, connector) = (read("w", worker).unwrap(), read("c", connector));
        let said: Vec<_> = match connector {
            Ok(connector) => {
                let registry = Registry::new().with(TestSink);
                errors(load_properties(worker, vec![connector], false, &registry))
            }
            Err(last) => texts(&problems).into_iter().chain([last]).collect(),
        };
        said.join("\n")
    };
    let connector = format!("{CONNECTOR}{SHARE}");
    for (worker, more, said) in [
        (
            "bootstrap.servers=\n",
            "",
            "w:1: bootstrap.servers=: must not be empty",
        ),
        (
            "bootstrap.servers=a:b\n",
            "",
            "w:1: bootstrap.servers=a:b: is not a list of servers: `a:b` has the port `b`, which is not a number from 1 to 65535; write host:port, several separated by commas",
        ),
        (WORKER, "target=\n", "c:6: target=: must not be empty"),
        (
            WORKER,
            "connector.class=\n",
            "c:6: connector.class=: must not be empty",
        ),
        (
            WORKER,
            "x=\\u1\ny=\\u2\n",
            "c:6: has \\u1, which is not \\u and four hex digits\nc:7: has \\u2, which is not \\u and four hex digits",
        ),
    ] {
        assert_eq!(load(worker, &format!("{connector}{more}")), said);
    }
    assert_eq!(
        load(WORKER, r#"{"a": [1], "b": {}, "c": 1}"#),
        r#"c: has a list or an object as the value of "a", "b""#
    );
}

#[test]
fn every_file_is_looked_at_though_one_can_not_be_read() {
    let folder = std::env::temp_dir().join(format!("sink-unreadable-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("c.properties");
    std::fs::write(&file, format!("{CONNECTOR}tasks.max=x\n")).unwrap();
    let (missing, gone) = (folder.join("missing"), folder.join("gone"));
    let registry = Registry::new().with(TestSink);
    let problems = load(&missing, &[file, gone], false, &registry);
    std::fs::remove_dir_all(&folder).unwrap();
    let errors = errors(problems);
    assert_eq!(errors.len(), 3, "{errors:#?}");
    for says in [
        "missing: can't be read",
        "gone: can't be read: No such file",
        "c.properties:5: tasks.max=x",
    ] {
        assert!(errors.iter().any(|text| text.contains(says)), "{errors:#?}");
    }
}

#[test]
fn a_folder_stands_for_the_connector_files_in_it() {
    let folder = std::env::temp_dir().join(format!("sink-folder-{}", std::process::id()));
    let sinks = folder.join("sinks");
    std::fs::create_dir_all(sinks.join("old.properties")).unwrap();
    let worker = folder.join("worker.properties");
    std::fs::write(&worker, WORKER).unwrap();
    let registry = Registry::new().with(TestSink);
    let load = || load(&worker, std::slice::from_ref(&sinks), false, &registry);
    let empty = errors(load());
    let sink =
        |name: &str| format!("{CONNECTOR}{SHARE}").replace("name=out", &format!("name={name}"));
    for (file, text) in [
        ("b.properties", sink("b")),
        ("a.json", r#"{"name": "a", "connector.class": "test", "topics": "t", "target": "x", "consumer.override.group.protocol": "share"}"#.to_owned()),
        ("c.properties.swp", "no connector".to_owned()),
    ] {
        std::fs::write(sinks.join(file), text).unwrap();
    }
    let loaded = load();
    std::fs::remove_dir_all(&folder).unwrap();
    assert_eq!(empty.len(), 1, "{empty:?}");
    assert!(
        empty[0].contains("sinks: holds no *.properties and no *.json file"),
        "{empty:?}"
    );
    let names: Vec<_> = loaded
        .unwrap()
        .connectors
        .into_iter()
        .map(|c| c.name)
        .collect();
    assert_eq!(names, ["a", "b"]);
}

#[test]
fn keys_that_changed_are_told_by_name_and_not_by_place() {
    let of = |text: &str| {
        load_strictly(false, "", &[text])
            .unwrap()
            .connectors
            .remove(0)
    };
    let before = of(&format!(
        "{CONNECTOR}{SHARE}tasks.max=1\nshare.credit.records=9\n"
    ));
    let same = of(&format!(
        "\n# moved\ntasks.max=1\nshare.credit.records=9\n{CONNECTOR}{SHARE}"
    ));
    assert!(before.changed_keys(&same).is_empty());
    let after = of(&format!(
        "{CONNECTOR}{SHARE}tasks.max=2\nshare.hold.max.ms=1\n"
    ));
    let changed = ["share.credit.records", "share.hold.max.ms", "tasks.max"];
    assert_eq!(before.changed_keys(&after), changed);
}
