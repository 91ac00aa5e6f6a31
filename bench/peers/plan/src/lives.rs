//! Whole lives in one process of several. The program that started them says on standard input when
//! to begin (`go`) and when all handlers have run (`left`), and adds up what each prints: `ready`,
//! `ran N`, `produced N` and, once the store says that nothing is left, `done`.

use std::io::BufRead as _;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use crate::measure::produce;
use crate::{AT_ONCE, Outcome, Peer, Ran, Task};

/// Interval at which the number of handlers that have run is printed.
const PRINT: Duration = Duration::from_millis(10);

/// Runs until the end of standard input.
pub(crate) async fn lives(task: &Task, peer: &Arc<impl Peer>) -> Outcome<String> {
    let mut words = words();
    let (ran, mut messages) = Ran::new();
    peer.work(ran).await?;
    print("ready");
    if words.recv().await.as_deref() != Some("go") {
        return Err("its first word was not go".into());
    }
    let (producing, peer_of_producers) = (task.clone(), Arc::clone(peer));
    let mut producers =
        Some(tokio::spawn(async move { produce(&producing, &peer_of_producers, AT_ONCE).await }));
    let (mut seen, mut said) = (0, 0);
    loop {
        tokio::select! {
            word = words.recv() => match word.as_deref() {
                Some("left") => {
                    while peer.left().await? > 0 {
                        tokio::time::sleep(Duration::from_millis(1)).await;
                    }
                    print("done");
                }
                Some(other) => return Err(format!("what is {other}?").into()),
                None => return Ok(format!(r#""ran":{seen}"#)),
            },
            () = tokio::time::sleep(PRINT) => (),
        }
        while messages.try_recv().is_ok() {
            seen += 1;
        }
        if seen > said {
            said = seen;
            print(&format!("ran {seen}"));
        }
        if let Some(task) = producers.take_if(|task| task.is_finished()) {
            let (produced, _) = task.await??;
            print(&format!("produced {produced}"));
        }
    }
}

/// The lines of standard input.
fn words() -> UnboundedReceiver<String> {
    let (send, words) = unbounded_channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            if send.send(line).is_err() {
                break;
            }
        }
    });
    words
}

fn print(line: &str) {
    println!("{line}");
}
