//! A disk in memory that fails as disks do.
//!
//! It has a live image, which is what is read back, and a durable one, which is what a power cut
//! leaves. Writes reach the durable image with a sync. At a power cut each write since then is
//! kept, dropped or torn at any byte, independently of the others; a change of length is kept or
//! dropped. Every operation is counted, and any one of them can be made to fail.

pub(crate) mod work;

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redb::StorageBackend;

/// What is to go wrong. Counted from when it is [set](Disk::set); the first is 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The power is cut in the middle of this sync.
    CutAtSync(u64),
    /// The power is cut just behind this sync, before any caller gets its result.
    CutAfterSync(u64),
    /// This operation fails, and those behind it work.
    FailAt(u64),
    /// This operation and all behind it fail.
    FailFrom(u64),
    /// This write or change of length finds no space, and those behind it do.
    FullAt(u64),
    /// This sync fails; the next ones say that all is well, but what was to be written then is
    /// never written: this is what Linux does.
    LoseSync(u64),
}

/// A handle to the disk; clones are the same disk.
#[derive(Debug, Clone)]
pub(crate) struct Disk(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    live: Vec<u8>,
    durable: Vec<u8>,
    pending: Vec<Write>,
    fault: Option<Fault>,
    counts: Counts,
    /// What a power cut left, once the power is off.
    left: Option<Vec<u8>>,
    /// The most bytes it holds.
    capacity: usize,
    /// Whether it says that it has synced and does not.
    lies: bool,
    chance: Chance,
}

/// How many operations there were since the fault was set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Counts {
    /// Of any kind.
    pub(crate) operations: u64,
    /// That take space.
    pub(crate) writes: u64,
    /// That make durable.
    pub(crate) syncs: u64,
}

#[derive(Debug, Clone)]
enum Write {
    Bytes(usize, Vec<u8>),
    Length(usize),
}

impl Disk {
    /// A disk that holds this, durably; `seed` decides what a power cut does.
    pub(crate) fn new(image: Vec<u8>, seed: u64) -> Self {
        Self(Arc::new(Mutex::new(State {
            live: image.clone(),
            durable: image,
            pending: Vec::new(),
            fault: None,
            counts: Counts::default(),
            left: None,
            capacity: usize::MAX,
            lies: false,
            chance: Chance(seed),
        })))
    }

    /// Sets what goes wrong next, and counts from zero.
    pub(crate) fn set(&self, fault: Option<Fault>) {
        let mut state = self.state();
        (state.fault, state.counts) = (fault, Counts::default());
    }

    /// Sets how much it holds.
    pub(crate) fn set_capacity(&self, bytes: usize) {
        self.state().capacity = bytes;
    }

    /// From now on it says that it has synced and does not.
    pub(crate) fn lie(&self) {
        self.state().lies = true;
    }

    pub(crate) fn counts(&self) -> Counts {
        self.state().counts
    }

    /// How much it holds now.
    pub(crate) fn used(&self) -> usize {
        self.state().live.len()
    }

    /// Whether the power is off.
    pub(crate) fn is_off(&self) -> bool {
        self.state().left.is_some()
    }

    /// What a power cut left, or would leave now.
    pub(crate) fn crash(&self) -> Vec<u8> {
        let mut state = self.state();
        state.cut();
        state.left.clone().unwrap_or_default()
    }

