//! TLS and SASL keys: who gets which, what is refused, and that no secret shows.

use super::*;

/// A password that must not show.
const HUSH: &str = "sasl.jaas.config=ScramLoginModule required username=\"u\" password=\"hush\";\n";

#[cfg(feature = "tls")]
mod with_tls {
    use sharegroup_consumer::client::ClientConfig;

    use super::*;
    use crate::config::keys::{all, names};

    fn protocol(client: &ClientConfig) -> String {
        client.security.protocol.to_string()
    }

    fn mechanism(client: &ClientConfig) -> Option<&str> {
        client.security.sasl.mechanism.as_deref()
    }

    fn clients(worker: &str, connector: &str) -> (ClientConfig, ClientConfig) {
        let consumer = consumer(worker, connector);
        (consumer.client, consumer.admin)
    }

    fn scram(prefix: &str) -> String {
        format!(
            "{prefix}security.protocol=SASL_SSL\n{prefix}sasl.mechanism=SCRAM-SHA-512\n{prefix}{HUSH}"
        )
    }

    #[test]
    fn the_workers_own_keys_are_for_the_admin_client_and_the_consumers() {
        let (consumer, admin) = clients(&scram(""), "");
        for client in [&consumer, &admin] {
            assert_eq!(protocol(client), "SASL_SSL");
            assert_eq!(mechanism(client), Some("SCRAM-SHA-512"));
        }
        let (consumer, admin) = clients(&scram("consumer."), "");
        assert_eq!((protocol(&consumer), protocol(&admin)).0, "SASL_SSL");
        assert_eq!(protocol(&admin), "SASL_SSL", "it has no keys of its own");
    }

    #[test]
    fn keys_that_the_protocol_makes_no_use_of_are_warned_about_once_each() {
        let none = format!("ssl.truststore.password=hush\nsasl.mechanism=PLAIN\n{HUSH}");
        let said = warnings(with(&none, ""));
        assert_eq!(said.len(), 2, "{said:#?}");
        assert!(
            said[0].contains("ssl.truststore.password=[hidden]: has no effect: security.protocol is PLAINTEXT, without TLS")
        );
        assert!(said[1].contains("sasl.mechanism=PLAIN: has no effect"));
        assert!(said[1].contains("set security.protocol to SASL_SSL or SASL_PLAINTEXT"));
        let tls = warnings(with("security.protocol=SSL\nsasl.mechanism=PLAIN\n", ""));
        assert_eq!(tls.len(), 1, "{tls:#?}");
        assert_eq!(warnings(with(&scram(""), "")), [""; 0]);
    }

    #[test]
    fn a_clients_own_keys_win() {
        let (consumer, admin) = clients(
            &format!("{}consumer.sasl.mechanism=PLAIN\n", scram(""))
                .replace("consumer.sasl", "consumer.sasl.jaas.config=PlainLoginModule required username=\"v\" password=\"hush\";\nconsumer.sasl"),
            "",
        );
        assert_eq!(mechanism(&consumer), Some("PLAIN"));
        assert_eq!(mechanism(&admin), Some("SCRAM-SHA-512"));
        let (consumer, admin) = clients(
            "admin.security.protocol=PLAINTEXT\n",
            &format!(
                "{}admin.override.security.protocol=SSL\n",
                scram("consumer.override.")
            ),
        );
        assert_eq!(protocol(&consumer), "SASL_SSL");
        assert_eq!(protocol(&admin), "SSL");
    }

