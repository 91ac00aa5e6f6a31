//! One connection, and flights of statements on it: all are sent at once, then all answers are
//! awaited, until a deadline.
//!
//! Each connection has a runtime of its own, driven by the thread that uses it.

use std::collections::BTreeMap;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Row, Statement};

use crate::error::TxError;
use crate::hook::Hook;

pub(crate) type Found<T> = Result<T, TxError>;

/// A runtime that may be dropped anywhere, also inside another one.
#[derive(Debug)]
pub(crate) struct IoRuntime(Option<Runtime>);

impl IoRuntime {
    pub(crate) fn new() -> std::io::Result<Self> {
        Ok(Self(Some(Builder::new_current_thread().enable_all().build()?)))
    }

    /// Runs this to its end.
    pub(crate) fn block_on<F: Future>(&self, future: F) -> F::Output {
        let runtime = self.0.as_ref().expect("it is there until it is dropped");
        runtime.block_on(future)
    }
}

impl Drop for IoRuntime {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// A connection that is ready for statements.
pub(crate) struct Session {
    /// Above the runtime, so that it is closed before.
    client: Client,
    statements: BTreeMap<&'static str, Statement>,
    runtime: IoRuntime,
    deadline: Duration,
    /// The process that serves this connection.
    pub(crate) pid: i32,
}

/// Statements to send together. Each has a place by which its answer is found.
#[derive(Default)]
pub(crate) struct Flight {
    calls: Vec<Call>,
}

struct Call {
    sql: &'static str,
    params: Params,
}

/// A parameter of a statement.
pub(crate) type Param = Box<dyn ToSql + Sync + Send>;
type Params = Vec<Param>;

/// The place of a statement in its flight.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place(usize);

/// Makes parameters of values.
macro_rules! params {
    ($($value:expr),* $(,)?) => {
        vec![$(Box::new($value) as $crate::session::Param),*]
    };
}
pub(crate) use params;

impl Flight {
    pub(crate) fn add(&mut self, sql: &'static str, params: Params) -> Place {
        self.calls.push(Call { sql, params });
        Place(self.calls.len() - 1)
    }
}

/// The answers of a flight.
pub(crate) struct FlightRows(Vec<Vec<Row>>);

impl FlightRows {
    /// The rows that the statement at this place returned; they are returned once.
    pub(crate) fn take(&mut self, place: Place) -> Vec<Row> {
        std::mem::take(&mut self.0[place.0])
    }

