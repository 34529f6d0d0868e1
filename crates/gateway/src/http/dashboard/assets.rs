//! The files of the dashboard, in the order of their paths. Adding a file means adding its line here; a test compares the
//! list with the folder.

/// An embedded file.
pub(super) struct Asset {
    /// The path below `/dashboard/`.
    pub(super) path: &'static str,
    pub(super) bytes: &'static [u8],
}

/// A file of this crate's folder `dashboard`.
macro_rules! own {
    ($path:literal) => {
        Asset { path: $path, bytes: include_bytes!(concat!("../../../dashboard/", $path)) }
    };
}

/// A module of the TypeScript client, which browsers load as it is.
macro_rules! client {
    ($name:literal) => {
        Asset {
            path: concat!("src/", $name),
            bytes: include_bytes!(concat!("../../../../../clients/typescript/src/", $name)),
        }
    };
}

/// Every embedded file.
pub(super) const FILES: &[Asset] = &[
    own!("icon.svg"),
    own!("index.html"),
    own!("lib/client.js"),
    own!("lib/copies.js"),
    own!("lib/dom.js"),
    own!("lib/events.js"),
    own!("lib/feed.js"),
    own!("lib/filter.js"),
    own!("lib/format.js"),
    own!("lib/json_text.js"),
    own!("lib/letters.js"),
    own!("lib/metrics_text.js"),
    own!("lib/route.js"),
    own!("lib/sampler.js"),
    own!("lib/schema_words.js"),
    own!("lib/scopes.js"),
    own!("lib/session.js"),
    own!("lib/settings.js"),
    own!("lib/since.js"),
    own!("lib/view.js"),
    own!("lib/words.js"),
    own!("main.js"),
    own!("parts/chart.js"),
    own!("parts/event_detail.js"),
    own!("parts/json.js"),
    own!("parts/notice.js"),
    own!("parts/rows.js"),
    own!("parts/slider.js"),
    own!("parts/tabs.js"),
    own!("style.css"),
    own!("views/admin.js"),
    own!("views/collection.js"),
    own!("views/dead_letters.js"),
    own!("views/document.js"),
    own!("views/group.js"),
    own!("views/group_list.js"),
    own!("views/groups.js"),
    own!("views/letter.js"),
    own!("views/live_tail.js"),
    own!("views/login.js"),
    own!("views/messages.js"),
    own!("views/overview.js"),
    own!("views/publish.js"),
    own!("views/schema.js"),
    own!("views/schemas.js"),
    own!("views/state.js"),
    own!("views/topic.js"),
    own!("views/topic_settings.js"),
    own!("views/topics.js"),
    own!("views/workbench.js"),
    client!("address.js"),
    client!("admin.js"),
    client!("backoff.js"),
    client!("connection.js"),
    client!("errors.js"),
    client!("frames.js"),
    client!("http.js"),
    client!("keepalive.js"),
    client!("reader.js"),
    client!("socket.js"),
    client!("state.js"),
    client!("token.js"),
    client!("types.js"),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;

    fn text(asset: &Asset) -> &str {
        str::from_utf8(asset.bytes).unwrap()
    }

    fn files(folder: &Path, prefix: &str) -> Vec<String> {
        let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
        let names =
            entries.map(|entry| (entry.path(), format!("{prefix}{}", entry.file_name().to_str().unwrap())));
        names
            .flat_map(|(path, name)| match path.is_dir() {
                true => files(&path, &format!("{name}/")),
                false => vec![name],
            })
            .collect()
    }

    #[test]
    fn every_file_of_the_folder_is_embedded() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("dashboard");
        let there: BTreeSet<String> = files(&folder, "").into_iter().collect();
        let embedded = FILES.iter().map(|asset| asset.path.to_owned());
        let embedded: BTreeSet<String> = embedded.filter(|path| !path.starts_with("src/")).collect();
        assert_eq!(embedded, there);
    }

    /// The texts in double quotes that name a module, resolved against the folder of the module that names them.
    fn imports(asset: &Asset) -> Vec<String> {
        let quoted = text(asset).lines().filter(|line| !line.trim_start().starts_with(['*', '/']));
        let quoted = quoted.flat_map(|line| line.split('"').skip(1).step_by(2));
        let folder = asset.path.rsplit_once('/').map_or("", |(folder, _)| folder);
        let modules = quoted.filter(|text| text.ends_with(".js") && text.starts_with('.'));
        modules
            .map(|text| match text.strip_prefix("../") {
                Some(path) => path.to_owned(),
                None => {
                    format!("{folder}/{}", text.trim_start_matches("./")).trim_start_matches('/').to_owned()
                }
            })
            .collect()
    }

    #[test]
    fn every_module_that_is_imported_is_embedded() {
        let paths: BTreeSet<&str> = FILES.iter().map(|asset| asset.path).collect();
        let mut imported = BTreeSet::new();
        for asset in FILES.iter().filter(|asset| asset.path.ends_with(".js")) {
            for module in imports(asset) {
                assert!(paths.contains(module.as_str()), "{} imports {module}", asset.path);
                imported.insert(module);
            }
        }
        let page = FILES.iter().find(|asset| asset.path == "index.html").map(text).unwrap();
        for asset in FILES.iter().filter(|asset| asset.path.ends_with(".js")) {
            // Types are for the check only; the page begins with `main.js`.
            let is_needed =
                imported.contains(asset.path) || asset.path == "main.js" || asset.path == "src/types.js";
            assert!(is_needed, "nothing imports {}", asset.path);
        }
        for path in page.split('"').filter_map(|text| text.strip_prefix("dashboard/")) {
            assert!(paths.contains(path), "the page names {path}");
        }
    }

    #[test]
    fn no_file_makes_markup_or_code_from_text() {
        let banned = [
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            "new Function",
            "srcdoc",
        ];
        for asset in FILES {
            for word in banned {
                assert!(!text(asset).contains(word), "{} has {word}", asset.path);
            }
        }
    }
}
