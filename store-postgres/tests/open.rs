//! What cannot be used is refused: with the reason, without a secret, and with nothing written.

mod subject;

use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::Duration;

use windlass_core::store::{Batch, Store};
use windlass_core::{BatchId, Kind, NewJob, Payload, Policy, ProcessId, Wall};
use windlass_store_postgres::{OpenError, PgOptions, PgStore, StoreUrl};
use windlass_tests::postgres_server::{PASSWORD, PostgresServer};

/// Opens a store that must not open, and returns why.
#[track_caller]
fn refused(url: &str) -> OpenError {
    refused_with(url, PgOptions::default())
}

#[track_caller]
fn refused_with(url: &str, options: PgOptions) -> OpenError {
    let url = StoreUrl::parse(url).expect("it is a URL");
    let options = PgOptions { deadline: Duration::from_secs(5), ..options };
    let error = PgStore::open(url, options).expect_err("it cannot be opened");
    for text in [error.to_string(), format!("{error:?}")] {
        assert!(!text.contains(PASSWORD) && !text.contains("wr0ng"), "a secret: {text}");
    }
    error
}

#[track_caller]
fn assert_tells(error: &OpenError, parts: &[&str]) {
    let text = error.to_string();
    for part in parts {
        assert!(text.contains(part), "{text:?} does not tell {part:?}");
    }
}

fn tables(server: &PostgresServer, schema: &str) -> String {
    server.run(&format!("SELECT count(*) FROM pg_tables WHERE schemaname = '{schema}'"))
}

fn enqueue(store: &mut PgStore, seq: u64) -> bool {
    let mut batch = Batch::new(BatchId { process: ProcessId(7), seq }, Policy::default());
    batch.enqueues.push(NewJob::new(Kind::default(), Payload::null()));
    store.commit(Wall::new(0), &batch).is_ok()
}

#[test]
fn a_host_that_cannot_be_reached_is_refused_with_what_to_check() {
    let error = refused("postgres://me:wr0ng@127.0.0.1:1/postgres");
    assert_tells(&error, &["postgres://me@127.0.0.1:1/postgres", "check that the server runs"]);
}

#[test]
fn a_wrong_password_or_a_missing_database_is_refused() {
    let Some(server) = PostgresServer::shared() else { return };
    let port = server.port();
    let error = refused(&format!("postgres://windlass:wr0ng@127.0.0.1:{port}/postgres"));
    assert_tells(&error, &["28P01", "check user and password"]);
    let url = server.tcp_url(port, "windlass").replace("/postgres?", "/nowhere?");
    assert_tells(&refused(&url), &["nowhere", "CREATE DATABASE"]);
}

/// Answers one client as a connection pooler does that does not pass startup options on.
fn pooler() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("there is a free port");
    let port = listener.local_addr().expect("it has an address").port();
    std::thread::spawn(move || {
        let (mut client, _) = listener.accept().expect("a client comes");
        let mut length = [0; 4];
        client.read_exact(&mut length).expect("it sends its startup message");
        let mut rest = vec![0; u32::from_be_bytes(length) as usize - 4];
        client.read_exact(&mut rest).expect("it sends its startup message");
        let options = rest.windows(b"options".len()).any(|bytes| bytes == b"options");
        let why = if options { "unsupported startup parameter: options" } else { "no options" };
        let fields = format!("SFATAL\0VFATAL\0C08P01\0M{why}\0\0");
        let mut answer = vec![b'E'];
        let length = u32::try_from(fields.len() + 4).expect("it is short");
        answer.extend(length.to_be_bytes());
        answer.extend(fields.as_bytes());
        client.write_all(&answer).expect("it reads the answer");
    });
    port
}

#[test]
fn a_pooler_that_does_not_pass_on_startup_options_is_refused_with_the_reason() {
    let url = format!("postgres://me:wr0ng@127.0.0.1:{}/postgres?sslmode=disable", pooler());
    assert_tells(&refused(&url), &["unsupported startup parameter", "PgBouncer", "LISTEN"]);
}

#[test]
fn a_user_without_rights_is_refused_and_nothing_is_written() {
    let Some(server) = PostgresServer::shared() else { return };
    let schema = server.new_schema();
    server.run("CREATE ROLE poor LOGIN");
    let url = server.url(&schema).replace("windlass@", "poor@");
    assert_tells(&refused(&url), &["permission denied", "grant the user CREATE"]);
    assert_eq!(tables(server, &schema), "0");
}

#[test]
fn a_schema_of_another_program_is_refused_and_left_alone() {
    let Some(server) = PostgresServer::shared() else { return };
    for table in ["invoices (id int)", "meta (key text, value text)", "meta (other int)"] {
        let schema = server.new_schema();
        server.run(&format!("CREATE SCHEMA {schema}; CREATE TABLE {schema}.{table}"));
        let error = refused(&server.url(&schema));
        assert!(matches!(error, OpenError::Foreign { .. }), "{error}");
        assert_tells(&error, &["another program", "?schema="]);
        assert_eq!(tables(server, &schema), "1");
    }
}

