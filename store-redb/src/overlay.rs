//! A file that is read and never written: what redb writes to it stays in memory. A database that
//! was not closed in order is recovered there, and the file stays as it was found.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::ops::Bound;
use std::sync::{Mutex, MutexGuard, PoisonError};

use redb::backends::FileBackend;
use redb::{BackendError, DatabaseError, StorageBackend};

/// Writes are kept in blocks of this many bytes.
const BLOCK: u64 = 4096;

/// A file with what was written over it.
#[derive(Debug)]
pub(crate) struct Overlay {
    file: FileBackend,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    len: u64,
    /// How much of the file is still visible.
    file_len: u64,
    written: BTreeMap<u64, Vec<u8>>,
}

impl Overlay {
    /// Over a file that was opened for reading.
    pub(crate) fn new(file: File) -> Result<Self, DatabaseError> {
        let file = FileBackend::new(file)?;
        let len = file.len().map_err(DatabaseError::from)?;
        let state = Mutex::new(State { len, file_len: len, written: BTreeMap::new() });
        Ok(Self { file, state })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A block as it is now.
    fn block(&self, state: &State, at: u64) -> io::Result<Vec<u8>> {
        if let Some(block) = state.written.get(&at) {
            return Ok(block.clone());
        }
        let mut block = vec![0; usize::try_from(BLOCK).map_err(io::Error::other)?];
        let begin = at * BLOCK;
        let there = state.file_len.saturating_sub(begin).min(BLOCK);
        let there = usize::try_from(there).map_err(io::Error::other)?;
        if there > 0 {
            self.file.read(begin, &mut block[..there])?;
        }
        Ok(block)
    }
}

/// The blocks that a range of bytes touches, each with its part of the range and of the block.
fn parts(offset: u64, len: usize) -> impl Iterator<Item = (u64, usize, usize, usize)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        if done >= len {
            return None;
        }
        let at = offset + done as u64;
        let begin = usize::try_from(at % BLOCK).ok()?;
        let count = usize::try_from(BLOCK).ok()?.saturating_sub(begin).min(len - done);
        let part = (at / BLOCK, done, begin, count);
        done += count;
        Some(part)
    })
}

impl StorageBackend for Overlay {
    fn len(&self) -> io::Result<u64> {
        Ok(self.state().len)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let state = self.state();
        if offset + out.len() as u64 > state.len {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let end = offset + out.len() as u64;
        let first = offset / BLOCK;
        if end <= state.file_len && state.written.range(first..end.div_ceil(BLOCK)).next().is_none()
        {
            return self.file.read(offset, out);
        }
        for (at, done, begin, count) in parts(offset, out.len()) {
            let block = self.block(&state, at)?;
            out[done..done + count].copy_from_slice(&block[begin..begin + count]);
        }
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut state = self.state();
        if len < state.len {
            // What is cut off is zero if the storage grows again.
            let edge = len / BLOCK;
            let mut block = self.block(&state, edge)?;
            block[usize::try_from(len % BLOCK).map_err(io::Error::other)?..].fill(0);
            state.written.split_off(&edge);
            state.written.insert(edge, block);
            state.file_len = state.file_len.min(len);
        }
        state.len = len;
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut state = self.state();
        for (at, done, begin, count) in parts(offset, data.len()) {
            let mut block = self.block(&state, at)?;
            block[begin..begin + count].copy_from_slice(&data[done..done + count]);
            state.written.insert(at, block);
        }
        state.len = state.len.max(offset + data.len() as u64);
        Ok(())
    }

    fn close(&self) -> io::Result<()> {
        self.file.close()
    }

    /// Others may read the file at the same time, and none may write it.
    fn try_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.file.try_lock_shared_range(start, end)
    }

    fn unlock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.file.unlock_range(start, end)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn over(bytes: &[u8]) -> (Overlay, tempfile::NamedTempFile) {
        let mut file = tempfile::NamedTempFile::new().expect("a file");
        file.write_all(bytes).expect("it is written");
        let opened = File::open(file.path()).expect("it opens");
        (Overlay::new(opened).expect("it is read"), file)
    }

    #[test]
    fn what_is_written_is_read_back_and_the_file_stays_as_it_was() {
        let bytes: Vec<u8> = (0..20_000_u32).map(|n| n.to_le_bytes()[0]).collect();
        let (overlay, file) = over(&bytes);
        let mut expected = bytes.clone();
        for (offset, data) in [(4_000, vec![1; 5_000]), (19_999, vec![2; 3]), (0, vec![3])] {
            overlay.write(offset as u64, &data).expect("it is written");
            expected.resize(expected.len().max(offset + data.len()), 0);
            expected[offset..offset + data.len()].copy_from_slice(&data);
        }
        let mut found = vec![0; expected.len()];
        overlay.read(0, &mut found).expect("it is read");
        assert_eq!(found, expected);
        assert!(overlay.read(1, &mut found).is_err(), "it is read past its end");
        assert_eq!(std::fs::read(file.path()).expect("it is read"), bytes);
    }

    #[test]
    fn what_was_cut_off_is_zero_when_the_storage_grows_again() {
        let (overlay, _file) = over(&[7; 10_000]);
        overlay.set_len(5_000).expect("it is cut");
        overlay.set_len(10_000).expect("it grows");
        let mut found = vec![1; 10_000];
        overlay.read(0, &mut found).expect("it is read");
        assert!(found[..5_000].iter().all(|byte| *byte == 7));
        assert!(found[5_000..].iter().all(|byte| *byte == 0));
    }
}
