//! The ceiling without a broker: `replay serve` answers what a share consumer asks with prepared responses, as
//! fast as the socket takes them; `replay raw` is the limit on the same bytes, a loop that asks, reads the
//! socket and checks CRC32C.

mod frames;
mod raw;
mod server;

use anyhow::{Context as _, bail};

/// What stands behind a name: `--name value`.
fn option(name: &str, otherwise: &str) -> String {
    let mut args = std::env::args().skip_while(|arg| arg != name);
    args.nth(1).unwrap_or_else(|| otherwise.to_owned())
}

fn main() -> anyhow::Result<()> {
    let number = |name, otherwise| -> anyhow::Result<u64> {
        option(name, otherwise)
            .parse()
            .with_context(|| format!("{name} of what?"))
    };
    match std::env::args().nth(1).as_deref() {
        Some("serve") => server::run(usize::try_from(number("--value-bytes", "256")?)?),
        Some("raw") => raw::run(
            &option("--servers", ""),
            number("--records", "1000000")?,
            i32::try_from(number("--poll", "500")?)?,
        ),
        _ => bail!(
            "replay serve --value-bytes N, or replay raw --servers ADDRESS --records N --poll N"
        ),
    }
}
