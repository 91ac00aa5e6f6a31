//! The shim: SQLite's callbacks, translated into what `disk.rs` keeps. The only unsafe code.
//!
//! Invariant: a `sqlite3_file` whose methods are [`METHODS`] is a [`ShimFile`] whose `open` is a
//! live box, made by `x_open` and freed by `x_close`. SQLite calls the methods of one file from one
//! thread at a time.

use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_void};
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use rusqlite::ffi;

use crate::disk::{Breakdown, Call, Fault, FileId, FileKind, Shared, Weakened};
use crate::image::{Fate, Image};

/// A disk, and the name of the VFS that writes to it. Use it for one directory.
pub struct Disk {
    shared: Shared,
    name: String,
    vfs: *mut ffi::sqlite3_vfs,
}

impl Disk {
    /// Registers a VFS of its own.
    pub fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let name = format!("windlass-crash-{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let shared = Shared::default();
        let vfs = register(&name, &shared);
        Self { shared, name, vfs }
    }

    /// The disk of a machine that comes back after a crash: it holds these files.
    pub fn after(image: &Image) -> Self {
        let disk = Self::new();
        for (name, content) in image.files() {
            disk.shared.lock().opened(name, content.to_vec(), true);
        }
        disk
    }

    /// The name to open databases with.
    pub fn vfs(&self) -> &str {
        &self.name
    }

    /// How many operations the log holds: the place of a crash that happens now.
    pub fn now(&self) -> usize {
        self.shared.lock().operations()
    }

    /// How many syncs succeeded between two places.
    pub fn syncs(&self, from: usize, to: usize) -> usize {
        self.shared.lock().syncs(from, to)
    }

    /// How many calls there were that could have failed, reads and all.
    pub fn calls(&self) -> u64 {
        self.shared.lock().calls()
    }

    /// What a crash at this place leaves.
    pub fn image(&self, at: usize, fate: Fate) -> Image {
        self.shared.lock().image(at, fate)
    }

    /// Lets calls fail; what was planned before is forgotten.
    pub fn break_down(&self, breakdown: Breakdown) {
        self.shared.lock().break_down(breakdown);
    }

    /// Lets all calls go well again.
    pub fn clear_breakdown(&self) {
        self.shared.lock().clear_breakdown();
    }

    /// How many calls failed since the last breakdown was set.
    pub fn fired(&self) -> u64 {
        self.shared.lock().fired()
    }

    /// From now on, connections get another `synchronous` than they ask for.
    pub fn weaken(&self, weakened: Weakened) {
        self.shared.lock().weakened = Some(weakened);
    }
}

impl Default for Disk {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Disk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Disk").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // SAFETY: the VFS was registered by `register`. Its memory stays: a connection may be open.
        unsafe { ffi::sqlite3_vfs_unregister(self.vfs) };
        self.shared.lock().reset();
    }
}

/// Makes a VFS out of the one for unix. What is not replaced does not look at the VFS it is called
/// on. The memory is never freed, so that no connection can outlive it.
fn register(name: &str, shared: &Shared) -> *mut ffi::sqlite3_vfs {
    let real = real_vfs();
    let name = CString::new(name).expect("the name holds no NUL");
    // SAFETY: `real` is SQLite's own VFS, which lives as long as the process.
    let copy = unsafe { *real };
    let vfs = Box::leak(Box::new(ffi::sqlite3_vfs {
        szOsFile: c_int::try_from(size_of::<ShimFile>()).expect("it is small"),
        pNext: std::ptr::null_mut(),
        zName: name.into_raw(),
        pAppData: Box::into_raw(Box::new(shared.clone())).cast(),
        xOpen: Some(x_open),
        xDelete: Some(x_delete),
        ..copy
    }));
    // SAFETY: the VFS is complete and lives as long as the process.
    let code = unsafe { ffi::sqlite3_vfs_register(vfs, 0) };
    assert_eq!(code, ffi::SQLITE_OK, "SQLite takes another VFS");
    vfs
}

fn real_vfs() -> *mut ffi::sqlite3_vfs {
    // SAFETY: the name ends with NUL. SQLite initializes itself.
    let real = unsafe { ffi::sqlite3_vfs_find(c"unix".as_ptr()) };
    assert!(!real.is_null(), "SQLite has a VFS for unix");
    real
}

/// What SQLite holds for an open file.
#[repr(C)]
struct ShimFile {
    base: ffi::sqlite3_file,
    open: *mut Open,
}

/// An open file, with the real one inside.
struct Open {
    disk: Shared,
    /// None for temporary files, which no crash concerns.
    tracked: Option<(FileId, FileKind)>,
    /// The first sync of a log or journal that could have been made syncs its directory, as the
    /// unix VFS does.
    sync_directory: bool,
    /// Room for the `sqlite3_file` of the unix VFS, aligned for pointers.
    real: Box<[u64]>,
}

