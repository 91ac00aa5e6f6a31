//! `top`: a live screen. The model is fed with answers and keys, and the screen is drawn from it
//! alone, so that both can be tried without a terminal.

mod draw;
mod model;
#[cfg(test)]
mod tests;

use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior};

use super::Session;
use crate::api::wire::JobList;
use crate::cli::client::{Client, Failure, segment};
use crate::cli::duration;

use model::{Act, Key, Model, Seen};

/// Show a live screen of queues, running jobs, dead letters and workers.
///
/// Keys: Tab goes to the next table, the arrows select a row, p pauses or resumes a queue, r runs a
/// dead letter again, c cancels a running job, q ends.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  windlass top
  windlass --server http://127.0.0.1:8080 top --interval 5s")]
pub(crate) struct TopArgs {
    /// Refresh interval.
    #[arg(long, default_value = "1s", value_parser = duration)]
    interval: Duration,
}

/// The shortest interval: a person does not read faster.
const SHORTEST: Duration = Duration::from_millis(100);

/// How many jobs a table holds.
const ROWS: usize = 50;

pub(crate) async fn run(session: &mut Session, args: &TopArgs) -> Result<ExitCode, Failure> {
    if !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() {
        return Err(Failure::usage("top needs a terminal; `windlass status` writes to a file"));
    }
    // The first request is made before the screen is taken, so that its failure is printed.
    let mut model = Model::new(look(&session.client).await?, Instant::now());
    let mut keys = keys();
    let mut terminal = ratatui::try_init()
        .map_err(|error| Failure::failed(format!("cannot open the terminal screen: {error}")))?;
    let ended = follow(&mut terminal, &mut model, &session.client, &mut keys, args.interval).await;
    ratatui::restore();
    ended.map(|()| ExitCode::SUCCESS)
}

async fn follow(
    terminal: &mut ratatui::DefaultTerminal,
    model: &mut Model,
    client: &Client,
    keys: &mut mpsc::Receiver<Pressed>,
    interval: Duration,
) -> Result<(), Failure> {
    let mut ticks = tokio::time::interval(interval.max(SHORTEST));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks.tick().await;
    loop {
        let drawn = terminal.draw(|frame| draw::screen(frame, model));
        drawn.map_err(|error| Failure::failed(format!("cannot draw to the terminal: {error}")))?;
        tokio::select! {
            _ = ticks.tick() => {}
            pressed = keys.recv() => match pressed {
                None => return Ok(()),
                Some(Pressed::Other) => continue,
                Some(Pressed::Key(key)) => match model.press(key) {
                    Act::Nothing => continue,
                    Act::End => return Ok(()),
                    Act::Post(path) => {
                        let answer = client.post(&path, "").await;
                        model.answered(answer.err().as_ref().map(Failure::detail));
                    }
                },
            },
        }
        // A server that restarts is no reason to lose the screen.
        match look(client).await {
            Ok(seen) => model.look(seen, Instant::now()),
            Err(failure) => model.blind(failure.detail()),
        }
    }
}

/// Asks for everything that is shown.
async fn look(client: &Client) -> Result<Seen, Failure> {
    let jobs = async |path: &str| {
        let page: JobList = client.get(path).await?.json()?;
        Ok::<_, Failure>(page.jobs)
    };
    Ok(Seen {
        status: client.get("/status").await?.json()?,
        queues: client.get("/queues").await?.json()?,
        workers: client.get("/workers").await?.json()?,
        running: jobs(&format!("/jobs?state=processing&limit={ROWS}")).await?,
        dead: jobs(&format!("/dlq?limit={ROWS}")).await?,
    })
}

/// What came from the keyboard.
enum Pressed {
    Key(Key),
    /// The size of the screen changed, for example: it is drawn again.
    Other,
}

/// The keys, read by a thread of its own: a terminal cannot be awaited.
fn keys() -> mpsc::Receiver<Pressed> {
    let (sender, receiver) = mpsc::channel(16);
    std::thread::spawn(move || {
        while let Ok(event) = event::read() {
            let pressed = match event {
                Event::Key(key) if key.kind != KeyEventKind::Release => match meaning(key) {
                    Some(key) => Pressed::Key(key),
                    None => continue,
                },
                Event::Resize(..) => Pressed::Other,
                _ => continue,
            };
            if sender.blocking_send(pressed).is_err() {
                break;
            }
        }
    });
    receiver
}

fn meaning(key: KeyEvent) -> Option<Key> {
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        return (key.code == KeyCode::Char('c')).then_some(Key::End);
    }
    Some(match key.code {
        KeyCode::Char('q') => Key::End,
        KeyCode::Esc | KeyCode::Char('n') => Key::No,
        KeyCode::Char('y') => Key::Yes,
        KeyCode::Tab | KeyCode::Right => Key::Next,
        KeyCode::BackTab | KeyCode::Left => Key::Previous,
        KeyCode::Down | KeyCode::Char('j') => Key::Down,
        KeyCode::Up | KeyCode::Char('k') => Key::Up,
        KeyCode::Char('p') => Key::Pause,
        KeyCode::Char('r') => Key::Retry,
        KeyCode::Char('c') => Key::Cancel,
        _ => return None,
    })
}

/// The path that acts on a queue.
fn queue_path(name: &str, act: &str) -> String {
    format!("/queues/{}/{act}", segment(name))
}
