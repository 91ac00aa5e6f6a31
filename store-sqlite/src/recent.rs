//! The leased rows this process has written, as long as nobody else has committed since; that is
//! asked at the beginning of each transaction, when nobody else can write.

use windlass_store_file::Recent;

/// Rows, with the version of the data they belong to.
#[derive(Debug, Default)]
pub(crate) struct Versioned {
    pub(crate) rows: Recent,
    version: Option<i64>,
}

impl Versioned {
    /// Begins a transaction at this version of the data.
    pub(crate) fn begin(&mut self, version: i64) -> &mut Recent {
        if self.version.replace(version) != Some(version) {
            self.rows.forget();
        }
        &mut self.rows
    }
}