impl Open {
    fn real(&mut self) -> *mut ffi::sqlite3_file {
        self.real.as_mut_ptr().cast()
    }
}

static METHODS: ffi::sqlite3_io_methods = ffi::sqlite3_io_methods {
    // Without xFetch: a mapped file would be written behind our back.
    iVersion: 2,
    xClose: Some(x_close),
    xRead: Some(x_read),
    xWrite: Some(x_write),
    xTruncate: Some(x_truncate),
    xSync: Some(x_sync),
    xFileSize: Some(x_file_size),
    xLock: Some(x_lock),
    xUnlock: Some(x_unlock),
    xCheckReservedLock: Some(x_check_reserved_lock),
    xFileControl: Some(x_file_control),
    xSectorSize: Some(x_sector_size),
    xDeviceCharacteristics: Some(x_device_characteristics),
    xShmMap: Some(x_shm_map),
    xShmLock: Some(x_shm_lock),
    xShmBarrier: Some(x_shm_barrier),
    xShmUnmap: Some(x_shm_unmap),
    xFetch: None,
    xUnfetch: None,
};

/// # Safety
/// `vfs` is one of ours.
unsafe fn disk_of(vfs: *mut ffi::sqlite3_vfs) -> Shared {
    // SAFETY: `register` put a leaked `Shared` there.
    unsafe { (*(*vfs).pAppData.cast::<Shared>()).clone() }
}

/// # Safety
/// `file` is one of ours, and open. The reference ends before SQLite is called or returned to.
unsafe fn open_of<'a>(file: *mut ffi::sqlite3_file) -> &'a mut Open {
    // SAFETY: see the invariant of this module.
    unsafe { &mut *(*file.cast::<ShimFile>()).open }
}

/// Calls a method of the real file.
macro_rules! real {
    ($open:expr, $method:ident $(, $arg:expr)*) => {{
        let real = Open::real($open);
        // SAFETY: the unix VFS opened this file, and has all methods of version 2. The arguments
        // are those that SQLite gave, or point to memory that outlives the call.
        unsafe {
            let method = (*(*real).pMethods).$method.expect("the unix VFS has this method");
            method(real $(, $arg)*)
        }
    }};
}

/// Methods that go through as they are.
macro_rules! pass_through {
    ($(fn $name:ident = $method:ident($($arg:ident: $type:ty),*) $(-> $ret:ty)?;)*) => {$(
        unsafe extern "C" fn $name(file: *mut ffi::sqlite3_file $(, $arg: $type)*) $(-> $ret)? {
            // SAFETY: SQLite calls this on a file of ours.
            let open = unsafe { open_of(file) };
            real!(open, $method $(, $arg)*)
        }
    )*};
}

pass_through! {
    fn x_file_size = xFileSize(size: *mut i64) -> c_int;
    fn x_lock = xLock(level: c_int) -> c_int;
    fn x_unlock = xUnlock(level: c_int) -> c_int;
    fn x_check_reserved_lock = xCheckReservedLock(held: *mut c_int) -> c_int;
    fn x_sector_size = xSectorSize() -> c_int;
    fn x_device_characteristics = xDeviceCharacteristics() -> c_int;
    fn x_shm_map = xShmMap(
        region: c_int, size: c_int, extend: c_int, mapped: *mut *mut c_void
    ) -> c_int;
    fn x_shm_lock = xShmLock(offset: c_int, count: c_int, flags: c_int) -> c_int;
    fn x_shm_barrier = xShmBarrier();
    fn x_shm_unmap = xShmUnmap(delete: c_int) -> c_int;
}

