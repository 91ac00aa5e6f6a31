//! What protects people whose browser visits other web sites: the checks of `Host`, `Origin` and
//! `Sec-Fetch-Site`, and the headers of every answer.

use std::mem;
use std::net::IpAddr;
use std::sync::LazyLock;

use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, HOST, HeaderName, ORIGIN, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use http::{HeaderMap, HeaderValue, Method, Response};

use crate::api::problem::{self, Problem};
use crate::http::body::Body;

/// The names this server goes by.
#[derive(Debug, Clone, Default)]
pub(crate) struct Hosts(Vec<String>);

impl Hosts {
    /// These, and always `localhost` and addresses: a web site cannot make those its own.
    pub(crate) fn new(names: &[String]) -> Self {
        Self(names.to_vec())
    }

    fn include(&self, name: &str) -> bool {
        let address = name.trim_start_matches('[').trim_end_matches(']');
        name.eq_ignore_ascii_case("localhost")
            || address.parse::<IpAddr>().is_ok()
            || self.0.iter().any(|host| host.eq_ignore_ascii_case(name) || host == "*")
    }
}

/// Refuses requests that a page of another web site makes a browser send.
pub(crate) fn check(method: &Method, headers: &HeaderMap, hosts: &Hosts) -> Result<(), Problem> {
    let host = host(headers)?;
    if !hosts.include(name_of(host)) {
        let detail = "the `Host` header names another server; if that is a name of this \
                      server, start it with --host NAME";
        return Err(Problem::new(problem::MISDIRECTED, detail));
    }
    if let Some(origin) = headers.get(ORIGIN) {
        let origin = origin.to_str().unwrap_or_default();
        let site = origin.split_once("://").map(|(_, site)| site);
        if site.is_none_or(|site| !site.eq_ignore_ascii_case(host)) {
            return Err(cross_site());
        }
    }
    let Some(site) = headers.get("sec-fetch-site") else { return Ok(()) };
    let ours = site == "same-origin" || site == "none";
    // A person may follow a link to a page here; the answer stays out of the other site's reach.
    let follows = *method == Method::GET
        && headers.get("sec-fetch-mode").is_some_and(|mode| mode == "navigate");
    if ours || follows { Ok(()) } else { Err(cross_site()) }
}

fn cross_site() -> Problem {
    let detail = "a page of another web site made this request; use the dashboard of this server, \
                  or a program";
    Problem::new(problem::CROSS_SITE, detail)
}

fn host(headers: &HeaderMap) -> Result<&str, Problem> {
    let mut hosts = headers.get_all(HOST).iter();
    match (hosts.next().map(HeaderValue::to_str), hosts.next()) {
        (Some(Ok(host)), None) if !host.is_empty() => Ok(host),
        _ => Err(Problem::new(problem::BAD_REQUEST, "send one `Host` header").closing()),
    }
}

/// The host without its port.
fn name_of(host: &str) -> &str {
    let bracket = host.rfind(']').unwrap_or(0);
    match host.rfind(':') {
        Some(colon) if colon > bracket => &host[..colon],
        _ => host,
    }
}

/// The headers that every answer carries, whatever it is. What it says itself stays.
pub(crate) fn protect(response: &mut Response<Body>) {
    // Copied as a whole: putting them in one by one would look for the place of each.
    let own = mem::replace(response.headers_mut(), PROTECTIONS.clone());
    let headers = response.headers_mut();
    let mut latest = None;
    for (name, value) in own {
        match (name, &latest) {
            (Some(name), _) => {
                headers.insert(&name, value);
                latest = Some(name);
            }
            // Another value of the same header.
            (None, Some(name)) => {
                headers.append(name, value);
            }
            (None, None) => {}
        }
    }
}

static PROTECTIONS: LazyLock<HeaderMap> = LazyLock::new(|| {
    let protections = [
        (
            CONTENT_SECURITY_POLICY,
            "default-src 'none'; style-src 'self'; img-src 'self'; connect-src 'self'; \
             script-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
             require-trusted-types-for 'script'; trusted-types 'none'",
        ),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (X_FRAME_OPTIONS, "DENY"),
        (REFERRER_POLICY, "no-referrer"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
        (CACHE_CONTROL, "no-store"),
    ];
    protections.map(|(name, value)| (name, HeaderValue::from_static(value))).into_iter().collect()
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_protected_and_keeps_what_it_says_itself() {
        let mut answer = Response::new(Body::full(bytes::Bytes::new()));
        let said = [("cache-control", "max-age=1"), ("x-other", "1"), ("x-other", "2")];
        for (name, value) in said {
            answer.headers_mut().append(name, HeaderValue::from_static(value));
        }
        protect(&mut answer);
        let values = |name: &str| -> Vec<&str> {
            answer.headers().get_all(name).iter().map(|value| value.to_str().unwrap()).collect()
        };
        assert_eq!(values("cache-control"), ["max-age=1"]);
        assert_eq!(values("x-other"), ["1", "2"]);
        assert_eq!(values("x-content-type-options"), ["nosniff"]);
        assert_eq!(answer.headers().len(), 9);
    }

    fn checked(method: &Method, headers: &[(&'static str, &str)]) -> Option<problem::Kind> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, value.parse().unwrap());
        }
        let hosts = Hosts::new(&["jobs.example.org".into()]);
        check(method, &map, &hosts).err().map(|problem| problem.kind())
    }

    #[test]
    fn a_host_is_an_address_localhost_or_a_name_that_was_given() {
        for host in ["127.0.0.1:8080", "[::1]:8080", "[::1]", "localhost", "Jobs.example.org:443"] {
            assert_eq!(checked(&Method::GET, &[("host", host)]), None, "{host}");
        }
        for host in ["evil.example", "localhost.evil.example:8080", "127.0.0.1.evil.example"] {
            let refused = checked(&Method::GET, &[("host", host)]);
            assert_eq!(refused, Some(problem::MISDIRECTED), "{host}");
        }
        assert_eq!(checked(&Method::GET, &[]), Some(problem::BAD_REQUEST));
        let two = [("host", "localhost"), ("host", "evil.example")];
        assert_eq!(checked(&Method::GET, &two), Some(problem::BAD_REQUEST));
    }

    #[test]
    fn a_request_of_another_site_is_refused() {
        let host = ("host", "localhost:8080");
        for foreign in [
            ("origin", "http://evil.example"),
            ("origin", "http://localhost:9999"),
            ("origin", "null"),
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-site", "same-site"),
        ] {
            for method in [Method::POST, Method::GET, Method::DELETE] {
                let refused = checked(&method, &[host, foreign]);
                assert_eq!(refused, Some(problem::CROSS_SITE), "{method} {foreign:?}");
            }
        }
        assert_eq!(checked(&Method::POST, &[host, ("origin", "http://localhost:8080")]), None);
        assert_eq!(checked(&Method::POST, &[host, ("sec-fetch-site", "same-origin")]), None);
    }

    #[test]
    fn a_link_may_be_followed_but_not_posted() {
        let host = ("host", "localhost:8080");
        let link = [host, ("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate")];
        assert_eq!(checked(&Method::GET, &link), None);
        assert_eq!(checked(&Method::POST, &link), Some(problem::CROSS_SITE));
    }
}
