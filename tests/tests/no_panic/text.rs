//! Names, keys, ids, numbers, payloads, excerpts and fingerprints from arbitrary input.

use proptest::prelude::*;
use proptest::sample::select;
use windlass_core::limits::{IDEMPOTENCY_KEY_BYTES, NAME_BYTES, SETTING_VALUE_BYTES};
use windlass_core::{
    Delay, Excerpt, Fingerprint, FingerprintBuilder, IdempotencyKey, JobId, JobTimeout, Kind,
    LeaseLength, LeaseToken, MaxQueued, MaxRetries, MaxRunning, Payload, Priority, QueueName,
    SettingKey, SettingValue, WorkerId,
};

use super::arbitrary::config;

/// Texts of every sort: anything, nearly names, and long ones.
fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<String>(),
        "[A-Za-z0-9._:-]{0,130}",
        "[ -~]{0,260}",
        select(vec!["stats", "default", "a/b", "..", "a\0b", "é"]).prop_map(str::to_owned),
        (0..5_000_usize).prop_map(|length| "x".repeat(length)),
    ]
}

fn is_name(text: &str) -> bool {
    let inner = |c: char| c.is_ascii_alphanumeric() || "._:-".contains(c);
    text.len() <= NAME_BYTES
        && text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.chars().all(inner)
}

/// An error says which field it is about.
fn agree<T, E: std::fmt::Display>(made: Result<T, E>, allowed: bool, field: &str) {
    match made {
        Ok(_) => assert!(allowed, "{field} was taken"),
        Err(error) => {
            assert!(!allowed, "{field} was refused: {error}");
            assert!(error.to_string().contains(field), "{error} does not name {field}");
        }
    }
}

