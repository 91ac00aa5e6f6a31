//! The page in a real browser: what comes from clients shows as text, and runs nowhere. It needs
//! Chromium, so it is compiled with the feature `browser` only; `.ci/run` runs it.

use std::process::{Command, Stdio};

use crate::common::Server;

/// Texts that would do something if they were taken for anything but text.
const HOSTILE: [&str; 5] = [
    "<script>document.title='pwned'</script>",
    "<img src=x onerror=\"document.title='pwned'\">",
    "</td></table><svg onload=document.title='pwned'>",
    "<a href=javascript:alert(1) autofocus onfocus=document.title='pwned'>x</a>",
    "&lt;b&gt; \u{202e}",
];

/// The document as the browser has it once its scripts ran.
fn dom(url: &str) -> String {
    let profile = tempfile::tempdir().unwrap();
    let output = Command::new("chromium")
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"])
        .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .args(["--virtual-time-budget=2000", "--dump-dom", url])
        .stdin(Stdio::null())
        .output()
        .expect("chromium is installed");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// A text as a browser writes it in a document.
fn as_text(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[test]
fn what_clients_send_shows_as_text_in_a_browser() {
    let (_place, server) = Server::new("sqlite");
    for text in HOSTILE {
        let text = serde_json::to_string(text).unwrap();
        let id = server.enqueue(&format!(r#"{{"payload":{text},"max_retries":0}}"#));
        let token = server.claim("w", 1)[0]["lease"]["token"].to_string();
        let body = format!(r#"{{"token":{token},"error":{text}}}"#);
        assert_eq!(server.post(&format!("/jobs/{id}/fail"), &body).status, 200);
    }
    let page = dom(&format!("http://{}/", server.address));
    assert!(page.contains("<title>Windlass</title>"), "{page}");
    for tag in ["<script", "<img", "<svg", "onfocus=\"", "href=\"javascript"] {
        assert!(!page.contains(tag), "{tag} in {page}");
    }
    for text in HOSTILE {
        assert!(page.contains(&format!("<td>{}</td>", as_text(text))), "{text} not in {page}");
    }
    // A document that is no page shows as text too.
    for path in ["/jobs", "/dlq", "/jobs/1/attempts"] {
        let shown = dom(&format!("http://{}{path}", server.address));
        assert!(!shown.contains("<script>document"), "{path}: {shown}");
        assert!(shown.contains("&lt;script&gt;document"), "{path}: {shown}");
    }
}
