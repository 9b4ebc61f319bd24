//! Blocking work off the runtime's thread.

use sharegroup_sink::PutError;
use tokio::task::{JoinHandle, spawn_blocking};

/// A value that is lent to a thread for blocking work. A sink that writes to a disk or a pipe lends what it writes with, so
/// that a target that hangs holds up neither the other tasks nor the task's own stop.
#[derive(Debug)]
pub(crate) struct Lent<T, R> {
    value: Option<T>,
    /// The work that has the value now.
    work: Option<JoinHandle<(T, R)>>,
}

impl<T: Send + 'static, R: Send + 'static> Lent<T, R> {
    pub(crate) const fn new(value: T) -> Self {
        Self {
            value: Some(value),
            work: None,
        }
    }

    /// The value. Waits for work whose caller was dropped: two pieces of work never run side by side.
    ///
    /// # Errors
    /// The runtime ends, or the value was lost in a panic before.
    ///
    /// # Cancel safety
    /// Safe.
    pub(crate) async fn value(&mut self) -> Result<&mut T, PutError> {
        if self.work.is_some() {
            self.end_of_work().await?;
        }
        self.value.as_mut().ok_or_else(lost)
    }

    /// Whether work whose caller was dropped may still be going on.
    pub(crate) const fn is_at_work(&self) -> bool {
        self.work.is_some()
    }

    /// Does some work with the value on a thread that may block.
    ///
    /// # Errors
    /// As [`Lent::value`].
    ///
    /// # Panics
    /// The work panicked; the value is lost.
    ///
    /// # Cancel safety
    /// The work goes on; the next call waits for it.
    pub(crate) async fn work(
        &mut self,
        work: impl FnOnce(&mut T) -> R + Send + 'static,
    ) -> Result<R, PutError> {
        self.value().await?;
        let mut value = self.value.take().ok_or_else(lost)?;
        self.work = Some(spawn_blocking(move || {
            let result = work(&mut value);
            (value, result)
        }));
        self.end_of_work().await
    }

    async fn end_of_work(&mut self) -> Result<R, PutError> {
        let ended = match self.work.as_mut() {
            Some(work) => work.await,
            None => return Err(lost()),
        };
        self.work = None;
        match ended {
            Ok((value, result)) => {
                self.value = Some(value);
                Ok(result)
            }
            Err(error) => match error.try_into_panic() {
                Ok(payload) => std::panic::resume_unwind(payload),
                Err(error) => Err(PutError::broken(error)),
            },
        }
    }
}

fn lost() -> PutError {
    PutError::broken("an earlier write broke off")
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn work_whose_caller_is_dropped_goes_on_and_the_next_waits_for_it() {
        let (go, wait) = mpsc::channel();
        let mut lent = Lent::new(vec![1]);
        let first = lent.work(move |value: &mut Vec<i32>| {
            wait.recv().unwrap();
            value.push(2);
        });
        // The thread is free: time goes on.
        assert!(timeout(Duration::from_millis(1), first).await.is_err());
        let second = async {
            lent.work(|value| value.push(3)).await.unwrap();
            lent.value().await.unwrap().clone()
        };
        let (value, ()) = tokio::join!(second, async { go.send(()).unwrap() });
        assert_eq!(value, [1, 2, 3]);
    }

    #[tokio::test]
    async fn a_panic_is_passed_on_and_the_value_is_gone() {
        let mut lent = Lent::new(());
        let caught = tokio::spawn(async move {
            let panicking = tokio::spawn(async move {
                lent.work(|()| panic!("broken")).await.unwrap();
            });
            panicking.await.unwrap_err().into_panic()
        });
        let payload = caught.await.unwrap();
        assert_eq!(payload.downcast_ref(), Some(&"broken"));
    }
}
