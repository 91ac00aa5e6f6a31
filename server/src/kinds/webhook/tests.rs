//! Webhooks to receivers on real sockets.

use std::net::SocketAddr;
use std::sync::Mutex;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::*;

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi";

/// A receiver that answers every request like this, and reports each connection and each request.
async fn receiver(answer: &'static str) -> (SocketAddr, UnboundedReceiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, received) = unbounded_channel();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let sender = sender.clone();
            let _ = sender.send("connected".into());
            tokio::spawn(async move {
                while let Some(request) = next_request(&mut stream).await {
                    let _ = sender.send(request);
                    let _ = stream.write_all(answer.as_bytes()).await;
                }
                let _ = sender.send("closed".into());
            });
        }
    });
    (address, received)
}

/// One request with its body; `None` if the connection ended.
async fn next_request(stream: &mut TcpStream) -> Option<String> {
    let mut bytes = Vec::new();
    loop {
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        if body.len() >= length.map_or(0, |length| length.parse().unwrap()) {
            return Some(text);
        }
    }
}

fn settings(allowed: &[&str]) -> Settings {
    let also = allowed.iter().map(|block| block.parse().unwrap()).collect();
    Settings {
        reach: Reach { everywhere: false, also },
        secrets: Secrets::default(),
        connect_timeout: Duration::from_secs(20),
        timeout: Duration::from_secs(20),
    }
}