    /// What is durable for certain, whatever a power cut does with the rest.
    pub(crate) fn durable(&self) -> Vec<u8> {
        self.state().durable.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Counts an operation, and fails it if it is the one.
    fn step(&mut self) -> io::Result<()> {
        if self.left.is_some() {
            return Err(io::Error::other("injected: the power is off"));
        }
        self.counts.operations += 1;
        let at = self.counts.operations;
        match self.fault {
            Some(Fault::FailAt(fail)) if at == fail => Err(injected(at)),
            Some(Fault::FailFrom(fail)) if at >= fail => Err(injected(at)),
            _ => Ok(()),
        }
    }

    fn take_space(&mut self, end: usize) -> io::Result<()> {
        self.step()?;
        self.counts.writes += 1;
        if end > self.capacity || self.fault == Some(Fault::FullAt(self.counts.writes)) {
            return Err(io::Error::new(io::ErrorKind::StorageFull, "injected: no space"));
        }
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        self.step()?;
        self.counts.syncs += 1;
        let at = self.counts.syncs;
        match self.fault {
            Some(Fault::CutAtSync(cut)) if cut == at => {
                self.cut();
                return Err(io::Error::other("injected: the power was cut in a sync"));
            }
            Some(Fault::LoseSync(lost)) if lost == at => {
                self.pending.clear();
                return Err(io::Error::other("injected: the sync failed"));
            }
            _ if self.lies => return Ok(()),
            _ => {}
        }
        for write in std::mem::take(&mut self.pending) {
            write.apply(&mut self.durable);
        }
        if self.fault == Some(Fault::CutAfterSync(at)) {
            self.cut();
            return Err(io::Error::other("injected: the power was cut behind a sync"));
        }
        Ok(())
    }

    /// Cuts the power: decides what is left.
    fn cut(&mut self) {
        if self.left.is_some() {
            return;
        }
        let mut left = self.durable.clone();
        for write in std::mem::take(&mut self.pending) {
            match write {
                Write::Length(_) if self.chance.below(2) == 0 => {}
                Write::Length(_) => write.apply(&mut left),
                Write::Bytes(at, bytes) => self.chance.tear(&mut left, at, &bytes),
            }
        }
        self.left = Some(left);
    }
}

fn injected(at: u64) -> io::Error {
    io::Error::other(format!("injected: operation {at} failed"))
}

impl Write {
    fn apply(&self, image: &mut Vec<u8>) {
        match self {
            Self::Length(length) => image.resize(*length, 0),
            Self::Bytes(at, bytes) => {
                image.resize(image.len().max(at + bytes.len()), 0);
                image[*at..at + bytes.len()].copy_from_slice(bytes);
            }
        }
    }
}

/// Chance from a seed.
#[derive(Debug, Clone)]
pub(crate) struct Chance(pub(crate) u64);

impl Chance {
    /// A number below this one.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let mixed = (mixed ^ (mixed >> 31)) % (end.max(1) as u64);
        usize::try_from(mixed).unwrap_or(0)
    }

    /// Keeps a write, drops it, or keeps a part of it: its head, its tail, or any bytes of it.
    fn tear(&mut self, image: &mut Vec<u8>, at: usize, bytes: &[u8]) {
        let kind = self.below(8);
        if kind < 3 {
            return;
        }
        // A write that reaches the disk at all reaches as far as it goes.
        image.resize(image.len().max(at + bytes.len()), 0);
        let cut = self.below(bytes.len() + 1);
        let kept: &mut dyn FnMut(usize) -> bool = match kind {
            3..6 => &mut |_| true,
            6 if self.below(2) == 0 => &mut |place| place < cut,
            6 => &mut |place| place >= cut,
            _ => &mut |_| self.below(2) == 0,
        };
        for (place, byte) in bytes.iter().enumerate() {
            if kept(place) {
                image[at + place] = *byte;
            }
        }
    }
}

impl StorageBackend for Disk {
    fn len(&self) -> io::Result<u64> {
        let mut state = self.state();
        state.step()?;
        Ok(state.live.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let mut state = self.state();
        state.step()?;
        let at = place(offset);
        let bytes = state.live.get(at..at + out.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        out.copy_from_slice(bytes);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut state = self.state();
        state.take_space(place(len))?;
        let write = Write::Length(place(len));
        write.apply(&mut state.live);
        state.pending.push(write);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        self.state().sync()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut state = self.state();
        state.take_space(place(offset) + data.len())?;
        let write = Write::Bytes(place(offset), data.to_vec());
        write.apply(&mut state.live);
        state.pending.push(write);
        Ok(())
    }
}

fn place(offset: u64) -> usize {
    usize::try_from(offset).expect("the disk is small")
}
