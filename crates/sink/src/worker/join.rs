//! From a task's setup to a task at work: its sink started, its group prepared and joined.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use super::cluster::{Cluster, TaskPlace};
use super::supervise::TaskSetup;
use crate::config::AcknowledgementMode;
use crate::connector::TaskContext;
use crate::convert::Chain;
use crate::error::{TaskError, chain};
use crate::loss::LossLog;
use crate::prepare::Prepared;
use crate::source::RecordSource;
use crate::task::{
    AtWork, Control, DeadLetters, Ended, FailureSettings, SharedLetters, Sink, TaskSettings, call,
    stopped,
};

/// Starts the sink, prepares and joins the group. `None` = told to stop meanwhile.
pub(super) async fn make<C: Cluster>(
    cluster: &C,
    setup: &TaskSetup,
) -> Result<Option<AtWork<C::Source>>, String> {
    let converters = setup.config.converters.make();
    let converters = converters.map_err(|error| error.to_string())?;
    let mut control = setup.control.clone();
    // A sink that can't start must not take records away from others: it starts first.
    let mut sinks = Vec::new();
    for _ in 0..setup.config.delivery.concurrency {
        match start_sink(setup, &mut control).await {
            Ok(Some(sink)) => sinks.push(sink),
            not_started => {
                stop_sinks(sinks, &mut control).await;
                return not_started.map(|_| None);
            }
        }
    }
    let joined = {
        let mut joining = pin!(join(cluster, setup));
        tokio::select! {
            biased;
            () = stopped(&mut control) => {
                leave_once_joined(joining, &control).await;
                None
            }
            joined = &mut joining => Some(joined),
        }
    };
    let (source, prepared, dead_letters) = match joined {
        Some(Ok(joined)) => joined,
        Some(Err(error)) => {
            stop_sinks(sinks, &mut control).await;
            return Err(error);
        }
        None => {
            stop_sinks(sinks, &mut control).await;
            return Ok(None);
        }
    };
    SharedLetters::share(dead_letters, &mut sinks);
    Ok(Some(AtWork::new(
        source,
        sinks,
        setup.control.clone(),
        Arc::clone(&setup.shared),
        settings(setup, &prepared, Chain::of(converters)),
    )))
}

/// Makes and starts a sink's task. `None` = told to stop meanwhile.
async fn start_sink(
    setup: &TaskSetup,
    control: &mut watch::Receiver<Control>,
) -> Result<Option<Sink>, String> {
    let config = &setup.config;
    let context = TaskContext::new(
        config.name.as_str(),
        setup.shared.index,
        config.tasks_max,
        config.consumer.group_id.as_str(),
    );
    let task = config.connector().task(config, &context);
    let mut task = task.map_err(|error| chain(&error))?;
    let started = call(|| task.start(&context), control, 0, || {}).await;
    let has_started = ended_well("start", started)?;
    Ok(has_started.then_some(Sink {
        task,
        context,
        dead_letters: None,
    }))
}

fn settings(setup: &TaskSetup, prepared: &Prepared, chain: Chain) -> TaskSettings {
    let config = &setup.config;
    let name = setup.name();
    TaskSettings {
        loss: LossLog {
            file: config.consumer.loss_file.clone(),
            group_id: config.consumer.group_id.clone(),
            task: name.clone(),
        },
        name,
        explicit: config.consumer.acknowledgement_mode == AcknowledgementMode::Explicit,
        delivery_count_limit: prepared.delivery_count_limit,
        tasks: i16::try_from(config.tasks_max).unwrap_or(i16::MAX),
        writes_at_once: config.connector().writes_at_once(),
        flush_interval: setup.flush_interval,
        shutdown_timeout: setup.shutdown_timeout,
        topics: config
            .topics
            .iter()
            .map(|topic| Arc::from(topic.as_str()))
            .collect(),
        chain: Arc::new(chain),
        failures: FailureSettings::of(config, prepared),
    }
}

/// A member, what it knows of its group, and where its dead letters go.
type Joined<S> = (S, Prepared, Option<Box<dyn DeadLetters>>);

async fn join<C: Cluster>(cluster: &C, setup: &TaskSetup) -> Result<Joined<C::Source>, String> {
    let (config, shared) = (&*setup.config, &setup.shared);
    let servers = &config.consumer.bootstrap_servers;
    shared.set_note(Some(format!("waiting for the cluster at {servers}")));
    let prepared = setup.preparation.get(cluster, config).await?;
    let name = setup.name();
    let place = TaskPlace {
        name: &name,
        index: shared.index,
        delivery_count_limit: prepared.delivery_count_limit,
        shared,
    };
    // Who has no place for what is refused must not take records away from others.
    let dead_letters = cluster.dead_letters(config, place.index).await?;
    let source = cluster.open(config, place).await?;
    shared.set_note(None);
    Ok((source, prepared, dead_letters))
}

/// The group may have taken the member in already, without our knowing: what is told to stop while it
/// joins gets a moment to end that properly. A member that just goes is missed only after its session.
async fn leave_once_joined<S: RecordSource>(
    joining: impl Future<Output = Result<Joined<S>, String>>,
    control: &watch::Receiver<Control>,
) {
    let Control::Stop { deadline, budget } = *control.borrow() else {
        return;
    };
    if let Ok(Ok((mut source, ..))) = timeout(JOIN_MAX.min(budget / 2), joining).await {
        let left = deadline.saturating_duration_since(Instant::now());
        if let Err(error) = source.close(left).await {
            tracing::warn!(%error, "Leaving the group failed.");
        }
    }
}

/// Longest wait for a join that is under way when the task must stop.
pub(super) const JOIN_MAX: Duration = Duration::from_secs(1);

async fn stop_sinks(sinks: Vec<Sink>, control: &mut watch::Receiver<Control>) {
    for mut sink in sinks {
        let stopped = call(|| sink.task.stop(), control, 0, || {}).await;
        if let Err(error) = ended_well("stop", stopped) {
            tracing::warn!(error, "The sink's stop failed.");
        }
    }
}

/// `false` if the call was cut off because the task must stop.
fn ended_well(what: &str, ended: Ended<TaskError>) -> Result<bool, String> {
    match ended {
        Ended::Returned(Ok(())) => Ok(true),
        Ended::Returned(Err(error)) => Err(chain(&error)),
        Ended::Panicked(text) => Err(format!("the sink's {what} panicked: {text}")),
        Ended::CutOff => Ok(false),
    }
}
