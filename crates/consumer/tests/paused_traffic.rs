//! What shares a connection with what: a broker works on one request of a connection at a time.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

#[path = "paused/mod.rs"]
mod paused;

use paused::{ACKNOWLEDGE, API_VERSIONS, FETCH, HEARTBEAT, SECOND, builder, cluster, config};
use sharegroup_consumer::admin::Admin;
use tokio::time::{Instant, timeout};

#[tokio::test(start_paused = true)]
async fn a_long_poll_keeps_nothing_else_waiting() {
    let (cluster, _) = cluster(1);
    let builder = builder(&cluster).fetch_max_wait(7 * SECOND);
    let mut consumer = builder.build().await.unwrap();
    // Nothing is fetched before somebody asks.
    let polled = timeout(30 * SECOND, consumer.poll()).await;
    assert!(polled.is_err(), "{polled:?}");
    let admin = Admin::new(config(&cluster));
    let started = Instant::now();
    admin.list_topics().await.unwrap();
    assert!(started.elapsed() < SECOND, "metadata beside a long poll");

    let arrivals = cluster.arrivals();
    let is_session = |key| [FETCH, ACKNOWLEDGE].contains(&key);
    let sessions: Vec<_> = arrivals
        .iter()
        .filter(|arrival| is_session(arrival.api_key))
        .map(|arrival| arrival.link)
        .collect();
    assert!(sessions.len() > 3, "long polls");
    for arrival in &arrivals {
        let may_share = is_session(arrival.api_key) || arrival.api_key == API_VERSIONS;
        assert!(
            may_share || !sessions.contains(&arrival.link),
            "{arrival:?} shares its connection with a share session"
        );
    }
    let heartbeats: Vec<_> = arrivals
        .iter()
        .filter(|arrival| arrival.api_key == HEARTBEAT)
        .map(|arrival| arrival.at)
        .collect();
    let gap = heartbeats.windows(2).map(|pair| pair[1] - pair[0]).max();
    assert!(gap.unwrap() <= 6 * SECOND, "{gap:?} between heartbeats");
}
