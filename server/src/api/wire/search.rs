//! What clients search for, as a query and as the filter of a bulk action have it. What is wrong is
//! said without the name of the field.

use windlass_core::QueueName;
use windlass_core::limits::SEARCH_QUEUES;
use windlass_core::search::Pointer;

use crate::http::limits::SEARCH_TEXT;

/// Names of queues with commas between them: sorted, each once.
pub(crate) fn queues(names: &str) -> Result<Vec<QueueName>, String> {
    let names = names.split(',').map(QueueName::new).collect::<Result<Vec<_>, _>>();
    let mut names = names.map_err(|error| error.to_string())?;
    names.sort_unstable();
    names.dedup();
    if names.len() > SEARCH_QUEUES {
        return Err(format!("takes up to {SEARCH_QUEUES} names"));
    }
    Ok(names)
}

/// A text to look for, as it is written.
pub(crate) fn text(text: &str) -> Result<String, String> {
    if text.is_empty() {
        return Err("must not be empty".into());
    }
    if text.chars().count() > SEARCH_TEXT {
        return Err(format!("takes up to {SEARCH_TEXT} characters"));
    }
    Ok(text.into())
}

/// A place in the payload.
pub(crate) fn pointer(pointer: &str) -> Result<Pointer, String> {
    text(pointer).and_then(|text| Pointer::new(&text).map_err(|error| error.to_string()))
}
