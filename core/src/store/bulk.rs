//! Bulk actions as a store keeps them: rows of bytes by id. A store knows nothing of what is in
//! them.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use super::{Cause, StoreError};
use crate::BulkId;
use crate::bulk::Bulk;

/// A bulk action.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BulkRow {
    /// The id, which a bulk action keeps.
    pub id: BulkId,
    /// A [`Bulk`], as its bytes.
    pub data: Vec<u8>,
}

/// What a batch needs to know of the bulk actions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BulkAsk {
    /// No row of a bulk action.
    #[default]
    No,
    /// All of them, as they are.
    Look,
    /// All of them, held together: no other transaction changes or makes any before this one ends.
    Hold,
}

impl BulkRow {
    /// The row of a bulk action.
    pub fn of(bulk: &Bulk) -> Self {
        Self { id: bulk.id, data: bulk.to_bytes() }
    }

    /// The bulk action.
    pub fn decode(&self) -> Result<Bulk, StoreError> {
        Bulk::from_bytes(self.id, &self.data)
            .map_err(|bad| StoreError::Corrupt(Cause::new(&format!("{}: {bad}", self.id))))
    }

    /// What is wrong with a row that was read, if anything.
    pub(crate) fn problem(&self) -> Option<String> {
        let bad = Bulk::from_bytes(self.id, &self.data).err()?;
        Some(format!("bulk action {}: {bad}", self.id))
    }
}
