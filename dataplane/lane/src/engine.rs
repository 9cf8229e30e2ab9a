//! What a lane asks of the engine that it runs, and how each role answers.

use weft_control::{Command, Event, Train};
use weft_engine::role::aggregator::Aggregator;
use weft_engine::role::gather::Gather;
use weft_engine::role::replica::Replica;
use weft_engine::role::server::Server;
use weft_engine::role::switch::Agent;
use weft_engine::role::{LeaseIndex, RunIndex, Taken, Verdict};
use weft_wire::frame::Udp;
use weft_wire::{JobId, Nanos};

/// What a lane asks of the engine that it runs.
pub trait LaneEngine {
    /// True when [`LaneEngine::prefetch`] gains more than it costs. By default false.
    fn has_far_slots(&self) -> bool {
        false
    }

    /// Touches the memory that this frame will need. By default nothing.
    fn prefetch(&mut self, frame: &[u8]) {
        let _ = frame;
    }

    /// Decides the fate of the frame in `buffer[..len]`.
    fn handle_frame(&mut self, now: Nanos, buffer: &mut [u8], len: usize) -> Verdict;

    /// Decides the fate of a frame, or has it wait among those of a run. The port
    /// [recycles](weft_io::Port::recycles) it, for it may become an answer. By default
    /// [`LaneEngine::handle_frame`] is to decide.
    fn take(&mut self, now: Nanos, frame: &[u8]) -> Taken {
        let _ = (now, frame);
        Taken::Else
    }

    /// Sums a windowed lease's run, whose frames these are, in the order that they came in, and
    /// says what to do with the last. By default there are no runs.
    fn sum_run<F: AsRef<[u8]> + AsMut<[u8]>>(
        &mut self,
        run: RunIndex,
        frames: &mut [F],
    ) -> Verdict {
        let _ = (run, frames);
        Verdict::Hold
    }

    /// Sums a whole lease's run, whose frames these are, and makes each an acknowledgement of the
    /// length that it returns. By default there are no runs.
    fn sum_whole_run<F: AsRef<[u8]> + AsMut<[u8]>>(
        &mut self,
        run: RunIndex,
        frames: &mut [F],
    ) -> usize {
        let _ = (run, frames);
        0
    }

    /// A run that waits. By default there is none.
    fn waiting_run(&self) -> Option<RunIndex> {
        None
    }

    /// True while [`LaneEngine::handle_run`] may take something. By default it does not.
    fn takes_joined(&self) -> bool {
        false
    }

    /// Takes datagrams from the front of a run in one piece; returns how many. The next one comes
    /// by [`LaneEngine::handle_frame`]. By default it takes none.
    fn handle_run(
        &mut self,
        now: Nanos,
        udp: &Udp,
        datagrams: &mut [u8],
        datagram_len: usize,
    ) -> usize {
        let _ = (now, udp, datagrams, datagram_len);
        0
    }

    /// Writes the next frame that no incoming frame asked for, and returns its length.
    fn poll_transmit(&mut self, now: Nanos, frame: &mut [u8]) -> Option<usize>;

    /// When [`LaneEngine::poll_transmit`] will have something; [`Nanos::MAX`]: never.
    fn poll_timeout(&self) -> Nanos;

    /// Takes a controller's word. Called between bursts.
    fn handle_command(&mut self, now: Nanos, command: Command);

    /// A controller has attached, or its stream has ended. Called between bursts, when that
    /// changes. By default nobody wants to know.
    fn handle_controller(&mut self, now: Nanos, is_there: bool) {
        let _ = (now, is_there);
    }

    /// The controller has had the box hold all that it is to hold. Called between bursts. By
    /// default nobody wants to know.
    fn handle_settled(&mut self) {}

    /// The frame that is handled next arrived at this time by the port's clock. By default nobody
    /// wants to know.
    fn note_arrival(&mut self, at_ns: u64) {
        let _ = at_ns;
    }

    /// The next train that has arrived. By default there is none.
    fn poll_train(&mut self) -> Option<Train> {
        None
    }

    /// True when what was decided last may belong to a train, of which the network alone may space
    /// the frames. By default there is none.
    fn may_be_in_train(&self) -> bool {
        false
    }

    /// The next thing that the controller should hear of, and the job that it is about.
    fn poll_event(&mut self) -> Option<(JobId, Event)>;

    /// Frames that a [`Verdict::Multicast`] becomes. By default there is none.
    fn fan_out(&self, lease: LeaseIndex) -> usize {
        let _ = lease;
        1
    }

    /// Bytes that [`LaneEngine::readdress`] rewrites.
    fn encap_len(&self, lease: LeaseIndex) -> usize {
        let _ = lease;
        0
    }

    /// Rewrites the headers of a copy of a multicast frame for one member.
    fn readdress(&self, lease: LeaseIndex, member: usize, header: &mut [u8], frame_len: usize) {
        let _ = (lease, member, header, frame_len);
    }

    /// The push jobs whose frames a [`Verdict::Fan`] may be about. By default there are none.
    fn gather(&self) -> Option<&Gather> {
        None
    }
}

