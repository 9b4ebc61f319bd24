//! What must be true of every run (architecture: invariants S2, S3, S4, S5, S7).

use std::collections::{BTreeMap, BTreeSet};

use sharegroup_session::{AckFailure, Acknowledgement};
use sharegroup_testkit::model::{Applied, Delivery, Place, Slot};

use super::World;
use super::client::Said;

/// The wire's type of a renewal.
const RENEW: i8 = 4;

impl World {
    /// Checks the whole run. Call it when every client has closed.
    pub fn check(&self) {
        let illegal = &self.cluster.history().illegal;
        assert!(illegal.is_empty(), "illegal requests: {illegal:?}");
        self.check_applied();
        for client in 0..self.clients.len() {
            self.check_told(client);
            self.check_released(client);
        }
    }

    /// No delivery is settled twice, and each as its owner said (S3, S4).
    fn check_applied(&self) {
        let mut owners = BTreeMap::new();
        for (index, client) in self.clients.iter().enumerate() {
            for holding in &client.holdings {
                let entries = holding.deliveries.iter();
                owners.extend(
                    entries.map(|(offset, delivery)| (*delivery, (index, *offset, holding))),
                );
            }
        }
        for applied in self.terminal() {
            let Applied {
                offset,
                delivery,
                acknowledge_type,
                ..
            } = *applied;
            let (client, _, holding) = owners
                .get(&delivery)
                .expect("acknowledged a delivery that never arrived");
            let expected = match holding.said.get(&offset) {
                Some(Said::Settled(how)) => *how,
                Some(Said::LeftToCore) => Acknowledgement::Release,
                None => panic!("client {client} acknowledged offset {offset} by itself"),
            };
            assert_eq!(
                acknowledge_type,
                expected.wire_type(),
                "offset {offset} of client {client}"
            );
        }
    }

    fn terminal(&self) -> impl Iterator<Item = &Applied> {
        self.cluster
            .history()
            .applied
            .iter()
            .filter(|applied| applied.acknowledge_type != RENEW)
    }

    /// Each offset was told exactly one fate, and what was told is true.
    fn check_told(&self, client: usize) {
        let mut applied: BTreeMap<Delivery, usize> = BTreeMap::new();
        for one in self.terminal() {
            *applied.entry(one.delivery).or_default() += 1;
        }
        for holding in &self.clients[client].holdings {
            assert!(
                holding.held.is_empty(),
                "still held after the end: {:?}",
                holding.held
            );
            for (offset, delivery) in &holding.deliveries {
                let told = holding.told.get(offset);
                let told = told
                    .unwrap_or_else(|| panic!("client {client}: offset {offset} was told no fate"));
                let count = applied.get(delivery).copied().unwrap_or(0);
                // After a leader moved there and back, unseen, the offset may have been settled by another.
                let ignored = self
                    .cluster
                    .history()
                    .ignored
                    .contains(&(holding.place, *offset));
                let is_true = match told {
                    Ok(_) => count == 1 || (count == 0 && ignored),
                    Err(AckFailure::Unknown) => count <= 1,
                    Err(_) => count == 0,
                };
                assert!(
                    is_true,
                    "client {client}: offset {offset} was told {told:?} and applied {count} times"
                );
            }
        }
    }

    /// After a close nothing is acquired by us, but on connections that were cut (S7).
    fn check_released(&self, client: usize) {
        let held = self.cluster.held(&self.clients[client].member_id);
        let left: Vec<_> = held
            .into_iter()
            .filter(|(.., link)| !self.network.cut.contains(link))
            .collect();
        assert!(left.is_empty(), "still acquired after the close: {left:?}");
    }

    /// Every offset of every partition is settled as the given set says, or settled at all (S2).
    pub fn check_drained(&self, archived_by_us: &BTreeSet<(Place, i64)>) {
        for place in self.cluster.places() {
            for offset in 0..self.cluster.log_end(place) {
                let slot = self.cluster.slot(place, offset);
                let expected = archived_by_us.contains(&(place, offset));
                match slot {
                    Slot::Accepted => {}
                    Slot::Archived { exhausted: false } if expected => {}
                    slot => panic!("offset {offset} of {place:?} ended as {slot:?}"),
                }
            }
        }
    }
}
