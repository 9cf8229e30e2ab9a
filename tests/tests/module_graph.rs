//! Modules beside each other see each other in one direction only: a newcomer can read them in an
//! order in which each needs only what was read before.
//!
//! Reads the `use` paths, and the paths within expressions, of all modules of the engines' roles
//! and of the controller's engine; tests are left out. What a module imports through another's
//! `pub use` counts as an import from where it is defined.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// A module's path in its crate.
type Module = Vec<String>;
/// Names of modules with one parent, and which of them each sees.
type Graph = BTreeMap<String, BTreeSet<String>>;

/// All modules of a crate, with what they import.
struct Crate {
    imports: BTreeMap<Module, Vec<Import>>,
}

struct Import {
    path: Module,
    /// The name under which it can be imported from here; none for a path in an expression.
    name: Option<String>,
}

fn sources(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder of this repository") {
        let path = entry.expect("a readable folder").path();
        let stem = path.file_stem().expect("a name").to_string_lossy().into_owned();
        if stem == "tests" || stem.ends_with("_tests") {
        } else if path.is_dir() {
            sources(&path, files);
        } else if path.extension().is_some_and(|end| end == "rs") {
            files.push(path);
        }
    }
}

/// The trees of all `use`, without spaces and with `=` for `as`, and the rest of the code.
fn statements(text: &str) -> (Vec<String>, String) {
    let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let lines = text.lines().map(|line| line.split("//").next().unwrap_or_default());
    let code: String = lines.flat_map(|line| [line, "\n"]).collect();
    let (mut used, mut rest) = (Vec::new(), String::new());
    let mut lines = code.lines();
    while let Some(line) = lines.next() {
        let line = line.trim_start();
        let bare = line.strip_prefix("pub").map_or(line, |line| {
            line.strip_prefix('(')
                .and_then(|line| line.split_once(')'))
                .map_or(line, |(_, line)| line)
        });
        match bare.trim_start().strip_prefix("use ") {
            None => rest.extend([line, "\n"]),
            Some(begin) => {
                let mut tree = begin.to_owned();
                while !tree.contains(';') {
                    tree.push_str(lines.next().expect("rustfmt has seen it"));
                }
                let tree = tree.trim_end().trim_end_matches(';').replace(" as ", "=");
                used.push(tree.split_whitespace().collect());
            }
        }
    }
    (used, rest)
}

/// `a::{b, c::{d=e}}` as `a::b` and `a::c::d=e`.
fn expand(tree: &str) -> Vec<String> {
    let Some((before, rest)) = tree.split_once('{') else { return vec![tree.to_owned()] };
    let inner = rest.strip_suffix('}').expect("rustfmt has seen it");
    let (mut parts, mut depth) = (vec![String::new()], 0);
    for letter in inner.chars() {
        depth += i32::from(letter == '{') - i32::from(letter == '}');
        match letter {
            ',' if depth == 0 => parts.push(String::new()),
            _ => parts.last_mut().expect("one at least").push(letter),
        }
    }
    let parts = parts.iter().filter(|part| !part.is_empty());
    parts.flat_map(|part| expand(&format!("{before}{part}"))).collect()
}

impl Crate {
    fn read(source: &Path) -> Self {
        let mut files = Vec::new();
        sources(source, &mut files);
        let texts = files.iter().map(|file| {
            let path = file.strip_prefix(source).expect("found there").with_extension("");
            let mut module: Module =
                path.iter().map(|part| part.to_string_lossy().into_owned()).collect();
            module.pop_if(|last| ["lib", "mod"].contains(&last.as_str()));
            (module, std::fs::read_to_string(file).expect("text"))
        });
        let texts: BTreeMap<Module, String> = texts.collect();
        let imports = texts.iter().map(|(module, text)| {
            let (used, rest) = statements(text);
            let used = used.iter().flat_map(|tree| expand(tree)).filter_map(|path| {
                let (path, name) = match path.split_once('=') {
                    Some((path, name)) => (path, name),
                    None => (&path[..], path.rsplit("::").next().unwrap_or_default()),
                };
                let name = Some(name.to_owned());
                Some(Import { path: absolute(&texts, module, path)?, name })
            });
            let words =
                rest.split(|letter: char| !letter.is_alphanumeric() && !"_:".contains(letter));
            let named = words.filter(|word| word.contains("::")).filter_map(|path| {
                let is_ours =
                    ["crate::", "super::", "self::"].iter().any(|at| path.starts_with(at));
                let path =
                    is_ours.then(|| absolute(&texts, module, path.trim_end_matches(':')))??;
                Some(Import { path, name: None })
            });
            (module.clone(), used.chain(named).collect())
        });
        Self { imports: imports.collect() }
    }

