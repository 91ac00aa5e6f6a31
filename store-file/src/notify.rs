//! Hints between the processes of one machine that share a store: "something was committed".
//!
//! Each process that listens binds a datagram socket in a directory beside the file; a process that
//! commits sends one byte to each of them. Hints may be lost, late or needless: the check for
//! changes finds everything without them. Where sockets cannot be used, there are no hints.

use std::ffi::OsString;
use std::fs::{self, File, Permissions};
use std::io::{self, ErrorKind};
use std::net::Shutdown;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Waker;
use std::thread::{self, JoinHandle};

use windlass_core::{Millis, Wall};

use crate::make::make_directory;

/// The end of the directory's name, behind the name of the store's file.
const DIRECTORY: &str = "-notify";
/// How long a list of those who listen is used before it is read again.
const LIST_AGE: Millis = Millis::new(250);
/// Processes that are notified of one commit at most.
const PEERS: usize = 64;
/// The longest directory whose sockets have an address: 107 bytes with the name of a socket.
const LONGEST_DIRECTORY: usize = 75;
/// Names tried before a process goes without hints.
const NAMES: usize = 16;

/// Numbers the sockets of this process.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// Sends and receives the hints of one process about one store.
#[derive(Debug)]
pub struct Notifier {
    path: PathBuf,
    listener: Option<Listener>,
    sender: Option<UnixDatagram>,
    /// The directory as it was when it was last listed.
    peers: Option<Peers>,
    listed_at: Option<Wall>,
}

impl Notifier {
    /// Hints about the store in this file.
    pub fn new(file: &Path) -> Self {
        let mut path = OsString::from(file);
        path.push(DIRECTORY);
        Self { path: path.into(), listener: None, sender: None, peers: None, listed_at: None }
    }

    /// Calls `waker` on each hint of another process from now on, until this is dropped. Sockets
    /// that killed processes have left behind are removed.
    pub fn listen(&mut self, waker: Waker) -> io::Result<()> {
        make_directory(&self.path)?;
        let directory = Directory::open(&self.path)?;
        sweep(&directory)?;
        self.listener = Some(Listener::new(directory, waker)?);
        // Those who are listed without this one may include it.
        self.listed_at = None;
        Ok(())
    }

    /// Sends a hint to every other process that listens.
    pub fn notify(&mut self, now: Wall) {
        if self.listed_at.is_none_or(|at| at.distance(now) >= LIST_AGE) {
            let own = self.listener.as_ref().map(|listener| &listener.name);
            self.peers = Peers::list(&self.path, own).ok();
            self.listed_at = Some(now);
        }
        let Some(peers) = self.peers.as_mut().filter(|peers| !peers.names.is_empty()) else {
            return;
        };
        if self.sender.is_none() {
            self.sender = sender().ok();
        }
        if let Some(sender) = &self.sender {
            peers.names.retain(|name| send(sender, &peers.directory.address(name)));
        }
    }
}

/// The directory of the sockets, open.
#[derive(Debug)]
struct Directory {
    path: PathBuf,
    file: File,
}

impl Directory {
    fn open(path: &Path) -> io::Result<Self> {
        if !fs::symlink_metadata(path)?.is_dir() {
            return Err(ErrorKind::NotADirectory.into());
        }
        Ok(Self { path: path.into(), file: File::open(path)? })
    }

    /// The address of a socket. Addresses are short: a long one goes through the open directory,
    /// which only Linux can do.
    fn address(&self, name: &OsString) -> PathBuf {
        if self.path.as_os_str().len() <= LONGEST_DIRECTORY {
            return self.path.join(name);
        }
        Path::new("/proc/self/fd").join(self.file.as_raw_fd().to_string()).join(name)
    }

    fn sockets(&self) -> io::Result<impl Iterator<Item = OsString>> {
        let sockets = fs::read_dir(&self.path)?.filter_map(Result::ok);
        let sockets = sockets.filter(|found| found.file_type().is_ok_and(|kind| kind.is_socket()));
        Ok(sockets.map(|found| found.file_name()))
    }
}

