//! How clients find a broker that answers, seen through the admin client: brokers in memory, paused
//! time.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../../wire/tests/scripted/mod.rs"]
mod scripted;

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use scripted::{Asked, Peer};
use sharegroup_consumer::TopicPartition;
use sharegroup_consumer::admin::{Admin, AdminError, LogPosition, Resource};
use sharegroup_consumer::client::ClientConfig;
use sharegroup_consumer::error::{ClientError, ConfigError};
use sharegroup_consumer::producer::ProduceError;
use sharegroup_consumer::{OpenError, ShareConsumer};
use sharegroup_wire::message::api_versions::{
    ApiVersion, ApiVersionsRequest, ApiVersionsResponse, FinalizedFeatureKey,
};
use sharegroup_wire::message::create_topics::CreateTopicsRequest;
use sharegroup_wire::message::find_coordinator::{
    Coordinator, FindCoordinatorRequest, FindCoordinatorResponse,
};
use sharegroup_wire::message::list_groups::{ListGroupsRequest, ListGroupsResponse, ListedGroup};
use sharegroup_wire::message::list_offsets::{
    ListOffsetsPartitionResponse, ListOffsetsRequest, ListOffsetsResponse, ListOffsetsTopicResponse,
};
use sharegroup_wire::message::metadata::{
    MetadataRequest, MetadataResponse, MetadataResponseBroker, MetadataResponsePartition,
    MetadataResponseTopic,
};
use sharegroup_wire::message::sasl_handshake::{SaslHandshakeRequest, SaslHandshakeResponse};
use sharegroup_wire::net::sasl::SaslError;
use sharegroup_wire::net::tls::TlsError;
use sharegroup_wire::net::{Address, ConnectError, ConnectFuture, Connector};
use sharegroup_wire::{BrokerId, ErrorCode};
use tokio::io::{AsyncWriteExt, DuplexStream};
use tokio::time::Instant;

const SECOND: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Behaviour {
    Serves,
    /// The port is closed.
    Refuses,
    /// Nothing comes back, not even a refusal.
    Vanishes,
    /// Takes 8 s to accept a connection.
    Crawls,
    /// Its certificate is nobody's.
    Untrusted,
    /// Takes connections and requests and never answers.
    Freezes,
    /// Ends the connection at any request but ApiVersions.
    Hangs,
    /// Takes nothing but ApiVersions before SASL.
    WantsSasl,
    /// Answers metadata with an error.
    Fails,
    /// Serves, and stands in no metadata.
    Alias,
}

/// Brokers at `broker-N:9092`, all in one cluster.
#[derive(Debug, Clone, Default)]
struct Net(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    behaviours: HashMap<i32, Behaviour>,
    connects: HashMap<i32, usize>,
    requests: Vec<(i32, i16)>,
    coordinator: i32,
    coordinator_codes: Vec<ErrorCode>,
    /// The leader as metadata has it.
    leader: i32,
    /// Changed to cut the streams of a broker.
    cuts: HashMap<i32, tokio::sync::watch::Sender<()>>,
}

