//! The verdict of a job by the answer of its receiver.

use http::header::{LOCATION, RETRY_AFTER};
use http::{HeaderMap, StatusCode};
use windlass_core::{Delay, Excerpt, Failure, Millis, Verdict, Wall};

/// Maximum delay that a receiver may ask for.
const LONGEST: Millis = Millis::days(1);

/// Minimum delay, so that `Retry-After: 0` does not use up all attempts at once.
const SHORTEST: Millis = Millis::seconds(1);

/// The verdict on an answer; `body` is the end of its body.
pub(super) fn verdict(
    status: StatusCode,
    headers: &HeaderMap,
    body: Excerpt,
    now: Wall,
) -> Verdict {
    if status.is_success() {
        let result = serde_json::json!({
            "status": status.as_u16(),
            "body": body.as_str(),
            "truncated": body.is_cut(),
        });
        let result = windlass_core::Payload::new(&result.to_string());
        return Verdict::Complete { result: result.ok() };
    }
    let mut failure = Failure::new(&described(status, headers));
    failure.stdout = Some(body);
    if status == StatusCode::GONE {
        failure = failure.permanent();
    }
    if matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) {
        // The attempt counts: a receiver that always answers so must not be called for ever.
        failure.retry_in = retry_after(headers, now);
    }
    Verdict::Fail(Box::new(failure))
}

fn described(status: StatusCode, headers: &HeaderMap) -> String {
    let known = status.canonical_reason().unwrap_or("");
    if status.is_redirection()
        && let Some(location) = headers.get(LOCATION)
    {
        let location = String::from_utf8_lossy(location.as_bytes());
        // What follows the path may be secret.
        let location = location.split(['?', '#']).next().unwrap_or_default();
        let location: String = location.chars().take(200).collect();
        return format!(
            "the receiver answered {} and pointed to {location:?}; redirects are not followed",
            status.as_u16()
        );
    }
    format!("the receiver answered {} {known}", status.as_u16()).trim_end().into()
}

/// Parses `Retry-After`: a number of seconds, or an instant.
fn retry_after(headers: &HeaderMap, now: Wall) -> Option<Delay> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    let millis = if text.bytes().all(|byte| byte.is_ascii_digit()) && !text.is_empty() {
        // More digits than fit are longer than anything.
        Millis::new(text.parse::<u64>().unwrap_or(u64::MAX).saturating_mul(1_000))
    } else {
        let instant = jiff::fmt::rfc2822::parse(text).ok()?.timestamp();
        Wall::new(instant.as_millisecond()).since(now)
    };
    Delay::new(millis.clamp(SHORTEST, LONGEST).get()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, header: Option<(&'static str, &str)>) -> Verdict {
        let mut headers = HeaderMap::new();
        if let Some((name, value)) = header {
            headers.insert(name, value.parse().unwrap());
        }
        let now = Wall::new(784_111_777_000);
        let body = Excerpt::tail("said", 10);
        verdict(StatusCode::from_u16(status).unwrap(), &headers, body, now)
    }

    #[track_caller]
    fn failure(status: u16, header: Option<(&'static str, &str)>) -> Failure {
        match answer(status, header) {
            Verdict::Fail(failure) => *failure,
            other => panic!("{status}: {other:?}"),
        }
    }

    #[test]
    fn success_is_done_and_keeps_what_was_said() {
        for status in [200, 202, 204] {
            let Verdict::Complete { result: Some(result) } = answer(status, None) else {
                panic!("{status}")
            };
            let said = format!(r#"{{"body":"said","status":{status},"truncated":false}}"#);
            assert_eq!(result.as_str(), said);
        }
    }

    #[test]
    fn gone_is_final_and_everything_else_is_tried_again() {
        assert!(!failure(410, None).retryable);
        for status in [301, 302, 304, 400, 401, 404, 422, 429, 500, 502, 503, 504] {
            let failure = failure(status, None);
            assert!(failure.retryable && failure.retry_in.is_none(), "{status}");
            assert!(failure.error.as_str().contains(&status.to_string()));
            assert_eq!(failure.stdout.unwrap().as_str(), "said");
        }
    }

    #[test]
    fn a_receiver_says_when_to_come_back_within_bounds() {
        let day = 86_400_000;
        for (text, millis) in [
            ("7", Some(7_000)),
            ("0", Some(1_000)),
            ("999999999", Some(day)),
            ("99999999999999999999999", Some(day)),
            ("Sun, 06 Nov 1994 08:49:47 GMT", Some(10_000)),
            ("Sun, 06 Nov 1994 08:00:00 GMT", Some(1_000)),
            ("Sat, 06 Nov 2094 08:00:00 GMT", Some(day)),
            ("", None),
            ("-1", None),
            ("soon", None),
            ("1.5", None),
        ] {
            let expected = millis.map(|millis| Delay::new(millis).unwrap());
            for status in [429, 503] {
                let failure = failure(status, Some(("retry-after", text)));
                assert_eq!(failure.retry_in, expected, "{status} {text:?}");
            }
            assert_eq!(failure(500, Some(("retry-after", text))).retry_in, None);
        }
    }

    #[test]
    fn a_redirect_says_where_it_pointed_without_what_may_be_secret() {
        let error = failure(302, Some(("location", "http://169.254.169.254/x?token=canary")));
        let error = error.error.as_str();
        assert!(error.contains("169.254.169.254/x") && !error.contains("canary"), "{error}");
    }
}
