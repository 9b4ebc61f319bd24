//! `quickstart`: see it work.
use crate::{exit::Exit, screen::Screen, signals::Signals};
#[derive(Debug, clap::Args)]
#[command(after_help = "Example")]
pub(crate) struct QuickstartArgs {}
pub(crate) async fn run(_: QuickstartArgs, _: &'static Screen, _: Signals) -> anyhow::Result<Exit> {
    Ok(Exit::Done)
}
