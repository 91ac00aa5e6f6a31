//! A transaction of another program that stays open keeps dead rows of the queue: metrics and
//! `doctor` name it.

use windlass_tests::postgres_server::PostgresServer;

use crate::cluster::{Node, ran, windlass};
use crate::common::{Place, attempts};

const SECONDS: &str = "windlass_postgres_oldest_xmin_seconds ";
const HOLDER: &str = "windlass_postgres_oldest_xmin_holder{holder=\"process ";

fn metrics(node: Node) -> String {
    node.get("/metrics").text()
}

/// The figures, once they are so.
fn metrics_when(node: Node, is_so: impl Fn(&str) -> bool) -> String {
    for () in attempts() {
        let text = metrics(node);
        if is_so(&text) {
            return text;
        }
    }
    panic!("the figures never were so: {}", metrics(node))
}

/// What `doctor` tells an operator to look at.
fn notices(node: Node) -> Vec<String> {
    let checked = node.get("/doctor").json();
    assert_eq!(checked["ok"], true, "{checked}");
    let notices = checked["notices"].as_array().unwrap();
    notices.iter().map(|notice| notice.as_str().unwrap().to_owned()).collect()
}

#[test]
fn who_keeps_dead_rows_for_long_is_named_by_metrics_and_doctor_until_it_ends() {
    let Some(database) = PostgresServer::start(&[]) else { return };
    let store = format!("{}&old_transaction=1", database.url("windlass"));
    let place = Place { store, ..Place::new("sqlite") };
    let servers = [place.start(&[]), place.start(&[])];
    let [one, other] = servers.each_ref().map(|server| Node(server.address));
    assert!(metrics(one).contains(SECONDS), "{}", metrics(one));
    assert_eq!(notices(one), Vec::<String>::new());

    let held = database.hold_snapshot();
    let text = metrics_when(one, |text| text.contains(HOLDER));
    let named = text.lines().find(|line| line.starts_with(HOLDER)).unwrap();
    let pid = named[HOLDER.len()..].split(' ').next().unwrap();
    assert!(named.contains("psql"), "{named}");
    let seconds = text.lines().find_map(|line| line.strip_prefix(SECONDS)).unwrap();
    assert!(seconds.parse::<f64>().unwrap() >= 1.0, "{seconds}");
    for node in [one, other] {
        let found = notices(node);
        let end = format!("pg_terminate_backend({pid})");
        assert!(
            found.len() == 1 && found[0].contains("psql") && found[0].contains(&end),
            "{found:?}"
        );
    }
    let mut command = windlass(&place);
    command.args(["--store", &place.store, "doctor"]);
    let (code, said) = ran(command);
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("notice   process ") && said.contains("no problems found"), "{said}");

    drop(held);
    metrics_when(one, |text| !text.contains(HOLDER));
    assert_eq!(notices(other), Vec::<String>::new());
}

#[test]
fn a_role_that_may_not_see_old_transactions_gets_a_notice_and_shows_no_age() {
    let Some(database) = PostgresServer::start(&[]) else { return };
    database.run("CREATE ROLE guest LOGIN; GRANT CREATE ON DATABASE postgres TO guest");
    let url = database.url("windlass").replace("windlass@", "guest@");
    let place = Place { store: url, ..Place::new("sqlite") };
    let server = place.start(&[]);
    let node = Node(server.address);
    assert!(!metrics(node).contains(SECONDS), "it would be wrong");
    let found = notices(node);
    assert!(found.len() == 1 && found[0].contains("GRANT pg_read_all_stats TO guest"), "{found:?}");
    database.run("GRANT pg_read_all_stats TO guest");
    assert!(metrics(node).contains(SECONDS), "{}", metrics(node));
    assert_eq!(notices(node), Vec::<String>::new());
}
