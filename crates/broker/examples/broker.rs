//! A broker to try clients against: `cargo run --release -p sharegroup-broker --example broker -- 9092 orders:4`. The group `g`, and
//! no other, begins at the start of its topics; others get what comes after their first join.
#![allow(
    clippy::unwrap_used,
    reason = "a wrong argument ends the program with its place"
)]

use sharegroup_broker::Broker;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let mut args = std::env::args().skip(1);
        let port = args.next().map_or(0, |port| port.parse().unwrap());
        let mut builder = Broker::builder().port(port);
        for topic in args {
            let (name, partitions) = topic.split_once(':').unwrap_or((&topic, "1"));
            builder = builder.topic(name, partitions.parse().unwrap());
        }
        let broker = builder
            .group("g", "share.auto.offset.reset", "earliest")
            .start()
            .await?;
        println!("bootstrap.servers={}", broker.bootstrap_servers());
        std::future::pending::<()>().await;
        Ok(())
    })
}
