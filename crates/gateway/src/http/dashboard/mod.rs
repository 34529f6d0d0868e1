//! The dashboard: a page and its modules, embedded in the binary. The files are code and hold no data, so they need no
//! token; what the page shows it asks for with the token of its user.
//!
//! | module | holds |
//! | --- | --- |
//! | `assets` | the embedded files |

mod assets;

use std::io::Write;
use std::sync::LazyLock;

use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;

use self::assets::{Asset, FILES};
use super::etag;
use super::operation::Media;
use super::reply;

/// The file that a visit of `/` shows.
pub(super) const PAGE: &str = "index.html";
/// The path of the page in the table of operations.
pub(super) const PATH: &str = "/dashboard";

/// What the page may do. It loads code of this server only, runs no text as code, and is shown in no frame.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; \
                      trusted-types 'none'";
const OPENER_POLICY: HeaderName = HeaderName::from_static("cross-origin-opener-policy");

/// The embedded files, compressed once.
static PACKED: LazyLock<Vec<PackedAsset>> = LazyLock::new(|| FILES.iter().map(PackedAsset::new).collect());

/// An embedded file, as it is and compressed, each with its entity tag.
struct PackedAsset {
    path: &'static str,
    media: Media,
    plain: (Bytes, String),
    gzip: (Bytes, String),
}

impl PackedAsset {
    fn new(asset: &Asset) -> Self {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        // Writing to memory does not fail; a file that is not compressed is served as it is.
        let packed = encoder.write_all(asset.bytes).and_then(|()| encoder.finish());
        let gzip = packed.map_or(Bytes::from_static(asset.bytes), Bytes::from);
        let tagged = |bytes: Bytes| {
            let tag = etag::of(&bytes);
            (bytes, tag)
        };
        Self {
            path: asset.path,
            media: media_of(asset.path),
            plain: tagged(Bytes::from_static(asset.bytes)),
            gzip: tagged(gzip),
        }
    }
}

fn media_of(path: &str) -> Media {
    match path.rsplit('.').next() {
        Some("html") => Media::Html,
        Some("css") => Media::Css,
        Some("svg") => Media::Svg,
        _ => Media::JavaScript,
    }
}

/// Whether a request is a visit of the page: a browser that wants to show what `/` has.
pub(super) fn is_visit(method: &Method, path: &str, headers: &HeaderMap) -> bool {
    let is_page = path == PATH || (path == "/" && accepts_html(headers));
    is_page && matches!(*method, Method::GET | Method::HEAD)
}

/// Whether a browser opens the page in a tab of its own, from whatever page the user comes.
pub(super) fn is_navigation(headers: &HeaderMap) -> bool {
    let says = |name: &str, word: &[u8]| headers.get(name).is_some_and(|value| value.as_bytes() == word);
    says("sec-fetch-mode", b"navigate") && says("sec-fetch-dest", b"document")
}

/// Whether `accept` names HTML. `*/*`, which `curl` sends, does not.
fn accepts_html(headers: &HeaderMap) -> bool {
    let values = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|part| {
        let (media, weight) = part.split_once(';').unwrap_or((part, ""));
        media.trim().eq_ignore_ascii_case("text/html")
            && !matches!(weight.trim(), "q=0" | "q=0.0" | "q=0.00" | "q=0.000")
    })
}

/// The answer with an embedded file; `None` if there is no such file.
pub(super) fn serve<'a>(
    path: &str,
    accepts_gzip: bool,
    mut known: impl Iterator<Item = &'a str>,
) -> Option<Response> {
    let packed = PACKED.iter().find(|packed| packed.path == path)?;
    let (bytes, tag) = if accepts_gzip { &packed.gzip } else { &packed.plain };
    let mut response = match etag::matches(&mut known, tag) {
        true => StatusCode::NOT_MODIFIED.into_response(),
        false => reply::with(packed.media, bytes.clone()),
    };
    let is_fresh = response.status() == StatusCode::NOT_MODIFIED;
    let headers = response.headers_mut();
    if let Ok(tag) = HeaderValue::from_str(tag) {
        headers.insert(header::ETAG, tag);
    }
    // A new release changes the files under the same names, so a browser asks each time whether they are current.
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(header::VARY, HeaderValue::from_static("Accept, Accept-Encoding"));
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(OPENER_POLICY, HeaderValue::from_static("same-origin"));
    if accepts_gzip && !is_fresh {
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    Some(response)
}
