//! The worker of a runtime as others see it: how many jobs it runs at once, what it would run, and
//! how it is asked to stop.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where")]

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::within;
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, mpsc};
use windlass_core::machine::Input;
use windlass_core::store::{AdminRefused, WorkerKind, WorkerRow};
use windlass_core::{Demand, Kind, Kinds, QueueName, Queues, WorkerId, WorkerVersion};
use windlass_runtime_tokio::{CommandError, Context, NewJob, Queue, Runtime};
use windlass_store_memory::MemoryStore;

const OFTEN: Duration = Duration::from_millis(100);

fn job() -> NewJob {
    NewJob::of("work", &()).unwrap()
}

async fn enqueue(queue: &Queue, jobs: usize) {
    queue.enqueue_many((0..jobs).map(|_| job())).await.unwrap();
}

/// Handlers that say that they have started, and end when they may.
fn patient(workers: usize) -> (Queue, mpsc::UnboundedReceiver<()>, Arc<Semaphore>) {
    let (sender, started) = mpsc::unbounded_channel();
    let may_end = Arc::new(Semaphore::new(0));
    let wait = Arc::clone(&may_end);
    let queue = Runtime::builder(MemoryStore::new())
        .workers(workers)
        .handler("work", move |(): (), _: Context| {
            let (sender, wait) = (sender.clone(), Arc::clone(&wait));
            async move {
                sender.send(()).unwrap();
                wait.acquire().await.unwrap().forget();
            }
        })
        .start()
        .unwrap();
    (queue, started, may_end)
}

#[tokio::test]
async fn workers_come_and_go_while_it_runs_and_nothing_that_runs_is_stopped() {
    within(async {
        let (queue, mut started, may_end) = patient(1);
        let tasks = || Handle::current().metrics().num_alive_tasks();
        let alone = tasks();
        enqueue(&queue, 5).await;
        started.recv().await.unwrap();
        queue.reconfigure(Input::Slots(3));
        started.recv().await.unwrap();
        started.recv().await.unwrap();
        assert_eq!((queue.metrics().workers, tasks()), (3, alone + 2));

        queue.reconfigure(Input::Slots(1));
        may_end.add_permits(2);
        while queue.metrics().attempts.completed < 2 {
            tokio::task::yield_now().await;
        }
        // A turn of the writer behind their reports: it could have claimed more.
        enqueue(&queue, 0).await;
        assert_eq!((queue.metrics().workers, queue.metrics().running), (1, 1));
        assert!(started.try_recv().is_err(), "as many run as there are workers");

        may_end.add_permits(1);
        started.recv().await.unwrap();
        queue.reconfigure(Input::Slots(2));
        started.recv().await.unwrap();
        may_end.add_permits(2);
        queue.idle().await.unwrap();
        assert_eq!(queue.metrics().attempts.completed, 5);
        assert_eq!(queue.metrics().attempts.stopped, 0);
        // The worker that was too many has left.
        while tasks() != alone + 1 {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_job_is_run_while_the_number_of_workers_changes_all_the_time() {
    within(async {
        let queue = Runtime::builder(MemoryStore::new())
            .workers(4)
            .handler("work", |(): (), _: Context| async { tokio::task::yield_now().await })
            .start()
            .unwrap();
        for slots in (0..200).map(|at| [1, 7, 0, 3][at % 4]) {
            enqueue(&queue, 5).await;
            queue.reconfigure(Input::Slots(slots));
        }
        queue.reconfigure(Input::Slots(2));
        queue.idle().await.unwrap();
        assert_eq!(queue.metrics().attempts.completed, 1_000);
    })
    .await;
}

#[tokio::test]
async fn a_runtime_without_handlers_has_no_workers_however_many_are_asked_for() {
    within(async {
        let queue = Runtime::builder(MemoryStore::new()).start().unwrap();
        queue.reconfigure(Input::Slots(4));
        enqueue(&queue, 1).await;
        assert_eq!(queue.metrics().workers, 0);
    })
    .await;
}

async fn row(queue: &Queue, id: &WorkerId) -> WorkerRow {
    loop {
        let rows = queue.workers().await.unwrap();
        if let Some(row) = rows.into_iter().find(|row| row.worker.id == *id) {
            return row;
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn others_see_what_a_worker_process_would_run() {
    within(async {
        let queue = Runtime::builder(MemoryStore::new())
            .presence(OFTEN)
            .worker_kind(WorkerKind::Process)
            .queues(["mail", "bulk"])
            .workers(3)
            .handler("work", |(): (), _: Context| async {})
            .start()
            .unwrap();
        let worker = row(&queue, queue.worker_id()).await.worker;
        let queues =
            Queues::only(["mail", "bulk"].map(|name| QueueName::new(name).unwrap()).into());
        let kinds = Kinds::only(vec![Kind::new("work").unwrap()]);
        assert_eq!(worker.demand, Demand { queues, kinds });
        assert_eq!((worker.kind, worker.slots), (WorkerKind::Process, 3));
        assert_eq!(worker.pid, Some(std::process::id()));
        queue.reconfigure(Input::Slots(5));
        while row(&queue, queue.worker_id()).await.worker.slots != 5 {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_worker_is_listed_with_its_own_version_or_that_of_windlass() {
    within(async {
        for own in [None, Some("billing 2.3.1")] {
            let builder = Runtime::builder(MemoryStore::new()).presence(OFTEN);
            let builder = match own {
                None => builder,
                Some(version) => builder.version(version),
            };
            let queue = builder.start().unwrap();
            let worker = row(&queue, queue.worker_id()).await.worker;
            let version = worker.version.as_ref().map(WorkerVersion::as_str);
            assert_eq!(version, Some(own.unwrap_or(env!("CARGO_PKG_VERSION"))));
            assert_eq!(worker.node(), Some(&worker.id));
        }
    })
    .await;
}

#[tokio::test]
async fn a_worker_gets_its_stop_mark_and_the_other_does_not() {
    within(async {
        let store = MemoryStore::new();
        let other = Runtime::builder(store.another()).presence(OFTEN).start().unwrap();
        let queue = Runtime::builder(store).presence(OFTEN).start().unwrap();
        row(&other, queue.worker_id()).await;
        other.stop_worker(queue.worker_id().clone()).await.unwrap();
        queue.stop_asked().await;
        // A later call gets it too.
        queue.clone().stop_asked().await;
        assert!(row(&other, queue.worker_id()).await.stopping);
        assert!(!row(&other, other.worker_id()).await.stopping);
        tokio::select! {
            biased;
            () = other.stop_asked() => panic!("it was not asked"),
            () = std::future::ready(()) => {}
        }
    })
    .await;
}

#[tokio::test]
async fn a_worker_that_is_not_there_cannot_be_asked_to_stop() {
    within(async {
        let queue = Runtime::builder(MemoryStore::new()).start().unwrap();
        let error = queue.stop_worker(WorkerId::new("nobody").unwrap()).await.unwrap_err();
        assert!(matches!(error, CommandError::Refused(AdminRefused::NoWorker(_))), "{error}");
    })
    .await;
}
