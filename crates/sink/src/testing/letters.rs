//! Dead letters in memory.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::sleep;

use super::Broker;
use crate::task::{Answers, DeadLetters, Letter, LetterError, LetterOf};

/// Keeps dead letters in memory.
#[derive(Clone, Debug, Default)]
pub(crate) struct LetterBox {
    letters: Arc<Mutex<Vec<Letter>>>,
    fails: Arc<Mutex<Option<LetterError>>>,
    broker: Broker,
}

impl LetterBox {
    /// A box that looks whether a record was settled before its letter was there.
    pub(crate) fn beside(broker: &Broker) -> Self {
        Self {
            broker: broker.clone(),
            ..Self::default()
        }
    }

    /// From now on letters can't be written; with `None` they can.
    pub(crate) fn fail(&self, error: Option<LetterError>) {
        *self.fails.lock().unwrap() = error;
    }

    /// The confirmed letters' first offsets and reasons.
    pub(crate) fn letters(&self) -> Vec<(i64, String)> {
        let letters = self.letters.lock().unwrap();
        letters
            .iter()
            .map(|letter| (first_offset(letter), letter.error.clone()))
            .collect()
    }

    /// Their first offsets.
    pub(crate) fn offsets(&self) -> Vec<i64> {
        self.letters()
            .into_iter()
            .map(|(offset, _)| offset)
            .collect()
    }

    pub(crate) fn all(&self) -> Vec<Letter> {
        self.letters.lock().unwrap().clone()
    }
}

fn first_offset(letter: &Letter) -> i64 {
    match &letter.of {
        LetterOf::Record(record) => record.first_offset().unwrap(),
        LetterOf::Corrupt(range) => range.first_offset,
    }
}

impl DeadLetters for LetterBox {
    fn write<'a>(&'a mut self, letters: &'a [Letter]) -> Answers<'a> {
        Box::pin(async move {
            // The broker takes its time.
            sleep(Duration::from_millis(5)).await;
            let settled = |offset| {
                self.broker.seen(|seen| {
                    let settled = [&seen.accepted, &seen.released, &seen.rejected];
                    settled.into_iter().any(|list| list.contains(&offset))
                })
            };
            assert!(!letters.iter().any(|letter| settled(first_offset(letter))));
            if let Some(error) = self.fails.lock().unwrap().clone() {
                return vec![Err(error); letters.len()];
            }
            self.letters.lock().unwrap().extend_from_slice(letters);
            vec![Ok(()); letters.len()]
        })
    }
}