unsafe extern "C" fn x_open(
    vfs: *mut ffi::sqlite3_vfs,
    name: ffi::sqlite3_filename,
    file: *mut ffi::sqlite3_file,
    flags: c_int,
    out_flags: *mut c_int,
) -> c_int {
    let shim = file.cast::<ShimFile>();
    // SAFETY: SQLite gives a VFS of ours, and room for a file of the size we asked for. A file
    // without methods is not closed.
    let disk = unsafe {
        (*shim).base.pMethods = std::ptr::null();
        disk_of(vfs)
    };
    // SAFETY: SQLite gives NULL or a name that ends with NUL.
    let path = (!name.is_null()).then(|| unsafe { path_of(name) });
    let tracked = path.zip(kind_of(flags));
    if let Some((_, kind)) = tracked
        && disk.lock().fault(Call::Open, kind).is_some()
    {
        return ffi::SQLITE_CANTOPEN;
    }
    let found = path.is_some_and(Path::exists);
    let real = real_vfs();
    // SAFETY: it lives as long as the process.
    let (size, open_real) = unsafe { ((*real).szOsFile, (*real).xOpen) };
    let words = usize::try_from(size).unwrap_or(0).div_ceil(size_of::<u64>());
    let room = vec![0; words].into_boxed_slice();
    let mut open = Box::new(Open { disk, tracked: None, sync_directory: false, real: room });
    let open_real = open_real.expect("the unix VFS opens files");
    // SAFETY: the arguments are SQLite's own, with as much room as the unix VFS asks for.
    let code = unsafe { open_real(real, name, open.real(), flags, out_flags) };
    if code != ffi::SQLITE_OK {
        return code;
    }
    if let Some((path, kind)) = tracked {
        open.track(path, kind, found);
        let could_be_made = flags & ffi::SQLITE_OPEN_CREATE != 0;
        open.sync_directory = could_be_made && kind != FileKind::Database;
    }
    // SAFETY: as above. The box is freed when the file is closed.
    unsafe {
        (*shim).open = Box::into_raw(open);
        (*shim).base.pMethods = &raw const METHODS;
    }
    ffi::SQLITE_OK
}

impl Open {
    fn track(&mut self, path: &Path, kind: FileKind, found: bool) {
        let name = file_name(path);
        let disk = self.disk.clone();
        let mut state = disk.lock();
        let known = state.find(&name);
        let file = known.unwrap_or_else(|| state.opened(&name, self.content(), found));
        self.tracked = Some((file, kind));
    }

    /// Everything in the file. Opened by other means it would lose its locks when closed.
    fn content(&mut self) -> Vec<u8> {
        let mut size = 0_i64;
        let code = real!(self, xFileSize, &raw mut size);
        assert_eq!(code, ffi::SQLITE_OK, "an open file has a size");
        let mut content = vec![0_u8; usize::try_from(size).unwrap_or(0)];
        if let Ok(length @ 1..) = c_int::try_from(content.len()) {
            let code = real!(self, xRead, content.as_mut_ptr().cast(), length, 0);
            assert_eq!(code, ffi::SQLITE_OK, "an open file can be read");
        }
        content
    }
}

unsafe extern "C" fn x_close(file: *mut ffi::sqlite3_file) -> c_int {
    // SAFETY: SQLite closes a file of ours once, and does not use it afterwards.
    let mut open = unsafe { Box::from_raw((*file.cast::<ShimFile>()).open) };
    real!(&mut open, xClose)
}

unsafe extern "C" fn x_read(
    file: *mut ffi::sqlite3_file,
    data: *mut c_void,
    length: c_int,
    offset: i64,
) -> c_int {
    // SAFETY: SQLite calls this on a file of ours.
    let open = unsafe { open_of(file) };
    if let Some((_, kind)) = open.tracked
        && open.disk.lock().fault(Call::Read, kind).is_some()
    {
        return ffi::SQLITE_IOERR_READ;
    }
    real!(open, xRead, data, length, offset)
}

unsafe extern "C" fn x_write(
    file: *mut ffi::sqlite3_file,
    data: *const c_void,
    length: c_int,
    offset: i64,
) -> c_int {
    // SAFETY: SQLite calls this on a file of ours.
    let open = unsafe { open_of(file) };
    let Some((id, kind)) = open.tracked else {
        return real!(open, xWrite, data, length, offset);
    };
    let disk = open.disk.clone();
    let mut state = disk.lock();
    let (code, kept) = match state.fault(Call::Write, kind) {
        None => (ffi::SQLITE_OK, length),
        Some(Fault::ShortWrite) => (ffi::SQLITE_IOERR_WRITE, length / 2),
        Some(Fault::Full) => return ffi::SQLITE_FULL,
        Some(_) => return ffi::SQLITE_IOERR_WRITE,
    };
    let written = real!(open, xWrite, data, kept, offset);
    if written != ffi::SQLITE_OK {
        return written;
    }
    // SAFETY: SQLite gives at least `length` bytes, and leaves them alone during the call.
    let bytes = unsafe { std::slice::from_raw_parts(data.cast::<u8>(), place(kept.into())) };
    state.wrote(id, place(offset), bytes);
    code
}

unsafe extern "C" fn x_truncate(file: *mut ffi::sqlite3_file, size: i64) -> c_int {
    // SAFETY: SQLite calls this on a file of ours.
    let open = unsafe { open_of(file) };
    let Some((id, kind)) = open.tracked else { return real!(open, xTruncate, size) };
    let disk = open.disk.clone();
    let mut state = disk.lock();
    if state.fault(Call::Truncate, kind).is_some() {
        return ffi::SQLITE_IOERR_TRUNCATE;
    }
    let code = real!(open, xTruncate, size);
    if code == ffi::SQLITE_OK {
        state.truncated(id, place(size));
    }
    code
}