async fn send(sender: &Sender, url: &str) -> Verdict {
    let json = format!(r#"{{"url":"{url}","body":{{"a":1}}}}"#);
    let payload: Payload = serde_json::from_str(&json).unwrap();
    sender.send(payload.request().unwrap(), "job_1_2", Wall::new(1_614_265_330_999)).await
}

#[track_caller]
fn failure(verdict: Verdict) -> Failure {
    match verdict {
        Verdict::Fail(failure) => *failure,
        other => panic!("it did not fail: {other:?}"),
    }
}

#[track_caller]
fn done(verdict: Verdict) -> String {
    match verdict {
        Verdict::Complete { result } => result.unwrap().as_str().to_owned(),
        other => panic!("it is not done: {other:?}"),
    }
}

#[tokio::test]
async fn however_an_address_of_this_machine_is_written_it_is_refused() {
    let (address, mut received) = receiver(OK).await;
    let port = address.port();
    let sender = Sender::new(&settings(&[]));
    for host in [
        "127.0.0.1",
        "localhost",
        "127.1",
        "2130706433",
        "0x7f000001",
        "0x7f.1",
        "017700000001",
        "0177.0.0.1",
        "0.0.0.0",
        "0",
        "[::1]",
        "[::]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[::127.0.0.1]",
        "[64:ff9b::7f00:1]",
        "[2002:7f00:1::]",
        "169.254.169.254",
        "[fd00::1]",
        "[fe80::1]",
        "10.0.0.1",
        "192.168.0.1",
        "100.64.0.1",
        "224.0.0.1",
    ] {
        let failure = failure(send(&sender, &format!("http://{host}:{port}/")).await);
        let error = failure.error.as_str();
        // The system may not know a form at all; that is as good.
        let unknown = error.contains("cannot be resolved");
        assert!(unknown || error.contains("may not reach"), "{host}: {error}");
        assert!(unknown || !failure.retryable, "{host}");
        assert!(!unknown || !host.starts_with(['1', '[']), "{host}: {error}");
    }
    // Had one of them got through, it would have arrived before this one.
    let sender = Sender::new(&settings(&["127.0.0.1"]));
    assert!(done(send(&sender, &format!("http://{address}/last")).await).contains("hi"));
    assert_eq!(received.recv().await.unwrap(), "connected");
    assert!(received.recv().await.unwrap().starts_with("POST /last "));
}

/// A resolver that gives these answers, one after the other.
fn answers(answers: &[SocketAddr]) -> Resolver {
    let left = Mutex::new(answers.to_vec());
    Arc::new(move |_, _| {
        let mut left = left.lock().unwrap();
        let next = (!left.is_empty()).then(|| left.remove(0));
        Box::pin(
            async move { next.map(|one| vec![one]).ok_or(std::io::ErrorKind::NotFound.into()) },
        )
    })
}

#[tokio::test]
async fn a_name_is_resolved_once_for_each_connection_and_what_was_checked_is_connected_to() {
    let closing = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
    let (address, mut received) = receiver(closing).await;
    let elsewhere: SocketAddr = format!("127.0.0.2:{}", address.port()).parse().unwrap();
    let settings = settings(&["127.0.0.1"]);
    // Good when it is looked at, and another when it is looked at again.
    let sender = Sender::resolving(&settings, answers(&[address, elsewhere, address]));
    done(send(&sender, "http://twofaced.example/").await);
    assert_eq!(received.recv().await.unwrap(), "connected");
    let refused = failure(send(&sender, "http://twofaced.example/").await);
    assert!(refused.error.as_str().contains("may not reach"), "{refused:?}");
    done(send(&sender, "http://twofaced.example/").await);
}

#[tokio::test]
async fn of_several_addresses_only_those_within_reach_are_tried() {
    let (address, _received) = receiver(OK).await;
    let outside: SocketAddr = format!("127.0.0.2:{}", address.port()).parse().unwrap();
    let resolver: Resolver =
        Arc::new(move |_, _| Box::pin(async move { Ok(vec![outside, address]) }));
    let sender = Sender::resolving(&settings(&["127.0.0.1"]), resolver);
    assert!(done(send(&sender, "http://both.example/").await).contains("200"));
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let (address, mut received) = receiver(
        "HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1/inside?token=canary\r\n\
         content-length: 0\r\n\r\n",
    )
    .await;
    let sender = Sender::new(&settings(&["127.0.0.1"]));
    let failure = failure(send(&sender, &format!("http://{address}/")).await);
    let error = failure.error.as_str();
    assert!(error.contains("pointed to \"http://127.0.0.1/inside\""), "{error}");
    assert!(!error.contains("canary") && failure.retryable, "{error}");
    received.recv().await.unwrap();
    assert!(received.recv().await.unwrap().starts_with("POST / "));
    assert!(received.try_recv().is_err(), "one request");
}

#[tokio::test]
async fn a_request_is_signed_and_a_connection_is_used_again() {
    let (address, mut received) = receiver(OK).await;
    let mut settings = settings(&["127.0.0.1"]);
    let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    settings.secrets = Secrets::load(None, Some(secret)).unwrap();
    let sender = Sender::new(&settings);
    for _ in 0..3 {
        done(send(&sender, &format!("http://{address}/path?query")).await);
    }
    assert_eq!(received.recv().await.unwrap(), "connected");
    for _ in 0..3 {
        let request = received.recv().await.unwrap();
        let signature = settings.secrets.sign("job_1_2", 1_614_265_330, r#"{"a":1}"#).unwrap();
        for line in [
            "POST /path?query HTTP/1.1",
            &format!("host: {address}"),
            "content-type: application/json",
            "webhook-id: job_1_2",
            "webhook-timestamp: 1614265330",
            &format!("webhook-signature: {signature}"),
            r#"{"a":1}"#,
        ] {
            assert!(request.lines().any(|seen| seen == line), "{line:?} is not in {request}");
        }
    }
}

#[tokio::test]
async fn an_endless_answer_is_cut_and_its_connection_is_given_up() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let sending = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        next_request(&mut stream).await.unwrap();
        let head = "HTTP/1.1 200 OK\r\ncontent-length: 99999999999\r\n\r\n";
        stream.write_all(head.as_bytes()).await.unwrap();
        let (mut sent, chunk) = (0_u64, vec![b'x'; 65_536]);
        while stream.write_all(&chunk).await.is_ok() {
            sent += 65_536;
        }
        sent
    });
    let sender = Sender::new(&settings(&["127.0.0.1"]));
    let result = done(send(&sender, &format!("http://{address}/")).await);
    assert!(result.contains(r#""truncated":true"#));
    assert!(result.len() < 20_000, "{}", result.len());
    let sent = sending.await.unwrap();
    assert!(sent < 64 * 1024 * 1024, "{sent} bytes were taken");
}

#[tokio::test]
async fn a_receiver_that_does_not_answer_is_not_waited_for() {
    let (address, mut received) = receiver("").await;
    let mut settings = settings(&["127.0.0.1"]);
    settings.timeout = Duration::from_millis(200);
    let failure =
        failure(send(&Sender::new(&settings), &format!("http://{address}/?canary")).await);
    let error = failure.error.as_str();
    assert!(error.contains("no answer within 200ms") && !error.contains("canary"), "{error}");
    assert!(failure.retryable);
    // And it sees that the client has gone.
    while received.recv().await.unwrap() != "closed" {}
}

#[tokio::test]
async fn what_is_dropped_while_it_waits_closes_its_connection() {
    let (address, mut received) = receiver("").await;
    let sender = Arc::new(Sender::new(&settings(&["127.0.0.1"])));
    let waiting = {
        let sender = Arc::clone(&sender);
        tokio::spawn(async move { send(&sender, &format!("http://{address}/")).await })
    };
    received.recv().await.unwrap();
    received.recv().await.unwrap();
    waiting.abort();
    assert_eq!(received.recv().await.unwrap(), "closed");
}

#[tokio::test]
async fn a_refused_connection_and_missing_tls_are_failures_to_try_again() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.write_all(b"nonsense\r\n\r\n").await;
            let _ = stream.read(&mut [0; 1024]).await;
        }
    });
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let sender = Sender::new(&settings(&["127.0.0.1"]));
    for (url, text) in [
        (format!("http://{free}/?canary"), "no connection"),
        (format!("https://{address}/?canary"), "TLS failed"),
        (format!("http://{address}/?canary"), "the connection failed"),
        ("http://no-such-host.invalid/?canary".into(), "cannot be resolved"),
    ] {
        let failure = failure(send(&sender, &url).await);
        let error = failure.error.as_str();
        assert!(error.contains(text) && !error.contains("canary"), "{url}: {error}");
        assert!(failure.retryable);
    }
}
