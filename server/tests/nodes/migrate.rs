//! `windlass migrate`, and servers that may not change the schema.

use windlass_tests::postgres_server::{PostgresServer, USER};

use crate::cluster::{ran, windlass};
use crate::common::Place;
use crate::load::{NODES, under_load};

/// Takes a store back to schema 4, as one that an older version has made.
const OLDER: &str = "BEGIN; SET LOCAL deadlock_timeout = '60s'; SET search_path = windlass; \
    SELECT pg_advisory_xact_lock(\
    (SELECT (classid::bigint << 32) | objid::bigint FROM pg_locks WHERE locktype = 'advisory' \
    AND objid::bigint >> 28 = 2 LIMIT 1)); \
    ALTER TABLE counts DROP COLUMN retrying; \
    ALTER TABLE queues DROP COLUMN paused_at, DROP COLUMN paused_by; \
    ALTER TABLE workers DROP COLUMN version, DROP COLUMN server; \
    ALTER TABLE queues DROP COLUMN flow; DROP TABLE rates; \
    UPDATE meta SET value = 4 WHERE key = 'schema'; \
    UPDATE meta SET value = value + 1 WHERE key = 'names'; COMMIT";

#[test]
fn nodes_that_are_restarted_while_one_migrates_an_older_schema_lose_nothing() {
    let Some(database) = PostgresServer::start(&[]) else { return };
    let url = database.tcp_url(database.port(), "windlass");
    let place = Place { store: url, ..Place::new("sqlite") };
    let schema = "SELECT value FROM windlass.meta WHERE key = 'schema'";
    under_load("migration of an older schema", &place, [&[]; NODES], |load, cluster| {
        load.wait_for_more();
        let newest = database.run(schema);
        database.run(OLDER);
        for n in 0..NODES {
            // They run on, and refuse what the schema is too old for.
            cluster.node(n).until_status("/readyz", 503);
        }
        // One after the other: the first migrates while clients ask all that run.
        for n in 0..NODES {
            cluster.node(n).signal("-KILL");
            cluster.end(load, n);
            cluster.begin(load, n);
            assert_eq!(database.run(schema), newest);
            load.wait_for_more();
        }
        load.wait_for_service(cluster);
    });
}

#[test]
fn a_server_that_may_not_migrate_waits_for_one_that_does() {
    let Some(server) = PostgresServer::shared() else { return };
    let schema = server.new_schema();
    server.run("CREATE ROLE nodes_runs LOGIN");
    let owner = server.url(&schema);
    let place =
        Place { store: owner.replace(&format!("{USER}@"), "nodes_runs@"), ..Place::new("sqlite") };
    let run = |url: &str, args: &[&str]| {
        let mut command = windlass(&place);
        command.args(["--store", url]).args(args);
        ran(command)
    };
    let (code, said) = run(&place.store, &["serve", "--no-migrate", "--listen", "127.0.0.1:0"]);
    assert_eq!(code, 3, "{said}");
    assert!(said.contains("there is no store") && said.contains("windlass migrate"), "{said}");
    let count = format!("SELECT count(*) FROM pg_namespace WHERE nspname = '{schema}'");
    assert_eq!(server.run(&count), "0", "nothing was made");

    let (code, said) = run(&owner, &["migrate"]);
    assert_eq!(code, 0, "{said}");
    assert!(said.starts_with("made postgres://") && said.contains("with schema"), "{said}");
    let (code, said) = run(&owner, &["migrate"]);
    assert_eq!((code, said.starts_with("nothing to do")), (0, true), "{said}");
    let (code, said) = run(&owner, &["migrate", "--json"]);
    assert_eq!((code, said.contains(r#""from":null"#)), (0, true), "{said}");

    server.run(&format!(
        "GRANT USAGE ON SCHEMA {schema} TO nodes_runs; \
         GRANT ALL ON ALL TABLES IN SCHEMA {schema} TO nodes_runs; \
         GRANT ALL ON ALL SEQUENCES IN SCHEMA {schema} TO nodes_runs"
    ));
    let node = place.start(&["--no-migrate"]);
    let id = node.enqueue(r#"{"kind":"windlass.noop"}"#);
    node.until(&format!("/jobs/{id}"), |job| job["state"] == "done");
    let (code, said) = run(&owner, &["--server", "http://127.0.0.1:1", "migrate"]);
    assert_eq!(code, 2, "{said}");
}
