//! Works off a topic as a stream until Ctrl-C: `cargo run --example stream -- localhost:9092`.

use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt};
use sharegroup::ShareConsumer;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let servers = std::env::args().nth(1).ok_or("give HOST:PORT")?;
    let builder = ShareConsumer::builder(servers).group_id("billing");
    let mut consumer = builder.topics(["orders"]).build().await?;
    let ctrl_c = std::pin::pin!(tokio::signal::ctrl_c());
    let orders = consumer.deliveries().take_until(ctrl_c);
    let worked = orders.try_for_each(async |delivery| {
        let record = delivery.record();
        let order = String::from_utf8_lossy(record.value.unwrap_or_default());
        println!("{}: {order}", record.offset);
        // Not awaited: the broker's answers stand in the report. To wait for each costs 10 ms and a request a record.
        drop(delivery.accept());
        Ok(())
    });
    let worked = worked.await;
    let report = consumer.close(Duration::from_secs(10)).await?; // also after an error
    eprintln!("all confirmed: {}", report.is_ok());
    Ok(worked?)
}
