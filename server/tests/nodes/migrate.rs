//! `windlass migrate`, and servers that may not change the schema.

use windlass_tests::postgres_server::{PostgresServer, USER};

use crate::cluster::{ran, windlass};
use crate::common::Place;

#[test]
fn a_server_that_may_not_migrate_waits_for_somebody_who_does() {
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