    /// The module that a path leads to, behind all `pub use`.
    fn resolve(&self, path: &[String]) -> Module {
        let is_module = |len: &usize| self.imports.contains_key(&path[..*len]);
        let len = (0..=path.len()).take_while(is_module).last().unwrap_or(0);
        let module = &path[..len];
        let shared = path.get(len).and_then(|name| {
            let imports = self.imports.get(module)?;
            imports.iter().find(|import| import.name.as_ref() == Some(name))
        });
        match shared {
            Some(import) if import.path != path => self.resolve(&import.path),
            _ => module.to_vec(),
        }
    }

    /// Which modules see which, by their parent.
    fn graphs(&self, scope: &[&str]) -> BTreeMap<Module, Graph> {
        let mut graphs: BTreeMap<Module, Graph> = BTreeMap::new();
        for (module, imports) in &self.imports {
            for import in imports {
                let seen = self.resolve(&import.path);
                let common = module.iter().zip(&seen).take_while(|(a, b)| a == b).count();
                if let (Some(from), Some(to)) = (module.get(common), seen.get(common))
                    && scope.iter().eq(module[..common].iter().take(scope.len()))
                {
                    let graph = graphs.entry(module[..common].to_vec()).or_default();
                    graph.entry(from.clone()).or_default().insert(to.clone());
                }
            }
        }
        graphs
    }
}

/// The path from the root of the crate; none if it begins in another crate.
fn absolute(texts: &BTreeMap<Module, String>, module: &[String], path: &str) -> Option<Module> {
    let mut names: Module = path.split("::").map(str::to_owned).collect();
    let mut base = match names[0].as_str() {
        "crate" => Module::new(),
        "self" | "super" => module.to_vec(),
        child if texts.contains_key(&[module, &[child.to_owned()]].concat()) => {
            return Some([module, &names].concat());
        }
        _ => return None,
    };
    while names.first().is_some_and(|name| name == "super") {
        base.pop();
        names.remove(0);
    }
    names.retain(|name| name != "crate" && name != "self");
    base.extend(names);
    Some(base)
}

/// Modules that see themselves through others.
fn circle(graph: &Graph) -> BTreeSet<&String> {
    let sees_itself = |module: &&String| {
        let (mut seen, mut next) = (BTreeSet::new(), vec![*module]);
        while let Some(module) = next.pop() {
            next.extend(graph.get(module).into_iter().flatten().filter(|to| seen.insert(*to)));
        }
        seen.contains(module)
    };
    graph.keys().filter(sees_itself).collect()
}

#[test]
fn modules_beside_each_other_see_each_other_in_one_direction() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut circles = Vec::new();
    for (source, scope) in
        [("dataplane/engine/src", &["role"][..]), ("controller/engine/src", &[][..])]
    {
        let graphs = Crate::read(&root.join(source)).graphs(scope);
        assert!(graphs.contains_key(&[][..]) == scope.is_empty(), "the scope is what was asked");
        assert!(graphs.values().any(|graph| graph.len() > 5), "{source}: modules were found");
        for (parent, graph) in &graphs {
            let modules = circle(graph);
            if !modules.is_empty() {
                circles.push(format!("{source}/{}: {modules:?}", parent.join("/")));
            }
        }
    }
    assert!(circles.is_empty(), "modules that import each other: {circles:?}");
}
