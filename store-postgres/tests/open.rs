//! What cannot be used is refused: with the reason, without a secret, and with nothing written.

mod subject;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use windlass_core::store::{Batch, ClaimFor, Durability, Reader, Settle, Store, Taker};
use windlass_core::{
    BatchId, Demand, Failure, Kind, NewJob, Payload, Policy, ProcessId, Verdict, Wall, WorkerId,
};
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

/// Connects one client to a server without the options of its startup message, as a connection
/// pooler does that has to ignore them.
fn deaf_pooler(server: u16) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("there is a free port");
    let port = listener.local_addr().expect("it has an address").port();
    std::thread::spawn(move || {
        let (mut client, _) = listener.accept().expect("a client comes");
        let mut server = TcpStream::connect(("127.0.0.1", server)).expect("the server runs");
        let mut length = [0; 4];
        client.read_exact(&mut length).expect("it sends its startup message");
        let mut rest = vec![0; u32::from_be_bytes(length) as usize - 4];
        client.read_exact(&mut rest).expect("it sends its startup message");
        let (version, parameters) = rest.split_at(4);
        let texts: Vec<&[u8]> = parameters.split(|byte| *byte == 0).collect();
        let pairs = texts.chunks(2).filter(|pair| pair.len() == 2 && !pair[0].is_empty());
        let kept = pairs.filter(|pair| pair[0] != b"options");
        let kept: Vec<u8> =
            kept.flat_map(|pair| [pair[0], pair[1], b"".as_slice()].join(&0)).collect();
        let message = [version, &kept, b"\0"].concat();
        let length = u32::try_from(message.len() + 4).expect("it is short");
        server.write_all(&[&length.to_be_bytes(), message.as_slice()].concat()).expect("it reads");
        let both = (client.try_clone(), server.try_clone());
        let (Ok(mut from_client), Ok(mut to_server)) = both else { return };
        std::thread::spawn(move || std::io::copy(&mut from_client, &mut to_server));
        let _ = std::io::copy(&mut server, &mut client);
    });
    port
}

