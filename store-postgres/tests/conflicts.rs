//! Other transactions in the way, and servers that refuse a statement: what passes is retried
//! inside the commit, what does not is reported with its class.

mod subject;

use std::time::Duration;

use windlass_core::store::{CommitError, Store};
use windlass_tests::postgres_server::PostgresServer;

use subject::commits::{DEADLINE, commit, commit_at_last, enqueue, jobs, open, open_with};

/// How often the server has ended a wait for a lock.
fn lock_timeouts(server: &PostgresServer) -> usize {
    server.log().matches("canceling statement due to lock timeout").count()
}

#[test]
fn a_lock_that_another_holds_too_long_is_tried_again_inside_the_commit() {
    let Some(server) = PostgresServer::shared() else { return };
    let schema = server.new_schema();
    let url = server.url(&schema);
    let mut store = open(&url);
    commit(&mut store, 1).expect("it commits");
    let (locked, is_locked) = std::sync::mpsc::channel();
    let (go, may_go) = std::sync::mpsc::channel::<()>();
    // Its transaction is ended by the server while the other still tries.
    let mut holder = open_with(&url, DEADLINE * 2 / 3);
    holder.on_commit(move |point| {
        if point == windlass_core::store::CommitPoint::Answered {
            let _ = locked.send(());
            let _ = may_go.recv_timeout(Duration::from_secs(30));
        }
    });
    // The same process at two handles: the second waits for the lock of the first.
    let thread = std::thread::spawn(move || commit(&mut holder, 2).is_ok());
    is_locked.recv_timeout(Duration::from_secs(30)).expect("it has its answers");
    // Each try ends before the server ends the transaction of the first, which is idle.
    let waits = lock_timeouts(server);
    let waited = commit(&mut store, 3);
    assert!(waited.is_ok(), "{waited:?}");
    assert!(lock_timeouts(server) > waits, "no try has ended because of the lock");
    let _ = go.send(());
    assert!(!thread.join().expect("it ends"), "its transaction was ended");
    assert_eq!(jobs(&url), 2);
}

/// Has the server refuse the first inserts of jobs with this SQLSTATE. A sequence counts them,
/// since it keeps its value when a transaction is rolled back.
fn refuse_inserts(server: &PostgresServer, schema: &str, code: &str, times: u32) {
    server.run(&format!(
        "CREATE SEQUENCE public.inserts_{schema}; \
         CREATE FUNCTION {schema}.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
         IF nextval('public.inserts_{schema}') <= {times} THEN \
         RAISE EXCEPTION 'injected' USING ERRCODE = '{code}'; END IF; RETURN NEW; END $$; \
         CREATE TRIGGER refuse BEFORE INSERT ON {schema}.jobs \
         FOR EACH ROW EXECUTE FUNCTION {schema}.refuse()"
    ));
}

fn inserts(server: &PostgresServer, schema: &str) -> String {
    server.run(&format!("SELECT last_value FROM public.inserts_{schema}"))
}

#[test]
fn deadlocks_and_serialization_failures_are_retried_inside_the_commit() {
    let Some(server) = PostgresServer::shared() else { return };
    for code in ["40P01", "40001"] {
        let schema = server.new_schema();
        let mut store = open(&server.url(&schema));
        refuse_inserts(server, &schema, code, 3);
        let committed = commit(&mut store, 1);
        assert!(committed.is_ok(), "{code}: {committed:?}");
        assert_eq!(inserts(server, &schema), "4", "{code}: three tries were refused");
        assert_eq!(jobs(&server.url(&schema)), 1);
    }
}

#[test]
fn a_commit_gives_up_a_lock_that_it_does_not_get_once_its_deadline_is_over() {
    let Some(server) = PostgresServer::start(&[]) else { return };
    let url = server.url("windlass");
    let mut store = open(&url);
    commit(&mut store, 1).expect("it commits");
    let (locked, is_locked) = std::sync::mpsc::channel();
    let (go, may_go) = std::sync::mpsc::channel::<()>();
    // Of the same process: it holds what each of its transactions holds.
    let mut holder = open_with(&url, DEADLINE * 40);
    holder.on_commit(move |point| {
        if point == windlass_core::store::CommitPoint::Answered {
            let _ = locked.send(());
            let _ = may_go.recv_timeout(DEADLINE * 20);
        }
    });
    let thread = std::thread::spawn(move || commit(&mut holder, 2).is_ok());
    is_locked.recv_timeout(Duration::from_secs(30)).expect("it has its answers");
    let late = commit(&mut store, 3);
    assert!(matches!(late, Err(CommitError::NotCommitted(_))), "{late:?}");
    // Each waits for a third of the deadline.
    let waits = lock_timeouts(&server);
    assert!((1..=3).contains(&waits), "it has waited {waits} times");
    let _ = go.send(());
    assert!(thread.join().expect("it ends"));
}

#[test]
fn an_answer_that_says_that_the_outcome_is_unknown_is_not_retried() {
    let Some(server) = PostgresServer::shared() else { return };
    for code in ["40003", "08007"] {
        let schema = server.new_schema();
        let mut store = open(&server.url(&schema));
        commit(&mut store, 1).expect("statements are prepared");
        refuse_inserts(server, &schema, code, 1);
        let unknown = commit(&mut store, 2);
        assert!(matches!(unknown, Err(CommitError::Unknown { .. })), "{code}: {unknown:?}");
        assert_eq!(inserts(server, &schema), "1", "{code}");
        assert_eq!(store.was_committed(enqueue(2).id), Ok(false));
        commit_at_last(&mut store, 2);
        assert_eq!(jobs(&server.url(&schema)), 2);
    }
}

#[test]
fn a_full_table_of_locks_is_waited_for_and_then_reported_with_the_setting() {
    let settings = ["max_locks_per_transaction = 10", "max_connections = 20"];
    let Some(server) = PostgresServer::start(&settings) else { return };
    let mut store = open(&server.url("windlass"));
    commit(&mut store, 1).expect("it commits");
    let filler = server.hold_all_locks();
    let full = commit(&mut store, 2).expect_err("there is no room for a lock").to_string();
    assert!(full.contains("53200") && full.contains("raise max_locks_per_transaction"), "{full}");
    let tries = server.log().matches("out of shared memory").count();
    assert!(tries > 2, "{tries}: it is tried again");
    drop(filler);
    commit_at_last(&mut store, 2);
    assert_eq!(jobs(&server.url("windlass")), 2);
}

#[test]
fn a_server_without_space_is_full_at_once_and_the_store_goes_on_when_it_has_some() {
    let Some(server) = PostgresServer::shared() else { return };
    let schema = server.new_schema();
    let mut store = open(&server.url(&schema));
    refuse_inserts(server, &schema, "53100", 1);
    let full = commit(&mut store, 1);
    assert!(matches!(&full, Err(CommitError::Full(why)) if why.to_string().contains("53100")));
    assert_eq!(inserts(server, &schema), "1", "it is not retried inside the commit");
    assert_eq!(store.was_committed(enqueue(1).id), Ok(false));
    commit(&mut store, 1).expect("it commits");
    assert_eq!(jobs(&server.url(&schema)), 1);
}
