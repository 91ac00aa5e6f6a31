//! Idempotent enqueue: one key, one job, for as long as its window lasts.
//!
//! A key is alive for a window from its job's creation, and always until that job is finished.
//! While it is alive, the same request finds the job and another request is a conflict.

use crate::{IdempotencyKey, Job, JobId, Millis, Wall};

/// A client's key, with the fingerprint of the payload it was sent with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Idempotency {
    /// The key.
    pub key: IdempotencyKey,
    /// A fingerprint of the payload that does not depend on how the same JSON is written. The core
    /// does not parse JSON, so whoever did computes it.
    pub payload: Fingerprint,
}

/// A number that stands for a request: equal requests have equal ones, others almost surely not.
///
/// It is stored, so its computation never changes.
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

    /// Nothing yet.
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

    /// Adds a number that may be absent, which differs from any that is there.
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

/// What a store keeps of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRecord {
    /// The key.
    pub key: IdempotencyKey,
    /// The job it made.
    pub job: JobId,
    /// The request that made it.
    pub request: Fingerprint,
    /// When.
    pub created_at: Wall,
    /// Set when its job was removed before its window ended: when the key itself can go.
    pub orphan_until: Option<Wall>,
}

/// What a key means for a new request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyRuling {
    /// The key is free, or its window is over: make a job.
    Free,
    /// The same request made this job.
    Duplicate(JobId),
    /// Another request made this job.
    Conflict(JobId),
}

impl KeyRecord {
    /// Rules on a new request with this key. `job` is the job the key made, if it still exists.
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
