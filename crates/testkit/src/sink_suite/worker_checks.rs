//! Checks of a whole worker with the sink.

use std::fmt::Display;
use std::time::Duration;

use sharegroup_sink::OwnedRecord;
use sharegroup_sink::worker::{TaskState, WorkerStatus};
use tokio::time::{Instant, sleep, timeout};

use super::report::{Checked, Ended, ensure};
use super::scene::{Running, Scene, recipes};
use super::target::{Recipe, SLOW, Target, Trouble};

/// A run whose metrics tell of every record.
pub(super) async fn metrics<T: Target>(scene: &mut Scene<'_, T>) -> Checked {
    const RECORDS: u64 = 50;
    scene.create_topic(1).await?;
    let written = recipes(0..RECORDS);
    scene.produce_good(&written).await?;
    let running = scene.start_worker(scene.load(&[])?);
    scene.settled(|| running.told()).await?;
    let counted = |status: &WorkerStatus| status.totals().acknowledged == RECORDS;
    running
        .until("every record is counted as acknowledged", counted)
        .await?;
    let text = running.worker.metrics();
    for (name, expected) in [
        ("sink_task_metrics_sink_record_read_total", RECORDS),
        ("sink_task_metrics_sink_record_send_total", RECORDS),
        ("sink_task_metrics_sink_record_acquire_total", RECORDS),
        ("sink_task_metrics_sink_record_acknowledge_total", RECORDS),
        ("sink_task_metrics_sink_record_reject_total", 0),
        ("sink_task_metrics_sink_record_active_count", 0),
        ("task_error_metrics_deadletterqueue_produce_requests", 0),
    ] {
        let counted = sum(&text, name);
        ensure(
            counted == Some(expected.to_string()),
            "the metrics count every record",
            || {
                let counted = counted.as_deref().unwrap_or("not there");
                format!("kafka_connect_{name} is {counted} where it should be {expected}")
            },
        )?;
    }
    running.stop().await?;
    scene.judge(&written).await
}

/// The value of the only task's sample.
fn sum(text: &str, name: &str) -> Option<String> {
    let start = format!("kafka_connect_{name}{{");
    let line = text.lines().find(|line| line.starts_with(&start))?;
    let value = line.rsplit(' ').next()?;
    let value = value.strip_suffix(".0").unwrap_or(value);
    Some(value.to_owned())
}

/// Produces good records with bad ones among them, at these offsets. The good ones.
async fn produce_with_bad_ones<T: Target>(
    scene: &Scene<'_, T>,
    bad_offsets: &[usize],
) -> Checked<Vec<Recipe>> {
    let written = recipes(0..30);
    let good = |recipe: &Recipe| scene.record(recipe);
    let mut records: Vec<OwnedRecord> = written.iter().map(good).collect();
    for (number, &offset) in (100..).zip(bad_offsets) {
        let bad = scene.target.bad_record(&Recipe::of(number))?;
        records.insert(offset, bad);
    }
    scene.produce(records).await?;
    Ok(written)
}

/// Under `errors.tolerance=all` bad records get letters, and all others are written.
pub(super) async fn bad_record_stands_alone<T: Target>(scene: &mut Scene<'_, T>) -> Checked {
    create_topics(scene).await?;
    let bad_offsets = [0, BAD_OFFSET, BAD_OFFSET + 1];
    let written = produce_with_bad_ones(scene, &bad_offsets).await?;
    let running = start_tolerant(scene, &[])?;
    scene.settled(|| running.told()).await?;
    running.stop().await?;
    scene.judge(&written).await?;
    let letters = scene.letters().await?;
    ensure(
        usize::try_from(letters) == Ok(bad_offsets.len()),
        "bad records stand alone: each gets a dead letter, and no other does",
        || format!("there are {letters} dead letters"),
    )
}

/// Under `errors.tolerance=none` a bad record fails the task, which names it.
pub(super) async fn bad_record_fails_the_task<T: Target>(scene: &mut Scene<'_, T>) -> Checked {
    scene.create_topic(1).await?;
    produce_with_bad_ones(scene, &[BAD_OFFSET]).await?;
    let running = scene.start_worker(scene.load(&[])?);
    let failed = |status: &WorkerStatus| status.count(TaskState::Failed) == 1;
    running.until("a bad record fails the task", failed).await?;
    let place = format!("{}-0 offset {BAD_OFFSET}", scene.topic);
    let told = running.told();
    running.stop().await?;
    ensure(
        told.contains(&place),
        "the task that fails names the bad record",
        || format!("{place} is not in: {told}"),
    )
}

