//! Works off a topic in a task of its own, 64 records at a time, until Ctrl-C: `cargo run --example concurrent -- localhost:9092`.

use std::{sync::Arc, time::Duration};

use sharegroup::{Delivery, Outcome, ShareConsumer};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let servers = std::env::args().nth(1).ok_or("give HOST:PORT")?;
    let builder = ShareConsumer::builder(servers).group_id("billing");
    let mut consumer = builder.topics(["orders"]).build().await?;
    let client = Arc::new("billed".to_owned()); // stands for a client that all handlers share
    let working = tokio::spawn(async move {
        let handler = async move |delivery: &Delivery| {
            let record = delivery.record();
            let Ok(order) = str::from_utf8(record.value.unwrap_or_default()) else {
                return Outcome::Reject;
            };
            tokio::time::sleep(Duration::from_millis(5)).await; // a call to somebody
            println!("{client} {}: {order}", record.offset);
            Outcome::Accept
        };
        let working = consumer.concurrent(64).until(tokio::signal::ctrl_c());
        let worked = working.for_each(handler).await;
        worked.and(consumer.close(Duration::from_secs(10)).await) // closed also after an error
    });
    eprintln!("all confirmed: {}", working.await??.is_ok());
    Ok(())
}
