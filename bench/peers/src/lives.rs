//! Whole lives in several processes on one database: all begin at once, and the clock stops when
//! all handlers have run and the store says that nothing is left.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use windlass_peers_plan::Outcome;

use crate::contestant::Contestant;
use crate::servers::Postgres;

/// How long a process may take to start.
const START: Duration = Duration::from_secs(60);

/// The processes; killed when dropped.
struct Nodes(Vec<Child>);

impl Drop for Nodes {
    fn drop(&mut self) {
        for child in &mut self.0 {
            drop(child.stdin.take());
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Nodes {
    fn say(&mut self, at: usize, word: &str) -> Outcome<()> {
        let input = self.0.get_mut(at).and_then(|child| child.stdin.as_mut());
        Ok(writeln!(input.ok_or("it has ended")?, "{word}")?)
    }
}

/// Lives per second of all processes together.
pub(crate) fn run(
    one: &Contestant,
    server: &Postgres,
    count: usize,
    jobs: usize,
    seconds: u64,
) -> Outcome<u64> {
    let database = server.database();
    let (send, said) = channel();
    let mut nodes = Nodes(Vec::new());
    for at in 0..count {
        let size = (jobs.div_ceil(count), seconds);
        let mut command = one.command("lives", Path::new("."), size, Some(&database))?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let out = child.stdout.take().ok_or("it has no output")?;
        nodes.0.push(child);
        let send = send.clone();
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                if send.send((at, line)).is_err() {
                    break;
                }
            }
        });
        // One after the other: the first makes the tables.
        while said.recv_timeout(START)?.1 != "ready" {}
    }
    let began = Instant::now();
    for at in 0..count {
        nodes.say(at, "go")?;
    }
    let limit = Duration::from_secs(seconds * 4);
    let lived = until_all_ran(&said, count, began, limit)?;
    nodes.say(0, "left")?;
    while next(&said, began, limit)?.1 != "done" {}
    let took = began.elapsed();
    drop(nodes);
    Ok(lived * 1_000_000 / u64::try_from(took.as_micros())?.max(1))
}

/// The next line; an error if it takes too long.
fn next(
    said: &Receiver<(usize, String)>,
    began: Instant,
    limit: Duration,
) -> Outcome<(usize, String)> {
    let left = limit.saturating_sub(began.elapsed());
    Ok(said.recv_timeout(left).map_err(|_| format!("it was not done after {limit:?}"))?)
}

/// How many jobs were produced, once as many have run.
fn until_all_ran(
    said: &Receiver<(usize, String)>,
    count: usize,
    began: Instant,
    limit: Duration,
) -> Outcome<u64> {
    let (mut ran, mut produced) = (vec![0; count], vec![None; count]);
    loop {
        let (at, line) = next(said, began, limit)?;
        match line.split_once(' ') {
            Some(("ran", number)) => ran[at] = number.parse::<u64>()?,
            Some(("produced", number)) => produced[at] = Some(number.parse::<u64>()?),
            _ => return Err(format!("what is {line}?").into()),
        }
        if let Some(produced) = produced.iter().copied().sum::<Option<u64>>()
            && ran.iter().sum::<u64>() >= produced
        {
            return Ok(produced);
        }
    }
}
