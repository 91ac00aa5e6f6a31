//! Searches: rows are scanned, newest first, within limits.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::common::{Server, stores};

fn ids(found: &Value) -> Vec<u64> {
    let jobs = found["jobs"].as_array().unwrap();
    jobs.iter().map(|job| job["id"].as_u64().unwrap()).collect()
}

/// 1 to 4 waiting in two queues, 5 failed, 6 running.
fn some_jobs(server: &Server) {
    for (queue, n) in [("mail", 1), ("mail", 2), ("sms", 3), ("sms", 4)] {
        server.enqueue(&format!(
            r#"{{"queue":"{queue}","priority":{n},"payload":{{"user":{{"id":{n}}},"t":"é%{n}"}}}}"#
        ));
    }
    for queue in ["dead", "busy"] {
        server.enqueue(&format!(r#"{{"queue":"{queue}","max_retries":0}}"#));
        let poll = format!(r#"{{"worker":"worker-{queue}","queues":["{queue}"]}}"#);
        assert_eq!(server.post("/jobs/poll", &poll).status, 200);
    }
    let fail = r#"{"token":"5.1","error":"connection to 10.0.0.1 refused"}"#;
    assert_eq!(server.post("/jobs/5/fail", fail).status, 200);
}

#[test]
fn every_filter_finds_its_jobs_in_both_shapes_on_every_store() {
    for store in stores() {
        let (_place, server) = Server::new(store);
        some_jobs(&server);
        let made = server.get("/jobs/3").json()["created_at"].as_str().unwrap().to_owned();
        for (query, found) in [
            ("error_contains=10.0.0.1%20refused", vec![5]),
            ("error_contains=REFUSED", vec![]),
            ("payload_contains=%C3%A9%253", vec![3]),
            ("payload_at=/user/id&payload_is=2", vec![2]),
            ("payload_at=/user/id&payload_is=2&queue=sms", vec![]),
            ("worker=worker-busy", vec![6]),
            ("worker=worker-dead", vec![]),
            ("attempts_min=1", vec![6, 5]),
            ("priority_min=3", vec![4, 3]),
            ("queue=mail,sms", vec![4, 3, 2, 1]),
            ("queue=mail,sms&state=queued", vec![4, 3, 2, 1]),
            ("queue=mail,none&priority_min=2", vec![2]),
            ("to=2020-01-02T03:04:05Z", vec![]),
            ("from=2020-01-02T03:04:05Z&state=failed", vec![5]),
            ("to=2020-01-02T03:04:05Z&state=queued", vec![]),
            ("from=2999-01-02T03:04:05Z&state=queued", vec![]),
        ] {
            for shape in ["", "&fields=row"] {
                let answer = server.get(&format!("/jobs?{query}{shape}")).json();
                assert_eq!(ids(&answer), found, "{store}: {query}{shape}");
                assert!(answer["next"].is_null() && answer.get("reached").is_none(), "{answer}");
                assert!(answer["scanned"].as_u64().unwrap() >= found.len() as u64, "{answer}");
            }
        }
        let since = server.get(&format!("/jobs?from={made}&queue=mail,sms")).json();
        assert!(ids(&since).contains(&3), "{store}: {since}");
        let listed = server.get("/jobs?queue=mail").json();
        assert!(listed.get("scanned").is_none(), "a list that seeks does not search: {listed}");
        for bad in ["from=x", "payload_at=/n", "queue=mail,-", "id=1,2&worker=w", "priority_min=a"]
        {
            assert_eq!(server.get(&format!("/jobs?{bad}")).status, 422, "{bad}");
        }
    }
}

#[test]
fn pages_of_a_search_over_several_queues_have_each_job_once_in_order() {
    for store in stores() {
        let (_place, server) = Server::new(store);
        for n in 0..30 {
            server.enqueue(&format!(r#"{{"queue":"q{}","payload":"{}"}}"#, n % 3, n % 2));
        }
        for state in ["", "&state=queued"] {
            let mut seen = Vec::new();
            let mut next = String::new();
            loop {
                let query = format!("queue=q0,q1&payload_contains=1&limit=3{state}{next}");
                let page = server.get(&format!("/jobs?fields=row&{query}")).json();
                seen.extend(ids(&page));
                let Some(cursor) = page["next"].as_str() else { break };
                next = format!("&cursor={cursor}");
            }
            let wanted: BTreeSet<u64> =
                (0..30).filter(|n| n % 3 < 2 && n % 2 == 1).map(|n| n + 1).collect();
            assert_eq!(seen.len(), wanted.len(), "{store}{state}: {seen:?}");
            assert!(seen.iter().copied().eq(wanted.into_iter().rev()), "{store}{state}: {seen:?}");
        }
    }
}

#[test]
fn a_search_that_costs_too_much_says_how_far_it_got_and_goes_on_from_there() {
    for store in stores() {
        let (_place, server) = Server::new(store);
        server.enqueue(r#"{"payload":"needle"}"#);
        let hay: Vec<String> = (0..10_000).map(|_| r#"{"payload":"hay"}"#.into()).collect();
        let hay = format!(r#"{{"jobs":[{}]}}"#, hay.join(","));
        for _ in 0..3 {
            assert_eq!(server.post("/jobs/batch", &hay).status, 202);
        }
        let (mut pages, mut scanned, mut next) = (0, 0, String::new());
        let found = loop {
            let query = format!("/jobs?fields=row&payload_contains=needle{next}");
            let page = server.get(&query).json();
            let looked = page["scanned"].as_u64().unwrap();
            assert!(looked <= 20_512, "{store}: {looked}");
            (pages, scanned) = (pages + 1, scanned + looked);
            if !ids(&page).is_empty() || page["next"].is_null() {
                break ids(&page);
            }
            assert!(page["reached"].is_string(), "{store}: {page}");
            next = format!("&cursor={}", page["next"].as_str().unwrap());
        };
        assert_eq!((found, scanned), (vec![1], 30_001), "{store}");
        assert!(pages > 1, "{store}");
    }
}
