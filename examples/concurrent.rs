//! Works off a topic, 64 records at a time, until Ctrl-C: `cargo run --example concurrent -- localhost:9092`.

use std::time::Duration;

use sharegroup::{Delivery, Outcome, ShareConsumer};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let servers = std::env::args()
        .nth(1)
        .ok_or("give HOST:PORT of a server")?;
    let builder = ShareConsumer::builder(servers).group_id("billing");
    let mut consumer = builder.topics(["orders"]).build().await?;
    consumer
        .concurrent(64)
        .until(tokio::signal::ctrl_c())
        .for_each(async |delivery: &Delivery| {
            let record = delivery.record();
            let Ok(order) = str::from_utf8(record.value.unwrap_or_default()) else {
                return Outcome::Reject;
            };
            tokio::time::sleep(Duration::from_millis(5)).await; // a call to somebody
            println!("{}: {order}", record.offset);
            Outcome::Accept
        })
        .await?;
    consumer.close(Duration::from_secs(10)).await?;
    Ok(())
}
