//! What can be seen from outside: a span per attempt, and that an idle runtime sleeps.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where")]

mod common;

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex};
use std::task::Waker;
use std::time::Duration;

use common::within;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};
use windlass_core::{Millis, Mono, Now};
use windlass_runtime_tokio::{Clock, Context, ManualClock, NewJob, Runtime, Sleep, seconds};
use windlass_store_memory::MemoryStore;

type Fields = BTreeMap<String, String>;

/// Keeps the fields of every span called "attempt".
#[derive(Debug, Clone, Default)]
struct Spans(Arc<Mutex<Vec<Fields>>>);

struct Collect<'a>(&'a mut Fields);

impl Visit for Collect<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name().into(), format!("{value:?}"));
    }
}

impl Subscriber for Spans {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_span()
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        if span.metadata().name() == "attempt" {
            let mut fields = Fields::new();
            span.record(&mut Collect(&mut fields));
            self.0.lock().unwrap().push(fields);
        }
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, _: &Event<'_>) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[test]
fn every_attempt_has_a_span_that_names_its_job_epoch_kind_and_queue() {
    let spans = Spans::default();
    tracing::subscriber::set_global_default(spans.clone()).unwrap();
    let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let id = tokio.block_on(within(async {
        let queue = Runtime::builder(MemoryStore::new())
            .handler("work", |(): (), _: Context| async {})
            .start()
            .unwrap();
        let job = NewJob::of("work", &()).unwrap().queue("mail");
        let id = queue.enqueue(job).await.unwrap().id;
        queue.wait(id).await.unwrap();
        queue.shutdown(seconds(5)).await;
        id
    }));
    let spans = spans.0.lock().unwrap();
    // Another test of this binary may run jobs as well, of another queue.
    let ours = spans.iter().find(|fields| fields["queue"] == "mail").expect("there is a span");
    let expected = [
        ("attempt", "1".to_string()),
        ("epoch", "1".to_string()),
        ("job", id.to_string()),
        ("kind", "work".to_string()),
        ("queue", "mail".to_string()),
    ];
    let expected = expected.into_iter().map(|(name, value)| (name.to_string(), value));
    assert_eq!(*ours, expected.collect::<Fields>());
}

/// A clock that is moved by hand, and notes until when the writer last wanted to sleep.
#[derive(Debug, Clone, Default)]
struct Noting {
    clock: ManualClock,
    until: Arc<Mutex<Option<Mono>>>,
}

impl Clock for Noting {
    fn now(&self) -> Now {
        self.clock.now()
    }

    fn micros(&self) -> u64 {
        self.clock.micros()
    }

    fn wait(&self, at: Mono) -> Option<Duration> {
        *self.until.lock().unwrap() = Some(at);
        self.clock.wait(at)
    }

    fn sleep(&self, at: Mono) -> Sleep {
        self.clock.sleep(at)
    }

    fn notify(&self, waker: Waker) {
        self.clock.notify(waker);
    }
}

impl Noting {
    /// How long the writer sleeps from now on. The caller is answered just before it does.
    async fn sleeps_for(&self) -> Millis {
        loop {
            let until = *self.until.lock().unwrap();
            if let Some(left) = until.map(|until| until.since(self.now().mono))
                && left > Millis::ZERO
            {
                return left;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}

#[tokio::test]
async fn a_runtime_with_nothing_to_do_sleeps_for_minutes() {
    within(async {
        let clock = Noting::default();
        let queue = Runtime::builder(MemoryStore::new())
            .clock(clock.clone())
            .handler("work", |(): (), _: Context| async {})
            .start()
            .unwrap();
        let id = queue.enqueue(NewJob::of("work", &()).unwrap()).await.unwrap().id;
        queue.wait(id).await.unwrap();
        queue.idle().await.unwrap();
        let mut wakes = Vec::new();
        loop {
            let sleep = clock.sleeps_for().await;
            if sleep >= Millis::minutes(5) {
                break;
            }
            wakes.push(sleep);
            assert!(wakes.len() <= 5, "it wakes after {wakes:?}");
            clock.clock.advance(Duration::from_millis(sleep.get()));
        }
        assert_eq!(queue.metrics().running, 0);
    })
    .await;
}
