//! Rules about a member's `Cargo.toml`.

/// The crate that may have unsafe code, each piece expected by name; it cannot inherit the lints that forbid
/// it.
const UNSAFE_CRATE: &str = "name = \"promethean-allocator\"";

/// The faults of the manifest of one crate.
pub(crate) fn findings(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut section = "";
    let mut lints = false;
    for line in text.lines().map(str::trim) {
        if line.starts_with('[') {
            section = line;
        } else if section == "[lints]" {
            lints |= line == "workspace = true";
        } else if section == "[lints.rust]" && text.contains(UNSAFE_CRATE) {
            lints |= line == "unsafe_code = \"deny\"";
        } else if is_dependencies(section) && names_version(line) {
            found.push(format!("`{line}`: versions live in [workspace.dependencies]"));
        }
    }
    if !lints {
        found.push("misses `[lints] workspace = true`".to_owned());
    }
    found
}

/// The faults of the workspace's manifest: a release without `strip` is ten times as large.
pub(crate) fn workspace_findings(text: &str) -> Vec<String> {
    let release = text.split_once("[profile.release]").map_or("", |(_, release)| release);
    let release = release.split("\n[").next().unwrap_or_default();
    match release.lines().any(|line| line.starts_with("strip = \"symbols\"")) {
        true => Vec::new(),
        false => vec!["[profile.release] misses `strip = \"symbols\"`".to_owned()],
    }
}

fn is_dependencies(section: &str) -> bool {
    section.trim_matches(['[', ']']).ends_with("dependencies")
}

fn names_version(line: &str) -> bool {
    !line.is_empty() && !line.starts_with('#') && !line.contains("workspace = true")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lints_are_inherited() {
        assert!(findings("[package]\nname = \"a\"\n\n[lints]\nworkspace = true\n").is_empty());
        assert_eq!(findings("[package]\nname = \"a\"\n").len(), 1);
        let denied = "[lints.rust]\nunsafe_code = \"deny\"\n";
        assert_eq!(findings(&format!("[package]\nname = \"a\"\n{denied}")).len(), 1);
        assert!(findings(&format!("[package]\n{UNSAFE_CRATE}\n{denied}")).is_empty());
    }

    #[test]
    fn a_release_is_stripped() {
        let stripped = "[profile.release]\nlto = \"thin\"\nstrip = \"symbols\" # small\n\n[profile.dev]\n";
        assert!(workspace_findings(stripped).is_empty());
        let elsewhere = "[profile.release]\nlto = \"thin\"\n\n[profile.bench]\nstrip = \"symbols\"\n";
        assert_eq!(workspace_findings(elsewhere).len(), 1);
        assert_eq!(workspace_findings("[workspace]\n").len(), 1);
    }

    #[test]
    fn versions_are_inherited() {
        let lints = "[lints]\nworkspace = true\n";
        assert!(findings(&format!("{lints}[dependencies]\nserde = {{ workspace = true }}\n")).is_empty());
        assert_eq!(findings(&format!("{lints}[dev-dependencies]\nserde = \"1\"\n")).len(), 1);
        assert_eq!(findings(&format!("{lints}[target.'cfg(unix)'.dependencies]\nlibc = \"0.2\"\n")).len(), 1);
    }
}
