//! Values from providers, and secrets: in force, and never shown.

use super::*;

/// A worker with providers, and a file of secrets for them.
fn secrets(name: &str) -> (PathBuf, String) {
    let file = std::env::temp_dir().join(format!("sink-secrets-{name}-{}", std::process::id()));
    let secrets =
        "servers=me:s3cret-1@host:1\ntarget=s3cret-2\ngroup=s3cret-3\ntasks=2\nword=s3cret-4\n";
    std::fs::write(&file, secrets).unwrap();
    let worker = "config.providers=file\nconfig.providers.file.class=FileConfigProvider\n";
    (file, worker.to_owned())
}

#[test]
fn values_of_providers_are_in_force_in_both_files() {
    let (file, worker) = secrets("used");
    let at = file.display();
    let worker = format!("{worker}consumer.client.rack=r-${{file:{at}:tasks}}\n");
    let text = format!("{CONNECTOR}{SHARE}tasks.max=${{file:{at}:tasks}}\n")
        .replace("target=x", &format!("target=to ${{file:{at}:target}}"));
    let loaded = load_strictly(false, &worker, &[&text]);
    std::fs::remove_file(&file).unwrap();
    let loaded = loaded.unwrap();
    let connector = &loaded.connectors[0];
    assert_eq!(connector.own("target"), Some("to s3cret-2"));
    assert_eq!(connector.tasks_max, 2);
    assert_eq!(connector.consumer.client_rack.as_deref(), Some("r-2"));
}

#[test]
fn values_of_providers_are_never_shown() {
    let (file, worker) = secrets("hidden");
    let at = file.display();
    let of = |key: &str| format!("${{file:{at}:{key}}}");
    let right = format!("{CONNECTOR}{SHARE}share.group.id={}\n", of("group"))
        .replace("target=x", &format!("target={}", of("target")))
        .replace("orders", &of("word"));
    let rack = format!("consumer.client.rack={}\n", of("word"));
    let loaded = load_strictly(false, &format!("{worker}{rack}"), &[&right]);
    let loaded = loaded.unwrap();
    let consumer = &loaded.connectors[0].consumer;
    assert_eq!(consumer.group_id, "s3cret-3");
    let shown = format!("{loaded:?} {:?}", consumer.in_force);
    assert!(!shown.contains("s3cret"), "{shown}");
    assert!(shown.contains(&of("group")), "{shown}");

    // Each wrong in its own way, and quoted by what says so.
    let wrong = [
        format!("connector.class={}\n", of("word")),
        format!("topics={0},{0}\n", of("word")),
        format!("name={}\u{7}\n", of("word")),
        format!("tasks.max={}\n", of("word")),
        format!(
            "share.group.id={}\nconsumer.override.group.id=g\n",
            of("word")
        ),
        format!("share.auto.offset.reset={}\n", of("word")),
        format!("share.loss.file={}/\n", of("word")),
        format!("errors.deadletterqueue.topic.name={} x\n", of("word")),
        format!("consumer.override.bootstrap.servers={}\n", of("servers")),
        format!("consumer.override.security.protocol={}\n", of("word")),
        format!("producer.override.compression.type={}\n", of("word")),
        format!("{}=1\n", "unknown.key").replace('1', &of("word")),
        format!("topics.regex=({}\n", of("word")),
        format!("value.converter={}\n", of("word")),
    ];
    for line in wrong {
        let key = line.split('=').next().unwrap();
        let kept: String = format!("{CONNECTOR}{SHARE}")
            .lines()
            .filter(|kept| kept.split('=').next() != Some(key))
            .map(|kept| format!("{kept}\n"))
            .collect();
        let all = match load_strictly(true, &worker, &[&format!("{kept}{line}")]) {
            Ok(loaded) => format!("{loaded:?} {:?}", texts(&loaded.warnings)),
            Err(problems) => format!("{problems:?} {:?}", texts(&problems)),
        };
        assert!(!all.contains("s3cret"), "{line}: {all}");
    }
    std::fs::remove_file(&file).unwrap();
}

#[test]
fn a_reference_that_can_not_be_resolved_is_an_error_with_its_place() {
    let connector = CONNECTOR.replace("target=x", "target=${env:HOME}");
    let connector = format!("{connector}{SHARE}");
    let found = errors(load_strictly(false, "", &[&connector]));
    assert_eq!(
        found,
        [
            "c0.properties:4: target=${env:HOME}: refers to the provider env, which config.providers in the worker's file doesn't name; \
             add config.providers=env and config.providers.env.class=org.apache.kafka.common.config.provider.EnvVarConfigProvider to the worker's file"
        ]
    );
    let worker = "config.providers=env\nconfig.providers.env.class=EnvVarConfigProvider\n\
                  config.providers.env.param.allowlist.pattern=CARGO_.*\n";
    let found = errors(load_strictly(false, worker, &[&connector]));
    assert_eq!(found.len(), 1, "{found:#?}");
    assert!(
        found[0].contains("HOME does not match the provider's allowlist.pattern"),
        "{found:#?}"
    );
}

#[test]
fn passwords_in_addresses_are_never_shown() {
    let worker = read("w", "bootstrap.servers=me:s3cret@localhost:9092\n");
    let connector = read("c", &format!("{CONNECTOR}{SHARE}"));
    let registry = Registry::new().with(TestSink);
    let errors = errors(load_properties(worker, vec![connector], false, &registry)).join("\n");
    assert!(
        errors.contains("[hidden]@localhost") && !errors.contains("s3cret"),
        "{errors}"
    );
}

#[test]
fn a_sinks_own_password_is_hidden_whatever_its_name_is() {
    let loaded = with("", "opener=s3same\n").unwrap();
    let connector = &loaded.connectors[0];
    assert_eq!(connector.own("opener"), Some("s3same"));
    let problem = connector.problem("opener", "is wrong").to_string();
    assert!(problem.contains("opener=[hidden]"), "{problem}");
}
