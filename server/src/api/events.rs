//! Server-sent events of changes, numbered, so that a client can go on where it was disconnected.
//!
//! A client that reads too slowly loses the window; it gets a `reset`, and the stream ends.

use std::fmt::Write;
use std::sync::Arc;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Response};
use serde::Serialize;
use tokio::sync::mpsc;
use tokio::time::timeout;
use windlass_core::{QueueName, StateName};
use windlass_runtime_tokio::Event;

use crate::api::hub::{Entry, Part};
use crate::api::problem::{self, Problem};
use crate::app::{App, Stage};
use crate::http::body::Body;
use crate::http::router::{Answer, Call};

/// Parts of a stream that wait for the connection.
const PARTS: usize = 4;
/// Events in one part.
const EVENTS: usize = 256;

/// The answer to `GET /events`.
pub(crate) fn stream(call: &Call) -> Answer {
    let from = match call.headers.get("last-event-id") {
        None => None,
        Some(id) => {
            let id = id.to_str().ok().and_then(|text| text.parse::<u64>().ok());
            let detail = "`Last-Event-ID` must be the `id` of an event that was sent";
            Some(id.ok_or_else(|| Problem::new(problem::INVALID, detail))?)
        }
    };
    let (sender, receiver) = mpsc::channel(PARTS);
    tokio::spawn(feed(Arc::clone(&call.app), sender, from));
    Ok(streamed(receiver))
}

/// The answer to `GET /events?feed=snapshot`.
pub(crate) fn snapshots(call: &Call) -> Response<Body> {
    let (sender, receiver) = mpsc::channel(PARTS);
    let app = Arc::clone(&call.app);
    tokio::spawn(async move {
        tokio::select! {
            () = app.feed.send(&app, &sender) => {}
            () = sender.closed() => {}
            () = app.closing.reached(Stage::Draining) => {}
        }
    });
    streamed(receiver)
}

fn streamed(receiver: mpsc::Receiver<Bytes>) -> Response<Body> {
    let mut response = Response::new(Body::stream(receiver));
    let kind = HeaderValue::from_static("text/event-stream");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    // nginx would gather events until it has a page of them.
    response.headers_mut().insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

/// Streams until the client disconnects or the server closes.
async fn feed(app: Arc<App>, sender: mpsc::Sender<Bytes>, from: Option<u64>) {
    tokio::select! {
        () = send(&app, &sender, from) => {}
        () = sender.closed() => {}
        () = app.closing.reached(Stage::Draining) => {}
    }
}

async fn send(app: &App, sender: &mpsc::Sender<Bytes>, from: Option<u64>) {
    let mut latest = app.hub.watch();
    let mut after = from.unwrap_or_else(|| *latest.borrow());
    if sender.send(Bytes::from_static(b": windlass\n\n")).await.is_err() {
        return;
    }
    let mut fresh = true;
    loop {
        latest.mark_unchanged();
        let (bytes, last) = match app.hub.behind(after, EVENTS) {
            Part::Lost(at) => {
                after = at;
                // A late subscriber resumes here; a slow one is disconnected.
                (Bytes::from(format!("event: reset\nid: {at}\ndata: {{}}\n\n")), !fresh)
            }
            Part::Events(_, events) if events.is_empty() => {
                match timeout(app.limits.heartbeat, latest.changed()).await {
                    Ok(Ok(())) => continue,
                    Ok(Err(_)) => return,
                    Err(_) => (Bytes::from_static(b": alive\n\n"), false),
                }
            }
            Part::Events(first, events) => {
                after = first + events.len() as u64 - 1;
                (Bytes::from(written(first, &events)), false)
            }
        };
        fresh = false;
        if sender.send(bytes).await.is_err() || last {
            return;
        }
    }
}

#[derive(Serialize)]
struct JobEvent<'a> {
    id: u64,
    queue: &'a str,
    kind: &'a str,
    /// Absent once it was deleted.
    state: Option<&'static str>,
}

#[derive(Serialize)]
struct QueueEvent<'a> {
    name: &'a str,
    paused: bool,
}

#[derive(Serialize)]
struct OthersEvent<'a> {
    queues: Vec<&'a str>,
    /// Whether other queues changed too.
    more: bool,
}

fn written(first: u64, events: &[Entry]) -> String {
    let mut text = String::new();
    for (number, event) in (first..).zip(events) {
        let (name, data) = match event {
            Entry::Own(Event::Job(change)) => {
                let (id, state) = (change.id.get(), change.to.map(StateName::as_str));
                let (queue, kind) = (change.queue.as_str(), change.kind.as_str());
                ("job", serde_json::to_string(&JobEvent { id, queue, kind, state }))
            }
            Entry::Own(Event::Queue(queue)) => {
                let (name, paused) = (queue.name.as_str(), queue.is_paused());
                ("queue", serde_json::to_string(&QueueEvent { name, paused }))
            }
            Entry::Own(Event::Lagged(_)) => ("reset", Ok("{}".into())),
            Entry::Others(hint) => {
                let queues = hint.queues.iter().map(QueueName::as_str).collect();
                let event = OthersEvent { queues, more: hint.more };
                ("changed", serde_json::to_string(&event))
            }
        };
        let data = data.unwrap_or_default();
        let _ = write!(text, "event: {name}\nid: {number}\ndata: {data}\n\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::others::Hint;
    use windlass_core::store::Change;
    use windlass_core::{JobId, Kind, Queue, Wall};

    #[test]
    fn events_are_written_as_the_contract_shows_them() {
        let change = Change {
            id: JobId::FIRST,
            queue: QueueName::default(),
            kind: Kind::new("email").unwrap(),
            from: None,
            to: Some(StateName::Done),
            run_at: Wall::new(0),
            started_at: None,
            given_back: false,
        };
        let queue = Queue::new(QueueName::default());
        let own = [Event::Job(change), Event::Queue(queue), Event::Lagged(7)].map(Entry::Own);
        let hint = Hint { queues: vec![QueueName::default()], more: false };
        let mut entries = own.to_vec();
        entries.push(Entry::Others(hint));
        let text = written(17, &entries);
        assert_eq!(
            text,
            "event: job\nid: 17\n\
             data: {\"id\":1,\"queue\":\"default\",\"kind\":\"email\",\"state\":\"done\"}\n\n\
             event: queue\nid: 18\ndata: {\"name\":\"default\",\"paused\":false}\n\n\
             event: reset\nid: 19\ndata: {}\n\n\
             event: changed\nid: 20\ndata: {\"queues\":[\"default\"],\"more\":false}\n\n"
        );
    }
}
