//! Runs the sink, with files as `sharegroup run` takes them: `own-sink WORKER.properties CONNECTOR.properties...`

use std::path::PathBuf;
use std::process::ExitCode;

use sharegroup::sink::config::load;
use sharegroup::sink::{Worker, WorkerOptions};

#[tokio::main]
async fn main() -> ExitCode {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .init();
    let mut arguments = std::env::args_os().skip(1).map(PathBuf::from);
    let worker_file = arguments.next().unwrap_or_default();
    let connector_files: Vec<_> = arguments.collect();
    let loaded = match load(&worker_file, &connector_files, false, &own_sink::registry()) {
        Ok(loaded) => loaded,
        Err(problems) => {
            for problem in problems {
                eprintln!("{problem}");
            }
            return ExitCode::from(2);
        }
    };
    let options = WorkerOptions::default();
    let worker = Worker::start(&loaded.worker, loaded.connectors, &options);
    let waited = tokio::signal::ctrl_c().await;
    // Finishes what is held, releases the rest, leaves the group.
    let report = worker.stop(loaded.worker.shutdown_timeout).await;
    match waited.is_ok() && report.late.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}
