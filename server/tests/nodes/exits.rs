//! A store that cannot be used: a message that says what to do, its exit code, nothing written.

use windlass_tests::postgres_server::{PASSWORD, PostgresServer, USER};

use crate::cluster::{ran, windlass};
use crate::common::Place;

/// Everything in the database, as far as a refused command could have changed it.
fn tables(server: &PostgresServer, schema: &str) -> String {
    server.run(&format!(
        "SELECT count(*) FROM pg_class c JOIN pg_namespace n ON n.oid = \
        c.relnamespace WHERE nspname = '{schema}'"
    ))
}

/// Every row of a schema, as a sum.
fn rows(server: &PostgresServer, schema: &str) -> String {
    server.run(&format!(
        "SELECT md5(string_agg(query_to_xml(format('SELECT * FROM %I.%I t ORDER BY t::text', \
         schemaname, tablename), true, false, '')::text, '' ORDER BY tablename)) \
         FROM pg_tables WHERE schemaname = '{schema}'"
    ))
}

/// Runs `enqueue` and `serve` on a store that cannot be used.
#[track_caller]
fn refused(url: &str, code: i32, parts: &[&str]) {
    let place = Place::new("sqlite");
    for args in [&["enqueue", "a"][..], &["serve", "--listen", "127.0.0.1:0"], &["list", "--json"]]
    {
        let mut command = windlass(&place);
        command.args(["--store", url]).args(args);
        let (found, said) = ran(command);
        assert_eq!(found, code, "{args:?}: {said}");
        assert!(!said.contains(PASSWORD) && !said.contains("wr0ng"), "a secret: {said}");
        for part in parts {
            assert!(said.contains(part), "{args:?}: {said:?} does not tell {part:?}");
        }
    }
}

#[test]
fn a_server_that_cannot_be_reached_is_unreachable() {
    let url = "postgres://me:wr0ng@127.0.0.1:1/jobs";
    refused(url, 6, &["postgres://me@127.0.0.1:1/jobs", "check that the server runs"]);
}

#[test]
fn a_wrong_password_and_missing_rights_are_not_allowed() {
    let Some(server) = PostgresServer::shared() else { return };
    let port = server.port();
    let url = format!("postgres://{USER}:wr0ng@127.0.0.1:{port}/postgres");
    refused(&url, 5, &["28P01", "check user and password"]);
    server.run("CREATE ROLE nodes_poor LOGIN");
    let schema = server.new_schema();
    server.run(&format!("CREATE SCHEMA {schema}"));
    let poor = server.url(&schema).replace(&format!("{USER}@"), "nodes_poor@");
    let place = Place::new("sqlite");
    let mut command = windlass(&place);
    command.args(["--store", &poor, "enqueue", "a"]);
    let (code, said) = ran(command);
    assert_eq!(code, 5, "{said}");
    assert!(said.contains("grant the user CREATE"), "{said}");
    assert_eq!(tables(server, &schema), "0");
    let place = Place::new("postgres");
    let schema = place.store.split("schema=").nth(1).unwrap().split('&').next().unwrap();
    let node = place.start(&[]);
    node.signal("-TERM");
    assert!(node.end().0.success());
    server.run(&format!(
        "GRANT USAGE ON SCHEMA {schema} TO nodes_poor; \
         GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO nodes_poor; \
         GRANT USAGE, SELECT, UPDATE ON ALL SEQUENCES IN SCHEMA {schema} TO nodes_poor; \
         REVOKE DELETE ON {schema}.done FROM nodes_poor"
    ));
    let poor = place.store.replace(&format!("{USER}@"), "nodes_poor@");
    let grant = format!("GRANT DELETE ON {schema}.done TO nodes_poor");
    refused(&poor, 5, &["nodes_poor has no right to DELETE on table done", &grant]);
}

#[test]
fn a_missing_database_is_not_found() {
    let Some(server) = PostgresServer::shared() else { return };
    let url = server.url("windlass").replace("/postgres?", "/nowhere?");
    refused(&url, 3, &["nowhere", "CREATE DATABASE"]);
}

#[test]
fn a_schema_of_another_program_or_of_a_newer_version_is_left_alone() {
    let Some(server) = PostgresServer::shared() else { return };
    let schema = server.new_schema();
    server.run(&format!("CREATE SCHEMA {schema}; CREATE TABLE {schema}.invoices (id int)"));
    refused(&server.url(&schema), 1, &["another program", "?schema="]);
    assert_eq!(tables(server, &schema), "1");
    let place = Place::new("postgres");
    let node = place.start(&[]);
    node.enqueue(r#"{"queue":"before"}"#);
    node.signal("-TERM");
    assert!(node.end().0.success());
    let newer = place.store.split("schema=").nth(1).unwrap().split('&').next().unwrap();
    server.run(&format!("UPDATE {newer}.meta SET value = 99 WHERE key = 'schema'"));
    let before = (tables(server, newer), rows(server, newer));
    refused(&place.store, 1, &["newer Windlass", "run that version"]);
    assert_eq!((tables(server, newer), rows(server, newer)), before, "it was written");
}

#[test]
fn settings_that_lose_commits_and_servers_that_cannot_write_are_refused() {
    let Some(server) = PostgresServer::shared() else { return };
    server.run(
        "CREATE ROLE nodes_lax LOGIN SUPERUSER; ALTER ROLE nodes_lax SET synchronous_commit = off; \
         CREATE ROLE nodes_ro LOGIN SUPERUSER; \
         ALTER ROLE nodes_ro SET default_transaction_read_only = on",
    );
    let schema = server.new_schema();
    let of = |user: &str| server.url(&schema).replace(&format!("{USER}@"), user);
    refused(&of("nodes_lax@"), 1, &["synchronous_commit is off", "on is needed"]);
    refused(&of("nodes_ro@"), 1, &["read-only", "connect to the primary"]);
    assert_eq!(tables(server, &schema), "0");
}

#[test]
fn a_url_that_makes_no_sense_is_a_usage_error_without_its_password() {
    for url in ["postgres://me:wr0ng@db:x/jobs", "postgres://me:wr0ng@db/jobs?sslmode=maybe"] {
        refused(url, 2, &["invalid value", "--store"]);
    }
}

#[test]
fn what_needs_a_file_is_refused_on_postgresql_with_what_to_use_instead() {
    if PostgresServer::shared().is_none() {
        return;
    }
    let place = Place::new("postgres");
    let node = place.start(&[]);
    assert_eq!(node.get("/backup").refused(), (409, "not-a-file".into()));
    let run = |args: &[&str]| {
        let mut command = windlass(&place);
        command.args(["--store", &place.store]).args(args);
        ran(command)
    };
    let (code, said) = run(&["backup", "copy"]);
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("pg_dump"), "{said}");
    std::fs::write(place.path("copy"), "").unwrap();
    let (code, said) = run(&["restore", "copy"]);
    assert_eq!(code, 2, "{said}");
    assert!(said.contains("pg_restore"), "{said}");
}
