//! `perf script | flame TITLE FILE.svg FILE.folded`: a flame graph, and the folded stacks it is made of.

use std::fs::{self, File};
use std::io::stdin;

use anyhow::Context as _;
use inferno::collapse::Collapse;
use inferno::collapse::perf::Folder;
use inferno::flamegraph::{Options, from_lines};

fn main() -> anyhow::Result<()> {
    let mut args = std::env::args().skip(1);
    let mut next = || args.next().context("flame TITLE FILE.svg FILE.folded");
    let (title, svg, folded) = (next()?, next()?, next()?);
    Folder::default().collapse(stdin().lock(), File::create(&folded)?)?;
    let text = fs::read_to_string(&folded)?;
    let mut options = Options::default();
    options.title = title;
    from_lines(&mut options, text.lines(), File::create(svg)?)?;
    Ok(())
}
