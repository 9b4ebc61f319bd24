//! The checks of a net, on a cluster that isn't there.

use sharegroup_consumer::admin::AdminError;

use super::super::tests::{Fake, settings, topics};
use super::super::{Prepared, prepare};
use super::*;

const NET: &str = "dlq.orders";

/// A cluster on which everything is as a net needs it, but for the group.
fn fit() -> Fake {
    let mut fake = Fake::new();
    fake.share_version = Some(2);
    fake.settings.push((LETTERS, "", false));
    fake.settings.push((COPY, "false", false));
    fake.prefix = Some("dlq.");
    fake.topic = Some((NET, "true"));
    fake
}

async fn prepared(fake: &Fake, lines: &str) -> Result<Prepared, String> {
    let connector = settings(&format!("share.dead.letter.net.topic={NET}\n{lines}"));
    let prepared = prepare(fake, &connector, &topics()).await;
    prepared.map_err(|error| error.to_string())
}

#[tokio::test]
async fn a_net_is_set_on_the_group_where_nobody_has_set_one_and_records_are_copied() {
    let fake = fit();
    assert!(prepared(&fake, "").await.unwrap().has_dead_letters);
    let written = fake.written();
    let copy = format!("{COPY}=true");
    let topic = format!("{LETTERS}={NET}");
    assert!(written.starts_with(&[copy, topic]), "{written:?}");
}

#[tokio::test]
async fn a_net_that_somebody_has_set_is_left_as_it_is() {
    let mut fake = fit();
    fake.settings = vec![(LETTERS, NET, true), (COPY, "true", true)];
    let prepared = prepared(&fake, "share.group.prepare=false\n").await;
    assert!(prepared.unwrap().has_dead_letters);
    assert!(fake.written().is_empty());
}

#[tokio::test]
async fn a_net_that_would_not_hold_is_refused_with_what_to_do() {
    type Break = fn(&mut Fake);
    let cases: [(Break, &str, &str); 8] = [
        (
            |fake| fake.share_version = Some(1),
            "",
            "--feature share.version=2",
        ),
        (
            |fake| fake.settings.retain(|(key, ..)| *key != LETTERS),
            "",
            "Kafka 4.4",
        ),
        (|fake| fake.prefix = Some("dead."), "", "begin with dead."),
        (
            |fake| fake.topic = None,
            "",
            "--create --topic dlq.orders --config errors.deadletterqueue.group.enable=true",
        ),
        (
            |fake| fake.topic = Some((NET, "false")),
            "",
            "--entity-name dlq.orders --alter --add-config errors.deadletterqueue.group.enable=true",
        ),
        (
            |fake| fake.settings.push((LETTERS, "dlq.other", true)),
            "",
            "has errors.deadletterqueue.topic.name=dlq.other",
        ),
        (
            |fake| fake.settings.push((COPY, "false", true)),
            "",
            "--add-config errors.deadletterqueue.copy.record.enable=true",
        ),
        (
            |_| (),
            "share.group.prepare=false\n",
            "--add-config errors.deadletterqueue.copy.record.enable=true",
        ),
    ];
    for (spoil, lines, advice) in cases {
        let mut fake = fit();
        spoil(&mut fake);
        let error = prepared(&fake, lines).await.unwrap_err();
        assert!(error.contains(advice), "{advice}: {error}");
        let is_net = |written: &String| written.starts_with(LETTERS);
        assert!(!fake.written().iter().any(is_net), "{advice}");
    }
}

#[tokio::test]
async fn a_net_that_can_not_be_checked_is_refused() {
    let mut fake = fit();
    fake.prefix = None;
    let error = prepared(&fake, "").await.unwrap_err();
    assert!(
        error.contains("the brokers' settings can't be read"),
        "{error}"
    );
    let mut fake = fit();
    fake.unreadable = true;
    let error = prepared(&fake, "share.auto.offset.reset=broker\n").await;
    let error = error.unwrap_err();
    assert!(
        error.contains("the group's settings can't be read"),
        "{error}"
    );
}

/// What the topic of a fake says.
impl Fake {
    pub(in super::super) fn topic_configs_of(
        &self,
        topic: &str,
    ) -> Result<Option<Settings>, AdminError> {
        let found = self.topic.filter(|(name, _)| *name == topic);
        Ok(found.map(|(_, enabled)| {
            let value = Some(enabled.to_owned());
            let set = super::super::Setting {
                value,
                is_set: true,
            };
            Settings::from([(ENABLED.to_owned(), set)])
        }))
    }
}
