//! Connections that are cut, delayed or lead nowhere, and servers that stop: no commit is lost or
//! made twice, every call ends, and the store goes on by itself.

mod subject;

use std::time::Duration;

use windlass_core::store::{CommitError, Reader, Store};
use windlass_store_postgres::{PgOptions, PgStore, StoreUrl};
use windlass_tests::postgres_server::PostgresServer;
use windlass_tests::proxy::{Mode, Proxy};

use subject::commits::{DEADLINE, SHORT, commit, commit_at_last, enqueue, jobs, open, open_with};

/// A store behind a proxy, and the URL of the same schema without it.
fn behind_proxy(server: &PostgresServer) -> (PgStore, Proxy, String) {
    behind_proxy_with(server, DEADLINE)
}

/// The same with a deadline of its own. The schema is made before.
fn behind_proxy_with(server: &PostgresServer, deadline: Duration) -> (PgStore, Proxy, String) {
    let schema = server.new_schema();
    let proxy = Proxy::start(server.port());
    drop(open(&server.url(&schema)));
    let store = open_with(&server.tcp_url(proxy.port(), &schema), deadline);
    (store, proxy, server.url(&schema))
}

#[test]
fn a_connection_cut_right_after_the_commit_was_sent_is_settled_as_committed() {
    let Some(server) = PostgresServer::shared() else { return };
    let (mut store, proxy, url) = behind_proxy(server);
    for seq in 1..=2 {
        commit(&mut store, seq).expect("it commits");
    }
    proxy.set(Mode::CutAfterCommit);
    let unknown = commit(&mut store, 3);
    assert!(matches!(unknown, Err(CommitError::Unknown { .. })), "{unknown:?}");
    proxy.set(Mode::Pass);
    assert_eq!(store.was_committed(enqueue(3).id), Ok(true));
    commit_at_last(&mut store, 4);
    assert_eq!(jobs(&url), 4);
}

#[test]
fn a_connection_cut_before_the_commit_is_not_committed() {
    let Some(server) = PostgresServer::shared() else { return };
    let (mut store, proxy, url) = behind_proxy(server);
    commit(&mut store, 1).expect("it commits");
    proxy.set(Mode::Cut);
    let cut = commit(&mut store, 2);
    assert!(matches!(cut, Err(CommitError::NotCommitted(_))), "{cut:?}");
    proxy.set(Mode::Pass);
    assert_eq!(store.was_committed(enqueue(2).id), Ok(false));
    commit_at_last(&mut store, 3);
    assert_eq!(jobs(&url), 2);
}

#[test]
fn every_call_into_a_black_hole_ends_at_its_deadline() {
    let Some(server) = PostgresServer::shared() else { return };
    let (mut store, proxy, url) = behind_proxy_with(server, SHORT);
    commit(&mut store, 1).expect("it commits");
    let mut reader = store.reader().expect("there is a reader");
    assert_eq!(reader.next_due(), Ok(None));
    proxy.set(Mode::BlackHole);
    assert!(matches!(commit(&mut store, 2), Err(CommitError::NotCommitted(_))));
    assert!(store.was_committed(enqueue(2).id).is_err());
    assert!(store.news(&[]).is_err() && reader.next_due().is_err());
    assert!(store.reopen().is_err());
    proxy.set(Mode::Pass);
    commit_at_last(&mut store, 2);
    assert_eq!(jobs(&url), 2);
}

#[test]
fn answers_that_are_late_but_within_the_deadline_change_nothing() {
    let Some(server) = PostgresServer::shared() else { return };
    let (mut store, proxy, url) = behind_proxy(server);
    proxy.set(Mode::Delay(Duration::from_millis(20)));
    for seq in 1..=3 {
        commit(&mut store, seq).expect("it commits");
    }
    assert_eq!(jobs(&url), 3);
}

#[test]
fn after_every_backend_was_terminated_the_store_goes_on() {
    // One of its own: the other tests keep their connections.
    let Some(server) = PostgresServer::start(&[]) else { return };
    let schema = server.new_schema();
    let mut store = open(&server.url(&schema));
    let mut reader = store.reader().expect("there is a reader");
    commit(&mut store, 1).expect("it commits");
    assert_eq!(reader.next_due(), Ok(None));
    let all = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
               WHERE application_name = 'windlass'";
    assert_ne!(server.run(all), "0");
    commit_at_last(&mut store, 2);
    assert_eq!(reader.next_due(), Ok(None));
    assert_eq!(jobs(&server.url(&schema)), 2);
}

