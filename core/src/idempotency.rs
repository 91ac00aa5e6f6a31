//! Idempotent enqueue: one key makes one job within its window.
//!
//! A key is in use for a window from the creation of its job, and at least until that job is
//! finished. While it is in use, the same request finds the job, and a different request is a
//! conflict.

use crate::{IdempotencyKey, Job, JobId, Millis, Wall};

/// A client's key, with the fingerprint of the payload it was sent with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Idempotency {
    /// Chosen by the client.
    pub key: IdempotencyKey,
    /// A fingerprint of the payload that is equal for equal JSON. The caller computes it, because
    /// core does not parse JSON.
    pub payload: Fingerprint,
}

/// A 128-bit hash of a request. It is stored, so its computation never changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint(pub u128);

impl Fingerprint {
    /// The fingerprint of these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        FingerprintBuilder::new().bytes(bytes).finish()
    }
}

/// Builds a [`Fingerprint`] field by field (FNV-1a, 128 bits).
#[derive(Debug, Clone)]
pub struct FingerprintBuilder(u128);

impl FingerprintBuilder {
    const BASIS: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;

    /// The hash of no fields.
    pub fn new() -> Self {
        Self(Self::BASIS)
    }

    /// Adds a field of any length.
    #[must_use]
    pub fn bytes(self, bytes: &[u8]) -> Self {
        let length = self.number(bytes.len() as u64);
        bytes.iter().fold(length, |hash, byte| hash.byte(*byte))
    }

    /// Adds a number.
    #[must_use]
    pub fn number(self, number: u64) -> Self {
        number.to_le_bytes().iter().fold(self, |hash, byte| hash.byte(*byte))
    }

    /// Adds an optional number; `None` differs from every number.
    #[must_use]
    pub fn maybe(self, number: Option<u64>) -> Self {
        match number {
            None => self.byte(0),
            Some(number) => self.byte(1).number(number),
        }
    }

    /// The fingerprint of all fields so far.
    pub fn finish(self) -> Fingerprint {
        Fingerprint(self.0)
    }

    fn byte(self, byte: u8) -> Self {
        Self((self.0 ^ u128::from(byte)).wrapping_mul(Self::PRIME))
    }
}

impl Default for FingerprintBuilder {
    fn default() -> Self {
        Self::new()
    }
}

/// An idempotency key as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRecord {
    /// Chosen by the client.
    pub key: IdempotencyKey,
    /// The job of the first request with this key.
    pub job: JobId,
    /// The fingerprint of that request.
    pub request: Fingerprint,
    /// When that request was stored.
    pub created_at: Wall,
    /// When the key may be deleted; `None` while its job exists.
    pub orphan_until: Option<Wall>,
}

/// What a stored key decides about a new request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyRuling {
    /// The window is over: enqueue a new job.
    Free,
    /// The same request enqueued this job.
    Duplicate(JobId),
    /// A different request enqueued this job.
    Conflict(JobId),
}

impl KeyRecord {
    /// Decides about a new request with this key. `job` is the job of the key, if it still exists.
    pub fn rule(
        &self,
        job: Option<&Job>,
        request: Fingerprint,
        window: Millis,
        now: Wall,
    ) -> KeyRuling {
        let unfinished = job.is_some_and(|job| !job.state.name().is_finished());
        if !unfinished && self.window_end(window) <= now {
            KeyRuling::Free
        } else if self.request == request {
            KeyRuling::Duplicate(self.job)
        } else {
            KeyRuling::Conflict(self.job)
        }
    }

    /// When the window of this key ends.
    pub fn window_end(&self, window: Millis) -> Wall {
        self.created_at.plus(window)
    }
}