/// Those who listen, but for this process.
#[derive(Debug)]
struct Peers {
    directory: Directory,
    names: Vec<OsString>,
}

impl Peers {
    fn list(path: &Path, own: Option<&OsString>) -> io::Result<Self> {
        let directory = Directory::open(path)?;
        let others = directory.sockets()?.filter(|name| Some(name) != own);
        let names = others.take(PEERS).collect();
        Ok(Self { directory, names })
    }
}

fn sender() -> io::Result<UnixDatagram> {
    let sender = UnixDatagram::unbound()?;
    sender.set_nonblocking(true)?;
    Ok(sender)
}

/// Sends a hint; returns whether a process may listen there. A full socket holds hints that
/// were not read yet, and one more says nothing new.
fn send(sender: &UnixDatagram, to: &Path) -> bool {
    match sender.send_to(&[1], to) {
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
            let _ = fs::remove_file(to);
            false
        }
        Err(error) => error.kind() != ErrorKind::NotFound,
        Ok(_) => true,
    }
}

/// Removes sockets that no process listens on.
fn sweep(directory: &Directory) -> io::Result<()> {
    for name in directory.sockets()? {
        let address = directory.address(&name);
        let answer = UnixDatagram::unbound()?.connect(&address);
        if answer.is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused) {
            let _ = fs::remove_file(address);
        }
    }
    Ok(())
}

/// A socket of this process, and the thread that reads it.
#[derive(Debug)]
struct Listener {
    directory: Directory,
    name: OsString,
    socket: UnixDatagram,
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Listener {
    fn new(directory: Directory, waker: Waker) -> io::Result<Self> {
        let (name, socket) = bind(&directory)?;
        let ended = Arc::new(AtomicBool::new(false));
        // From here on the socket is removed when this is dropped.
        let mut listener = Self { directory, name, socket, ended, thread: None };
        let address = listener.directory.address(&listener.name);
        fs::set_permissions(address, Permissions::from_mode(0o600))?;
        let (socket, ended) = (listener.socket.try_clone()?, Arc::clone(&listener.ended));
        let thread = thread::Builder::new().name("windlass-hints".into());
        listener.thread = Some(thread.spawn(move || listen(&socket, &ended, &waker))?);
        Ok(listener)
    }
}

/// Binds a socket under a name that no other has: processes of two containers may share a number.
fn bind(directory: &Directory) -> io::Result<(OsString, UnixDatagram)> {
    let mut taken = io::Error::from(ErrorKind::AddrInUse);
    for _ in 0..NAMES {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = OsString::from(format!("{}-{number}", std::process::id()));
        match UnixDatagram::bind(directory.address(&name)) {
            Err(error) if error.kind() == ErrorKind::AddrInUse => taken = error,
            bound => return Ok((name, bound?)),
        }
    }
    Err(taken)
}

/// Calls `waker` for each hint, until the socket is shut down.
fn listen(socket: &UnixDatagram, ended: &AtomicBool, waker: &Waker) {
    loop {
        let received = socket.recv(&mut [0]);
        let failed = received.is_err_and(|error| error.kind() != ErrorKind::Interrupted);
        if failed || ended.load(Ordering::SeqCst) {
            return;
        }
        waker.wake_by_ref();
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let _ = fs::remove_file(self.directory.address(&self.name));
        self.ended.store(true, Ordering::SeqCst);
        let woken = self.socket.shutdown(Shutdown::Both);
        if let (Ok(()), Some(thread)) = (woken, self.thread.take()) {
            let _ = thread.join();
        }
        // Only an empty one can be removed.
        let _ = fs::remove_dir(&self.directory.path);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::task::Wake;

    use tempfile::TempDir;

    use super::*;

    struct Woken(Sender<()>);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            let _ = self.0.send(());
        }
    }