proptest! {
    #![proptest_config(config(256))]

    #[test]
    fn a_text_is_a_name_exactly_if_it_has_the_form_of_one(text in text()) {
        let name = is_name(&text);
        agree(QueueName::new(&text), name && text != "stats", "queue");
        agree(Kind::new(&text), name, "kind");
        agree(WorkerId::new(&text), name, "worker");
        agree(SettingKey::new(&text), name, "setting");
        let value = !text.is_empty() && text.len() <= SETTING_VALUE_BYTES && !text.contains('\0');
        agree(SettingValue::new(&text), value, "setting value");
        let visible = text.bytes().all(|byte| (0x21..=0x7e).contains(&byte));
        let key = visible && !text.is_empty() && text.len() <= IDEMPOTENCY_KEY_BYTES;
        agree(IdempotencyKey::new(&text), key, "idempotency_key");
    }

    #[test]
    fn a_name_keeps_its_text(text in "[A-Za-z0-9][A-Za-z0-9._:-]{0,127}") {
        prop_assume!(text != "stats");
        let queue: QueueName = text.parse().unwrap();
        prop_assert_eq!(queue.as_str(), &text);
        prop_assert_eq!(queue.to_string(), text);
    }

    #[test]
    fn an_id_or_a_token_parses_only_from_its_own_text(
        text in prop_oneof![any::<String>(), "[0-9.+ -]{0,22}"],
    ) {
        if let Ok(id) = text.parse::<JobId>() {
            prop_assert_eq!(id.to_string(), text.clone());
        }
        if let Ok(token) = text.parse::<LeaseToken>() {
            prop_assert_eq!(token.to_string(), text);
        }
    }

    #[test]
    fn every_id_and_every_token_survives_its_text(job in 1..=i64::MAX, epoch in any::<u64>()) {
        let id = JobId::new(job.unsigned_abs()).unwrap();
        prop_assert_eq!(id.to_string().parse(), Ok(id));
        let token = LeaseToken { job: id, epoch: windlass_core::Epoch::new(epoch) };
        prop_assert_eq!(token.to_string().parse(), Ok(token));
    }

    #[test]
    fn an_id_lies_between_one_and_the_largest_signed_number(number in any::<u64>()) {
        let allowed = number >= 1 && number <= i64::MAX.unsigned_abs();
        prop_assert_eq!(JobId::new(number).is_some(), allowed);
        if let Some(id) = JobId::new(number) {
            prop_assert!(id.plus(u64::MAX) == JobId::LAST);
            prop_assert!(id.plus(1) >= id);
        }
    }

    #[test]
    fn a_number_is_taken_exactly_within_the_bounds_of_the_contract(
        number in prop_oneof![any::<u64>(), 0..50_000_u64, 43_199_990..=43_200_010_u64],
        small in any::<i16>(),
    ) {
        let ten_years = 3_653 * 24 * 60 * 60 * 1_000;
        agree(Priority::new(small), (-1_000..=1_000).contains(&small), "priority");
        let lease = (1_000..=43_200_000).contains(&number);
        agree(LeaseLength::new(number), lease, "visibility_timeout_ms");
        agree(JobTimeout::new(number), (1..=604_800_000).contains(&number), "timeout_ms");
        agree(Delay::new(number), number <= ten_years, "delay_ms");
        agree(MaxQueued::new(number), (1..=1_000_000_000_000).contains(&number), "max_queued");
        let narrow = u32::try_from(number & 0xffff_ffff).unwrap();
        agree(MaxRetries::new(narrow), narrow <= 1_000, "max_retries");
        agree(MaxRunning::new(narrow), (1..=1_000_000).contains(&narrow), "concurrency");
    }

    #[test]
    fn a_payload_is_kept_to_the_letter_or_refused(text in any::<String>(), limit in 0..40_usize) {
        match Payload::within(&text, limit) {
            Ok(payload) => prop_assert_eq!(payload.as_str(), &text),
            Err(_) => prop_assert!(text.len() > limit || text.contains('\0')),
        }
        prop_assert_eq!(Payload::new(&text).is_ok(), !text.contains('\0'));
    }

    #[test]
    fn an_excerpt_is_an_end_of_its_text_within_the_limit(
        text in any::<String>(),
        limit in prop_oneof![0..40_usize, Just(usize::MAX)],
    ) {
        let (head, tail) = (Excerpt::head(&text, limit), Excerpt::tail(&text, limit));
        let kept = text.replace('\0', "\u{1a}");
        prop_assert!(kept.starts_with(head.as_str()) && kept.ends_with(tail.as_str()));
        for part in [head, tail] {
            prop_assert!(part.as_str().len() <= limit);
            prop_assert_eq!(part.is_cut(), part.as_str().len() < text.len());
            // No more is cut than a character that does not fit.
            prop_assert!(part.as_str().len() == text.len() || part.as_str().len() + 4 > limit);
            prop_assert!(part.cut_before(true).is_cut());
        }
    }

    #[test]
    fn a_fingerprint_knows_where_each_field_ends(
        text in "[a-c]{1,8}",
        at in 0..=8_usize,
        other in 0..=8_usize,
    ) {
        let two = |at: usize| {
            let (left, right) = text.as_bytes().split_at(at.min(text.len()));
            FingerprintBuilder::new().bytes(left).bytes(right).finish()
        };
        let same = at.min(text.len()) == other.min(text.len());
        prop_assert_eq!(two(at) == two(other), same);
        prop_assert_ne!(two(at), Fingerprint::of(text.as_bytes()));
    }

    #[test]
    fn a_fingerprint_tells_an_absent_number_from_any(
        number in any::<u64>(),
        other in any::<u64>(),
    ) {
        let maybe = |number| FingerprintBuilder::new().maybe(number).finish();
        prop_assert_ne!(maybe(None), maybe(Some(number)));
        prop_assert_eq!(maybe(Some(number)) == maybe(Some(other)), number == other);
        let two = |a, b| FingerprintBuilder::new().number(a).number(b).finish();
        prop_assert_eq!(two(number, other) == two(other, number), number == other);
    }
}

#[test]
fn a_fingerprint_never_changes_since_it_is_stored() {
    let builder = FingerprintBuilder::new().bytes(b"ab").bytes(b"c").number(7).maybe(None);
    let stored = format!("{:032x}", builder.maybe(Some(1)).finish().0);
    insta::assert_snapshot!(stored, @"ff4b90420c1df0b91e09de8c96185667");
}
