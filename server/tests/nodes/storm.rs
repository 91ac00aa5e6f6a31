//! Three nodes under load, killed and restarted one after the other and all at once, on a file and
//! on a database that is killed as well.

use windlass_tests::postgres_server::PostgresServer;

use crate::common::Place;
use crate::load::{Cluster, Load, NODES, under_load};

fn kill_nodes(load: &Load, cluster: &mut Cluster<'_>) {
    for n in 0..NODES {
        cluster.restart(load, &[n], "-KILL");
    }
    cluster.restart(load, &[0, 1, 2], "-KILL");
    load.wait_for_service(cluster);
    for n in 0..NODES {
        cluster.restart(load, &[n], "-TERM");
    }
    load.wait_for_service(cluster);
}

#[test]
fn nodes_on_one_file_that_are_killed_under_load_lose_nothing_and_give_no_token_twice() {
    under_load("nodes killed, one file", &Place::new("sqlite"), [&[]; 3], kill_nodes);
}

#[test]
fn nodes_and_database_that_are_killed_under_load_lose_nothing_and_give_no_token_twice() {
    let Some(database) = PostgresServer::start(&[]) else { return };
    let url = database.tcp_url(database.port(), "windlass");
    let place = Place { store: url, ..Place::new("sqlite") };
    under_load("nodes and database killed", &place, [&[]; 3], |load, cluster| {
        load.wait_for_more();
        database.stop();
        database.resume();
        load.wait_for_service(cluster);
        kill_nodes(load, cluster);
    });
}