    fn listening(file: &Path) -> (Notifier, Receiver<()>) {
        let (sender, woken) = channel();
        let mut notifier = Notifier::new(file);
        notifier.listen(Waker::from(Arc::new(Woken(sender)))).expect("sockets work here");
        (notifier, woken)
    }

    fn found(file: &Path) -> Vec<PathBuf> {
        let directory = Notifier::new(file).path;
        let Ok(found) = fs::read_dir(directory) else { return Vec::new() };
        found.map(|entry| entry.expect("it can be read").path()).collect()
    }

    fn now() -> Wall {
        Wall::new(1)
    }

    #[test]
    fn a_hint_reaches_every_other_listener_and_not_the_one_that_sends_it() {
        let dir = TempDir::new().expect("a directory");
        let file = dir.path().join("jobs.db");
        let (mut one, of_one) = listening(&file);
        let (_two, of_two) = listening(&file);
        let (_three, of_three) = listening(&file);
        one.notify(now());
        of_two.recv().expect("a hint");
        of_three.recv().expect("a hint");
        drop(one);
        assert!(of_one.recv().is_err(), "its own hint was sent to it");
    }

    #[test]
    fn a_store_deep_in_the_tree_sends_hints_too() {
        let dir = TempDir::new().expect("a directory");
        let file = dir.path().join("d".repeat(100)).join("e".repeat(100)).join("jobs.db");
        let (_one, woken) = listening(&file);
        Notifier::new(&file).notify(now());
        woken.recv().expect("a hint");
    }

    #[test]
    fn nothing_is_left_when_the_last_listener_goes() {
        let dir = TempDir::new().expect("a directory");
        let file = dir.path().join("jobs.db");
        let listeners = [listening(&file), listening(&file)];
        assert_eq!(found(&file).len(), 2);
        drop(listeners);
        assert_eq!(fs::read_dir(dir.path()).expect("it is there").count(), 0);
    }

    #[test]
    fn the_socket_of_a_killed_process_is_removed_by_the_next_listener_and_by_a_hint() {
        let dir = TempDir::new().expect("a directory");
        let file = dir.path().join("jobs.db");
        let (mut one, _woken) = listening(&file);
        let left = Notifier::new(&file).path.join("1-1");
        let leave = || drop(UnixDatagram::bind(&left).expect("a socket"));
        leave();
        let (_two, _woken) = listening(&file);
        assert_eq!(found(&file).len(), 2, "it was swept by the second listener");
        leave();
        one.notify(now());
        assert_eq!(found(&file).len(), 2, "it was removed when it was to be notified");
    }

    #[test]
    fn sockets_and_their_directory_are_for_their_owner_alone() {
        let dir = TempDir::new().expect("a directory");
        let file = dir.path().join("jobs.db");
        let (_one, _woken) = listening(&file);
        let mode = |path: &Path| path.metadata().expect("it exists").permissions().mode() & 0o777;
        assert_eq!(mode(&Notifier::new(&file).path), 0o700);
        assert_eq!(found(&file).iter().map(|path| mode(path)).collect::<Vec<_>>(), [0o600]);
    }

    #[test]
    fn a_file_in_the_place_of_the_directory_costs_the_hints_and_nothing_else() {
        let dir = TempDir::new().expect("a directory");
        let file = dir.path().join("jobs.db");
        let mut notifier = Notifier::new(&file);
        fs::write(&notifier.path, "not ours").expect("it is written");
        assert!(notifier.listen(Waker::noop().clone()).is_err());
        notifier.notify(now());
        assert_eq!(fs::read(&notifier.path).expect("it is there"), b"not ours");
    }

    #[test]
    fn a_listener_that_does_not_read_holds_no_writer_up() {
        let dir = TempDir::new().expect("a directory");
        let file = dir.path().join("jobs.db");
        let mut one = Notifier::new(&file);
        make_directory(&one.path).expect("it is made");
        let _stopped = UnixDatagram::bind(one.path.join("1-1")).expect("a socket");
        (0..10_000).for_each(|_| one.notify(now()));
    }
}
