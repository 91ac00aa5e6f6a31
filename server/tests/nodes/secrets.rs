//! The password of the store is in no output: not of a command, not in a log, not in the list of
//! processes, however it was given.

use std::io::Read;
use std::process::{Command, Stdio};

use windlass_tests::postgres_server::{PASSWORD, PostgresServer, USER};

use crate::cluster::{ran, windlass};
use crate::common::{Place, Server, piped};

/// Every way to give a password: arguments and variables of a command.
fn ways(server: &PostgresServer, place: &Place) -> Vec<Vec<(&'static str, String)>> {
    let (port, schema) = (server.port(), server.new_schema());
    let with = server.tcp_url(port, &schema);
    let without = with.replace(&format!(":{PASSWORD}@"), "@");
    let file = place.private_file("password", &format!("{PASSWORD}\n"));
    let passfile = place.private_file("passfile", &format!("127.0.0.1:*:*:{USER}:{PASSWORD}\n"));
    let (file, passfile) = (file.display().to_string(), passfile.display().to_string());
    vec![
        vec![("--store", with.clone())],
        vec![("WINDLASS_STORE", with)],
        vec![("--store", without.clone()), ("--store-password-file", file)],
        vec![("--store", without.clone()), ("PGPASSFILE", passfile)],
        vec![("--store", without), ("PGPASSWORD", PASSWORD.into())],
    ]
}

fn given(place: &Place, way: &[(&str, String)]) -> Command {
    let mut command = windlass(place);
    for (name, value) in way {
        match name.strip_prefix("--") {
            Some(_) => command.args([name, value.as_str()]),
            None => command.env(name, value),
        };
    }
    command
}

/// The command line of a process, as every user of the machine sees it.
fn seen(pid: u32) -> String {
    let mut text = String::new();
    let file = std::fs::File::open(format!("/proc/{pid}/cmdline"));
    file.unwrap().read_to_string(&mut text).unwrap();
    text
}

#[test]
fn no_command_and_no_server_shows_the_password() {
    let Some(server) = PostgresServer::shared() else { return };
    let place = Place::new("sqlite");
    for way in ways(server, &place) {
        let mut command = given(&place, &way);
        command.args(["serve", "--listen", "127.0.0.1:0", "--log-level", "trace"]);
        let node = Server::of(piped(command).spawn().unwrap());
        assert!(!seen(node.pid()).contains(PASSWORD), "{way:?} is in the list of processes");
        node.enqueue("{}");
        let mut output = String::new();
        for path in ["/status", "/workers", "/metrics", "/readyz", "/config", "/nowhere"] {
            output.push_str(&node.get(path).text());
        }
        for args in [
            &["enqueue", "a"][..],
            &["list"],
            &["status"],
            &["status", "--json"],
            &["config", "list"],
            &["doctor"],
            &["worker", "list"],
            &["migrate"],
            &["backup", "x"],
            &["show", "99"],
            &["--help"],
            &["serve", "--help"],
            &["lst"],
        ] {
            let mut command = given(&place, &way);
            command.args(args);
            let (code, said) = ran(command);
            assert!(![6, 101].contains(&code), "{args:?}: {said}");
            output.push_str(&said);
        }
        node.signal("-TERM");
        let (status, said) = node.end();
        assert!(status.success(), "{said}");
        assert!(said.contains("postgres://windlass@127.0.0.1"), "{said}");
        output.push_str(&said);
        assert!(!output.contains(PASSWORD), "{way:?}: {output}");
    }
}

#[test]
fn worker_processes_are_started_without_the_password_among_their_arguments() {
    let Some(server) = PostgresServer::shared() else { return };
    let place = Place::new("sqlite");
    for way in ways(server, &place).into_iter().take(3) {
        let mut command = given(&place, &way);
        command.args(["worker", "start", "--count", "2"]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut supervisor = command.spawn().unwrap();
        let mut lines =
            std::io::BufRead::lines(std::io::BufReader::new(supervisor.stdout.take().unwrap()));
        for _ in 0..2 {
            let line = lines.next().expect("a worker says that it is there").unwrap();
            let ready: serde_json::Value = serde_json::from_str(&line).unwrap();
            let pid = u32::try_from(ready["pid"].as_u64().unwrap()).unwrap();
            assert!(!seen(pid).contains(PASSWORD), "{way:?}");
        }
        assert!(!seen(supervisor.id()).contains(PASSWORD), "{way:?}");
        let mut command = given(&place, &way);
        command.args(["worker", "stop", "--all"]);
        let (code, said) = ran(command);
        assert_eq!((code, said.trim()), (0, "2 stopped"));
        let output = supervisor.wait_with_output().unwrap();
        let log = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{log}");
        assert!(!log.contains(PASSWORD), "{log}");
    }
}