impl LaneEngine for Aggregator {
    #[inline]
    fn has_far_slots(&self) -> bool {
        self.has_far_slots()
    }

    #[inline]
    fn prefetch(&mut self, frame: &[u8]) {
        self.prefetch(frame);
    }

    #[inline]
    fn handle_frame(&mut self, now: Nanos, buffer: &mut [u8], len: usize) -> Verdict {
        self.handle_frame(now, buffer, len)
    }

    #[inline]
    fn takes_joined(&self) -> bool {
        self.takes_joined()
    }

    fn handle_run(
        &mut self,
        now: Nanos,
        udp: &Udp,
        datagrams: &mut [u8],
        datagram_len: usize,
    ) -> usize {
        self.handle_run(now, udp, datagrams, datagram_len)
    }

    #[inline(always)]
    fn take(&mut self, now: Nanos, frame: &[u8]) -> Taken {
        self.take(now, frame)
    }

    #[inline(always)]
    fn sum_run<F: AsRef<[u8]> + AsMut<[u8]>>(
        &mut self,
        run: RunIndex,
        frames: &mut [F],
    ) -> Verdict {
        self.sum_run(run, frames)
    }

    #[inline]
    fn sum_whole_run<F: AsRef<[u8]> + AsMut<[u8]>>(
        &mut self,
        run: RunIndex,
        frames: &mut [F],
    ) -> usize {
        self.gather_mut().sum_run(run, frames)
    }

    #[inline(always)]
    fn waiting_run(&self) -> Option<RunIndex> {
        self.waiting_run()
    }

    fn poll_transmit(&mut self, now: Nanos, frame: &mut [u8]) -> Option<usize> {
        self.poll_transmit(now, frame)
    }

    #[inline]
    fn poll_timeout(&self) -> Nanos {
        self.poll_timeout()
    }

    fn handle_command(&mut self, _now: Nanos, command: Command) {
        self.handle_command(command);
    }

    fn handle_settled(&mut self) {
        self.handle_settled();
    }

    fn poll_event(&mut self) -> Option<(JobId, Event)> {
        self.gather_mut().poll_event()
    }

    fn gather(&self) -> Option<&Gather> {
        Some(self.gather())
    }

    #[inline]
    fn note_arrival(&mut self, at_ns: u64) {
        self.gather_mut().note_arrival(at_ns);
    }

    fn poll_train(&mut self) -> Option<Train> {
        self.gather_mut().poll_train()
    }

    #[inline]
    fn may_be_in_train(&self) -> bool {
        self.gather().may_be_in_train()
    }

    #[inline(always)]
    fn fan_out(&self, lease: LeaseIndex) -> usize {
        self.fan_out(lease)
    }

    #[inline(always)]
    fn encap_len(&self, lease: LeaseIndex) -> usize {
        self.encap_len(lease)
    }

    #[inline(always)]
    fn readdress(&self, lease: LeaseIndex, member: usize, header: &mut [u8], frame_len: usize) {
        self.readdress(lease, member, header, frame_len);
    }
}

/// What goes to several members the switch sends.
impl LaneEngine for Agent {
    fn handle_frame(&mut self, now: Nanos, buffer: &mut [u8], len: usize) -> Verdict {
        self.handle_frame(now, buffer, len)
    }

    fn poll_transmit(&mut self, now: Nanos, frame: &mut [u8]) -> Option<usize> {
        self.poll_transmit(now, frame)
    }

    fn poll_timeout(&self) -> Nanos {
        self.poll_timeout()
    }

    fn handle_command(&mut self, _now: Nanos, command: Command) {
        self.handle_command(command);
    }

    fn handle_settled(&mut self) {
        self.aggregator_mut().handle_settled();
    }

    fn poll_event(&mut self) -> Option<(JobId, Event)> {
        self.poll_event()
    }

    fn gather(&self) -> Option<&Gather> {
        Some(self.aggregator().gather())
    }
}

/// Engines whose verdicts are never more than one frame.
macro_rules! plain_engine {
    ($engine:ty) => {
        impl LaneEngine for $engine {
            fn handle_frame(&mut self, now: Nanos, buffer: &mut [u8], len: usize) -> Verdict {
                self.handle_frame(now, buffer, len)
            }

            fn poll_transmit(&mut self, now: Nanos, frame: &mut [u8]) -> Option<usize> {
                self.poll_transmit(now, frame)
            }

            fn poll_timeout(&self) -> Nanos {
                self.poll_timeout()
            }

            fn handle_command(&mut self, now: Nanos, command: Command) {
                self.handle_command(now, command);
            }

            fn handle_controller(&mut self, now: Nanos, is_there: bool) {
                self.handle_controller(now, is_there);
            }

            fn note_arrival(&mut self, at_ns: u64) {
                self.note_arrival(at_ns);
            }

            fn poll_train(&mut self) -> Option<Train> {
                self.poll_train()
            }

            fn poll_event(&mut self) -> Option<(JobId, Event)> {
                self.poll_event()
            }
        }
    };
}

plain_engine!(Server);
plain_engine!(Replica);
