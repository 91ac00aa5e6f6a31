//! The page at `/`: what a person wants to see first. No script, no style, nothing from elsewhere;
//! everything that comes from a store is escaped.

use std::fmt::Write;

use windlass_core::store::JobDetail;
use windlass_core::{QueueRow, View, Wall};
use windlass_runtime_tokio::Health;

use crate::wire::rfc3339;

/// Queues that are shown; the rest is counted.
const SHOWN: usize = 200;

/// The page.
pub(crate) fn page(
    rows: &[(QueueRow, Option<Wall>)],
    dead: &[JobDetail],
    health: &Health,
    now: Wall,
) -> String {
    let mut html = String::from(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\">\
         <meta name=\"color-scheme\" content=\"light dark\">\
         <title>Windlass</title></head><body><h1>Windlass</h1>",
    );
    let state = match health.cause() {
        None => format!("{health:?}").to_lowercase(),
        Some(cause) => cause.to_string(),
    };
    let _ = write!(html, "<p>Store: {}. {}.</p>", escaped(&state), rfc3339(now));
    html.push_str("<table border=\"1\" cellpadding=\"6\"><thead><tr><th>queue</th>");
    for view in View::ALL {
        let _ = write!(html, "<th>{}</th>", view.as_str());
    }
    html.push_str("<th>oldest due</th></tr></thead><tbody>");
    for (row, oldest) in rows.iter().take(SHOWN) {
        html.push_str(&line(row, *oldest, now));
    }
    html.push_str("</tbody></table>");
    if rows.is_empty() {
        html.push_str("<p>No queue yet: it is made by its first job.</p>");
    }
    if rows.len() > SHOWN {
        let _ = write!(html, "<p>And {} more queues.</p>", rows.len() - SHOWN);
    }
    if !dead.is_empty() {
        html.push_str(&dead_letters(dead, now));
    }
    html.push_str(
        "<p><a href=\"/openapi.json\">API</a> <a href=\"/metrics\">metrics</a> \
         <a href=\"/jobs\">jobs</a> <a href=\"/dlq\">dead letters</a> \
         <a href=\"/workers\">workers</a></p></body></html>",
    );
    html
}

fn line(row: &QueueRow, oldest: Option<Wall>, now: Wall) -> String {
    let paused = if row.queue.paused { " (paused)" } else { "" };
    let mut html = format!("<tr><td>{}{paused}</td>", escaped(row.queue.name.as_str()));
    let counts = row.total();
    for view in View::ALL {
        let _ = write!(html, "<td align=\"right\">{}</td>", counts.get(view));
    }
    let age = oldest.map_or_else(String::new, |oldest| now.since(oldest).to_string());
    let _ = write!(html, "<td align=\"right\">{age}</td></tr>");
    html
}

/// Dead letters that are shown.
pub(crate) const DEAD: usize = 20;

/// Characters of a payload or an error that are shown.
const EXCERPT: usize = 200;

fn dead_letters(dead: &[JobDetail], now: Wall) -> String {
    let mut html = String::from(
        "<h2>Newest dead letters</h2><table border=\"1\" cellpadding=\"6\"><thead><tr><th>job</th>\
         <th>queue</th><th>kind</th><th>failed</th><th>error</th><th>payload</th></tr></thead>\
         <tbody>",
    );
    for JobDetail { job, payload, last_error, .. } in dead {
        let ago = job.finished_at().map_or_else(String::new, |at| format!("{} ago", now.since(at)));
        let error = last_error.as_ref().map_or("", |error| error.as_str());
        let (id, queue, kind) = (job.id, job.queue.as_str(), job.kind.as_str());
        let _ = write!(html, "<tr><td><a href=\"/jobs/{id}\">{id}</a></td>");
        for text in [queue, kind, &ago, error, payload.as_str()] {
            let _ = write!(html, "<td>{}</td>", escaped(&excerpt(text)));
        }
        html.push_str("</tr>");
    }
    html.push_str("</tbody></table>");
    html
}

fn excerpt(text: &str) -> String {
    match text.char_indices().nth(EXCERPT) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.into(),
    }
}

/// A text that shows as itself.
fn escaped(text: &str) -> String {
    let mut html = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => html.push_str("&amp;"),
            '<' => html.push_str("&lt;"),
            '>' => html.push_str("&gt;"),
            '"' => html.push_str("&quot;"),
            '\'' => html.push_str("&#39;"),
            c => html.push(c),
        }
    }
    html
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_core::store::Cause;

    #[test]
    fn what_a_store_says_shows_as_text() {
        let health = Health::Lost(Cause::new("<script>alert('x')</script>&\""));
        let html = page(&[], &[], &health, Wall::new(0));
        assert!(html.contains("&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;&amp;&quot;"));
        assert!(!html.contains("<script"));
    }
}