#[test]
fn a_pooler_that_ignores_startup_options_is_refused_and_nothing_is_written() {
    let Some(server) = PostgresServer::shared() else { return };
    let schema = server.new_schema();
    let url = format!("{}&sslmode=disable", server.tcp_url(deaf_pooler(server.port()), &schema));
    assert_tells(&refused(&url), &["PgBouncer", "the address of PostgreSQL itself", "LISTEN"]);
    assert_eq!(tables(server, &schema), "0");
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
fn a_user_without_one_of_the_rights_of_a_node_is_refused_with_the_grant_to_run() {
    let Some(server) = PostgresServer::shared() else { return };
    let schema = server.new_schema();
    drop(subject::open(&server.url(&schema)));
    server.run(&format!(
        "CREATE ROLE lacks LOGIN; GRANT USAGE ON SCHEMA {schema} TO lacks; \
         GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO lacks; \
         GRANT USAGE, SELECT, UPDATE ON ALL SEQUENCES IN SCHEMA {schema} TO lacks; \
         CREATE TABLE {schema}.notes (text text)"
    ));
    let url = server.url(&schema).replace("windlass@", "lacks@");
    let mut store = PgStore::connect(&url).expect("a table of others needs no rights");
    assert!(enqueue(&mut store, 1));
    for (right, on) in [("DELETE", "done"), ("SELECT", "figures"), ("USAGE", "SEQUENCE ids")] {
        let name = on.replace("SEQUENCE ids", &format!("SEQUENCE {schema}.ids"));
        let name = if on == name { format!("{schema}.{on}") } else { name };
        server.run(&format!("REVOKE {right} ON {name} FROM lacks"));
        let error = refused(&url);
        assert!(error.is_denied(), "{error:?}");
        assert_tells(&error, &["lacks has no right to", "GRANT ", &format!(" ON {name} TO lacks")]);
        server.run(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE usename = 'lacks'",
        );
        let again = loop {
            let error = store.reopen().expect_err("a right is missing").to_string();
            if !error.contains("terminating") {
                break error;
            }
        };
        assert!(again.contains("lacks has no right to"), "{again}");
        server.run(&format!("GRANT {right} ON {name} TO lacks"));
        assert_eq!(store.reopen(), Ok(()));
    }
    assert!(enqueue(&mut store, 2));
}

#[test]
fn every_table_of_the_schema_is_one_whose_rights_are_checked() {
    let Some(server) = PostgresServer::shared() else { return };
    let schema = server.new_schema();
    drop(subject::open(&server.url(&schema)));
    server.run(&format!(
        "CREATE ROLE nothing LOGIN; GRANT USAGE ON SCHEMA {schema} TO nothing; \
         GRANT SELECT ON {schema}.meta TO nothing"
    ));
    let url = server.url(&schema).replace("windlass@", "nothing@");
    let missing: usize = tables(server, &schema).parse().expect("it is a number");
    // Four rights of each table but one, those of the sequence, and four are named.
    let more = format!("({} more are missing", missing * 4 - 1 + 1 - 4);
    assert_tells(&refused(&url), &[&more]);
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

/// A program with `#[tokio::main]` opens its store, and drops it, inside of its runtime.
#[test]
fn a_store_opens_and_is_dropped_inside_a_runtime() {
    let server = PostgresServer::shared().expect("PostgreSQL is installed");
    let url = server.url(&server.new_schema());
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("it is built");
    runtime.block_on(async {
        let store = PgStore::connect(&url).expect("the store opens");
        drop(store.reader().expect("it can be read"));
        assert!(PgStore::connect("postgres://127.0.0.1:1/jobs").is_err());
    });
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
fn dead_letters_of_the_first_schema_are_grouped_when_it_is_migrated() {
    let Some(server) = PostgresServer::shared() else { return };
    let schema = server.new_schema();
    let mut store = subject::open(&server.url(&schema));
    let mut seq = 0;
    let mut commit = |fill: &dyn Fn(&mut Batch)| {
        seq += 1;
        let mut batch = Batch::new(BatchId { process: ProcessId(7), seq }, Policy::default());
        fill(&mut batch);
        store.commit(Wall::new(0), &batch).expect("it commits")
    };
    let new = NewJob::new(Kind::default(), Payload::null());
    let worker = WorkerId::new("w").expect("it is a name");
    let taker = Taker { worker, max: 3, length: None };
    let claim = ClaimFor { demand: Demand::ALL, takers: vec![taker] };
    let out = commit(&|batch| {
        batch.enqueues = vec![new.clone(); 3];
        batch.claims.push(claim.clone());
    });
    let held = &out.claims[0].jobs;
    commit(&|batch| {
        for (at, leased) in held.iter().enumerate() {
            let failure = Failure::new(["no 1", "no 2", "gone"][at]).permanent();
            let (token, verdict) = (leased.job.token(), Verdict::Fail(Box::new(failure)));
            batch.settles.push(Settle { token, verdict });
        }
    });
    let before = store.reader().and_then(|mut reader| reader.error_groups()).expect("it reads");
    drop(store);
    subject::take_back(server, &schema, 1);
    let store = subject::open(&server.url(&schema));
    let after = store.reader().and_then(|mut reader| reader.error_groups()).expect("it reads");
    assert_eq!(after, before);
    assert_eq!(after.iter().map(|group| group.live).sum::<u64>(), 3);
    assert_eq!(store.verify(), Ok(Vec::new()));
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
fn commits_are_called_replicated_only_if_a_standby_has_flushed_them() {
    let Some(server) = PostgresServer::start(&[]) else { return };
    let url = server.url("windlass");
    let url_of = |level: &str| url.replace("windlass@", &format!("{level}@"));
    let levels = ["on", "remote_apply", "remote_write", "local"];
    let reached = |level: &str| subject::open(&url_of(&format!("l_{level}"))).durability();
    drop(subject::open(&url));
    for level in levels {
        server.run(&format!(
            "CREATE ROLE l_{level} LOGIN SUPERUSER; \
             ALTER ROLE l_{level} SET synchronous_commit = {level}"
        ));
    }
    assert_eq!(levels.map(reached), [Durability::Synced; 4], "there is no standby");
    // No commit would end now: none is made.
    server.run("ALTER SYSTEM SET synchronous_standby_names = 'far'");
    server.run("SELECT pg_reload_conf()");
    while server.run("SHOW synchronous_standby_names").is_empty() {}
    let (replicated, synced) = (Durability::Replicated, Durability::Synced);
    assert_eq!(levels.map(reached), [replicated, replicated, synced, synced]);
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

#[test]
fn a_large_store_is_checked_and_repaired_page_by_page_whatever_an_answer_may_take() {
    let Some(server) = PostgresServer::shared() else { return };
    let schema = server.new_schema();
    let url = server.url(&schema);
    assert!(enqueue(&mut subject::open(&url), 1));
    let jobs = 30_000;
    server.run(&format!(
        "SET search_path = {schema}; \
         INSERT INTO jobs SELECT g, created_at, visibility_timeout, timeout, queue, kind, retry, \
         max_retries, payload_bytes, priority, idempotency_key, payload \
         FROM jobs, generate_series(2, {jobs}) g WHERE id = 1; \
         INSERT INTO ready SELECT g, turn, due, epoch, updated_at, started_at, run_at, queue, \
         kind, attempts, generation, class, spent FROM ready, generate_series(2, {jobs}) g \
         WHERE id = 1; UPDATE counts SET queued = {jobs}"
    ));
    let options = PgOptions { deadline: Duration::from_millis(50), ..PgOptions::default() };
    let parsed = StoreUrl::parse(&url).expect("it is a URL");
    let end = tokio::time::Instant::now() + Duration::from_mins(1);
    // On a busy machine it may take longer to connect than an answer may take.
    let retried = |what: &mut dyn FnMut() -> Result<bool, String>| loop {
        match what() {
            Ok(agrees) => break agrees,
            Err(why) => assert!(tokio::time::Instant::now() < end, "{why}"),
        }
    };
    let open = || PgStore::open(parsed.clone(), options).map_err(|error| error.to_string());
    let verified = |store: &PgStore| match store.verify() {
        Ok(found) => Ok(found.is_empty()),
        Err(error) => Err(error.to_string()),
    };
    assert!(retried(&mut || verified(&open()?)));
    server.run(&format!("UPDATE {schema}.ready SET class = class + 1 WHERE id > 28000"));
    assert!(!retried(&mut || verified(&open()?)));
    retried(&mut || open()?.repair().map(|()| true).map_err(|error| error.to_string()));
    assert!(retried(&mut || verified(&open()?)));
}
