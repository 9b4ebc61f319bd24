//! Drains a topic through a share group and prints the rate: `drain SERVERS TOPIC GROUP RECORDS [MAX_POLL]`.
//!
//! A new group begins at the start of the topic.

use std::time::{Duration, Instant};

use sharegroup_consumer::admin::{Admin, LogPosition};
use sharegroup_consumer::{ClientConfig, ShareConsumer};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [servers, topic, group, records, rest @ ..] = arguments.as_slice() else {
        return Err("usage: drain SERVERS TOPIC GROUP RECORDS [MAX_POLL]".into());
    };
    let wanted: u64 = records.parse()?;
    let max_poll = rest.first().map_or(Ok(500), |text| text.parse())?;
    let admin = Admin::new(ClientConfig::new(servers)?);
    let position = LogPosition::Earliest;
    admin.begin_share_group(group, &[topic], position).await?;
    let mut consumer = ShareConsumer::builder(servers)
        .group_id(group)
        .topics([topic.as_str()])
        .max_poll_records(max_poll)
        .build()
        .await?;
    let (mut seen, mut bytes, mut started) = (0_u64, 0_u64, None);
    while seen < wanted {
        let Some(batch) = consumer.poll().await? else {
            break;
        };
        started.get_or_insert_with(Instant::now);
        for record in batch.records() {
            seen += 1;
            bytes += record.value.map_or(0, <[u8]>::len) as u64;
        }
        batch.accept();
    }
    let elapsed = started.map_or(Duration::ZERO, |started| started.elapsed());
    let report = consumer.close(Duration::from_secs(5)).await?;
    println!(
        "{seen} records, {bytes} bytes in {elapsed:?}: {:.0} records/s",
        seen as f64 / elapsed.as_secs_f64()
    );
    println!(
        "all confirmed: {}; {:?}",
        report.is_ok(),
        consumer.metrics()
    );
    Ok(())
}
