//! Makes the recordings of hand-made frames in `tests/replay`.

use std::path::Path;

fn main() -> std::io::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("replay");
    for recording in weft_tests::recordings::ALL {
        recording.make(&root)?;
    }
    Ok(())
}
