//! Works off a topic as a stream until Ctrl-C: `cargo run --example stream -- localhost:9092`.

use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt};
use sharegroup::ShareConsumer;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let servers = std::env::args()
        .nth(1)
        .ok_or("give HOST:PORT of a server")?;
    let builder = ShareConsumer::builder(servers).group_id("billing");
    let mut consumer = builder.topics(["orders"]).build().await?;
    let ctrl_c = std::pin::pin!(tokio::signal::ctrl_c());
    let mut orders = consumer.deliveries().take_until(ctrl_c);
    while let Some(delivery) = orders.try_next().await? {
        let record = delivery.record();
        println!(
            "{}: {}",
            record.offset,
            String::from_utf8_lossy(record.value.unwrap_or_default())
        );
        delivery.accept().await?; // the broker's answer
    }
    consumer.close(Duration::from_secs(10)).await?;
    Ok(())
}
