//! The capture that `[trace]` asks for: opened, and what is said when its disk is full.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use weft_io::Port;
use weft_lane::{Capture, Wrapped};
use weft_process::say;

use crate::error::{NodeError, remedy};
use crate::node::Node;

impl Node<'_> {
    /// Puts `[trace]` and `[faults]` around a port.
    pub(crate) fn wrap<P: Port>(&self, port: P) -> Result<Wrapped<P>, NodeError> {
        let Some(trace) = &self.settings.config.trace else {
            return Ok(self.settings.wrap(port, None).expect("nothing is written"));
        };
        let path = PathBuf::from(trace.pcap.clone());
        let failed = |source| NodeError::Capture { path: path.clone(), source };
        let output = File::create(&path).map_err(failed)?;
        let ended = path.clone();
        let warn = Box::new(move |error: &io::Error, len: u64| end(&ended, error, len));
        let capture = Capture { output, clock_origin: self.clock_origin(), warn };
        self.settings.wrap(port, Some(capture)).map_err(failed)
    }
}

/// Says once that the capture takes no more, and leaves what ends with a whole frame. The node goes
/// on.
fn end(path: &Path, error: &io::Error, len: u64) {
    say!(
        "weft-node: the capture {} ends here ({error}), not the node; for the next one {}, or \
         choose another trace.pcap",
        path.display(),
        remedy(error).unwrap_or("see to that")
    );
    // A pipe or a device has no length.
    let _ = File::options().write(true).open(path).and_then(|file| file.set_len(len));
}
