//! Where groups are prepared and members opened; a seam for tests.

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::OnceCell;

use crate::config::ConnectorConfig;
use crate::prepare::Prepared;
use crate::source::RecordSource;
use crate::status::TaskShared;
use crate::task::DeadLetters;

/// Where groups are prepared and members opened.
pub(crate) trait Cluster: Send + Sync + 'static {
    /// A member.
    type Source: RecordSource + 'static;

    /// Prepares the group of a connector.
    fn prepare(
        &self,
        connector: &ConnectorConfig,
    ) -> impl Future<Output = Result<Prepared, String>> + Send;

    /// Opens where a task's dead letters go; `None` where it has none.
    fn dead_letters(
        &self,
        connector: &ConnectorConfig,
        task: u32,
    ) -> impl Future<Output = Result<Option<Box<dyn DeadLetters>>, String>> + Send {
        let _ = (connector, task);
        async { Ok(None) }
    }

    /// Joins the group of a connector as a member for one task.
    fn open(
        &self,
        connector: &ConnectorConfig,
        task: TaskPlace<'_>,
    ) -> impl Future<Output = Result<Self::Source, String>> + Send;
}

/// Which task joins, and what it knows of its group.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TaskPlace<'a> {
    /// The task: `name-0`.
    pub(crate) name: &'a str,
    /// Its number in the connector.
    pub(crate) index: u32,
    /// Deliveries the group allows.
    pub(crate) delivery_count_limit: i16,
    /// Where what becomes of its records is counted.
    pub(crate) shared: &'a Arc<TaskShared>,
}

/// A connector's group is prepared once, by whichever task comes first; anew for who comes after that failed.
#[derive(Debug, Default)]
pub(super) struct Preparation(Mutex<Arc<OnceCell<Result<Prepared, String>>>>);

impl Preparation {
    pub(super) async fn get<C: Cluster>(
        &self,
        cluster: &C,
        config: &ConnectorConfig,
    ) -> Result<Prepared, String> {
        let prepare = || cluster.prepare(config);
        self.attempt().get_or_init(prepare).await.clone()
    }

    fn attempt(&self) -> Arc<OnceCell<Result<Prepared, String>>> {
        let mut attempt = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if attempt.get().is_some_and(Result::is_err) {
            *attempt = Arc::default();
        }
        Arc::clone(&attempt)
    }
}
