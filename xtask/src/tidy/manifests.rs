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
    fn versions_are_inherited() {
        let lints = "[lints]\nworkspace = true\n";
        assert!(findings(&format!("{lints}[dependencies]\nserde = {{ workspace = true }}\n")).is_empty());
        assert_eq!(findings(&format!("{lints}[dev-dependencies]\nserde = \"1\"\n")).len(), 1);
        assert_eq!(findings(&format!("{lints}[target.'cfg(unix)'.dependencies]\nlibc = \"0.2\"\n")).len(), 1);
    }
}
