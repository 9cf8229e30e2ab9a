//! Writes the pages of `docs/reference` anew: `cargo run -p weft-tests --example make_reference`.

use std::fs;
use std::path::Path;

use weft_tests::reference::PAGES;

fn main() -> std::io::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for page in PAGES {
        fs::write(root.join("docs/reference").join(page.file), page.render(&root)?)?;
    }
    Ok(())
}