    #[test]
    fn a_connector_takes_another_user_with_the_workers_mechanism() {
        let other = "consumer.override.sasl.jaas.config=ScramLoginModule required username=\"other\" password=\"hush\";\n";
        let policy = "connector.client.config.override.policy=";
        let worker = format!(
            "{}{policy}Principal\nconsumer.group.protocol=share\n",
            scram("")
        );
        let connector = format!("{CONNECTOR}{other}");
        let loaded = load_strictly(false, &worker, &[&connector]).unwrap();
        let client = &loaded.connectors[0].consumer.client;
        assert_eq!(mechanism(client), Some("SCRAM-SHA-512"));
        assert!(
            client.security.credentials().unwrap()
                != loaded.connectors[0]
                    .consumer
                    .admin
                    .security
                    .credentials()
                    .unwrap()
        );
        let worker = worker.replace("Principal", "None");
        let refused = errors(load_strictly(false, &worker, &[&connector]));
        assert_eq!(refused.len(), 1, "{refused:#?}");
        for text in [
            "consumer.override.sasl.jaas.config=[hidden]",
            "policy=None",
            "set consumer.sasl.jaas.config in the worker's file",
        ] {
            assert!(refused[0].contains(text), "{refused:#?}");
        }
        let admin = format!("{CONNECTOR}admin.override.ssl.truststore.location=/x\n");
        let refused = errors(load_strictly(false, &worker, &[&admin]));
        assert!(
            refused[0].contains("admin.ssl.truststore.location"),
            "{refused:#?}"
        );
    }

    #[test]
    fn a_store_and_a_mechanism_are_inherited_whole_or_not_at_all() {
        let worker =
            "ssl.truststore.location=/a\nssl.truststore.password=hush\nssl.keystore.location=/k\n";
        let (consumer, admin) =
            clients(worker, "consumer.override.ssl.truststore.certificates=x\n");
        let tls = &consumer.security.tls;
        assert_eq!(tls.truststore_certificates.as_deref(), Some("x"));
        assert_eq!(
            (&tls.truststore_location, &tls.truststore_password),
            (&None, &None)
        );
        assert!(tls.keystore_location.is_some());
        assert_eq!(admin.security.tls.truststore_certificates, None);
    }

    #[test]
    fn credentials_do_not_go_to_another_cluster() {
        let (consumer, admin) = clients(&scram(""), "consumer.override.bootstrap.servers=b:1\n");
        for client in [consumer, admin] {
            assert_eq!(protocol(&client), "PLAINTEXT");
            assert_eq!(client.security.credentials().unwrap(), None);
        }
    }

    #[test]
    fn what_does_not_go_together_is_said_before_the_start_with_its_place() {
        for (worker, says) in [
            (
                "security.protocol=SASL_SSL\n",
                "worker.properties:2: security.protocol=SASL_SSL: sasl.mechanism is not set",
            ),
            (
                "security.protocol=SASL_SSL\nsasl.mechanism=GSSAPI\n",
                "worker.properties:3: sasl.mechanism=GSSAPI: is `GSSAPI`, but must be PLAIN",
            ),
            (
                "consumer.security.protocol=SSL\nconsumer.ssl.truststore.location=/no/such\n",
                "worker.properties:3: consumer.ssl.truststore.location=/no/such: No such file",
            ),
            (
                "security.protocol=TLS\n",
                "worker.properties:2: security.protocol=TLS: is `TLS`, but must be PLAINTEXT, SSL",
            ),
        ] {
            let errors = errors(with(worker, ""));
            assert_eq!(errors.len(), 1, "{errors:#?}");
            assert!(errors[0].starts_with(says), "{errors:#?}");
        }
    }

    #[test]
    fn a_java_keystore_is_refused_with_the_line_that_converts_it() {
        let file = std::env::temp_dir().join(format!("sink-jks-{}.jks", std::process::id()));
        std::fs::write(&file, [0xfe, 0xed, 0xfe, 0xed, 0, 0, 0, 2, 0, 0, 0, 0]).unwrap();
        let name = file.display();
        let worker = format!(
            "security.protocol=SSL\nssl.truststore.location={name}\nssl.truststore.password=hush\n"
        );
        let errors = errors(with(&worker, ""));
        std::fs::remove_file(&file).unwrap();
        assert_eq!(errors.len(), 1, "{errors:#?}");
        let line = format!(
            "keytool -importkeystore -srckeystore {name} -destkeystore {name}.p12 -deststoretype PKCS12"
        );
        assert!(errors[0].contains(&line), "{errors:#?}");
        assert!(!errors[0].contains("hush"), "{errors:#?}");
    }

