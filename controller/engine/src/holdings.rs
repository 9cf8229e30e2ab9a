//! What boxes are told to hold for jobs, and which of that they have not answered yet.
//!
//! A controller's user installs and removes shares, leases and push jobs; whether that can be is
//! the box's to judge. Invariant: each command that is taken comes to exactly one [`Action::Held`],
//! in bounded time: a box that goes before it answers has [`NotHeld::Gone`] said for it, and what
//! it holds then its next hello tells. At most [`HOLDINGS_WAITING_MAX`] wait (I8). What was
//! installed is kept, and a box that lost it is told again (`kept`).

use alloc::string::String;
use alloc::vec::Vec;

use weft_control::{Command, Event, Holding, HoldingCommand, HoldingError, Role, RoleState};
use weft_wire::JobId;

use super::message::{Action, NodeId, NotHeld, Refusal};
use super::{Controller, check};

mod kept;

pub(super) use kept::Kept;

impl Controller {
    /// Has a box, by its name, install or remove what it holds for a job. Answered by one
    /// [`Action::Held`] of the box that is returned.
    ///
    /// # Errors
    /// There is no such box, or it is not here; it is not the aggregator of this job that a push
    /// job would make it; it has not answered about the same yet, or about too much. It has not
    /// been told then.
    pub fn hold(&mut self, node: &str, command: HoldingCommand) -> Result<NodeId, Refusal> {
        let refuse = |field, problem| Err(Refusal::new(field, problem));
        let Some(position) = self.nodes.iter().position(|known| known.name() == node) else {
            let problem = alloc::format!("there is no node `{}`", check::shown(node));
            return refuse("node", problem);
        };
        if !self.nodes[position].is_attached() {
            return refuse("node", alloc::format!("`{node}` is not here; try again when it is"));
        }
        let id = NodeId(u16::try_from(position).expect("nodes are counted in 16 bits"));
        if let HoldingCommand::InstallPush(push) = &command {
            // Else its next hello would be refused.
            let role = RoleState::new(push.job, Role::Aggregator, push.box_index, String::new());
            self.check_role(id, &role)?;
        }
        let key = (id, command.job(), command.holding());
        if self.holdings.contains(&key) {
            let problem = alloc::format!("`{node}` has not answered about {} yet", key.2);
            return refuse("holding", problem);
        }
        if self.holdings.len() >= HOLDINGS_WAITING_MAX {
            return refuse("holding", "too many wait for answers; try again later".into());
        }
        if matches!(command, HoldingCommand::RemoveJob { job } if self.kept.has_leases(id, job)) {
            // A box that dies before it says so would lose what its leases need.
            return refuse("holding", alloc::format!("{}", HoldingError::InUse));
        }
        if command.is_install() && self.kept.lacks(&key) {
            let problem =
                alloc::format!("`{node}` is about to have {} again; remove it first", key.2);
            return refuse("holding", problem);
        }
        if command.is_install() && !self.kept.has_room() {
            return refuse("holding", "too much is held already; remove some of it".into());
        }
        self.holdings.insert(key);
        self.kept.tell(id, &command);
        self.note_kept();
        self.command(id, Command::Holding(command));
        Ok(id)
    }

    /// A box says all that it holds: what it lost it is told again.
    pub(super) fn restore_holdings(&mut self, now_ns: u64, node: NodeId) {
        let holds = self.nodes[node.index()].holdings().collect();
        self.kept.attach(node, &holds, |key| self.holdings.contains(key));
        self.note_kept();
        self.ask_for_missing(now_ns, node);
    }

    /// Asks boxes again that refused what they had held.
    pub(super) fn check_holdings(&mut self, now_ns: u64) {
        if self.holdings_due_ns().is_none_or(|due_ns| due_ns > now_ns) {
            return;
        }
        for index in (0..self.nodes.len()).filter_map(|index| u16::try_from(index).ok()) {
            self.ask_for_missing(now_ns, NodeId(index));
        }
    }

    pub(super) fn holdings_due_ns(&self) -> Option<u64> {
        self.kept
            .due_ns(|key| self.nodes[key.0.index()].is_attached() && !self.holdings.contains(key))
    }

    fn ask_for_missing(&mut self, now_ns: u64, node: NodeId) {
        if !self.nodes[node.index()].is_attached() {
            return;
        }
        let missing = self.kept.due(now_ns, node, |key| self.holdings.contains(key));
        for command in missing {
            if self.holdings.len() >= HOLDINGS_WAITING_MAX {
                // The answers that are awaited make room.
                return;
            }
            let key = (node, command.job(), command.holding());
            if let HoldingCommand::InstallPush(push) = &command {
                let role =
                    RoleState::new(push.job, Role::Aggregator, push.box_index, String::new());
                if self.check_role(node, &role).is_err() {
                    // It is another one's in this configuration.
                    self.kept.forget(&key);
                    continue;
                }
            }
            self.holdings.insert(key);
            self.command(node, Command::Holding(command));
        }
        self.note_kept();
    }

    fn note_kept(&mut self) {
        if self.kept.take_unsaved() {
            (self.is_saved, self.is_steering_unsaved) = (false, true);
        }
    }

    /// Takes an answer of a box. One that nobody waits for is taken without effect: the box may
    /// have been told before its stream broke.
    pub(super) fn held(&mut self, now_ns: u64, node: NodeId, job: JobId, event: &Event) {
        let is_held = matches!(event, Event::HoldingInstalled { .. });
        let (holding, outcome) = match *event {
            Event::HoldingInstalled { holding } | Event::HoldingRemoved { holding } => {
                self.nodes[node.index()].note_holding(job, holding, is_held);
                (holding, Ok(()))
            }
            Event::HoldingRefused { holding, error } => (holding, Err(NotHeld::Refused(error))),
            _ => return,
        };
        if self.holdings.contains(&(node, job, holding)) {
            self.kept.hear(now_ns, node, job, event);
            self.note_kept();
        }
        self.answer_held(node, job, holding, outcome);
    }

    /// A box has gone: what it was told it will not answer.
    pub(super) fn forget_holdings(&mut self, node: NodeId) {
        let of_node = self.holdings.iter().filter(|(known, ..)| *known == node);
        let waiting: Vec<_> = of_node.copied().collect();
        for (_, job, holding) in waiting {
            self.answer_held(node, job, holding, Err(NotHeld::Gone));
        }
    }

    fn answer_held(
        &mut self,
        node: NodeId,
        job: JobId,
        holding: Holding,
        outcome: Result<(), NotHeld>,
    ) {
        if self.holdings.remove(&(node, job, holding)) {
            self.actions.push_back(Action::Held { node, job, holding, outcome });
        }
    }
}

/// Commands about holdings that boxes have not answered.
const HOLDINGS_WAITING_MAX: usize = 4096;
