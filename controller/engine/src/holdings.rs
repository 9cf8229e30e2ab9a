//! What boxes are told to hold for jobs, and which of that they have not answered yet.
//!
//! A controller's user installs and removes shares, leases and push jobs; whether that can be is the
//! box's to judge. Invariant: each command that is taken comes to exactly one [`Action::Held`], in
//! bounded time: a box that goes before it answers has [`NotHeld::Gone`] said for it, and what it
//! holds then its next hello tells. At most [`HOLDINGS_WAITING_MAX`] wait (I8).

use alloc::string::String;

use weft_control::{Command, Event, Holding, HoldingCommand, Role, RoleState};
use weft_wire::JobId;

use super::message::{Action, NodeId, NotHeld, Refusal};
use super::{Controller, check};

impl Controller {
    /// Has a box, by its name, install or remove what it holds for a job. Answered by one
    /// [`Action::Held`] of the box that is returned.
    ///
    /// # Errors
    /// There is no such box, or it is not here; it is not the aggregator of this job that a push job
    /// would make it; it has not answered about the same yet, or about too much. It has not been
    /// told then.
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
        self.holdings.insert(key);
        self.command(id, Command::Holding(command));
        Ok(id)
    }

    /// Takes an answer of a box. One that nobody waits for is taken without effect: the box may
    /// have been told before its stream broke.
    pub(super) fn held(&mut self, node: NodeId, job: JobId, event: &Event) {
        let is_held = matches!(event, Event::HoldingInstalled { .. });
        let (holding, outcome) = match *event {
            Event::HoldingInstalled { holding } | Event::HoldingRemoved { holding } => {
                self.nodes[node.index()].note_holding(job, holding, is_held);
                (holding, Ok(()))
            }
            Event::HoldingRefused { holding, error } => (holding, Err(NotHeld::Refused(error))),
            _ => return,
        };
        self.answer_held(node, job, holding, outcome);
    }

    /// A box has gone: what it was told it will not answer.
    pub(super) fn forget_holdings(&mut self, node: NodeId) {
        let of_node = self.holdings.iter().filter(|(known, ..)| *known == node);
        let waiting: alloc::vec::Vec<_> = of_node.copied().collect();
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
