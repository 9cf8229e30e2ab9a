//! Finds the files that ship with the programs: scenarios, recipes, conformance scripts, the
//! switch's compiled program.
//!
//! Documents and `--help` name them by their paths in the repository. A package has the same tree
//! in `share/weft` (`testbed/deploy/install.sh` lists what it has), so that a path means the same
//! file in both, and a command runs as it is written wherever it is typed.

use std::path::{Path, PathBuf};
use std::{env, iter};

/// The path as it is if something is there. Else what has this path in the repository around the
/// working folder, in the package that this program belongs to, or in the repository around the
/// program; else the path as it is, for an error that names it.
#[must_use]
pub fn find(path: impl AsRef<Path>) -> PathBuf {
    let path = path.as_ref();
    if path.exists() {
        return path.to_owned();
    }
    let (here, program) = (env::current_dir(), env::current_exe());
    let found = trees(here.as_deref().ok(), program.as_deref().ok())
        .map(|tree| tree.join(path))
        .find(|path| path.exists());
    found.unwrap_or_else(|| path.to_owned())
}

/// The trees that may have a path, nearest first.
fn trees(here: Option<&Path>, program: Option<&Path>) -> impl Iterator<Item = PathBuf> {
    let repository = |place: &Path| {
        let is_root = |folder: &&Path| folder.join(SCENARIOS).is_dir();
        place.ancestors().find(is_root).map(Path::to_owned)
    };
    let package = |program: &Path| Some(program.parent()?.parent()?.join("share/weft"));
    iter::empty()
        .chain(here.and_then(repository))
        .chain(program.and_then(package))
        .chain(program.and_then(repository))
}

/// A folder that every tree has.
const SCENARIOS: &str = "testbed/scenarios";

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_path_is_looked_for_around_the_working_folder_and_beside_the_program() {
        let folder = env::temp_dir().join(format!("weft-shipped-{}", std::process::id()));
        let [repository, package] = ["repository", "usr/share/weft"].map(|name| folder.join(name));
        for tree in [&repository, &package] {
            fs::create_dir_all(tree.join(SCENARIOS)).unwrap();
        }
        let [inside, built] = ["docs", "target/debug/weft"].map(|name| repository.join(name));
        let installed = folder.join("usr/bin/weft");
        let found = |here: &Path, program: &Path| -> Vec<_> {
            trees(Some(here), Some(program)).filter(|tree| tree.join(SCENARIOS).is_dir()).collect()
        };
        assert_eq!(found(&inside, &installed), [repository.clone(), package.clone()]);
        assert_eq!(found(Path::new("/"), &installed), [package]);
        assert_eq!(found(Path::new("/"), &built), [repository]);
        assert!(found(Path::new("/"), Path::new("/usr/bin/weft-of-no-package")).is_empty());
        fs::remove_dir_all(folder).unwrap();
        assert_eq!(find("no such file"), Path::new("no such file"));
    }
}
