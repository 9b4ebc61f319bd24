//! From a request to its answer.

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use serde_json::json;

use super::Site;
use crate::status::{ConnectorStatus, TaskState, TaskStatus, WorkerStatus};

/// The answer; hyper leaves the body out for HEAD.
pub(super) fn answer<B>(request: &Request<B>, site: &Site) -> Response<Full<Bytes>> {
    let Some(worker) = site.worker.upgrade() else {
        return error(StatusCode::SERVICE_UNAVAILABLE, "the worker is gone");
    };
    let page = match request.uri().path() {
        "/metrics" => Page::Metrics,
        "/health/live" => Page::Live,
        "/health/ready" => Page::Ready,
        _ => return error(StatusCode::NOT_FOUND, "there is nothing here"),
    };
    if ![Method::GET, Method::HEAD].contains(request.method()) {
        let mut refused = error(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD");
        let headers = refused.headers_mut();
        headers.insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return refused;
    }
    match page {
        Page::Metrics => {
            let text = worker.metrics_with(&site.lags.known());
            body(StatusCode::OK, PROMETHEUS, text)
        }
        Page::Live => body(StatusCode::OK, JSON, json!({"status": "live"}).to_string()),
        Page::Ready => ready(&worker.status()),
    }
}

enum Page {
    Metrics,
    Live,
    Ready,
}

fn ready(status: &WorkerStatus) -> Response<Full<Bytes>> {
    let reasons = not_ready(status);
    if reasons.is_empty() {
        return body(StatusCode::OK, JSON, json!({"status": "ready"}).to_string());
    }
    let text = json!({"status": "not ready", "reasons": reasons}).to_string();
    body(StatusCode::SERVICE_UNAVAILABLE, JSON, text)
}

/// Why a worker isn't ready: a task that isn't at work, a connector none of whose tasks has a partition, a
/// partition whose leader has not answered yet. No word of what a task failed of: that may quote records.
fn not_ready(status: &WorkerStatus) -> Vec<String> {
    if status.connectors.is_empty() {
        return vec!["there is no connector".to_owned()];
    }
    let connectors = status.connectors.iter();
    connectors.filter_map(waits_for).collect()
}

fn waits_for(connector: &ConnectorStatus) -> Option<String> {
    let name = &connector.name;
    if connector.state != TaskState::Running {
        return Some(format!("connector {name} is {}", connector.state));
    }
    let tasks = || connector.tasks.iter();
    if let Some(task) = tasks().find(|task| task.state != TaskState::Running) {
        return Some(format!("task {name}-{} is {}", task.index, task.state));
    }
    if let Some(topic) = tasks().flat_map(|task| &task.missing_topics).next() {
        return Some(format!("connector {name} waits for topic {topic}"));
    }
    if let Some(task) = tasks().find(|task| task.metrics.put_stalled_ms > 0) {
        return Some(format!(
            "a put of task {name}-{} gives no outcome",
            task.index
        ));
    }
    let mut assigned = tasks()
        .flat_map(|task: &TaskStatus| &task.assignment)
        .peekable();
    if assigned.peek().is_none() {
        return Some(format!("connector {name} has no partition yet"));
    }
    let unanswered = assigned.find(|partition| !partition.fetch_answered)?;
    let (topic, partition) = (&unanswered.topic, unanswered.partition);
    Some(format!(
        "the leader of {topic}-{partition} has not answered a fetch yet"
    ))
}

fn error(status: StatusCode, message: &str) -> Response<Full<Bytes>> {
    // As Connect's REST API tells errors.
    let text = json!({"error_code": status.as_u16(), "message": message});
    body(status, JSON, text.to_string())
}

fn body(status: StatusCode, kind: &'static str, text: String) -> Response<Full<Bytes>> {
    let mut answer = Response::new(Full::new(Bytes::from(text)));
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    answer
}

const JSON: &str = "application/json";
const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::status::PartitionStatus;

    fn running() -> TaskStatus {
        TaskStatus {
            state: TaskState::Running,
            assignment: vec![PartitionStatus {
                topic: Arc::from("orders"),
                partition: 0,
                leader_known: true,
                fetch_answered: true,
                last_fetch_empty: true,
                records_held: 0,
            }],
            ..TaskStatus::default()
        }
    }

    fn status(tasks: Vec<TaskStatus>) -> WorkerStatus {
        let connector = ConnectorStatus {
            name: "out".to_owned(),
            state: TaskState::Running,
            tasks,
            ..ConnectorStatus::default()
        };
        WorkerStatus {
            connectors: vec![connector],
            ..WorkerStatus::default()
        }
    }

    #[test]
    fn ready_once_every_task_polls_and_else_it_says_why_not() {
        let failed = TaskStatus {
            state: TaskState::Failed,
            trace: Some("a secret".to_owned()),
            ..running()
        };
        let missing = TaskStatus {
            missing_topics: vec!["orders".to_owned()],
            ..running()
        };
        let idle = TaskStatus {
            assignment: Vec::new(),
            ..running()
        };
        let mut unanswered = running();
        unanswered.assignment[0].fetch_answered = false;
        for (tasks, reasons) in [
            (vec![running()], vec![]),
            // More members than partitions.
            (vec![running(), idle.clone()], vec![]),
            (vec![idle], vec!["connector out has no partition yet"]),
            (vec![running(), failed], vec!["task out-0 is FAILED"]),
            (
                vec![TaskStatus::default()],
                vec!["task out-0 is UNASSIGNED"],
            ),
            (vec![missing], vec!["connector out waits for topic orders"]),
            (
                vec![unanswered],
                vec!["the leader of orders-0 has not answered a fetch yet"],
            ),
        ] {
            assert_eq!(not_ready(&status(tasks)), reasons);
        }
        assert_eq!(
            not_ready(&WorkerStatus::default()),
            ["there is no connector"]
        );
        let mut paused = status(vec![running()]);
        paused.connectors[0].state = TaskState::Paused;
        assert_eq!(not_ready(&paused), ["connector out is PAUSED"]);
    }
}
