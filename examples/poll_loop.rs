//! Works off a topic batch by batch until Ctrl-C: `cargo run --example poll_loop -- localhost:9092`.

use std::time::Duration;

use sharegroup::{Acknowledge, ShareConsumer};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let servers = std::env::args()
        .nth(1)
        .ok_or("give HOST:PORT of a server")?;
    let builder = ShareConsumer::builder(servers).group_id("billing");
    let mut consumer = builder.topics(["orders"]).build().await?;
    let mut ctrl_c = std::pin::pin!(tokio::signal::ctrl_c());
    while let Some(mut batch) = tokio::select! {
        polled = consumer.poll() => polled?,
        _ = &mut ctrl_c => None,
    } {
        for record in batch.data().records() {
            match str::from_utf8(record.value.unwrap_or_default()) {
                Ok(order) => println!("{}: {order}", record.offset),
                Err(_) => batch.settle(record.offset, Acknowledge::Reject)?,
            }
        }
        batch.accept(); // the others
    }
    consumer.close(Duration::from_secs(10)).await?;
    Ok(())
}