    #[test]
    fn every_security_key_of_the_client_is_known() {
        let tables = [crate::config::security::SECURITY];
        for key in ClientConfig::keys() {
            if ["ssl.", "sasl.", "security."]
                .iter()
                .any(|p| key.starts_with(p))
            {
                assert!(names(&tables).any(|name| name == *key), "{key}");
                assert_eq!(unsupported_key(key), None, "{key}");
            }
        }
        for known in all(&tables) {
            let name = known.def.name;
            let acts = unsupported_key(name).is_none();
            let is_set = ClientConfig::new("a:1").unwrap().set(name, "");
            assert_eq!(is_set != Ok(false), acts, "{name}");
        }
    }
}

#[cfg(not(feature = "tls"))]
#[test]
fn a_build_without_tls_says_so() {
    let errors = errors(with("security.protocol=SASL_SSL\n", ""));
    assert_eq!(errors.len(), 1, "{errors:#?}");
    assert!(
        errors[0].contains("built without TLS and SASL"),
        "{errors:#?}"
    );
}

#[test]
fn unsupported_keys_say_what_to_do_under_every_prefix() {
    for key in [
        "ssl.provider",
        "ssl.engine.factory.class",
        "security.providers",
        "sasl.login.class",
        "sasl.client.callback.handler.class",
        "sasl.oauthbearer.assertion.algorithm",
    ] {
        for (worker, connector) in [
            (format!("{key}=X\n"), String::new()),
            (format!("consumer.{key}=X\n"), String::new()),
            (format!("admin.{key}=X\n"), String::new()),
            (String::new(), format!("consumer.override.{key}=X\n")),
            (String::new(), format!("admin.override.{key}=X\n")),
        ] {
            let errors = errors(with(&worker, &connector));
            assert_eq!(errors.len(), 1, "{errors:#?}");
            assert!(errors[0].contains("can't be used here; "), "{errors:#?}");
        }
    }
    let ignored = warnings(with(
        "sasl.kerberos.service.name=kafka\nssl.keymanager.algorithm=PKIX\nsasl.oauthbearer.jwks.endpoint.url=https://x\n",
        "",
    ));
    assert_eq!(ignored.len(), 3, "{ignored:#?}");
    assert!(ignored.iter().any(|text| text.contains("use PLAIN, SCRAM")));
}

#[test]
fn nearly_known_security_keys_and_missing_prefixes_are_named() {
    for (worker, connector, meant) in [
        ("ssl.trustore.location=/x\n", "", "ssl.truststore.location"),
        (
            "consumer.sasl.mechanisms=PLAIN\n",
            "",
            "consumer.sasl.mechanism",
        ),
        (
            "",
            "sasl.jaas.config=hush\n",
            "consumer.override.sasl.jaas.config",
        ),
        (
            "",
            "consumer.override.sasl.jass.config=hush\n",
            "consumer.override.sasl.jaas.config",
        ),
    ] {
        let errors = errors(with(worker, connector));
        assert_eq!(errors.len(), 1, "{errors:#?}");
        let advice = format!("did you mean {meant}?");
        assert!(errors[0].ends_with(&advice), "{errors:#?}");
        assert!(!errors[0].contains("hush"), "{errors:#?}");
    }
}

#[test]
fn what_is_in_force_tells_whose_it_is_and_hides_secrets() {
    let worker = format!(
        "{HUSH}ssl.key.password=hush\nssl.keystore.key=hush\\nhush\nssl.truststore.certificates=first\\nsecond\n"
    );
    let consumer = consumer(&worker, "consumer.override.ssl.truststore.password=hush\n");
    let in_force = consumer.in_force.join("\n");
    for text in [
        "sasl.jaas.config=[hidden] (worker.properties, the worker's own)",
        "ssl.keystore.key=[hidden] (worker.properties, the worker's own)",
        "ssl.truststore.password=[hidden] (c0.properties)",
    ] {
        assert!(in_force.contains(text), "{in_force}");
    }
    assert!(
        !format!("{in_force}{consumer:?}").contains("hush"),
        "{in_force}"
    );
    assert!(
        !in_force.contains("first"),
        "the connector has a truststore"
    );
    let consumer = self::consumer(&worker, "");
    assert!(
        consumer
            .in_force
            .iter()
            .any(|text| text.starts_with("ssl.truststore.certificates=first… (")),
        "{:#?}",
        consumer.in_force
    );
}