unsafe extern "C" fn x_sync(file: *mut ffi::sqlite3_file, flags: c_int) -> c_int {
    // SAFETY: SQLite calls this on a file of ours.
    let open = unsafe { open_of(file) };
    let Some((id, kind)) = open.tracked else { return real!(open, xSync, flags) };
    let mut state = open.disk.lock();
    match state.fault(Call::Sync, kind) {
        None => {}
        Some(Fault::LyingSync) => {
            state.sync_failed(id);
            return ffi::SQLITE_IOERR_FSYNC;
        }
        Some(_) => return ffi::SQLITE_IOERR_FSYNC,
    }
    // The real file needs no sync: what is durable is decided here.
    state.synced(id, open.sync_directory);
    open.sync_directory = false;
    ffi::SQLITE_OK
}

unsafe extern "C" fn x_delete(
    vfs: *mut ffi::sqlite3_vfs,
    name: *const c_char,
    sync_directory: c_int,
) -> c_int {
    // SAFETY: SQLite gives a VFS of ours, and a name that ends with NUL.
    let (disk, path) = unsafe { (disk_of(vfs), path_of(name)) };
    let mut state = disk.lock();
    let name_of_file = file_name(path);
    let kind = if name_of_file.ends_with("-wal") { FileKind::Log } else { FileKind::Journal };
    if state.fault(Call::Delete, kind).is_some() {
        return ffi::SQLITE_IOERR_DELETE;
    }
    let real = real_vfs();
    // SAFETY: it lives as long as the process; the name is SQLite's own.
    let code = unsafe {
        let delete = (*real).xDelete.expect("the unix VFS deletes files");
        delete(real, name, 0)
    };
    if code == ffi::SQLITE_OK {
        state.deleted(&name_of_file, sync_directory != 0);
    }
    code
}

unsafe extern "C" fn x_file_control(
    file: *mut ffi::sqlite3_file,
    op: c_int,
    arg: *mut c_void,
) -> c_int {
    // SAFETY: SQLite calls this on a file of ours.
    let open = unsafe { open_of(file) };
    let weakened = open.disk.lock().weakened;
    if let Some(weakened) = weakened.filter(|_| op == ffi::SQLITE_FCNTL_PRAGMA) {
        // SAFETY: the argument of this operation is what `weaken` asks for.
        let answered = unsafe { weaken(weakened, arg.cast()) };
        if answered {
            return ffi::SQLITE_OK;
        }
    }
    real!(open, xFileControl, op, arg)
}

/// Turns a setting of `synchronous` into another, or answers what it is. True if it answered.
///
/// # Safety
/// `args` are those of `SQLITE_FCNTL_PRAGMA`: room for an answer, the name of the pragma, and its
/// value or NULL.
unsafe fn weaken(weakened: Weakened, args: *mut *mut c_char) -> bool {
    // SAFETY: the caller's promise; the name ends with NUL.
    let (name, value) = unsafe { (CStr::from_ptr(*args.add(1)), *args.add(2)) };
    if !name.to_bytes().eq_ignore_ascii_case(b"synchronous") {
        return false;
    }
    if value.is_null() {
        if !weakened.admitted {
            // SAFETY: the answer is memory of SQLite's, which frees it.
            unsafe { *args = ffi::sqlite3_mprintf(c"2".as_ptr()) };
        }
        return !weakened.admitted;
    }
    // SAFETY: the value is SQLite's own copy of what was given, one character at least and a NUL.
    // It is read after this call.
    unsafe {
        *value = c_char::from_ne_bytes([b'0' + weakened.level]);
        *value.add(1) = 0;
    }
    false
}

/// # Safety
/// `name` ends with NUL, and lives as long as the result is used.
unsafe fn path_of<'a>(name: *const c_char) -> &'a Path {
    // SAFETY: the caller's promise.
    Path::new(OsStr::from_bytes(unsafe { CStr::from_ptr(name) }.to_bytes()))
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn kind_of(flags: c_int) -> Option<FileKind> {
    match flags {
        flags if flags & ffi::SQLITE_OPEN_MAIN_DB != 0 => Some(FileKind::Database),
        flags if flags & ffi::SQLITE_OPEN_WAL != 0 => Some(FileKind::Log),
        flags if flags & ffi::SQLITE_OPEN_MAIN_JOURNAL != 0 => Some(FileKind::Journal),
        _ => None,
    }
}

fn place(number: i64) -> usize {
    usize::try_from(number).expect("places in a file are not negative")
}