impl Net {
    fn new(behaviours: &[Behaviour]) -> Self {
        let net = Self::default();
        let numbered = behaviours
            .iter()
            .enumerate()
            .map(|(id, behaviour)| (id as i32, *behaviour));
        net.state().behaviours = numbered.collect();
        net
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    fn set(&self, broker: i32, behaviour: Behaviour) {
        self.state().behaviours.insert(broker, behaviour);
    }

    /// Cuts all connections to a broker.
    fn cut(&self, broker: i32) {
        self.state()
            .cuts
            .entry(broker)
            .or_default()
            .send_replace(());
    }

    fn asked(&self, key: i16) -> Vec<i32> {
        self.state()
            .requests
            .iter()
            .filter(|request| request.1 == key)
            .map(|request| request.0)
            .collect()
    }

    fn config(&self, bootstrap_servers: &str) -> ClientConfig {
        let mut config = ClientConfig::new(bootstrap_servers).unwrap();
        config.connector = Arc::new(self.clone());
        config.seed = 7;
        config
    }

    fn admin(&self, bootstrap_servers: &str) -> Admin {
        Admin::new(self.config(bootstrap_servers))
    }

    async fn serve(self, broker: i32, stream: DuplexStream) -> io::Result<()> {
        let mut peer = Peer(stream);
        while let Some(asked) = peer.next().await {
            let key = asked.header.api_key;
            let behaviour = {
                let mut state = self.state();
                state.requests.push((broker, key));
                state.behaviours[&broker]
            };
            match behaviour {
                Behaviour::Freezes => std::future::pending().await,
                Behaviour::Hangs if key != ApiVersionsRequest::API_KEY => break,
                Behaviour::WantsSasl
                    if ![ApiVersionsRequest::API_KEY, SaslHandshakeRequest::API_KEY]
                        .contains(&key) =>
                {
                    break;
                }
                _ => peer.0.write_all(&self.answer(broker, &asked)).await?,
            }
        }
        Ok(())
    }

    fn answer(&self, broker: i32, asked: &Asked) -> Bytes {
        match asked.header.api_key {
            ApiVersionsRequest::API_KEY => asked.answered::<ApiVersionsRequest>(&versions()),
            MetadataRequest::API_KEY => asked.answered::<MetadataRequest>(&self.metadata(broker)),
            FindCoordinatorRequest::API_KEY => {
                let coordinator = self.coordinator(&asked.decode());
                asked.answered::<FindCoordinatorRequest>(&coordinator)
            }
            ListGroupsRequest::API_KEY => asked.answered::<ListGroupsRequest>(&self.groups()),
            ListOffsetsRequest::API_KEY => {
                asked.answered::<ListOffsetsRequest>(&self.offsets(broker))
            }
            SaslHandshakeRequest::API_KEY => {
                let answer = SaslHandshakeResponse {
                    error_code: ErrorCode::UnsupportedSaslMechanism,
                    mechanisms: vec!["PLAIN".into()],
                };
                asked.answered::<SaslHandshakeRequest>(&answer)
            }
            key => panic!("unexpected api key {key}"),
        }
    }

    fn coordinator(&self, request: &FindCoordinatorRequest) -> FindCoordinatorResponse {
        let node = self.state().coordinator;
        let coordinator = Coordinator {
            key: request.coordinator_keys[0].clone(),
            node_id: BrokerId(node),
            host: format!("broker-{node}"),
            port: 9092,
            ..Default::default()
        };
        FindCoordinatorResponse {
            coordinators: vec![coordinator],
            ..Default::default()
        }
    }

    fn groups(&self) -> ListGroupsResponse {
        let codes = &mut self.state().coordinator_codes;
        let error_code = if codes.is_empty() {
            ErrorCode::None
        } else {
            codes.remove(0)
        };
        let group = ListedGroup {
            group_id: "workers".into(),
            group_type: "share".into(),
            ..Default::default()
        };
        ListGroupsResponse {
            error_code,
            groups: vec![group],
            ..Default::default()
        }
    }

    /// Broker 1 leads, whatever metadata says until somebody has asked.
    fn offsets(&self, broker: i32) -> ListOffsetsResponse {
        let error_code = if broker == 1 {
            ErrorCode::None
        } else {
            ErrorCode::NotLeaderOrFollower
        };
        self.state().leader = 1;
        let partition = ListOffsetsPartitionResponse {
            error_code,
            offset: 42,
            ..Default::default()
        };
        let topic = ListOffsetsTopicResponse {
            name: "orders".into(),
            partitions: vec![partition],
        };
        ListOffsetsResponse {
            topics: vec![topic],
            ..Default::default()
        }
    }

    fn metadata(&self, asked: i32) -> MetadataResponse {
        let state = self.state();
        if state.behaviours[&asked] == Behaviour::Fails {
            return MetadataResponse {
                error_code: ErrorCode::UnknownServerError,
                ..Default::default()
            };
        }
        let named = state.behaviours.iter();
        let named = named.filter(|(_, behaviour)| **behaviour != Behaviour::Alias);
        let mut ids: Vec<i32> = named.map(|(id, _)| *id).collect();
        ids.sort_unstable();
        let broker = |id: i32| MetadataResponseBroker {
            node_id: BrokerId(id),
            host: format!("broker-{id}"),
            port: 9092,
            rack: None,
        };
        let partition = MetadataResponsePartition {
            leader_id: BrokerId(state.leader),
            ..Default::default()
        };
        let topic = MetadataResponseTopic {
            name: Some("orders".into()),
            partitions: vec![partition],
            ..Default::default()
        };
        MetadataResponse {
            brokers: ids.into_iter().map(broker).collect(),
            topics: vec![topic],
            ..Default::default()
        }
    }
}

impl Connector for Net {
    fn connect<'a>(&'a self, address: &'a Address) -> ConnectFuture<'a> {
        let broker: i32 = address
            .host
            .strip_prefix("broker-")
            .unwrap()
            .parse()
            .unwrap();
        let mut state = self.state();
        *state.connects.entry(broker).or_default() += 1;
        if state.behaviours[&broker] == Behaviour::Refuses {
            return Box::pin(async { Err(io::Error::from(io::ErrorKind::ConnectionRefused)) });
        }
        let delay = match state.behaviours[&broker] {
            Behaviour::Vanishes => Duration::MAX,
            Behaviour::Crawls => 8 * SECOND,
            Behaviour::Untrusted => {
                let trusted = "ca.pem".to_owned();
                let error = TlsError::UnknownIssuer { trusted };
                return Box::pin(async { Err(error.into()) });
            }
            _ => Duration::ZERO,
        };
        let mut cut = state.cuts.entry(broker).or_default().subscribe();
        let (ours, theirs) = tokio::io::duplex(1024 * 1024);
        let net = self.clone();
        tokio::spawn(async move {
            tokio::select! {
                ended = net.serve(broker, theirs) => drop(ended),
                changed = cut.changed() => drop(changed),
            }
        });
        Box::pin(async move {
            tokio::time::sleep(delay).await;
            Ok(Box::new(ours) as _)
        })
    }
}

fn versions() -> ApiVersionsResponse {
    let api = |api_key, min_version, max_version| ApiVersion {
        api_key,
        min_version,
        max_version,
    };
    ApiVersionsResponse {
        api_keys: vec![
            api(2, 6, 11),
            api(3, 9, 13),
            api(10, 4, 6),
            api(16, 3, 5),
            api(17, 0, 1),
            api(18, 0, 5),
            api(19, 5, 7),
        ],
        finalized_features: vec![FinalizedFeatureKey {
            name: "share.version".into(),
            max_version_level: 2,
            min_version_level: 1,
        }],
        ..Default::default()
    }
}

#[tokio::test(start_paused = true)]
async fn a_broker_that_wants_sasl_is_named_at_once() {
    let net = Net::new(&[Behaviour::WantsSasl]);
    let started = Instant::now();
    let error = net.admin("broker-0:9092").list_topics().await.unwrap_err();
    assert!(started.elapsed() < SECOND, "{:?}", started.elapsed());
    let AdminError::Client(ClientError::Connect(ConnectError::Authentication { source, .. })) =
        error
    else {
        panic!("{error:?}");
    };
    let enabled = vec!["PLAIN".into()];
    assert_eq!(*source, SaslError::Required { enabled });
    assert_eq!(net.state().connects[&0], 2);
}

#[tokio::test(start_paused = true)]
async fn a_dead_bootstrap_server_is_passed_over() {
    let net = Net::new(&[Behaviour::Refuses, Behaviour::Serves]);
    let started = Instant::now();
    assert_eq!(
        net.admin("broker-0:9092,broker-1:9092")
            .share_version()
            .await,
        Ok(Some(2))
    );
    assert!(started.elapsed() < SECOND);
}

#[tokio::test(start_paused = true)]
async fn a_frozen_broker_is_passed_over_long_before_the_request_timeout() {
    let net = Net::new(&[Behaviour::Freezes, Behaviour::Serves]);
    let admin = net.admin("broker-0:9092,broker-1:9092");
    let started = Instant::now();
    assert_eq!(admin.share_version().await, Ok(Some(2)));
    assert!(started.elapsed() <= 5 * SECOND, "{:?}", started.elapsed());
    // One that freezes after it has answered, too.
    net.set(0, Behaviour::Serves);
    let admin = net.admin("broker-0:9092,broker-1:9092");
    admin.share_version().await.unwrap();
    net.set(0, Behaviour::Freezes);
    let started = Instant::now();
    assert_eq!(admin.share_version().await, Ok(Some(2)));
    assert!(started.elapsed() <= 5 * SECOND, "{:?}", started.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_never_answers_ends_at_the_deadline_with_its_address() {
    for (behaviour, last) in [
        (
            Behaviour::Refuses,
            "cannot connect to broker-0:9092: connection refused",
        ),
        (Behaviour::Freezes, "broker-0:9092"),
        (Behaviour::Hangs, "broker-0:9092"),
    ] {
        let net = Net::new(&[behaviour]);
        let started = Instant::now();
        let error = net.admin("broker-0:9092").list_topics().await.unwrap_err();
        assert_eq!(started.elapsed(), 60 * SECOND, "{behaviour:?}");
        assert!(
            matches!(error, AdminError::Client(ClientError::Deadline { .. })),
            "{error}"
        );
        assert!(
            error
                .to_string()
                .starts_with("Metadata not done within 1 min"),
            "{error}"
        );
        assert!(error.to_string().contains(last), "{error}");
        let connects = net.state().connects[&0];
        assert!(
            (2..100).contains(&connects),
            "paced, but not given up: {connects} for {behaviour:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_connection_is_opened_again() {
    let net = Net::new(&[Behaviour::Serves]);
    let admin = net.admin("broker-0:9092");
    admin.share_version().await.unwrap();
    net.cut(0);
    tokio::time::sleep(SECOND).await;
    admin.share_version().await.unwrap();
    assert_eq!(net.state().connects[&0], 2);
    admin.share_version().await.unwrap();
    assert_eq!(net.state().connects[&0], 2, "and kept while it lives");
}

#[tokio::test(start_paused = true)]
async fn idle_connections_are_closed_on_this_side_and_opened_again_without_a_pause() {
    let net = Net::new(&[Behaviour::Serves]);
    let admin = net.admin("broker-0:9092");
    admin.share_version().await.unwrap();
    tokio::time::sleep(539 * SECOND).await;
    admin.share_version().await.unwrap();
    assert_eq!(net.state().connects[&0], 1);
    tokio::time::sleep(541 * SECOND).await;
    let started = Instant::now();
    admin.share_version().await.unwrap();
    assert_eq!(net.state().connects[&0], 2);
    assert_eq!(started.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_the_broker_closed_for_idleness_costs_no_pause() {
    let net = Net::new(&[Behaviour::Serves]);
    let admin = net.admin("broker-0:9092");
    admin.share_version().await.unwrap();
    for connects in 2..5 {
        tokio::time::sleep(60 * SECOND).await;
        // Nobody runs between the close and the next request.
        net.cut(0);
        let started = Instant::now();
        admin.share_version().await.unwrap();
        assert_eq!(started.elapsed(), Duration::ZERO);
        assert!(net.state().connects[&0] <= connects);
    }
}

#[tokio::test(start_paused = true)]
async fn time_to_connect_grows_with_each_failure() {
    let net = Net::new(&[Behaviour::Vanishes]);
    let mut config = net.config("broker-0:9092");
    config.default_api_timeout = 1000 * SECOND;
    drop(Admin::new(config).list_topics().await.unwrap_err());
    let connects = net.state().connects[&0];
    // 10 s, 20 s, then 30 s each, a fifth up or down. With 10 s each it would be about 90.
    assert!((28..=44).contains(&connects), "{connects} tries");
}

#[tokio::test(start_paused = true)]
async fn a_caller_without_the_time_to_connect_leaves_the_connection_to_the_next() {
    let net = Net::new(&[Behaviour::Crawls]);
    let mut config = net.config("broker-0:9092");
    config.default_api_timeout = 5 * SECOND;
    let admin = Admin::new(config);
    let started = Instant::now();
    drop(admin.share_version().await.unwrap_err());
    assert_eq!(started.elapsed(), 5 * SECOND);
    assert_eq!(admin.share_version().await, Ok(Some(2)));
    assert_eq!(started.elapsed(), 8 * SECOND);
    assert_eq!(net.state().connects[&0], 1);
}

#[tokio::test(start_paused = true)]
async fn a_certificate_that_is_refused_ends_the_start_of_a_consumer_at_once() {
    let open = |net: &Net, servers: &str| {
        let builder = ShareConsumer::builder_with(net.config(servers));
        let builder = builder.group_id("g").topics(["t"]).driver_on_current();
        builder.build()
    };
    let net = Net::new(&[Behaviour::Untrusted]);
    let started = Instant::now();
    let error = open(&net, "broker-0:9092").await.unwrap_err();
    assert!(started.elapsed() < SECOND);
    let OpenError::Refused { source, .. } = &error else {
        panic!("{error:?}");
    };
    assert!(matches!(source, ConnectError::Tls { .. }), "{source:?}");
    assert!(!error.is_retriable() && error.to_string().contains("unknown issuer"));
    // It is the one broker's certificate: another that may come back is waited for.
    let net = Net::new(&[Behaviour::Untrusted, Behaviour::Refuses]);
    let error = open(&net, "broker-0:9092,broker-1:9092").await.unwrap_err();
    assert!(matches!(error, OpenError::NotJoined { .. }), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn a_consumer_that_cannot_join_tells_the_real_cause_whenever_its_time_ends() {
    let net = Net::new(&[Behaviour::Refuses]);
    for seconds in [1, 2, 4, 5, 6, 10, 11, 15, 16, 17, 23, 31, 60] {
        let builder = ShareConsumer::builder_with(net.config("broker-0:9092"));
        let builder = builder.group_id("g").topics(["t"]).driver_on_current();
        let timeout = seconds * SECOND;
        let error = builder.startup_timeout(timeout).build().await.unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains("broker-0:9092: connection refused"),
            "{seconds} s: {text}"
        );
        assert!(!text.contains("gave no answer"), "{seconds} s: {text}");
    }
}

#[test]
fn an_error_and_its_sources_say_everything_once() {
    let connect = ConnectError::Io {
        address: Address::new("broker", 9092),
        kind: io::ErrorKind::ConnectionRefused,
        text: "connection refused".into(),
    };
    let client = ClientError::Connect(connect.clone());
    let errors: [Box<dyn std::error::Error>; 5] = [
        Box::new(OpenError::Refused {
            group_id: "g".into(),
            source: connect,
        }),
        Box::new(ConfigError::Address {
            key: "bootstrap.servers",
            source: "broker".parse::<Address>().unwrap_err(),
        }),
        Box::new(ProduceError::NoProducerId(Box::new(client.clone()))),
        Box::new(AdminError::Client(client.clone())),
        Box::new(ClientError::Deadline {
            operation: "Metadata",
            after: SECOND,
            last: Some(Box::new(client)),
        }),
    ];
    for error in errors {
        let mut text = error.to_string();
        let mut next = error.source();
        while let Some(cause) = next {
            let cause_text = cause.to_string();
            assert!(
                !text.contains(&cause_text),
                "{text:?} has {cause_text:?} already"
            );
            text = cause_text;
            next = cause.source();
        }
    }
}

#[test]
fn a_brokers_words_cannot_move_a_terminals_cursor() {
    let message = Some("no\u{1b}[2J\u{202e}\u{200b}!".to_owned());
    let code = ErrorCode::PolicyViolation;
    let errors: [Box<dyn std::error::Error>; 3] = [
        Box::new(ClientError::Broker {
            api: "Metadata",
            code,
            message: message.clone(),
        }),
        Box::new(AdminError::Broker {
            operation: "CreateTopics",
            resource: Resource::Cluster,
            code,
            message: message.clone(),
        }),
        Box::new(ProduceError::Broker {
            partition: TopicPartition::new("orders", 0),
            code,
            message,
            may_have_been_written: false,
        }),
    ];
    for error in errors {
        assert!(error.to_string().contains(": no[2J!"), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn when_no_known_broker_answers_the_bootstrap_servers_are_asked_again() {
    // The bootstrap address isn't one of the cluster's own: broker 9 leads into the same cluster.
    let net = Net::new(&[Behaviour::Serves, Behaviour::Serves]);
    net.set(9, Behaviour::Serves);
    let admin = net.admin("broker-9:9092");
    admin.list_topics().await.unwrap();
    net.set(0, Behaviour::Refuses);
    net.set(1, Behaviour::Refuses);
    net.cut(0);
    net.cut(1);
    tokio::time::sleep(SECOND).await;
    assert_eq!(admin.share_version().await, Ok(Some(2)));
    assert_eq!(net.asked(ApiVersionsRequest::API_KEY).last(), Some(&9));
}

#[tokio::test(start_paused = true)]
async fn brokers_that_give_no_metadata_for_long_are_given_up() {
    let trigger = 300 * SECOND;
    // A broker that is connected to goes first, whatever it answers.
    let net = Net::new(&[Behaviour::Serves]);
    net.set(9, Behaviour::Alias);
    let admin = net.admin("broker-9:9092");
    admin.list_topics().await.unwrap();
    admin.list_topics().await.unwrap();
    net.set(0, Behaviour::Fails);
    let started = Instant::now();
    while admin.list_topics().await.is_err() {
        tokio::time::sleep(10 * SECOND).await;
    }
    let waited = started.elapsed();
    assert!(
        waited >= trigger && waited <= trigger + 20 * SECOND,
        "{waited:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn who_is_not_the_coordinator_makes_the_client_look_it_up_again() {
    let net = Net::new(&[Behaviour::Serves, Behaviour::Serves]);
    let admin = net.admin("broker-0:9092");
    assert!(admin.find_group("workers").await.unwrap().is_some());
    {
        let mut state = net.state();
        state.coordinator = 1;
        state.coordinator_codes = vec![ErrorCode::NotCoordinator];
    }
    assert!(admin.find_group("workers").await.unwrap().is_some());
    assert_eq!(net.asked(ListGroupsRequest::API_KEY), [0, 0, 1]);
    assert_eq!(net.asked(FindCoordinatorRequest::API_KEY).len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_coordinator_that_loads_is_asked_again_without_a_new_look_up() {
    let net = Net::new(&[Behaviour::Serves]);
    net.state().coordinator_codes = vec![ErrorCode::CoordinatorLoadInProgress; 3];
    let started = Instant::now();
    assert!(
        net.admin("broker-0:9092")
            .find_group("workers")
            .await
            .unwrap()
            .is_some()
    );
    assert_eq!(net.asked(ListGroupsRequest::API_KEY).len(), 4);
    assert_eq!(net.asked(FindCoordinatorRequest::API_KEY).len(), 1);
    // 100, 200 and 400 ms, each give or take a fifth.
    assert!(
        started.elapsed() >= Duration::from_millis(560),
        "{:?}",
        started.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn a_dead_coordinator_is_looked_up_again() {
    let net = Net::new(&[Behaviour::Serves, Behaviour::Serves]);
    net.state().coordinator = 1;
    let admin = net.admin("broker-0:9092");
    admin.find_group("workers").await.unwrap();
    net.set(1, Behaviour::Refuses);
    net.cut(1);
    net.state().coordinator = 0;
    assert!(admin.find_group("workers").await.unwrap().is_some());
    assert_eq!(net.asked(ListGroupsRequest::API_KEY).last(), Some(&0));
}

#[tokio::test(start_paused = true)]
async fn a_moved_leader_is_followed() {
    let net = Net::new(&[Behaviour::Serves, Behaviour::Serves]);
    let partitions = [TopicPartition::new("orders", 0)];
    let found = net
        .admin("broker-0:9092")
        .log_offsets(&partitions, LogPosition::Latest)
        .await
        .unwrap();
    assert_eq!(found[0].offset, 42);
    assert_eq!(net.asked(ListOffsetsRequest::API_KEY), [0, 1]);
}

#[tokio::test(start_paused = true)]
async fn a_topic_is_not_created_again_where_the_first_try_may_have_done_it() {
    let net = Net::new(&[Behaviour::Hangs, Behaviour::Hangs]);
    let error = net
        .admin("broker-0:9092,broker-1:9092")
        .create_topic("orders", 1, 1, &[])
        .await
        .unwrap_err();
    let AdminError::Client(error) = error else {
        panic!("{error}")
    };
    assert!(
        matches!(error, ClientError::Call(_)) && error.may_have_arrived(),
        "{error}"
    );
    assert_eq!(net.asked(CreateTopicsRequest::API_KEY).len(), 1);
}

#[test]
fn operations_may_be_spawned_on_any_runtime() {
    fn is_send<T: Send>(_: T) {}
    let net = Net::new(&[]);
    let admin = net.admin("broker-0:9092");
    is_send(admin.create_topic("t", 1, 1, &[]));
    is_send(admin.log_offsets(&[], LogPosition::Latest));
    is_send(admin.share_group_offsets("g", None));
    is_send(admin.set_group_config("g", "k", "v"));
    is_send(admin.list_groups());
}
