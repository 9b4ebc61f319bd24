//! Checks of the sink's task alone.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use tokio::time::timeout;

use super::driven::{Driven, Placed, Put};
use super::judge::Found;
use super::report::{Checked, Ended, ensure};
use super::scene::{Scene, recipes};
use super::target::{Delivery, Recipe, Refusals, SLOW, Target, Trouble};

/// What the runtime accepts is in the destination at that moment: before the task is called again.
pub(super) async fn written_before_accepted<T: Target>(scene: &mut Scene<'_, T>) -> Checked {
    let mut task = scene.driven().await?;
    let mut accepted = BTreeSet::new();
    for round in 0..3 {
        let records = scene.placed(&recipes(round * 20..(round + 1) * 20));
        let put = task.put(&records).await?;
        accepted.extend(put.accepted().filter_map(|placed| placed.number));
        ensure(!put.is_fatal(), "good records are written", || put.told())?;
        there(&accepted, &scene.found().await?)?;
    }
    task.end().await?;
    ensure(!accepted.is_empty(), "good records are written", || {
        "none was, in three puts".to_owned()
    })
}

fn there(accepted: &BTreeSet<u64>, found: &Found) -> Checked {
    let missing: Vec<_> = accepted.iter().filter(|n| !found.has(**n)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let promised = "a record is in the destination before put and flush say that it is written";
    let seen = format!(
        "{} are not there once put and flush have returned",
        missing.len()
    );
    Err(Ended::broken(promised, seen).about(missing.into_iter().copied()))
}

/// A put with bad records says of each record what became of it.
pub(super) async fn bad_record_is_named<T: Target>(scene: &mut Scene<'_, T>) -> Checked {
    let mut records = scene.placed(&recipes(0..10));
    let bad = (100..).map(|number| scene.target.bad_record(&Recipe::of(number)));
    for (place, record) in BAD_PLACES.into_iter().zip(bad) {
        let bad = Placed {
            offset: 0,
            number: None,
            delivery_count: 1,
            record: record?,
        };
        records.insert(place, bad);
    }
    for (offset, placed) in (0..).zip(&mut records) {
        placed.offset = offset;
    }
    let mut task = scene.driven().await?;
    let put = task.put(&records).await?;
    not_accepted(&put)?;
    match scene.target.promises().refusals {
        Refusals::Named => named(&put)?,
        Refusals::WholePut => {
            ensure(
                put.is_fatal() && put.refused().next().is_none(),
                "a put with bad records fails as a whole (PutError::Fatal)",
                || put.told(),
            )?;
            let bad = records.iter().filter(|placed| placed.number.is_none());
            let bad: Vec<_> = bad.take(1).cloned().collect();
            let alone = task.put(&bad).await?;
            not_accepted(&alone)?;
            ensure(
                alone.is_fatal() || alone.refused().next().is_some(),
                "a bad record that is put alone is refused",
                || alone.told(),
            )?;
        }
    }
    task.end().await
}

fn not_accepted(put: &Put) -> Checked {
    ensure(
        put.accepted().all(|placed| placed.number.is_some()),
        "a record that the target refuses does not count as written",
        || "put and flush say that it is written".to_owned(),
    )
}

fn named(put: &Put) -> Checked {
    let wrong: Vec<_> = put
        .refused()
        .filter_map(|(placed, _)| placed.number)
        .collect();
    if !wrong.is_empty() {
        let promised = "a bad record stands alone: only it is refused";
        let seen = "good records of the same put are refused as well";
        return Err(Ended::broken(promised, seen).about(wrong));
    }
    let (named, bad) = (put.refused().count(), BAD_PLACES.len());
    ensure(
        named == bad,
        "each record that the target refuses is named (Outcome::Refused)",
        || format!("outcomes say so of {named} of {bad}, and {}", put.told()),
    )?;
    ensure(
        put.refused().all(|(_, reason)| !reason.trim().is_empty()),
        "a refusal says why",
        || "its reason is empty".to_owned(),
    )
}

/// The same records again, interleaved with others, and by another task.
pub(super) async fn redelivered<T: Target>(scene: &mut Scene<'_, T>) -> Checked {
    let written = recipes(0..40);
    let all = scene.placed(&written);
    let parted = |first: usize, count: usize, step: usize| -> Vec<Placed> {
        let part = all.iter().skip(first).step_by(step).take(count);
        part.cloned().collect()
    };
    let mut task = scene.driven().await?;
    task.write(&parted(0, 20, 1)).await?;
    task.write(&again(parted(0, 20, 1), 2)).await?;
    // Every other one of the old ones, among new ones.
    task.write(&again(parted(0, 20, 2), 3)).await?;
    task.write(&again(parted(1, 20, 2), 3)).await?;
    task.end().await?;
    let mut task = scene.driven().await?;
    task.write(&again(all, 4)).await?;
    task.end().await?;
    scene.judge(&written).await
}

fn again(records: Vec<Placed>, delivery_count: i16) -> Vec<Placed> {
    let delivered = |placed| Placed {
        delivery_count,
        ..placed
    };
    records.into_iter().map(delivered).collect()
}

/// Older records after newer ones, and several of one key in a put.
pub(super) async fn reordered<T: Target>(scene: &mut Scene<'_, T>) -> Checked {
    let keyed = |number| Recipe {
        key: number % 4,
        ..Recipe::of(number)
    };
    let written: Vec<_> = if scene.target.promises().delivery == Delivery::IdempotentByKey {
        (0..30).map(keyed).collect()
    } else {
        recipes(0..30)
    };
    let mut task = scene.driven().await?;
    for part in written.chunks(10).rev() {
        task.write(&scene.placed(part)).await?;
    }
    task.end().await?;
    scene.judge(&written).await
}

/// A put that is dropped at each of its awaits, as a worker that must stop drops it: its task ends all the
/// same, and another one writes everything.
pub(super) async fn put_is_cancelled<T: Target>(scene: &mut Scene<'_, T>) -> Checked {
    let mut written = Vec::new();
    let mut polls = 1;
    for round in 0..ROUNDS_MAX {
        let part = recipes(round * 10..(round + 1) * 10);
        let records = scene.placed(&part);
        written.extend(part);
        let mut task = scene.driven().await?;
        let has_ended = task.cancel_put(&records, polls).await?;
        task.end().await?;
        let mut task = scene.driven().await?;
        task.write(&again(records, 2)).await?;
        task.end().await?;
        if has_ended {
            break;
        }
        // All of the first, then ever fewer.
        polls += 1 + polls / 10;
    }
    scene.judge(&written).await
}

/// The memory of records is given back once they are written.
pub(super) async fn records_are_let_go<T: Target>(scene: &mut Scene<'_, T>) -> Checked {
    const PUTS: u64 = 20;
    const RECORDS: u64 = 50;
    let kept = Arc::new(AtomicUsize::new(0));
    let mut task = scene.driven().await?;
    for round in 0..PUTS {
        let recipe = |number| Recipe {
            bytes: 4096,
            ..Recipe::of(number)
        };
        let part: Vec<_> = (round * RECORDS..(round + 1) * RECORDS)
            .map(recipe)
            .collect();
        let mut records = scene.placed(&part);
        for placed in &mut records {
            let value = placed.record.value.take();
            placed.record.value = value.map(|value| Lent::of(value, &kept));
        }
        task.write(&records).await?;
    }
    let left = kept.load(Ordering::SeqCst) as u64;
    task.end().await?;
    ensure(
        left <= RECORDS,
        "memory is bounded: records are let go of once they are written",
        || format!("of {} records {left} are still held", PUTS * RECORDS),
    )
}

/// A value whose memory is counted.
struct Lent {
    value: Bytes,
    kept: Arc<AtomicUsize>,
}

impl Lent {
    fn of(value: Bytes, kept: &Arc<AtomicUsize>) -> Bytes {
        kept.fetch_add(1, Ordering::SeqCst);
        let kept = Arc::clone(kept);
        Bytes::from_owner(Self { value, kept })
    }
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.value
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.kept.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A target in trouble refuses no record, and nothing counts as written that isn't; afterwards all is written.
pub(super) async fn put_in_trouble<T: Target>(
    scene: &mut Scene<'_, T>,
    trouble: Trouble,
) -> Checked {
    let written = recipes(0..30);
    let records = scene.placed(&written);
    let (before, during) = records.split_at(10);
    let mut task = scene.driven().await?;
    task.write(before).await?;
    scene.target.trouble(trouble).await?;
    let tried = put_while(&mut task, during, trouble).await;
    // However that went: others need the target.
    scene.target.mend().await?;
    let (accepted, rest, is_over) = tried?;
    there(&accepted, &scene.found().await?)?;
    if is_over {
        task.end().await?;
        task = scene.driven().await?;
    }
    task.write(&again(rest, 2)).await?;
    task.end().await?;
    scene.judge(&written).await
}

/// Records that count as written, others, and whether the task can't go on.
type Tried = (BTreeSet<u64>, Vec<Placed>, bool);

async fn put_while(task: &mut Driven<'_>, records: &[Placed], trouble: Trouble) -> Checked<Tried> {
    let put = match trouble {
        // Nobody has to give up by himself: the runtime does, at the end of the lock.
        Trouble::Silent => match timeout(SLOW, task.put(records)).await {
            Ok(put) => put?,
            Err(_) => return Ok((BTreeSet::new(), records.to_vec(), true)),
        },
        _ => task.put(records).await?,
    };
    let promised =
        format!("no record is refused while the target is {trouble}: it would be given up");
    let refused: Vec<_> = put
        .refused()
        .filter_map(|(placed, _)| placed.number)
        .collect();
    if put.is_fatal() || !refused.is_empty() {
        let seen = format!("records are refused for good; {}", put.told());
        return Err(Ended::broken(promised, seen).about(refused));
    }
    let accepted = put.accepted().filter_map(|placed| placed.number).collect();
    Ok((accepted, put.rest(), put.is_broken()))
}

/// Where bad records are among good ones: the first, two in a row, the last.
const BAD_PLACES: [usize; 4] = [0, 5, 6, 13];
/// Awaits at which a put is dropped, at most.
const ROUNDS_MAX: u64 = 40;
