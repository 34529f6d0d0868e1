//! Paths of a source that begin at the crate root, and the top modules that their names come from.

use std::collections::{BTreeMap, BTreeSet};

use super::tokens::{Token, strip};

/// The top module that each name of the crate root comes from.
#[derive(Debug, Default)]
pub(super) struct Names {
    homes: BTreeMap<String, String>,
    /// First segment and name of each `use` in the crate root.
    root_uses: Vec<(String, String)>,
}

impl Names {
    /// Adds a module of the crate; the root (an empty path) adds its inline modules and re-exports.
    pub(super) fn add_module(&mut self, module: &[&str], tokens: &[Token<'_>]) {
        match module.first() {
            Some(top) => drop(self.homes.insert((*top).to_owned(), (*top).to_owned())),
            None => self.add_root(tokens),
        }
    }

    fn add_root(&mut self, tokens: &[Token<'_>]) {
        for (at, token) in tokens.iter().enumerate() {
            let after = tokens.get(at + 1..).unwrap_or_default();
            match (token.text, after) {
                ("mod", [name, open, ..]) if open.text == "{" => {
                    self.homes.insert(name.text.to_owned(), name.text.to_owned());
                }
                ("use", tree) => {
                    let tree = strip(tree, &["crate", "::"]).or(strip(tree, &["self", "::"])).unwrap_or(tree);
                    let first = tree.first().map_or("", |token| token.text);
                    let end = tree.iter().position(|token| token.text == ";").unwrap_or(tree.len());
                    let names = leaves(tree.get(..end).unwrap_or_default());
                    self.root_uses.extend(names.into_iter().map(|name| (first.to_owned(), name.to_owned())));
                }
                _ => {}
            }
        }
    }

    pub(super) fn modules(&self) -> BTreeSet<String> {
        self.homes.keys().cloned().collect()
    }

    /// The top module that `name` in the crate root is or comes from.
    pub(super) fn home(&self, name: &str) -> Option<String> {
        let reexport = || {
            let (module, _) = self.root_uses.iter().find(|(_, used)| used == name && name != "*")?;
            self.homes.get(module)
        };
        self.homes.get(name).or_else(reexport).cloned()
    }

    /// Re-exports whose names cannot be known.
    pub(super) fn unclear(&self) -> Vec<String> {
        let globs =
            self.root_uses.iter().filter(|(module, name)| name == "*" && self.homes.contains_key(module));
        globs.map(|(module, _)| format!("the crate root re-exports {module}::*; name the items")).collect()
    }
}

/// The names that a `use` tree brings into scope: last segments and aliases, `*` for a glob.
fn leaves<'a>(tree: &[Token<'a>]) -> Vec<&'a str> {
    let mut found = Vec::new();
    for (at, token) in tree.iter().enumerate() {
        let next = tree.get(at + 1).map_or(",", |token| token.text);
        let name = if token.text == "self" { before_group(tree, at) } else { Some(token.text) };
        if matches!(next, "," | "}") && !matches!(token.text, "," | "}" | "{") {
            found.extend(name);
        }
    }
    found
}

/// The segment that `self` stands for in `name::{self, ...}`.
fn before_group<'a>(tree: &[Token<'a>], at: usize) -> Option<&'a str> {
    let open = tree.get(..at)?.iter().rposition(|token| token.text == "{")?;
    Some(tree.get(open.checked_sub(2)?)?.text)
}

/// The first segments of all paths from the crate root, each with the top module whose code names it.
pub(super) fn from_root<'a>(module: &[&str], tokens: &[Token<'a>]) -> Vec<(String, Token<'a>)> {
    let mut found = Vec::new();
    let mut inline: Vec<(&str, usize)> = Vec::new();
    let mut depth = 0;
    for (at, token) in tokens.iter().enumerate() {
        let rest = tokens.get(at..).unwrap_or_default();
        match token.text {
            "{" => depth += 1,
            "}" => {
                depth = depth.max(1) - 1;
                inline.retain(|(_, opened)| *opened < depth);
            }
            "mod" if rest.get(2).is_some_and(|open| open.text == "{") => {
                inline.push((rest.get(1).map_or("", |name| name.text), depth));
            }
            _ => {}
        }
        let continues = at > 0 && tokens.get(at - 1).is_some_and(|previous| previous.text == "::");
        let levels = module.len() + inline.len();
        let Some(top) = module.first().copied().or(inline.first().map(|(name, _)| *name)) else { continue };
        if let Some(tree) = (!continues).then(|| root_tree(rest, levels)).flatten() {
            found.extend(first_segments(tree).into_iter().map(|segment| (top.to_owned(), segment)));
        }
    }
    found
}

/// The path after `crate::`, or after as many `super::` as lead from a module `levels` deep to the crate
/// root.
fn root_tree<'t, 'a>(tokens: &'t [Token<'a>], levels: usize) -> Option<&'t [Token<'a>]> {
    if let Some(tree) = strip(tokens, &["crate", "::"]) {
        return Some(tree);
    }
    let mut tree = strip(tokens, &["self", "::"]).unwrap_or(tokens);
    let mut climbed = 0;
    while let Some(above) = strip(tree, &["super", "::"]) {
        tree = above;
        climbed += 1;
    }
    (climbed > 0 && climbed == levels).then_some(tree)
}

/// The first segment of a path, or of each member of a group `{a::B, c}`.
fn first_segments<'a>(tree: &[Token<'a>]) -> Vec<Token<'a>> {
    let Some(group) = strip(tree, &["{"]) else { return tree.first().copied().into_iter().collect() };
    let mut found = Vec::new();
    let (mut depth, mut starts) = (1, true);
    for token in group {
        if starts && token.text != "}" {
            found.push(*token);
        }
        match token.text {
            "{" => depth += 1,
            "}" => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            break;
        }
        starts = depth == 1 && token.text == ",";
    }
    found
}
