//! What is measured: one factor at a time around a base.

/// What a topic holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) records: u64,
    pub(super) value_bytes: u64,
    pub(super) codec: &'static str,
    pub(super) partitions: u32,
}

/// One row of figures per client.
#[derive(Debug, Clone)]
pub(super) struct Scenario {
    pub(super) name: String,
    pub(super) shape: Shape,
    /// 0 = the replay server stands in their place.
    pub(super) brokers: u16,
    /// Most records of a poll.
    pub(super) poll: u32,
    pub(super) members: u32,
    /// Accepted, released and rejected 90 to 8 to 2.
    pub(super) mixed: bool,
    /// What a handler takes, 64 at a time; 0 = there is none.
    pub(super) handler_ms: u32,
    /// Records produced per second, to measure their latency; 0 = the topic is drained.
    pub(super) rate: u32,
    /// How long the latency is measured, and how long traffic flows before.
    pub(super) seconds: (u32, u32),
}

const RECORDS: u64 = 2_000_000;

fn base(name: &str) -> Scenario {
    Scenario {
        name: name.to_owned(),
        shape: Shape {
            records: RECORDS,
            value_bytes: 256,
            codec: "none",
            partitions: 4,
        },
        brokers: 1,
        poll: 500,
        members: 1,
        mixed: false,
        handler_ms: 0,
        rate: 0,
        seconds: (0, 0),
    }
}

fn shaped(name: &str, change: impl FnOnce(&mut Shape)) -> Scenario {
    let mut scenario = base(name);
    change(&mut scenario.shape);
    scenario
}

fn with(name: &str, change: impl FnOnce(&mut Scenario)) -> Scenario {
    let mut scenario = base(name);
    change(&mut scenario);
    scenario
}

fn latency(rate: u32, seconds: (u32, u32)) -> Scenario {
    with(&format!("latency-{rate}"), |scenario| {
        scenario.rate = rate;
        scenario.seconds = seconds;
    })
}

/// Against the replay server; more records, since they come so fast.
fn replay(value_bytes: u64, poll: u32) -> Scenario {
    with(&format!("replay-{value_bytes}-poll-{poll}"), |scenario| {
        (scenario.brokers, scenario.poll) = (0, poll);
        scenario.shape.value_bytes = value_bytes;
        scenario.shape.records = RECORDS * 512 / value_bytes;
    })
}

/// All of them. Those of three brokers come last, since they need another cluster.
pub(super) fn all() -> Vec<Scenario> {
    let mut scenarios = vec![
        replay(256, 500),
        replay(256, 5000),
        replay(1024, 500),
        replay(1024, 5000),
        base("poll-500"),
        with("poll-5000", |scenario| scenario.poll = 5000),
        with("members-2", |scenario| scenario.members = 2),
        with("members-4", |scenario| scenario.members = 4),
        with("members-2-poll-5000", |scenario| {
            (scenario.members, scenario.poll) = (2, 5000);
        }),
        with("members-4-poll-5000", |scenario| {
            (scenario.members, scenario.poll) = (4, 5000);
        }),
        with("mixed", |scenario| scenario.mixed = true),
        with("handler", |scenario| {
            scenario.handler_ms = 1;
            scenario.shape.records = 200_000;
        }),
        shaped("bytes-100", |shape| shape.value_bytes = 100),
        shaped("bytes-1024", |shape| {
            (shape.value_bytes, shape.records) = (1024, RECORDS / 2);
        }),
        shaped("bytes-10240", |shape| {
            (shape.value_bytes, shape.records) = (10_240, RECORDS / 10);
        }),
        shaped("lz4", |shape| shape.codec = "lz4"),
        shaped("zstd", |shape| shape.codec = "zstd"),
    ];
    for partitions in [1, 64, 1000] {
        scenarios.push(shaped(&format!("partitions-{partitions}"), |shape| {
            shape.partitions = partitions;
        }));
    }
    scenarios.push(latency(1, (40, 10)));
    scenarios.push(latency(100, (30, 20)));
    scenarios.push(latency(10_000, (20, 20)));
    scenarios.push(with("brokers-3", |scenario| scenario.brokers = 3));
    scenarios
}

/// The few that matter most, smaller.
pub(super) fn quick() -> Vec<Scenario> {
    let smaller = |poll, records| {
        with(&format!("poll-{poll}"), |scenario| {
            scenario.poll = poll;
            scenario.shape.records = records;
        })
    };
    vec![
        replay(256, 500),
        replay(256, 5000),
        replay(1024, 500),
        smaller(500, 500_000),
        smaller(5000, 1_000_000),
        latency(100, (8, 4)),
    ]
}