#[test]
fn a_server_that_crashes_and_restarts_has_every_acknowledged_commit() {
    let Some(server) = PostgresServer::start(&[]) else { return };
    let url = server.url("windlass");
    let mut store = open(&url);
    for seq in 1..=5 {
        commit(&mut store, seq).expect("it commits");
    }
    server.stop();
    assert!(matches!(commit(&mut store, 6), Err(CommitError::NotCommitted(_))));
    server.resume();
    commit_at_last(&mut store, 6);
    assert_eq!(jobs(&url), 6);
}

#[test]
fn a_transaction_that_is_not_over_keeps_the_question_for_it_waiting() {
    let Some(server) = PostgresServer::shared() else { return };
    let schema = server.new_schema();
    let url = server.url(&schema);
    let mut store = open(&url);
    commit(&mut store, 1).expect("it commits");
    // Another backend holds what a transaction of this process holds.
    let holder = url.clone();
    let (locked, is_locked) = std::sync::mpsc::channel();
    let (go, may_go) = std::sync::mpsc::channel::<()>();
    let thread = std::thread::spawn(move || {
        let mut other = open(&holder);
        other.on_commit(move |point| {
            if point == windlass_core::store::CommitPoint::Answered {
                let _ = locked.send(());
                let _ = may_go.recv_timeout(Duration::from_secs(30));
            }
        });
        commit(&mut other, 2).is_ok()
    });
    is_locked.recv_timeout(Duration::from_secs(30)).expect("it has its answers");
    assert!(store.was_committed(enqueue(2).id).is_err(), "it may still be committed");
    go.send(()).expect("it waits");
    let committed = thread.join().expect("it ends");
    assert_eq!(store.was_committed(enqueue(2).id), Ok(committed));
}

#[test]
fn a_connection_lost_before_the_commit_was_sent_is_not_committed_and_after_it_unknown() {
    let Some(server) = PostgresServer::shared() else { return };
    let (mut store, proxy, url) = behind_proxy(server);
    let proxy = std::sync::Arc::new(proxy);
    let cut = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(true));
    let (for_hook, cuts) = (std::sync::Arc::clone(&proxy), std::sync::Arc::clone(&cut));
    store.on_commit(move |point| {
        let answered = point == windlass_core::store::CommitPoint::Answered;
        if answered && cuts.swap(false, std::sync::atomic::Ordering::SeqCst) {
            for_hook.set(Mode::Cut);
        }
    });
    // The statements that write are not prepared yet: the commit is not sent.
    let first = commit(&mut store, 1);
    assert!(matches!(first, Err(CommitError::NotCommitted(_))), "{first:?}");
    proxy.set(Mode::Pass);
    commit_at_last(&mut store, 1);
    cut.store(true, std::sync::atomic::Ordering::SeqCst);
    let second = commit(&mut store, 2);
    assert!(matches!(second, Err(CommitError::Unknown { .. })), "{second:?}");
    proxy.set(Mode::Pass);
    let committed = loop {
        if let Ok(committed) = store.was_committed(enqueue(2).id) {
            break committed;
        }
    };
    assert!(!committed, "it did not reach the server");
    assert_eq!(jobs(&url), 1);
}

#[test]
fn while_the_server_is_away_calls_fail_at_once_with_the_reason() {
    let Some(server) = PostgresServer::start(&[]) else { return };
    let mut store = open(&server.url("windlass"));
    commit(&mut store, 1).expect("it commits");
    server.stop();
    let lost = commit(&mut store, 2);
    assert!(matches!(lost, Err(CommitError::NotCommitted(_))), "{lost:?}");
    let first = commit(&mut store, 2).expect_err("the server is away").to_string();
    // The same reason: no other try was made.
    let refused = store.news(&[]).expect_err("the server is away").to_string();
    assert!(first.contains("check that the server runs"), "{first}");
    assert!(refused.contains("check that the server runs"), "{refused}");
    server.resume();
    // Who asks for it gets a connection without a pause.
    assert_eq!(store.reopen(), Ok(()));
    commit(&mut store, 2).expect("it commits");
}

