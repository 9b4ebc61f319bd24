//! Works off a topic batch by batch until Ctrl-C: `cargo run --example poll_loop -- localhost:9092`.

use std::{error::Error, time::Duration};

use sharegroup::{Acknowledge, ShareConsumer};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let servers = std::env::args().nth(1).ok_or("give HOST:PORT")?;
    let builder = ShareConsumer::builder(servers).group_id("billing");
    let mut consumer = builder.topics(["orders"]).build().await?;
    let working = async {
        while let Some(mut batch) = consumer.poll().await? {
            for record in batch.data().records() {
                match str::from_utf8(record.value.unwrap_or_default()) {
                    Ok(order) => println!("{}: {order}", record.offset),
                    Err(_) => batch.settle(record.offset, Acknowledge::Reject)?,
                }
            }
            batch.accept(); // the others
        }
        Ok(())
    };
    let worked =
        tokio::select! { worked = working => worked, _ = tokio::signal::ctrl_c() => Ok(()) };
    let report = consumer.close(Duration::from_secs(10)).await?; // also after an error
    eprintln!("all confirmed: {}", report.is_ok());
    worked
}
