//! Writes the golden vectors into `proto/vectors`.

use std::fs;

use weft_tests::vectors;

fn main() -> std::io::Result<()> {
    let folder = vectors::folder();
    fs::create_dir_all(&folder)?;
    for (name, content) in vectors::files() {
        fs::write(folder.join(name), content)?;
    }
    Ok(())
}
