//! Suggestions for names that almost match.

use super::Session;
use crate::api::wire::QueueList;
use crate::cli::client::{Failure, segment};

/// Names a queue that is called almost like one that does not exist.
pub(crate) async fn queue(session: &Session, name: Option<&str>) -> Result<(), Failure> {
    let Some(name) = name else { return Ok(()) };
    if is_queue(session, name).await? {
        return Ok(());
    }
    if let Some(similar) = similar_queue(session, name).await? {
        session.out.say(&format!("there is no queue `{name}`; did you mean `{similar}`?"));
    }
    Ok(())
}

/// Whether a queue has this name. A name that no queue can have is refused.
pub(crate) async fn is_queue(session: &Session, name: &str) -> Result<bool, Failure> {
    match session.client.get(&format!("/queues/{}", segment(name))).await {
        Ok(_) => Ok(true),
        Err(failure) if failure.kind() == "not-found" => Ok(false),
        Err(failure) => Err(failure),
    }
}

/// The name of an existing queue that is most like this one.
pub(crate) async fn similar_queue(
    session: &Session,
    name: &str,
) -> Result<Option<String>, Failure> {
    let queues: QueueList = session.client.get("/queues").await?.json()?;
    let names = queues.queues.iter().map(|queue| queue.name.as_str());
    Ok(nearest(name, names).map(Into::into))
}

/// The name most like this one, if any is like it at all.
pub(crate) fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let likeness = |known: &'a str| (strsim::jaro_winkler(name, known), known);
    let best = known.map(likeness).max_by(|(one, _), (other, _)| one.total_cmp(other));
    best.filter(|(likeness, _)| *likeness >= ALIKE).map(|(_, known)| known)
}

/// How alike two names must be, of 1.
const ALIKE: f64 = 0.8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_name_that_is_alike_is_suggested() {
        let known = ["default", "mail", "reports"];
        for (given, meant) in [
            ("defualt", Some("default")),
            ("mial", Some("mail")),
            ("report", Some("reports")),
            ("billing", None),
            ("", None),
        ] {
            assert_eq!(nearest(given, known.into_iter()), meant, "{given}");
        }
    }
}