/// A target that is down before the worker starts.
pub(super) async fn down_at_start<T: Target>(scene: &mut Scene<'_, T>) -> Checked {
    create_topics(scene).await?;
    let written = recipes(0..60);
    scene.produce_good(&written).await?;
    let loaded = scene.load(&tolerant(&scene.letters_topic(), &[]))?;
    scene.target.trouble(Trouble::Down).await?;
    let running = scene.start_worker(loaded);
    until_it_shows(&running).await;
    scene.target.mend().await?;
    all_written(scene, running, &written, Trouble::Down).await
}

/// Trouble while records flow.
pub(super) async fn trouble_in_the_middle<T: Target>(
    scene: &mut Scene<'_, T>,
    trouble: Trouble,
) -> Checked {
    create_topics(scene).await?;
    let written = recipes(0..60);
    let (before, during) = written.split_at(30);
    scene.produce_good(before).await?;
    let running = start_tolerant(scene, &[])?;
    let first = |status: &WorkerStatus| status.totals().acknowledged == 30;
    running.until("records are written", first).await?;
    scene.target.trouble(trouble).await?;
    scene.produce_good(during).await?;
    until_it_shows(&running).await;
    scene.target.mend().await?;
    all_written(scene, running, &written, trouble).await
}

/// Waits until the worker has met the trouble, and then some: a put that fails for good is repeated in ever smaller
/// parts before a record is given up. What takes longer to be met, or isn't met at all, is as good.
async fn until_it_shows(running: &Running<'_>) {
    let shows = |status: &WorkerStatus| {
        let failed = status.count(TaskState::Failed) > 0;
        failed || status.totals().put_failures > 0 || status.tasks().any(|task| task.restarts > 0)
    };
    drop(timeout(TROUBLE_TIME, running.until("it meets the trouble", shows)).await);
    sleep(TROUBLE_TIME / 2).await;
}

async fn all_written<T: Target>(
    scene: &mut Scene<'_, T>,
    running: Running<'_>,
    written: &[Recipe],
    trouble: impl Display,
) -> Checked {
    scene.settled(|| running.told()).await?;
    let lost = running.status().totals().lost();
    let told = running.told();
    running.stop().await?;
    let letters = scene.letters().await?;
    let promised = format!("no record is given up because the target is {trouble}");
    ensure(letters == 0 && lost == 0, &promised, || {
        format!("{letters} have dead letters, {lost} are named as lost. {told}")
    })?;
    scene.judge(written).await
}

/// Wrong credentials give up no record; with the right ones all are written.
pub(super) async fn wrong_credentials<T: Target>(scene: &mut Scene<'_, T>) -> Checked {
    let wrong = scene.target.wrong_credentials()?;
    let wrong: Vec<_> = pairs(&wrong).collect();
    create_topics(scene).await?;
    let written = recipes(0..20);
    scene.produce_good(&written).await?;
    let letters_topic = scene.letters_topic();
    let keys = [
        ("errors.tolerance", "all"),
        ("errors.deadletterqueue.topic.name", &letters_topic),
        ("errors.deadletterqueue.topic.replication.factor", "1"),
    ];
    let running = scene.start_worker(scene.load(&[&keys, &wrong[..]].concat())?);
    let shows = |status: &WorkerStatus| {
        status.count(TaskState::Failed) > 0 || status.totals().put_failures > 0
    };
    running
        .until("wrong credentials fail the start or a put", shows)
        .await?;
    let told = running.told();
    running.stop().await?;
    let unsettled = scene.unsettled(&scene.admin()?).await?;
    let (letters, found) = (scene.letters().await?, scene.found().await?);
    ensure(
        unsettled.unwrap_or(20) == 20 && letters == 0 && found.is_empty(),
        "no record is settled, given up or written with wrong credentials",
        || {
            format!(
                "{unsettled:?} of 20 records are unsettled, {letters} have dead letters. {told}"
            )
        },
    )?;
    let running = start_tolerant(scene, &[])?;
    all_written(scene, running, &written, Trouble::Down).await
}

/// Tasks beside each other, with instances beside each other where the sink may have several.
pub(super) async fn several_tasks<T: Target>(scene: &mut Scene<'_, T>) -> Checked {
    const TASKS: usize = 3;
    scene.create_topic(4).await?;
    scene.create_letters_topic().await?;
    let is_concurrent = scene.connector(&[])?.connector().is_concurrent();
    let instances = if is_concurrent { "2" } else { "1" };
    let more = [("tasks.max", "3"), ("share.concurrency", instances)];
    let running = start_tolerant(scene, &more)?;
    let run = |status: &WorkerStatus| status.count(TaskState::Running) == TASKS;
    running.until("all tasks of a sink run", run).await?;
    let written = recipes(0..300);
    for part in written.chunks(30) {
        scene.produce_good(part).await?;
    }
    all_written(scene, running, &written, "there for several tasks").await
}