#[test]
fn settings_that_lose_commits_are_found_when_a_connection_is_made_again() {
    let Some(server) = PostgresServer::shared() else { return };
    let schema = server.new_schema();
    server.run("CREATE ROLE turns LOGIN SUPERUSER");
    let mut store = open(&server.url(&schema).replace("windlass@", "turns@"));
    commit(&mut store, 1).expect("it commits");
    server.run("ALTER ROLE turns SET synchronous_commit = off");
    let all = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
               WHERE usename = 'turns'";
    server.run(all);
    let refused = loop {
        let error = commit(&mut store, 2).expect_err("the setting loses commits").to_string();
        if !error.contains("closed") && !error.contains("terminating") {
            break error;
        }
    };
    assert!(refused.contains("synchronous_commit is off"), "{refused}");
    server.run("ALTER ROLE turns RESET synchronous_commit");
    commit_at_last(&mut store, 2);
    assert_eq!(jobs(&server.url(&schema)), 2);
}

#[test]
fn a_schema_that_another_node_migrated_is_found_when_a_connection_is_made_again() {
    let Some(server) = PostgresServer::shared() else { return };
    let schema = server.new_schema();
    server.run("CREATE ROLE older LOGIN SUPERUSER");
    let mut store = open(&server.url(&schema).replace("windlass@", "older@"));
    commit(&mut store, 1).expect("it commits");
    let newer = |by: i32| {
        server.run(&format!("UPDATE {schema}.meta SET value = value + {by} WHERE key = 'schema'"));
    };
    newer(90);
    server.run(
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE usename = 'older'",
    );
    let refused = loop {
        let error = commit(&mut store, 2).expect_err("the schema is unknown").to_string();
        if !error.contains("closed") && !error.contains("terminating") {
            break error;
        }
    };
    assert!(refused.contains("was written by a newer Windlass (schema 9"), "{refused}");
    newer(-90);
    commit_at_last(&mut store, 2);
    assert_eq!(jobs(&server.url(&schema)), 2);
}

#[test]
fn a_node_whose_schema_is_migrated_meanwhile_commits_nothing_more() {
    let Some(server) = PostgresServer::shared() else { return };
    // Those of the second can no longer be asked for.
    for step in ["", "ALTER TABLE {}.ready RENAME COLUMN turn TO moved;"] {
        let schema = server.new_schema();
        let mut store = open(&server.url(&schema));
        let mut reader = store.reader().expect("there is a reader");
        assert_eq!(reader.next_due(), Ok(None));
        commit(&mut store, 1).expect("it commits");
        let step = step.replace("{}", &schema);
        let newer = subject::schema_number(server, &schema) + 1;
        server.run(&format!(
            "BEGIN; {step} UPDATE {schema}.meta SET value = value + 1 \
             WHERE key IN ('schema', 'names'); COMMIT"
        ));
        let refused = match commit(&mut store, 2) {
            Err(CommitError::NotCommitted(why)) => why.to_string(),
            other => panic!("{other:?}"),
        };
        let newer = format!("migrated by a newer Windlass (schema {newer},");
        assert!(refused.contains(&newer), "{refused}");
        assert!(refused.contains("restart this process"), "{refused}");
        let refused = reader.queues().expect_err("it is read as another schema").to_string();
        assert!(refused.contains("migrated by a newer Windlass"), "{refused}");
        let refused = store.repair().expect_err("it is repaired as another schema").to_string();
        assert!(refused.contains("migrated by a newer Windlass"), "{refused}");
        let jobs = format!("SELECT count(*) FROM {schema}.jobs");
        assert_eq!(server.run(&jobs), "1");
    }
}

#[test]
fn a_migration_waits_for_open_batches_and_has_every_node_check_the_schema() {
    let Some(server) = PostgresServer::shared() else { return };
    let schema = server.new_schema();
    let url = server.url(&schema);
    let mut store = open(&url);
    for seq in 1..=2 {
        commit(&mut store, seq).expect("it commits");
    }
    let newest = subject::schema_number(server, &schema);
    // Only the settings of autovacuum are behind: batches of this program go on meanwhile.
    subject::take_back(server, &schema, newest - 1);
    let names = format!("SELECT value FROM {schema}.meta WHERE key = 'names'");
    let before = server.run(&names);
    let (asks, is_asked) = std::sync::mpsc::channel();
    let (go, may_go) = std::sync::mpsc::channel::<()>();
    store.on_commit(move |point| {
        if point == windlass_core::store::CommitPoint::Answered {
            let _ = asks.send(());
            let _ = may_go.recv_timeout(Duration::from_secs(30));
        }
    });
    let batch = std::thread::spawn(move || commit(&mut store, 3).map(|_| store));
    is_asked.recv_timeout(Duration::from_secs(30)).expect("it has its answers");
    let migration = std::thread::spawn(move || PgStore::connect(&url).map(drop));
    let waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'advisory' \
                 AND query LIKE 'SELECT pg_advisory_xact_lock(%' AND query NOT LIKE '%$%'";
    while server.run(waits) == "0" {
        assert!(!migration.is_finished(), "it did not wait for the batch");
    }
    go.send(()).expect("it waits");
    let mut store = batch.join().expect("it ends").expect("it commits");
    migration.join().expect("it ends").expect("it migrates");
    assert_ne!(server.run(&names), before);
    assert_eq!(subject::schema_number(server, &schema), newest);
    drop(go);
    commit(&mut store, 4).expect("the schema is the one that it knows");
}

