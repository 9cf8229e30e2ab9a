//! Whether a controller plans the job.

use weft_wire::Nanos;

/// Whether a controller plans the job.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Presence {
    /// The box has a stream to a controller.
    is_attached: bool,
    planned: Planned,
}

#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
enum Planned {
    /// There never was a controller.
    #[default]
    Never,
    /// The controller that is there has spoken of the job.
    Now,
    /// Not since then.
    Until(Nanos),
}

impl Presence {
    /// A controller has attached, or its stream has ended.
    pub(crate) fn note_controller(&mut self, now: Nanos, is_there: bool) {
        self.is_attached = is_there;
        if !is_there && !matches!(self.planned, Planned::Until(_)) {
            self.planned = Planned::Until(now);
        }
    }

    /// A command came. One that is left of a stream that has ended says nothing.
    pub(crate) fn note_command(&mut self) {
        if self.is_attached {
            self.planned = Planned::Now;
        }
    }

    /// True when nobody else gives order numbers, nor will soon.
    pub(super) fn is_over(self, now: Nanos, fallback_ns: u64) -> bool {
        match self.planned {
            Planned::Never => true,
            Planned::Now => false,
            Planned::Until(since) => now.since(since).0 >= fallback_ns,
        }
    }
}