#[test]
fn a_newer_schema_is_refused_and_a_missing_one_is_if_it_may_not_be_made() {
    let Some(server) = PostgresServer::shared() else { return };
    let schema = server.new_schema();
    drop(subject::open(&server.url(&schema)));
    server.run(&format!("UPDATE {schema}.meta SET value = 99 WHERE key = 'schema'"));
    let error = refused(&server.url(&schema));
    assert!(matches!(error, OpenError::Newer { found: 99, .. }), "{error}");
    let schema = server.new_schema();
    let error =
        refused_with(&server.url(&schema), PgOptions { migrate: false, ..PgOptions::default() });
    assert!(matches!(error, OpenError::NotMigrated { found: 0, .. }), "{error}");
    assert_eq!(tables(server, &schema), "0");
}

#[test]
fn settings_that_lose_commits_are_refused_with_their_name_and_origin() {
    let Some(server) = PostgresServer::shared() else { return };
    server.run("CREATE ROLE lax LOGIN SUPERUSER; ALTER ROLE lax SET synchronous_commit = off");
    let schema = server.new_schema();
    let error = refused(&server.url(&schema).replace("windlass@", "lax@"));
    assert_tells(&error, &["synchronous_commit is off", "user", "before it is on disk"]);
    assert_eq!(tables(server, &schema), "0");
}

#[test]
fn a_server_without_fsync_is_refused() {
    let Some(server) = PostgresServer::start(&["fsync = off"]) else { return };
    assert_tells(&refused(&server.url("windlass")), &["fsync is off", "power cut"]);
}

#[test]
fn a_read_only_server_is_refused_and_nothing_is_written() {
    let Some(server) = PostgresServer::shared() else { return };
    server.run(
        "CREATE ROLE reads LOGIN SUPERUSER; \
         ALTER ROLE reads SET default_transaction_read_only = on",
    );
    let schema = server.new_schema();
    let error = refused(&server.url(&schema).replace("windlass@", "reads@"));
    assert!(matches!(error, OpenError::ReadOnly { .. }), "{error}");
    assert_eq!(tables(server, &schema), "0");
}

#[test]
fn nodes_that_start_at_once_make_one_schema() {
    let Some(server) = PostgresServer::shared() else { return };
    let url = server.url(&server.new_schema());
    let start = |process: u64| {
        let url = url.clone();
        std::thread::spawn(move || {
            let mut store = PgStore::connect(&url).expect("each of them opens it");
            let mut batch =
                Batch::new(BatchId { process: ProcessId(process), seq: 1 }, Policy::default());
            batch.enqueues.push(NewJob::new(Kind::default(), Payload::null()));
            store.commit(Wall::new(0), &batch).expect("each of them commits");
        })
    };
    let threads: Vec<_> = (1..=4).map(start).collect();
    for thread in threads {
        thread.join().expect("a node starts");
    }
    let store = PgStore::connect(&url).expect("it opens");
    assert_eq!(subject::verify(&store), Vec::<String>::new());
}

#[test]
fn only_the_clock_of_the_server_counts() {
    let Some(server) = PostgresServer::shared() else { return };
    let mut store = PgStore::connect(&server.url(&server.new_schema())).expect("it opens");
    let mut batch = Batch::new(BatchId { process: ProcessId(1), seq: 1 }, Policy::default());
    batch.enqueues.push(NewJob::new(Kind::default(), Payload::null()));
    let before: i64 = epoch_ms(server);
    let out = store.commit(Wall::new(5), &batch).expect("it commits");
    assert!((before..=epoch_ms(server)).contains(&out.now.get()), "{}", out.now);
}

fn epoch_ms(server: &PostgresServer) -> i64 {
    let text = server.run("SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint");
    text.parse().expect("it is a number")
}

#[test]
fn a_damaged_store_is_found_and_repaired() {
    let Some(server) = PostgresServer::shared() else { return };
    let schema = server.new_schema();
    let mut store = subject::open(&server.url(&schema));
    assert!((1..=3).all(|seq| enqueue(&mut store, seq)));
    assert_eq!(subject::verify(&store), Vec::<String>::new());
    for damage in [
        "UPDATE {}.counts SET queued = queued + 1",
        "UPDATE {}.ready SET class = class + 1",
        "DELETE FROM {}.pairs",
        "INSERT INTO {}.results VALUES (77, '1')",
        "UPDATE {}.jobs SET payload_bytes = 1",
        "UPDATE {}.ready SET kind = kind + 1 WHERE id = 1",
        "INSERT INTO {}.ready SELECT 99, turn, due, epoch, updated_at, started_at, run_at, \
         queue, kind, attempts, generation, class, spent FROM {}.ready WHERE id = 1",
    ] {
        server.run(&damage.replace("{}", &schema));
        assert_ne!(subject::verify(&store), Vec::<String>::new(), "{damage}");
        store.repair().expect("it can be repaired");
        assert_eq!(subject::verify(&store), Vec::<String>::new(), "{damage}");
    }
    server.run(&format!("DELETE FROM {schema}.ready WHERE id = 2"));
    assert_ne!(subject::verify(&store), Vec::<String>::new());
}