#[test]
fn a_server_that_became_read_only_takes_no_commit_and_the_store_goes_on_when_it_is_not() {
    let Some(server) = PostgresServer::start(&[]) else { return };
    let mut store = open(&server.url("windlass"));
    commit(&mut store, 1).expect("it commits");
    server.run("ALTER SYSTEM SET default_transaction_read_only = on");
    server.run("SELECT pg_reload_conf()");
    server.run(
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
         WHERE application_name = 'windlass'",
    );
    let refused = loop {
        match commit(&mut store, 2) {
            Err(CommitError::NotCommitted(why)) if why.to_string().contains("read-only") => {
                break why;
            }
            Err(CommitError::NotCommitted(_)) => std::thread::yield_now(),
            other => panic!("{other:?}"),
        }
    };
    assert!(refused.to_string().contains("primary"), "{refused}");
    server.run(
        "BEGIN READ WRITE; ALTER ROLE windlass SET default_transaction_read_only = off; COMMIT",
    );
    commit_at_last(&mut store, 2);
}

#[test]
fn with_all_connections_in_use_the_reason_is_reported_and_the_store_goes_on_when_one_is_free() {
    let settings = ["max_connections = 6", "superuser_reserved_connections = 0"];
    let Some(server) = PostgresServer::start(&settings) else { return };
    let proxy = Proxy::start(server.port());
    let mut store = open(&server.tcp_url(proxy.port(), "windlass"));
    commit(&mut store, 1).expect("it commits");
    let mut others: Vec<PgStore> = Vec::new();
    let url = StoreUrl::parse(&server.url("windlass")).expect("it is a URL");
    let error = loop {
        match PgStore::open(url.clone(), PgOptions::default()) {
            Ok(other) => others.push(other),
            Err(error) => break error.to_string(),
        }
    };
    assert!(error.contains("max_connections"), "{error}");
    // The connection that writes is lost, and another client takes its place.
    proxy.set(Mode::Cut);
    assert!(commit(&mut store, 2).is_err());
    proxy.set(Mode::Pass);
    let end = tokio::time::Instant::now() + Duration::from_secs(30);
    while others.len() < 6 && tokio::time::Instant::now() < end {
        others.extend(PgStore::open(url.clone(), PgOptions::default()));
    }
    assert_eq!(others.len(), 6);
    let refused = loop {
        let error = commit(&mut store, 2).expect_err("no connection is free").to_string();
        if error.contains("max_connections") {
            break error;
        }
    };
    assert!(refused.contains("end other clients"), "{refused}");
    drop(others);
    commit_at_last(&mut store, 2);
}

#[test]
fn a_node_that_dies_while_it_migrates_leaves_nothing_behind() {
    let Some(server) = PostgresServer::shared() else { return };
    let schema = server.new_schema();
    let proxy = Proxy::start(server.port());
    proxy.set(Mode::CutBehind(b"CREATE TABLE attempts"));
    let url = StoreUrl::parse(&server.tcp_url(proxy.port(), &schema)).expect("it is a URL");
    let options = PgOptions { deadline: DEADLINE, ..PgOptions::default() };
    let error = PgStore::open(url, options).expect_err("the connection is cut").to_string();
    assert!(!error.contains(windlass_tests::postgres_server::PASSWORD), "{error}");
    let tables = format!("SELECT count(*) FROM pg_tables WHERE schemaname = '{schema}'");
    assert_eq!(server.run(&tables), "0");
    let mut store = open(&server.url(&schema));
    commit(&mut store, 1).expect("another node migrates");
    assert_eq!(jobs(&server.url(&schema)), 1);
}
