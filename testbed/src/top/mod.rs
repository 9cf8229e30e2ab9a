//! `weft top`: what a controller's Status says, as a screen, a text or JSON. Read-only.
//!
//! | file | does or decides |
//! | --- | --- |
//! | `view` | what is shown, from one or two readings (pure) |
//! | `screen` | the view as a screen (pure: into a buffer) |
//! | `words` | the view as text (pure) |

mod screen;
mod view;
mod words;

pub use screen::draw;
pub use view::{
    BandLine, DropLine, GroupLine, JobLine, LinkLine, NodeLine, QueueLine, ReduceLine,
    StragglerLine, View, state_word,
};
pub use words::text;
