//! The dashboard: the files of `server/ui/`, as they are embedded, addressed and compressed. They
//! hold no data, so they need no token. Everything they show comes from the API.

use std::fmt::Write as _;
use std::sync::LazyLock;

use bytes::Bytes;
use flate2::Compression;
use http::header::CACHE_CONTROL;
use http::{HeaderMap, HeaderValue, Response};
use ring::digest::{Context, SHA256};

use crate::http::body::Body;
use crate::http::{gzip, router};

/// The shell. `{build}` and `{modules}` are filled in when the server starts.
const INDEX: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/ui/index.html"));

macro_rules! embedded {
    ($($name:literal)*) => {
        &[$(($name, include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/ui/", $name)))),*]
    };
}

/// Every other file. A test of the style compares this with the folder.
const FILES: &[(&str, &[u8])] = embedded! {
    "app.css" "icon.svg"
    "actions.js" "api.js" "app.js" "bulk.js" "chart.js" "dom.js" "live.js"
    "page_errors.js" "page_job.js" "page_jobs.js" "page_overview.js" "page_queue.js"
    "page_queues.js" "page_settings.js" "page_workers.js" "parts.js" "route.js"
};

/// An address that is used for ever: its content never changes.
const IMMUTABLE: HeaderValue = HeaderValue::from_static("public, max-age=31536000, immutable");

/// A file as it is sent.
#[derive(Debug)]
struct File {
    name: &'static str,
    content_type: &'static str,
    plain: Bytes,
    gzip: Bytes,
}

impl File {
    fn new(name: &'static str, plain: Bytes) -> Self {
        let content_type = match extension(name) {
            "css" => "text/css; charset=utf-8",
            "svg" => "image/svg+xml",
            "html" => "text/html; charset=utf-8",
            _ => "text/javascript; charset=utf-8",
        };
        let gzip = gzip::compressed(&plain, Compression::best());
        Self { name, content_type, plain, gzip }
    }

    fn response(&self, asked: &HeaderMap) -> Response<Body> {
        let zipped = gzip::is_taken(asked);
        let bytes = if zipped { &self.gzip } else { &self.plain };
        let mut response = router::text(self.content_type, bytes.clone());
        gzip::mark(response.headers_mut(), zipped);
        response
    }
}

/// The files, ready to be sent.
struct Ui {
    build: String,
    index: File,
    files: Vec<File>,
}

static UI: LazyLock<Ui> = LazyLock::new(|| {
    let build = digest();
    let mut modules = String::new();
    for (name, _) in FILES.iter().filter(|(name, _)| extension(name) == "js") {
        let _ = writeln!(modules, "<link rel=\"modulepreload\" href=\"ui/{build}/{name}\">");
    }
    let index = INDEX.replace("{modules}", modules.trim_end()).replace("{build}", &build);
    let files = FILES.iter().map(|(name, bytes)| File::new(name, Bytes::from_static(bytes)));
    Ui { index: File::new("index.html", Bytes::from(index)), files: files.collect(), build }
});

/// Twelve hex digits over all files: another build has other addresses.
fn digest() -> String {
    let mut context = Context::new(&SHA256);
    context.update(INDEX.as_bytes());
    for (name, bytes) in FILES {
        context.update(name.as_bytes());
        context.update(&(bytes.len() as u64).to_le_bytes());
        context.update(bytes);
    }
    hex(&context.finish().as_ref()[..6])
}

/// Bytes as hex digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

fn extension(name: &str) -> &str {
    name.rsplit_once('.').map_or("", |(_, end)| end)
}

/// The build of the dashboard that this server holds.
pub(crate) fn build() -> &'static str {
    &UI.build
}

/// The page at `/`, which loads the other files.
pub(crate) fn index(asked: &HeaderMap) -> Response<Body> {
    UI.index.response(asked)
}

/// A file of this build; nothing for other builds and names.
pub(crate) fn file(build: &str, name: &str, asked: &HeaderMap) -> Option<Response<Body>> {
    let file = UI.files.iter().find(|file| file.name == name && build == UI.build)?;
    let mut response = file.response(asked);
    response.headers_mut().insert(CACHE_CONTROL, IMMUTABLE);
    Some(response)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::io::Read;

    use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING};

    use super::*;

    fn accepting(value: &'static str) -> HeaderMap {
        [(ACCEPT_ENCODING, HeaderValue::from_static(value))].into_iter().collect()
    }

    #[test]
    fn every_file_of_the_folder_is_embedded_once() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/ui");
        let found: BTreeSet<String> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| name != "index.html")
            .collect();
        let embedded: BTreeSet<String> = FILES.iter().map(|(name, _)| (*name).into()).collect();
        assert_eq!(found, embedded);
        assert_eq!(embedded.len(), FILES.len());
    }

    #[test]
    fn the_shell_names_every_module_of_this_build_and_nothing_is_left_to_fill_in() {
        let index = std::str::from_utf8(&UI.index.plain).unwrap();
        assert!(!index.contains("{build}") && !index.contains("{modules}"));
        for (name, _) in FILES {
            assert!(index.contains(&format!("\"ui/{}/{name}\"", UI.build)), "{name}");
        }
        assert_eq!((UI.build.len(), build()), (12, UI.build.as_str()));
    }

    #[test]
    fn a_file_is_compressed_for_those_who_take_it_and_kept_for_ever() {
        let plain = file(build(), "app.css", &HeaderMap::new()).unwrap();
        assert_eq!(plain.headers().get(CONTENT_ENCODING), None);
        assert_eq!(plain.headers().get(CACHE_CONTROL), Some(&IMMUTABLE));
        for (value, zipped) in
            [("gzip, br", true), ("br;q=1, GZIP;q=0.5", true), ("gzip;q=0", false), ("br", false)]
        {
            let response = file(build(), "app.css", &accepting(value)).unwrap();
            assert_eq!(response.headers().contains_key(CONTENT_ENCODING), zipped, "{value}");
        }
        let mut text = Vec::new();
        let css = UI.files.iter().find(|file| file.name == "app.css").unwrap();
        flate2::read::GzDecoder::new(css.gzip.as_ref()).read_to_end(&mut text).unwrap();
        assert_eq!(text, css.plain);
    }

    #[test]
    fn other_builds_and_names_have_no_file() {
        let none = HeaderMap::new();
        for (build, name) in [("000000000000", "app.js"), (build(), "none.js"), (build(), "")] {
            assert!(file(build, name, &none).is_none(), "{build} {name}");
        }
    }
}
