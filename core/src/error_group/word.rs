//! What a word is: a URL, an address, a path, a number, a code, or just a word.
//!
//! A table of tests, each over one word, first match first. None looks further than the word.

use super::title::Slot;

/// A part of a word.
pub(super) enum Part<'a> {
    Text(&'a str),
    Slot(Slot),
}

/// What most words end up as, and what gets every part of the others.
type Sink<'s> = &'s mut dyn FnMut(Part<'_>);

/// Tells the parts of a word.
pub(super) fn parts(word: &str, sink: Sink<'_>) {
    if let Some((scheme, rest)) = word.split_once("://") {
        return url(scheme, rest, sink);
    }
    if let Some(slot) = whole(word) {
        return sink(Part::Slot(slot));
    }
    if let Some((_, path)) = word.split_once('/').filter(|(host, _)| is_host(host)) {
        sink(Part::Slot(Slot::Host));
        return if path.is_empty() { sink(Part::Text("/")) } else { sink(Part::Slot(Slot::Path)) };
    }
    if is_known(word) {
        return sink(Part::Text(word));
    }
    let Some((name, rest)) = word.split_once(':') else { return segments(word, sink) };
    if is_path(name) {
        // `app.rb:10:in`
        sink(Part::Slot(Slot::Path));
        let rest = rest.trim_start_matches(|char: char| char.is_ascii_digit() || char == ':');
        sink(Part::Text(if rest.is_empty() { "" } else { ":" }));
        segments(rest, sink);
    } else if let Some(slot) = whole(rest).filter(|_| name.bytes().all(is_letter)) {
        sink(Part::Text(name));
        sink(Part::Text(":"));
        sink(Part::Slot(slot));
    } else {
        segments(word, sink);
    }
}

/// Whether a word is the code of an error in some product: `ORA-00942`, `E11000`, `TS2304`.
pub(super) fn is_code(word: &str) -> bool {
    const PRODUCTS: [&str; 17] = [
        "ORA", "TNS", "PLS", "SP2", "TS", "CS", "MSB", "NU", "NETSDK", "AADSTS", "E", "SQL",
        "PGRST", "WSA", "FS", "BC", "CV",
    ];
    let name = word.trim_end_matches(|char: char| char.is_ascii_digit());
    let digits = word.len() - name.len();
    (3..=6).contains(&digits) && PRODUCTS.contains(&name.trim_end_matches('-'))
}

/// Whether a word is of some sort.
type Test = fn(&str) -> bool;

/// The slot that a word is as a whole.
fn whole(word: &str) -> Option<Slot> {
    let tests: [(Test, Slot); 9] = [
        (is_quantity, Slot::Number),
        (is_uuid, Slot::Uuid),
        (is_time, Slot::Time),
        (is_address, Slot::Address),
        (is_path, Slot::Path),
        (is_host, Slot::Host),
        (is_hex, Slot::Hex),
        (is_known_image, Slot::Id),
        (is_id, Slot::Id),
    ];
    tests.into_iter().find(|(test, _)| test(word)).map(|(_, slot)| slot)
}

fn is_letter(byte: u8) -> bool {
    byte.is_ascii_alphabetic() || byte == b'_'
}

fn url(scheme: &str, rest: &str, sink: Sink<'_>) {
    let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    sink(Part::Text(scheme));
    sink(Part::Text("://"));
    if !authority.is_empty() {
        sink(Part::Slot(Slot::Host));
    }
    if path.len() > 1 {
        sink(Part::Slot(Slot::Path));
    }
}

/// A number with or without a unit, also several: `-1.5`, `1,024`, `20ms`, `1m30s`, `3/10`, `99%`.
fn is_quantity(word: &str) -> bool {
    const UNITS: [&str; 28] = [
        "", "ns", "us", "µs", "ms", "s", "sec", "m", "min", "h", "d", "b", "B", "k", "K", "M", "G",
        "kB", "KB", "MB", "GB", "TB", "KiB", "MiB", "GiB", "px", "%", "bytes",
    ];
    let mut rest = word.trim_start_matches(['-', '+']);
    if !rest.starts_with(|char: char| char.is_ascii_digit()) {
        return false;
    }
    while !rest.is_empty() {
        let digits = |char: char| char.is_ascii_digit() || ".,_/".contains(char);
        let number = rest.len() - rest.trim_start_matches(digits).len();
        let tail = &rest[number..];
        let unit = tail.len() - tail.trim_start_matches(|char: char| !char.is_ascii_digit()).len();
        if number == 0 || !UNITS.contains(&&tail[..unit]) {
            return false;
        }
        rest = &tail[unit..];
    }
    true
}

fn is_uuid(word: &str) -> bool {
    let lengths = [8, 4, 4, 4, 12];
    let mut parts = word.split('-');
    let fits = |length: usize| {
        let hex = |part: &str| part.bytes().all(|byte| byte.is_ascii_hexdigit());
        parts.next().is_some_and(|part| part.len() == length && hex(part))
    };
    lengths.into_iter().all(fits) && word.len() == 36
}

/// A date, a time of day, or both: digits with two separators of dates or times.
fn is_time(word: &str) -> bool {
    let plain = |char: char| char.is_ascii_digit() || "-/:.,+TZ".contains(char);
    let count = |mark: char| word.matches(mark).count();
    let date = count('-') >= 2 && word.len() >= 10 || count('/') == 2 && word.len() >= 8;
    let time = count(':') == 2 && word.len() >= 7 || count(':') == 1 && word.len() == 5;
    let starts = word.starts_with(|char: char| char.is_ascii_digit());
    starts && word.chars().all(plain) && (date || time) && count('.') < 3
}

/// An address of IP (with port or prefix), of a network card, or of mail.
fn is_address(word: &str) -> bool {
    if let Some((name, host)) = word.split_once('@') {
        let letters = host.chars().next_back().is_some_and(|char| char.is_ascii_alphabetic());
        return !name.is_empty() && letters && host.contains('.') && !host.contains('/');
    }
    let host = word.split(['/', ':']).next().unwrap_or("");
    let number = |part: &str| part.parse::<u8>().is_ok();
    if host.split('.').count() == 4 && host.split('.').all(number) {
        return true;
    }
    let hex = |part: &str| part.len() <= 4 && part.bytes().all(|byte| byte.is_ascii_hexdigit());
    word.matches(':').count() >= 2
        && word.split(['%', '/']).next().unwrap_or("").split(':').all(hex)
}

/// A path or a file name, also with a line and a column behind it.
fn is_path(word: &str) -> bool {
    let drive = word.as_bytes().get(1) == Some(&b':')
        && word.starts_with(|char: char| char.is_ascii_alphabetic())
        && matches!(word.as_bytes().get(2), Some(b'\\' | b'/'));
    let starts = ["/", "./", "../", "~/", "\\\\"];
    let rooted = starts.iter().any(|start| word.len() > start.len() && word.starts_with(start));
    if drive || rooted {
        return true;
    }
    let place = word.trim_end_matches(|char: char| char.is_ascii_digit() || char == ':');
    let Some((name, ending)) = place.rsplit_once('.') else { return false };
    // `Node.js` is a product, and `main.js` a file.
    let product = name.starts_with(char::is_uppercase) && ending == "js" && place == word;
    !name.is_empty() && !product && ENDINGS.contains(&ending)
}

/// Endings of file names; none that is also a common name of a method or of a domain.
const ENDINGS: [&str; 58] = [
    "rs", "py", "pyc", "js", "ts", "jsx", "tsx", "mjs", "cjs", "go", "java", "kt", "scala", "rb",
    "php", "cs", "c", "cc", "cpp", "h", "hpp", "sh", "pl", "ex", "exs", "lua", "sql", "json",
    "yaml", "yml", "toml", "xml", "ini", "conf", "cfg", "txt", "csv", "tsv", "pdf", "png", "jpg",
    "jpeg", "gif", "mp4", "zip", "gz", "tar", "parquet", "sqlite", "exe", "dll", "so", "jar",
    "html", "css", "docx", "xlsx", "pem",
];

/// A host name, also with a port.
fn is_host(word: &str) -> bool {
    let (name, port) = word.split_once(':').unwrap_or((word, ""));
    let plain = |char: char| char.is_ascii_alphanumeric() || "-._".contains(char);
    let digits = port.bytes().all(|byte| byte.is_ascii_digit());
    let letters = name.starts_with(|char: char| char.is_ascii_alphanumeric());
    if !name.chars().all(plain) || !digits || !letters {
        return false;
    }
    let last = name.rsplit_once('.').map(|(_, last)| last);
    let known = name == "localhost" || last.is_some_and(|last| DOMAINS.contains(&last));
    let named = name.starts_with(|char: char| char.is_ascii_lowercase());
    known || named && (4..=5).contains(&port.len())
}

/// Last parts of host names.
const DOMAINS: [&str; 34] = [
    "com",
    "net",
    "org",
    "io",
    "dev",
    "app",
    "cloud",
    "internal",
    "local",
    "localdomain",
    "lan",
    "intra",
    "corp",
    "home",
    "svc",
    "cluster",
    "consul",
    "example",
    "test",
    "invalid",
    "edu",
    "gov",
    "info",
    "biz",
    "de",
    "uk",
    "eu",
    "fr",
    "nl",
    "jp",
    "us",
    "ch",
    "at",
    "co",
];

/// Hexadecimal digits: marked, or many of them with letters and digits among them.
fn is_hex(word: &str) -> bool {
    let marked = word.strip_prefix("0x").or_else(|| word.strip_prefix("0X"));
    let digits = marked.unwrap_or(word);
    let hex = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    let mixed = digits.bytes().any(|byte| byte.is_ascii_digit())
        && digits.bytes().any(|byte| byte.is_ascii_alphabetic());
    hex && (marked.is_some() || digits.len() >= 7 && mixed)
}

/// A digest with the name of its function: `sha256:…`.
fn is_known_image(word: &str) -> bool {
    word.split_once(':').is_some_and(|(name, digest)| name.starts_with("sha") && is_hex(digest))
}

/// Letters and digits in disorder, long enough to be a random name.
fn is_id(word: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_+/=".contains(&byte);
    let digits = word.bytes().filter(u8::is_ascii_digit).count();
    let changes = word.as_bytes().windows(2);
    let changes = changes.filter(|pair| pair[0].is_ascii_digit() != pair[1].is_ascii_digit());
    word.len() >= 16
        && word.bytes().all(plain)
        && digits >= 3
        && changes.count() >= 4
        && !word.contains('/')
}

/// Words whose digits are part of their name.
fn is_known(word: &str) -> bool {
    const KNOWN: [&str; 46] = [
        "utf8",
        "utf-8",
        "utf16",
        "utf-16",
        "latin1",
        "iso-8859-1",
        "x509",
        "md5",
        "sha1",
        "sha-1",
        "sha256",
        "sha-256",
        "sha512",
        "base64",
        "int8",
        "int16",
        "int32",
        "int64",
        "uint32",
        "uint64",
        "float32",
        "float64",
        "i8",
        "i16",
        "i32",
        "i64",
        "i128",
        "u8",
        "u16",
        "u32",
        "u64",
        "u128",
        "f32",
        "f64",
        "s3",
        "ec2",
        "http2",
        "http/1.0",
        "http/1.1",
        "http/2",
        "ipv4",
        "ipv6",
        "oauth2",
        "k8s",
        "win32",
        "x86",
    ];
    let end = word.rsplit(['.', ':']).next().unwrap_or(word);
    KNOWN.iter().any(|known| known.eq_ignore_ascii_case(end) || known.eq_ignore_ascii_case(word))
}

/// Tells a word in which some digits are: the parts between its separators one by one.
fn segments(word: &str, sink: Sink<'_>) {
    if !word.bytes().any(|byte| byte.is_ascii_digit()) {
        return sink(Part::Text(word));
    }
    let mut random = false;
    for segment in word.split_inclusive(['-', '_', '.', ':', '/', '@', '\\', '+', '~', '#', '&']) {
        let name = segment.trim_end_matches(|char: char| !char.is_alphanumeric());
        let digits = name.bytes().filter(u8::is_ascii_digit).count();
        let first = name.find(|char: char| char.is_ascii_digit());
        let ordered = first.is_none_or(|at| name[at..].bytes().all(|byte| byte.is_ascii_digit()));
        // The ends of names that Kubernetes makes up have five letters or digits.
        let suffix = random && name.len() == 5 && name.bytes().all(|b| !b.is_ascii_uppercase());
        if suffix || digits > 0 && !ordered && name.len() >= 5 {
            random = true;
            sink(Part::Slot(Slot::Id));
        } else {
            numbers(name, sink);
        }
        sink(Part::Text(&segment[name.len()..]));
    }
}

/// Tells letters and digits that take turns.
fn numbers(name: &str, sink: Sink<'_>) {
    let mut rest = name;
    while !rest.is_empty() {
        let text = rest.find(|char: char| char.is_ascii_digit()).unwrap_or(rest.len());
        sink(Part::Text(&rest[..text]));
        rest = &rest[text..];
        let digits = rest.find(|char: char| !char.is_ascii_digit()).unwrap_or(rest.len());
        if digits > 0 {
            sink(Part::Slot(Slot::Number));
        }
        rest = &rest[digits..];
    }
}