    /// The rows of a statement that may not have been sent.
    pub(crate) fn take_of(&mut self, place: Option<Place>) -> Vec<Row> {
        place.map(|place| self.take(place)).unwrap_or_default()
    }
}

impl Session {
    pub(crate) fn new(client: Client, runtime: IoRuntime, deadline: Duration, pid: i32) -> Self {
        Self { client, statements: BTreeMap::new(), runtime, deadline, pid }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    /// Sends statements and waits for all of their answers; the first refusal counts. With a hook,
    /// it is called while another transaction holds what a statement needs.
    pub(crate) fn fly(&mut self, flight: Flight, hook: Option<&Hook>) -> Found<FlightRows> {
        if flight.calls.is_empty() {
            return Ok(FlightRows(Vec::new()));
        }
        self.prepare(&flight)?;
        let client = &self.client;
        let mut answers = Vec::with_capacity(flight.calls.len());
        for Call { sql, params } in flight.calls {
            let statement = &self.statements[sql];
            let call = async move {
                let params: Vec<&(dyn ToSql + Sync)> =
                    params.iter().map(|param| param.as_ref() as _).collect();
                client.query(statement, &params).await
            };
            answers.push(boxed(call));
        }
        let all = within(self.deadline, all(answers));
        let returned = match hook {
            None => self.runtime.block_on(all),
            Some(hook) => self.runtime.block_on(watched(all, self.pid, hook)),
        };
        let returned = returned?;
        // The first refusal is the cause of those behind it.
        let rows: Result<Vec<Vec<Row>>, tokio_postgres::Error> = returned.into_iter().collect();
        Ok(FlightRows(rows?))
    }

    /// Prepares what was not used before on this connection.
    pub(crate) fn prepare(&mut self, flight: &Flight) -> Found<()> {
        let unknown = |call: &&Call| !self.statements.contains_key(call.sql);
        let mut unknown: Vec<&'static str> =
            flight.calls.iter().filter(unknown).map(|call| call.sql).collect();
        if unknown.is_empty() {
            return Ok(());
        }
        unknown.sort_unstable();
        unknown.dedup();
        let client = &self.client;
        let prepared = unknown.iter().map(|sql| boxed(client.prepare(sql))).collect();
        let prepared = self.runtime.block_on(within(self.deadline, all(prepared)))?;
        for (sql, statement) in unknown.into_iter().zip(prepared) {
            self.statements.insert(sql, statement?);
        }
        Ok(())
    }

    /// Waits before the next statement.
    pub(crate) fn sleep(&self, pause: Duration) {
        // A timer is made within its runtime.
        self.runtime.block_on(async { tokio::time::sleep(pause).await });
    }

    /// Runs statements without parameters, one by one.
    pub(crate) fn run(&mut self, sql: &str) -> Found<()> {
        let ran = within(self.deadline, self.client.batch_execute(sql));
        Ok(self.runtime.block_on(ran)??)
    }

    /// Lets each answer take this long from now on.
    pub(crate) fn wait_for(&mut self, deadline: Duration) {
        self.deadline = deadline;
    }

    /// Runs one statement with a deadline of its own, for what takes long.
    pub(crate) fn run_long(&mut self, sql: &str, deadline: Duration) -> Found<()> {
        let ran = within(deadline, self.client.batch_execute(sql));
        Ok(self.runtime.block_on(ran)??)
    }

    /// Ends a transaction that is not to be committed. If even this fails, the connection is of no
    /// use any more.
    pub(crate) fn roll_back(&mut self) -> Found<()> {
        self.run("ROLLBACK")
    }

    /// One statement.
    pub(crate) fn query(&mut self, sql: &'static str, params: Params) -> Found<Vec<Row>> {
        let mut flight = Flight::default();
        let place = flight.add(sql, params);
        Ok(self.fly(flight, None)?.take(place))
    }
}

type Boxed<'f, T> = Pin<Box<dyn Future<Output = T> + 'f>>;

fn boxed<'f, T>(future: impl Future<Output = T> + 'f) -> Boxed<'f, T> {
    Box::pin(future)
}

/// Runs futures to their ends together. Each is polled for the first time in this order, so that
/// statements are sent in it.
async fn all<T>(mut futures: Vec<Boxed<'_, T>>) -> Vec<T> {
    let mut done: Vec<Option<T>> = futures.iter().map(|_| None).collect();
    poll_fn(move |context| {
        let mut waits = false;
        for (future, done) in futures.iter_mut().zip(&mut done) {
            if done.is_none() {
                match future.as_mut().poll(context) {
                    Poll::Ready(value) => *done = Some(value),
                    Poll::Pending => waits = true,
                }
            }
        }
        if waits {
            return Poll::Pending;
        }
        Poll::Ready(done.iter_mut().filter_map(Option::take).collect())
    })
    .await
}

/// Waits for an answer until a deadline.
pub(crate) async fn within<F: Future>(deadline: Duration, future: F) -> Found<F::Output> {
    let late = |_| TxError::Lost(format!("PostgreSQL did not answer within {deadline:?}"));
    tokio::time::timeout(deadline, future).await.map_err(late)
}

/// How often a hook is called while a flight waits.
const TICK: Duration = Duration::from_millis(5);

/// Runs a future, and calls the hook while the server says that its process waits for a lock.
async fn watched<F: Future>(future: F, pid: i32, hook: &Hook) -> F::Output {
    let mut future = pin!(future);
    loop {
        if let Ok(output) = tokio::time::timeout(TICK, &mut future).await {
            return output;
        }
        hook.check(pid);
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("pid", &self.pid).finish_non_exhaustive()
    }
}
