//! The layers of a client's settings: worker `consumer.*`, then connector `consumer.override.*` and
//! plain `share.*`, later wins; for the producer of dead letters `producer.*` and
//! `producer.override.*`. Security keys of the worker without a prefix come before all of them, since a
//! cluster is rarely secured for some clients only.
//!
//! The admin client prepares the group and looks at its lag, so that it speaks to the cluster of the
//! consumers, with their settings. Its security keys are its own where it has some: those of the
//! worker without a prefix, then worker `admin.*`, then connector `admin.override.*`.

use std::collections::BTreeSet;

use super::keys::{CONSUMER, PRODUCER, SHARE, Table, find};
use super::problem;
use super::properties::Properties;
use super::security::{self, SECURITY};

/// A kind of client: where its settings stand.
#[derive(Debug)]
pub(super) struct Client {
    /// Prefix in a worker file.
    pub(super) of_worker: &'static str,
    /// Prefix in a connector file.
    pub(super) overrides: &'static str,
    /// What its keys may be.
    pub(super) tables: &'static [Table],
}

/// The share consumers.
pub(super) const CONSUMERS: Client = Client {
    of_worker: "consumer.",
    overrides: "consumer.override.",
    tables: &[CONSUMER, SECURITY, SHARE],
};

/// The producer of dead letters.
pub(super) const LETTERS: Client = Client {
    of_worker: "producer.",
    overrides: "producer.override.",
    tables: &[PRODUCER, SECURITY],
};

/// The admin client: what acts of it.
pub(super) const ADMIN: Client = Client {
    of_worker: "admin.",
    overrides: "admin.override.",
    tables: &[SECURITY],
};

/// All of them.
pub(super) const CLIENTS: [&Client; 3] = [&CONSUMERS, &LETTERS, &ADMIN];

/// A value, and where it was written.
pub(super) struct Setting<'a> {
    pub(super) value: &'a str,
    pub(super) file: &'a Properties,
    pub(super) key: String,
}

/// The layers of one client's settings.
pub(super) struct Layers<'a> {
    pub(super) worker: &'a Properties,
    pub(super) connector: &'a Properties,
    pub(super) client: &'static Client,
}

impl<'a> Layers<'a> {
    pub(super) const SERVERS: &'static str = "bootstrap.servers";

    /// What is in force.
    pub(super) fn find(&self, name: &str) -> Option<Setting<'a>> {
        self.own(name).or_else(|| {
            let worker = self.of_worker(name)?;
            let overrides = self.connector.with_prefix(self.client.overrides);
            let own = overrides.chain(self.worker.with_prefix(self.client.of_worker));
            security::inherits(name, own.map(|(own, _)| own)).then_some(worker)
        })
    }

    /// Its value.
    pub(super) fn value(&self, name: &str) -> Option<&'a str> {
        Some(self.find(name)?.value)
    }

    /// What is written for the client itself.
    fn own(&self, name: &str) -> Option<Setting<'a>> {
        let plain = name.starts_with("share.").then(|| name.to_owned());
        plain
            .into_iter()
            .chain([format!("{}{name}", self.client.overrides)])
            .find_map(|key| Self::at(self.connector, key))
            .or_else(|| Self::at(self.worker, format!("{}{name}", self.client.of_worker)))
    }

    /// A security key of the worker itself. Where the client has servers of its own it isn't its: a
    /// password must not go to another cluster.
    fn of_worker(&self, name: &str) -> Option<Setting<'a>> {
        let is_shared = self.own(Self::SERVERS).is_none() && find(&[SECURITY], name).is_some();
        is_shared.then(|| Self::at(self.worker, name.to_owned()))?
    }

    /// What the admin client is told.
    pub(super) fn find_admin(&self, name: &str) -> Option<Setting<'a>> {
        if find(&[SECURITY], name).is_none() {
            return self.find(name);
        }
        let own = Self::at(self.connector, format!("{}{name}", ADMIN.overrides))
            .or_else(|| Self::at(self.worker, format!("{}{name}", ADMIN.of_worker)))
            .or_else(|| self.of_worker(name));
        own.or_else(|| {
            let overrides = self.connector.with_prefix(ADMIN.overrides);
            let own = overrides.chain(self.worker.with_prefix(ADMIN.of_worker));
            let workers = self.worker.iter().map(|(key, _)| key);
            let workers = workers.filter(|key| self.of_worker(key).is_some());
            security::inherits(name, own.map(|(own, _)| own).chain(workers))
                .then(|| self.find(name))?
        })
    }

    /// The servers of the client, or the worker's.
    pub(super) fn servers(&self) -> Option<Setting<'a>> {
        self.find(Self::SERVERS)
            .filter(|setting| !setting.value.is_empty())
            .or_else(|| Self::at(self.worker, Self::SERVERS.to_owned()))
    }

    /// The value of a key of one file.
    pub(super) fn at(file: &'a Properties, key: String) -> Option<Setting<'a>> {
        let value = file.get(&key)?.trim();
        Some(Setting { value, file, key })
    }

    /// Everything that is set, as `key=value (place)`, for the log at start.
    pub(super) fn in_force(&self) -> Vec<String> {
        let worker = self.worker.with_prefix(self.client.of_worker);
        let overrides = self.connector.with_prefix(self.client.overrides);
        let plain = self
            .connector
            .iter()
            .filter(|(key, _)| find(&[SHARE], key).is_some());
        let inherited = self
            .worker
            .iter()
            .filter(|(key, _)| self.of_worker(key).is_some());
        let names: BTreeSet<&str> = worker
            .chain(overrides)
            .chain(plain)
            .chain(inherited)
            .map(|(name, _)| name)
            .collect();
        names
            .into_iter()
            .filter_map(|name| {
                let setting = self.find(name)?;
                let value = problem::shown(setting.file.shown(&setting.key)?);
                let place = setting.file.file().display();
                // Kafka Connect would leave it out.
                let is_inherited = find(&[SECURITY], &setting.key).is_some();
                let whose = if is_inherited {
                    ", the worker's own"
                } else {
                    ""
                };
                Some(format!("{name}={value} ({place}{whose})"))
            })
            .collect()
    }
}
