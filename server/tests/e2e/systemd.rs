//! The interface of systemd: the notify socket, and the watchdog.

use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::process::Command;
use std::sync::mpsc::{Receiver, channel};

use serde_json::json;

use crate::common::{PATIENCE, Place, Server, piped};

/// The socket of a service manager, which reads all messages.
pub(crate) struct NotifySocket {
    path: PathBuf,
    messages: Receiver<String>,
}

impl NotifySocket {
    pub(crate) fn new(place: &Place) -> Self {
        let path = place.path("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        let (sender, messages) = channel();
        std::thread::spawn(move || {
            let mut bytes = [0; 256];
            while let Ok(length) = socket.recv(&mut bytes) {
                let text = String::from_utf8_lossy(&bytes[..length]).trim().to_owned();
                if sender.send(text).is_err() {
                    return;
                }
            }
        });
        Self { path, messages }
    }

    /// Makes a server notify this socket, and its watchdog each 100 ms if `WATCHDOG_PID` is its
    /// process.
    pub(crate) fn watch(&self, command: &mut Command) {
        command.env("NOTIFY_SOCKET", &self.path).env("WATCHDOG_USEC", "200000");
    }

    /// The next message.
    pub(crate) fn next(&self) -> String {
        self.messages.recv_timeout(PATIENCE).expect("a message")
    }

    /// Drops the messages until now.
    pub(crate) fn skip(&self) {
        while self.messages.try_recv().is_ok() {}
    }
}

/// Starts a server as systemd does it: the variable holds the id of the process itself.
fn started(place: &Place, socket: &NotifySocket, args: &[&str]) -> Server {
    let serve = place.command(&[&["--listen", "127.0.0.1:0"], args].concat());
    let mut command = Command::new("sh");
    command.args(["-c", "WATCHDOG_PID=$$ exec \"$@\"", "sh"]);
    command.arg(serve.get_program()).args(serve.get_args());
    socket.watch(&mut command);
    Server::of(piped(command).spawn().unwrap())
}

/// A drain that takes longer than the watchdog allows was ended by systemd.
#[test]
fn the_watchdog_is_fed_while_jobs_finish_during_a_shutdown() {
    let place = Place::new("sqlite");
    let socket = NotifySocket::new(&place);
    let server = started(&place, &socket, &["--allow-command", "sh", "--drain-timeout", "10m"]);
    let go = place.path("go");
    let script = format!("while [ ! -e '{}' ]; do sleep 0.1; done", go.display());
    let job = json!({"kind": "command", "payload": {"argv": ["sh", "-c", script]}});
    let id = server.enqueue(&job.to_string());
    server.until(&format!("/jobs/{id}"), |job| job["state"] == "processing");
    server.signal("-TERM");
    while socket.next() != "STOPPING=1" {}
    for _ in 0..3 {
        assert_eq!(socket.next(), "WATCHDOG=1");
    }
    std::fs::write(go, "").unwrap();
    assert_eq!(server.end().0.code(), Some(0));
}

#[test]
fn systemd_is_notified_when_it_is_ready_and_when_it_stops() {
    let place = Place::new("sqlite");
    let socket = NotifySocket::new(&place);
    let server = started(&place, &socket, &[]);
    assert_eq!(socket.next(), "READY=1");
    assert_eq!(socket.next(), "WATCHDOG=1");
    server.signal("-TERM");
    let mut last = socket.next();
    while last == "WATCHDOG=1" {
        last = socket.next();
    }
    assert_eq!(last, "STOPPING=1");
    assert_eq!(server.end().0.code(), Some(0));
}