/// A worker that must stop while a put waits for its target.
pub(super) async fn shutdown_in_put<T: Target>(
    scene: &mut Scene<'_, T>,
    trouble: Trouble,
) -> Checked {
    create_topics(scene).await?;
    let running = start_tolerant(scene, &[])?;
    let runs = |status: &WorkerStatus| status.count(TaskState::Running) == 1;
    running.until("the task runs", runs).await?;
    scene.target.trouble(trouble).await?;
    let written = until_in_put(scene, &running).await?;
    stopped_in_put(&running).await?;
    scene.target.mend().await?;
    let running = start_tolerant(scene, &[])?;
    all_written(scene, running, &written, trouble).await
}

/// Writes records until one of them is being put: a slow target may let some through at once. All of them.
async fn until_in_put<T: Target>(
    scene: &Scene<'_, T>,
    running: &Running<'_>,
) -> Checked<Vec<Recipe>> {
    let in_put = |status: &WorkerStatus| status.tasks().any(|task| task.metrics.puts_active > 0);
    let give_up_at = Instant::now() + scene.patience;
    let mut written = Vec::new();
    loop {
        let next = written.len() as u64;
        let part = recipes(next..next + 20);
        scene.produce_good(&part).await?;
        written.extend(part);
        let seen = timeout(SLOW / 2, running.until("records are put", in_put)).await;
        if let Ok(seen) = seen {
            return seen.map(|()| written);
        }
        ensure(
            Instant::now() < give_up_at,
            "records are put, and a slow target takes its time for some",
            || running.told(),
        )?;
    }
}

/// Stops a worker that is in the middle of a put.
async fn stopped_in_put(running: &Running<'_>) -> Checked {
    let budget = SLOW / 4;
    let began = Instant::now();
    let report = running.worker.stop(budget).await;
    let took = began.elapsed();
    running.listen();
    let promised = "a worker stops within its budget, also in the middle of a put";
    ensure(
        report.late.is_empty() && took < 4 * budget,
        promised,
        || {
            let late = report.late.join(", ");
            format!("with a budget of {budget:?} it took {took:?}; tasks still at work: {late}")
        },
    )
}

/// No secret is in anything that was said so far, in a run, or in a start with wrong credentials.
pub(super) async fn secrets<T: Target>(scene: &mut Scene<'_, T>) -> Checked {
    if !scene.heard.has_secrets() {
        return Err(Ended::Skipped("the target has no secrets".to_owned()));
    }
    scene.create_topic(1).await?;
    scene.produce_good(&recipes(0..10)).await?;
    if let Ok(wrong) = scene.target.wrong_credentials() {
        let wrong: Vec<_> = pairs(&wrong).collect();
        let running = scene.start_worker(scene.load(&wrong)?);
        until_it_shows(&running).await;
        running.stop().await?;
    }
    let running = scene.start_worker(scene.load(&[])?);
    scene.settled(|| running.told()).await?;
    running.stop().await?;
    let places = scene.heard.places();
    ensure(places.is_empty(), "secrets are printed nowhere", || {
        places.join("; ")
    })?;
    if scene.heard.hears_logs() {
        return Ok(());
    }
    let why =
        "there is no secret elsewhere, but the log of this process goes to another subscriber";
    Err(Ended::Skipped(why.to_owned()))
}

fn pairs(keys: &[(String, String)]) -> impl Iterator<Item = (&str, &str)> {
    keys.iter()
        .map(|(key, value)| (key.as_str(), value.as_str()))
}

async fn create_topics<T: Target>(scene: &Scene<'_, T>) -> Checked {
    scene.create_topic(1).await?;
    scene.create_letters_topic().await
}

/// Starts a worker that gives up what is refused, and nothing else.
fn start_tolerant<'a, T: Target>(
    scene: &Scene<'a, T>,
    more: &[(&str, &str)],
) -> Checked<Running<'a>> {
    let loaded = scene.load(&tolerant(&scene.letters_topic(), more))?;
    Ok(scene.start_worker(loaded))
}

/// Keys with which a record that is refused gets a letter, and a task that fails is started again.
fn tolerant<'k>(letters: &'k str, more: &[(&'k str, &'k str)]) -> Vec<(&'k str, &'k str)> {
    let keys = [
        ("errors.tolerance", "all"),
        ("errors.deadletterqueue.topic.name", letters),
        ("errors.deadletterqueue.topic.replication.factor", "1"),
        ("task.restart.max", "1000"),
        ("task.restart.backoff.ms", "200"),
        ("task.restart.backoff.max.ms", "500"),
    ];
    [&keys, more].concat()
}

const BAD_OFFSET: usize = 13;
/// How long a worker gets to meet a trouble.
const TROUBLE_TIME: Duration = Duration::from_secs(3);
