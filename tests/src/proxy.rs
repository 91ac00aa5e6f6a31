//! A small TCP proxy before a server: it passes, delays, cuts, leads nowhere, or cuts right after
//! it has forwarded a commit.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// What the proxy does with what comes from the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Passes it on.
    Pass,
    /// Passes it on after this long.
    Delay(Duration),
    /// Closes the connection.
    Cut,
    /// Passes on what is in one read with this text, then closes the connection at once.
    CutBehind(&'static [u8]),
    /// Drops it, also the end of the connection: the server keeps its side of it.
    BlackHole,
    /// Passes on what is in one read with a COMMIT, then closes the client's side at once and the
    /// server's once it has answered.
    CutAfterCommit,
}

/// A proxy that runs until the test ends.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    mode: Arc<Mutex<Mode>>,
    commits_cut: Arc<AtomicUsize>,
}

impl Proxy {
    /// Starts a proxy before the server at this port.
    pub fn start(server: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("there is a free port");
        let port = listener.local_addr().expect("it is bound").port();
        let mode = Arc::new(Mutex::new(Mode::Pass));
        let shared = Arc::clone(&mode);
        let commits_cut = Arc::default();
        let counted = Arc::clone(&commits_cut);
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(server) = TcpStream::connect(("127.0.0.1", server)) else { continue };
                serve(client, server, &shared, &counted);
            }
        });
        Self { port, mode, commits_cut }
    }

    /// The port that clients connect to.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// How often it has cut a connection right after a COMMIT.
    pub fn commits_cut(&self) -> usize {
        self.commits_cut.load(Ordering::SeqCst)
    }

    /// What it does from now on, also with the connections that there are.
    pub fn set(&self, mode: Mode) {
        *self.mode.lock().unwrap_or_else(PoisonError::into_inner) = mode;
    }
}

fn current(mode: &Mutex<Mode>) -> Mode {
    *mode.lock().unwrap_or_else(PoisonError::into_inner)
}

fn serve(
    client: TcpStream,
    server: TcpStream,
    mode: &Arc<Mutex<Mode>>,
    commits_cut: &Arc<AtomicUsize>,
) {
    let (Ok(mut from_client), Ok(mut to_server)) = (client.try_clone(), server.try_clone()) else {
        return;
    };
    let (mut from_server, mut to_client) = (server, client);
    let cut = Arc::new(AtomicBool::new(false));
    let is_cut = Arc::clone(&cut);
    let (for_client, commits_cut) = (Arc::clone(mode), Arc::clone(commits_cut));
    thread::spawn(move || {
        let mut buffer = vec![0; 1 << 16];
        let mut commit: Option<Vec<u8>> = None;
        while let Ok(read) = from_client.read(&mut buffer) {
            commit = commit_name(&buffer[..read]).or(commit);
            match current(&for_client) {
                // Half-open: the server does not learn of it.
                Mode::BlackHole if read == 0 => return,
                _ if read == 0 => break,
                Mode::Pass | Mode::CutAfterCommit | Mode::CutBehind(_) => {}
                Mode::Delay(delay) => {
                    #[expect(clippy::disallowed_methods, reason = "to delay is what it is for")]
                    thread::sleep(delay);
                }
                Mode::BlackHole => continue,
                Mode::Cut => break,
            }
            let is_commit = commit.as_ref().is_some_and(|name| runs(&buffer[..read], name));
            let cuts = current(&for_client) == Mode::CutAfterCommit && is_commit;
            // Before it is sent, so that the answer cannot overtake the cut.
            cut.fetch_or(cuts, Ordering::SeqCst);
            if to_server.write_all(&buffer[..read]).is_err() {
                break;
            }
            if let Mode::CutBehind(text) = current(&for_client)
                && buffer[..read].windows(text.len()).any(|window| window == text)
            {
                break;
            }
            if cuts {
                // The client gets no answer; the server is let finish what it was sent.
                commits_cut.fetch_add(1, Ordering::SeqCst);
                let _ = from_client.shutdown(Shutdown::Both);
                return;
            }
        }
        let _ = from_client.shutdown(Shutdown::Both);
        let _ = to_server.shutdown(Shutdown::Both);
    });
    let for_server = Arc::clone(mode);
    thread::spawn(move || {
        let mut buffer = vec![0; 1 << 16];
        while let Ok(read) = from_server.read(&mut buffer) {
            if read == 0 {
                break;
            }
            if is_cut.load(Ordering::SeqCst) || current(&for_server) == Mode::BlackHole {
                continue;
            }
            if to_client.write_all(&buffer[..read]).is_err() {
                break;
            }
        }
        let _ = to_client.shutdown(Shutdown::Both);
    });
}

/// The name under which a client has prepared its COMMIT, if these bytes hold that.
fn commit_name(bytes: &[u8]) -> Option<Vec<u8>> {
    let text = b"\0COMMIT\0";
    let at = bytes.windows(text.len()).position(|window| window == text)?;
    let start = bytes[..at].iter().rposition(|byte| *byte == 0).map_or(0, |zero| zero + 1);
    // A message starts with its length, whose last byte is not zero.
    let name = bytes[start..at].iter().position(|byte| *byte == b's')?;
    Some(bytes[start + name..at].to_vec())
}

/// Whether these bytes run the statement with this name.
fn runs(bytes: &[u8], name: &[u8]) -> bool {
    let bound = [b"\0", name, b"\0"].concat();
    bytes.windows(bound.len()).any(|window| window == bound)
}
