//! beanstalkd, a server in C, over its own protocol. `default` keeps jobs in memory; `full` keeps a
//! log and syncs it at every write (`-b DIR -f 0`).

use std::process::{Child, Command};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use windlass_peers_plan::{AT_ONCE, Outcome, Peer, Ran, Task, payload};

use crate::servers::free_port;

pub(crate) struct Beanstalkd {
    server: Child,
    full: bool,
    port: u16,
    producers: Vec<Mutex<Connection>>,
}

impl Drop for Beanstalkd {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

pub(crate) async fn open(task: Task) -> Outcome<Beanstalkd> {
    let port = free_port()?;
    let mut command = Command::new("beanstalkd");
    command.args(["-l", "127.0.0.1", "-p", &port.to_string()]);
    match task.setting.as_str() {
        "default" => {}
        "full" => {
            command.arg("-b").arg(&task.folder).args(["-f", "0"]);
        }
        other => return Err(format!("beanstalkd has no setting {other}").into()),
    }
    let mut peer =
        Beanstalkd { server: command.spawn()?, full: task.is_full(), port, producers: Vec::new() };
    for _ in 0..AT_ONCE {
        peer.producers.push(Mutex::new(Connection::to(port).await?));
    }
    Ok(peer)
}

struct Connection {
    stream: BufReader<TcpStream>,
    line: String,
}

impl Connection {
    /// Connects, waiting for a server that is just starting.
    async fn to(port: u16) -> Outcome<Self> {
        let mut attempts = 0;
        loop {
            match TcpStream::connect(("127.0.0.1", port)).await {
                Ok(stream) => {
                    stream.set_nodelay(true)?;
                    return Ok(Self { stream: BufReader::new(stream), line: String::new() });
                }
                Err(error) if attempts == 500 => return Err(error.into()),
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            }
            attempts += 1;
        }
    }

    async fn answer(&mut self) -> Outcome<&str> {
        self.line.clear();
        if self.stream.read_line(&mut self.line).await? == 0 {
            return Err("beanstalkd closed the connection".into());
        }
        Ok(self.line.trim_end())
    }

    async fn expect(&mut self, word: &str) -> Outcome<()> {
        let answer = self.answer().await?;
        if answer.starts_with(word) { Ok(()) } else { Err(answer.to_owned().into()) }
    }

    async fn send(&mut self, text: &str) -> Outcome<()> {
        self.stream.get_mut().write_all(text.as_bytes()).await?;
        Ok(())
    }

    /// Skips the body of an answer, and its line end.
    async fn skip(&mut self, bytes: usize) -> Outcome<()> {
        let mut body = vec![0; bytes + 2];
        self.stream.read_exact(&mut body).await?;
        Ok(())
    }
}

fn put() -> String {
    let payload = format!("\"{}\"", payload());
    format!("put 0 0 300 {}\r\n{payload}\r\n", payload.len())
}

impl Peer for Beanstalkd {
    async fn durability(&self) -> Outcome<String> {
        Ok(if self.full { "log, -f 0: synced per write" } else { "in memory only" }.into())
    }

    async fn enqueue(&self, producer: usize) -> Outcome<()> {
        let connection = self.producers.get(producer).ok_or("there are 64 producers")?;
        let mut connection = connection.lock().await;
        connection.send(&put()).await?;
        connection.expect("INSERTED").await
    }

    /// Its protocol has no bulk: commands are sent without waiting for answers in between.
    async fn enqueue_bulk(&self, jobs: usize) -> Outcome<()> {
        let connection = self.producers.first().ok_or("there are 64 producers")?;
        let mut connection = connection.lock().await;
        connection.send(&put().repeat(jobs)).await?;
        for _ in 0..jobs {
            connection.expect("INSERTED").await?;
        }
        Ok(())
    }

    async fn work(&self, ran: Ran) -> Outcome<()> {
        for _ in 0..AT_ONCE {
            let connection = Connection::to(self.port).await?;
            tokio::spawn(work_off(connection, ran.clone()));
        }
        Ok(())
    }

    async fn left(&self) -> Outcome<u64> {
        let mut connection = Connection::to(self.port).await?;
        connection.send("stats-tube default\r\n").await?;
        let bytes = connection.answer().await?.trim_start_matches("OK ").parse::<usize>()?;
        let mut body = vec![0; bytes];
        connection.stream.read_exact(&mut body).await?;
        let text = String::from_utf8(body)?;
        let counts = text.lines().filter(|line| {
            line.starts_with("current-jobs-ready") || line.starts_with("current-jobs-reserved")
        });
        let numbers = counts.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok());
        Ok(numbers.sum())
    }
}

async fn work_off(mut connection: Connection, ran: Ran) -> Outcome<()> {
    loop {
        connection.send("reserve\r\n").await?;
        let answer = connection.answer().await?;
        let mut words = answer.split(' ').skip(1);
        let id = words.next().ok_or("no id")?.to_owned();
        let bytes = words.next().ok_or("no length")?.parse()?;
        connection.skip(bytes).await?;
        ran.note();
        connection.send(&format!("delete {id}\r\n")).await?;
        connection.expect("DELETED").await?;
    }
}
