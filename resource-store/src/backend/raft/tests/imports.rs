//! The rooms of the backend import in one direction, and no two files each other.
#![expect(
    clippy::string_slice,
    clippy::format_collect,
    reason = "it reads sources, whose marks are ASCII"
)]

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

/// From the bottom to the top: each may import those before it.
const ROOMS: [&str; 8] =
    ["types", "config", "log", "state_machine", "network", "reads", "membership", "node"];

/// Files by the path of their module, from `raft` on; the top is empty.
fn sources() -> BTreeMap<Vec<String>, String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/backend/raft");
    let mut found = BTreeMap::from([(
        Vec::new(),
        std::fs::read_to_string(folder.with_extension("rs")).unwrap(),
    )]);
    let mut folders = vec![(folder, Vec::new())];
    while let Some((folder, module)) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let mut module = module.clone();
            module.push(path.file_stem().unwrap().to_str().unwrap().to_owned());
            if module == ["tests"] {
                continue;
            }
            if path.is_dir() {
                folders.push((path, module));
            } else {
                found.insert(module, std::fs::read_to_string(path).unwrap());
            }
        }
    }
    found
}

/// The paths of a use tree, such as `a::{b, c::d}`.
fn expand(tree: &str) -> Vec<String> {
    let tree = tree.trim();
    let Some(open) = tree.find('{') else { return vec![tree.to_owned()] };
    let (prefix, inner) = (&tree[..open], &tree[open + 1..tree.len() - 1]);
    let (mut parts, mut depth, mut start) = (Vec::new(), 0, 0);
    for (at, letter) in inner.char_indices() {
        match letter {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&inner[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&inner[start..]);
    let parts = parts.into_iter().filter(|part| !part.trim().is_empty());
    parts.flat_map(expand).map(|path| format!("{prefix}{path}")).collect()
}

/// What a file names of this backend: imports, and paths from the crate on.
fn paths(source: &str) -> Vec<String> {
    let code = source.split("#[cfg(test)]\nmod tests {").next().unwrap();
    let code: String = code
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .map(|line| format!("{line}\n"))
        .collect();
    let mut found = Vec::new();
    for statement in code.split(';') {
        let at = statement.rfind("use ").filter(|at| {
            let before = statement[..*at].trim_end();
            before.is_empty() || before.ends_with([']', '}', ')', 'b']) || before.ends_with("pub")
        });
        if let Some(at) = at {
            found.extend(expand(&statement[at + "use ".len()..]));
        }
    }
    let inline = code.split("crate::backend::raft::").skip(1).map(|rest| {
        let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_' && c != ':');
        format!("crate::backend::raft::{}", &rest[..end.unwrap_or(rest.len())])
    });
    found.extend(inline);
    found
}

/// The module within `raft` that a path names, as seen from a module.
fn target(path: &str, from: &[String], modules: &BTreeSet<Vec<String>>) -> Option<Vec<String>> {
    let mut segments: Vec<_> = path.split("::").map(|segment| segment.trim().to_owned()).collect();
    let mut at = match segments.first()?.as_str() {
        "crate" if path.starts_with("crate::backend::raft::") => {
            segments.drain(..3);
            Vec::new()
        }
        "self" => {
            segments.remove(0);
            from.to_vec()
        }
        "super" => from.to_vec(),
        child if modules.contains(&[from, &[child.to_owned()]].concat()) => from.to_vec(),
        _ => return None,
    };
    for segment in segments {
        match segment.as_str() {
            // Beyond the backend.
            "super" => drop(at.pop()?),
            "self" => {}
            name => {
                let below = [at.as_slice(), &[name.to_owned()]].concat();
                if !modules.contains(&below) {
                    break;
                }
                at = below;
            }
        }
    }
    Some(at)
}

fn imports(
    sources: &BTreeMap<Vec<String>, String>,
) -> BTreeMap<Vec<String>, BTreeSet<Vec<String>>> {
    let modules: BTreeSet<_> = sources.keys().cloned().collect();
    let of = |(module, source): (&Vec<String>, &String)| {
        let mut targets: BTreeSet<_> =
            paths(source).iter().filter_map(|path| target(path, module, &modules)).collect();
        targets.remove(module);
        (module.clone(), targets)
    };
    sources.iter().map(of).collect()
}

#[test]
fn rooms_import_in_one_direction() {
    let imports = imports(&sources());
    let floor = |room: &String| ROOMS.iter().position(|known| known == room);
    let mut crossings = 0;
    for (module, targets) in &imports {
        let Some(room) = module.first() else { continue };
        let floor_of_module = floor(room).unwrap_or_else(|| panic!("{room} is no known room"));
        for target in targets {
            let target_room =
                target.first().unwrap_or_else(|| panic!("{module:?} imports the top"));
            assert!(floor(target_room) <= Some(floor_of_module), "{module:?} imports {target:?}");
            crossings += usize::from(target_room != room);
        }
    }
    assert!(crossings > 30, "only {crossings} imports between rooms were found");
}

/// The rows of the table in the head of the backend: room, and by whom it is called.
fn drawn(top: &str) -> BTreeMap<String, String> {
    let rows = top.lines().filter_map(|line| line.strip_prefix("//! | `"));
    rows.map(|row| {
        let (room, rest) = row.split_once('`').unwrap();
        let callers = rest.trim_end_matches(" |").rsplit("| ").next().unwrap();
        (room.to_owned(), callers.to_owned())
    })
    .collect()
}

#[test]
fn the_table_of_rooms_names_who_calls_whom() {
    let sources = sources();
    let drawn = drawn(&sources[&Vec::new()]);
    let mut callers: BTreeMap<&String, BTreeSet<&String>> = BTreeMap::new();
    let imports = imports(&sources);
    for (module, targets) in &imports {
        let Some(room) = module.first() else { continue };
        for target in targets.iter().filter_map(|target| target.first()) {
            callers.entry(target).or_default().extend((target != room).then_some(room));
        }
    }
    for room in ROOMS {
        let found = callers.get(&room.to_owned()).cloned().unwrap_or_default();
        let named: Vec<_> =
            ROOMS.into_iter().filter(|other| found.contains(&(*other).to_owned())).collect();
        match drawn[room].as_str() {
            "all" => assert!(named.len() >= 5, "{room} is called by {named:?}"),
            "`RaftBackend`" => assert_eq!(named, Vec::<&str>::new(), "{room}"),
            callers => assert_eq!(callers.replace('`', ""), named.join(", "), "{room}"),
        }
    }
}

/// A file that nothing names is one whose owner nobody knows.
#[test]
fn the_head_of_each_room_names_its_files() {
    let sources = sources();
    let is_test = |module: &Vec<String>| module.contains(&"tests".to_owned());
    for (module, _) in sources.iter().filter(|(module, _)| module.len() > 1 && !is_test(module)) {
        let (name, room) = module.split_last().unwrap();
        let head: String =
            sources[room].lines().take_while(|line| line.starts_with("//!")).collect();
        assert!(head.contains(&format!("`{name}`")), "{room:?} does not say what {name} is");
    }
}

#[test]
fn no_files_import_each_other_in_a_circle() {
    let mut imports = imports(&sources());
    // Takes away what imports nothing that is left, until nothing is.
    while let Some(leaf) = imports.iter().find(|(_, targets)| targets.is_empty()) {
        let leaf = leaf.0.clone();
        imports.remove(&leaf);
        for targets in imports.values_mut() {
            targets.remove(&leaf);
        }
    }
    assert!(imports.is_empty(), "in a circle, or above one: {imports:#?}");
}

#[test]
fn imports_are_found() {
    let modules: BTreeSet<_> = [vec![], vec!["log"], vec!["log", "file"], vec!["node"]]
        .map(|module| module.into_iter().map(str::to_owned).collect::<Vec<_>>())
        .into();
    let source = "//! use super::node;\nmod file;\npub(crate) use self::file::File;\nuse super::{\n    \
                  node::{self, Node},\n    x::Y,\n};\nuse crate::{backend::{raft::log::Log}, pb};\n\
                  fn f() { crate::backend::raft::node::f(); }\n";
    let from = ["log".to_owned()];
    let found: BTreeSet<_> =
        paths(source).iter().filter_map(|path| target(path, &from, &modules)).collect();
    let expected = [vec![], vec!["log"], vec!["log", "file"], vec!["node"]]
        .map(|module| module.into_iter().map(str::to_owned).collect::<Vec<_>>());
    assert_eq!(found, expected.into());
}
