//! Breadth-first search over every state of a small protocol model.
//!
//! [`explore`] visits each reachable state once, checks it, and then asks of every state whether a
//! finished state can still be reached from it (backward reachability over the whole graph). The
//! second question is what progress (I9) means for a network that may lose anything: no state is
//! a trap. Because the search is breadth first, the trace of a counterexample has the fewest steps
//! that lead to it.
//!
//! [`explore_lossy`] does the same for models that leave the loss of everything to the search.
//! Safety needs no loss, for a message that does not arrive is as good as lost; so the first search
//! goes without. The second asks for progress: it starts from every state of the first, with
//! everything in flight lost, and goes on by the steps that are owed to those who wait
//! ([`Lossy::is_owed`]). It is far smaller, because what is in flight then follows from the boxes.
//!
//! Memory: each state once, four bytes for its parent and four for each transition.

use std::collections::HashSet;
use std::fmt;
use std::hash::Hash;

use indexmap::IndexSet;
use rustc_hash::FxBuildHasher;

/// A protocol, small enough to visit all its states.
pub trait Model {
    /// Everything that can differ between two moments: the boxes, the network, ghost variables.
    type State: Clone + Eq + Hash;
    /// What happened in one step; its text is one line of a counterexample.
    type Action: fmt::Display;

    /// Returns the state at the start.
    fn initial(&self) -> Self::State;

    /// Appends every step that is possible from `state`. Steps that change nothing may be left out
    /// or not; they do not count.
    fn steps(&self, state: &Self::State, steps: &mut Vec<(Self::Action, Self::State)>);

    /// Says which property `state` breaks, if any.
    fn broken_property(&self, state: &Self::State) -> Option<String>;

    /// True if nobody waits for anything any more.
    fn is_done(&self, state: &Self::State) -> bool;

    /// Says who waits for what; the last line of a counterexample to progress.
    fn describe(&self, state: &Self::State) -> String;
}

/// A protocol over a network that may lose everything in flight at any time.
pub trait Lossy: Model {
    /// Returns `state` with everything in flight lost, and what the boxes send again.
    fn lose_all(&self, state: &Self::State) -> Self::State;

    /// True for steps that happen sooner or later; false for what applications and faults may do.
    fn is_owed(&self, action: &Self::Action) -> bool;
}

/// What a search that found nothing wrong has seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Explored {
    /// Distinct states.
    pub state_count: usize,
    /// Steps between two distinct states.
    pub step_count: usize,
    /// States in which nobody waits any more.
    pub done_count: usize,
}

/// Which kind of property failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// A bad state is reachable.
    Unsafe,
    /// No finished state can be reached any more: somebody waits for ever.
    Stuck,
}

/// A shortest way to a failure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counterexample {
    /// Which kind of property failed.
    pub failure: Failure,
    /// What is wrong in the last state.
    pub verdict: String,
    /// The steps from the initial state, in order.
    pub trace: Vec<String>,
    /// Distinct states seen by the search.
    pub state_count: usize,
    /// The place, in the order of the search, of the state that the steps start from.
    root: usize,
}

impl fmt::Display for Counterexample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, step) in self.trace.iter().enumerate() {
            writeln!(f, "  {:2}. {step}", index + 1)?;
        }
        write!(f, "  =>  {} ({} states seen)", self.verdict, self.state_count)
    }
}

/// Visits every state of `model`.
///
/// # Errors
/// The shortest counterexample to safety, or, if every state is safe, to progress.
///
/// # Panics
/// If the model has more than `state_count_max` states: a model that grew by accident must not
/// eat the machine.
pub fn explore<M: Model>(model: &M, state_count_max: usize) -> Result<Explored, Counterexample> {
    let mut graph = Graph::new();
    graph.visit(model.initial(), 0);
    graph.visit_all(model, state_count_max, |_| true)?;
    graph.find_traps(model)?;
    Ok(Explored {
        state_count: graph.states.len(),
        step_count: graph.edges.len(),
        done_count: graph.done_count(model),
    })
}

/// Visits every state of `model`, first without loss, then with everything lost at any one time.
/// The counts are those of both searches together.
///
/// # Errors
/// As [`explore`].
///
/// # Panics
/// If either search sees more than `state_count_max` states.
pub fn explore_lossy<M: Lossy>(
    model: &M,
    state_count_max: usize,
) -> Result<Explored, Counterexample> {
    let mut graph = Graph::new();
    graph.visit(model.initial(), 0);
    graph.visit_all(model, state_count_max, |_| true)?;
    let mut after = Graph::new();
    let mut origins = Vec::new();
    for (index, state) in graph.states.iter().enumerate() {
        let root = after.states.len();
        after.visit(model.lose_all(state), root);
        if after.states.len() > root {
            origins.push(index);
        }
    }
    let found = after
        .visit_all(model, state_count_max, |action| model.is_owed(action))
        .and_then(|()| after.find_traps(model));
    if let Err(mut found) = found {
        let before = graph.trace(model, origins[found.root]);
        let loss = ["everything in flight is lost".to_string()];
        found.trace = before.into_iter().chain(loss).chain(found.trace).collect();
        found.state_count += graph.states.len();
        return Err(found);
    }
    Ok(Explored {
        state_count: graph.states.len() + after.states.len(),
        step_count: graph.edges.len() + after.edges.len(),
        done_count: after.done_count(model),
    })
}

/// The visited part of a model's state graph; a state's index is its place in breadth-first order.
struct Graph<S> {
    states: IndexSet<S, FxBuildHasher>,
    /// For each state the one that it was first reached from; the initial state is its own.
    parents: Vec<u32>,
    /// (from, to), by rising `from`.
    edges: Vec<(u32, u32)>,
}

impl<S: Clone + Eq + Hash> Graph<S> {
    fn new() -> Self {
        Self { states: IndexSet::default(), parents: Vec::new(), edges: Vec::new() }
    }

    /// Visits all that can be reached from the states that were visited, by steps that `is_taken`
    /// says true to.
    fn visit_all<M: Model<State = S>>(
        &mut self,
        model: &M,
        state_count_max: usize,
        is_taken: impl Fn(&M::Action) -> bool,
    ) -> Result<(), Counterexample> {
        let mut steps = Vec::new();
        let mut next = 0;
        while next < self.states.len() {
            assert!(next < state_count_max, "the model has more than {state_count_max} states");
            let state = self.states[next].clone();
            if let Some(verdict) = model.broken_property(&state) {
                return Err(self.counterexample(model, Failure::Unsafe, verdict, next));
            }
            model.steps(&state, &mut steps);
            for (_, successor) in steps.drain(..).filter(|(action, _)| is_taken(action)) {
                self.visit(successor, next);
            }
            next += 1;
        }
        Ok(())
    }

    /// Fails if there is a state from which no finished one can be reached.
    fn find_traps<M: Model<State = S>>(&self, model: &M) -> Result<(), Counterexample> {
        let can_finish = self.can_finish(model);
        let Some(trap) = self.shortest_trap(model, &can_finish) else {
            return Ok(());
        };
        let verdict = format!("waits for ever: {}", model.describe(&self.states[trap]));
        Err(self.counterexample(model, Failure::Stuck, verdict, trap))
    }

    fn done_count<M: Model<State = S>>(&self, model: &M) -> usize {
        self.states.iter().filter(|state| model.is_done(state)).count()
    }

    fn visit(&mut self, state: S, from: usize) {
        let (to, is_new) = self.states.insert_full(state);
        if is_new {
            self.parents.push(index32(from));
        }
        if to != from {
            self.edges.push((index32(from), index32(to)));
        }
    }

    /// For each state: can a finished one be reached from it?
    fn can_finish<M: Model<State = S>>(&self, model: &M) -> Vec<bool> {
        let mut first_edge = vec![0_usize; self.states.len() + 1];
        for &(_, to) in &self.edges {
            first_edge[to as usize + 1] += 1;
        }
        for state in 0..self.states.len() {
            first_edge[state + 1] += first_edge[state];
        }
        let mut sources = vec![0_u32; self.edges.len()];
        let mut free = first_edge.clone();
        for &(from, to) in &self.edges {
            sources[free[to as usize]] = from;
            free[to as usize] += 1;
        }
        let mut can_finish: Vec<bool> =
            self.states.iter().map(|state| model.is_done(state)).collect();
        let mut pending: Vec<usize> =
            (0..self.states.len()).filter(|&state| can_finish[state]).collect();
        while let Some(state) = pending.pop() {
            for &source in &sources[first_edge[state]..first_edge[state + 1]] {
                if !can_finish[source as usize] {
                    can_finish[source as usize] = true;
                    pending.push(source as usize);
                }
            }
        }
        can_finish
    }

    /// Returns the first state that cannot finish and in which it is settled who waits for what:
    /// nothing that may still happen changes the description. Failing that, the first that cannot
    /// finish.
    fn shortest_trap<M: Model<State = S>>(&self, model: &M, can_finish: &[bool]) -> Option<usize> {
        let mut traps = (0..self.states.len()).filter(|&state| !can_finish[state]);
        let first = traps.clone().next()?;
        Some(traps.find(|&trap| self.is_settled(model, trap)).unwrap_or(first))
    }

    fn is_settled<M: Model<State = S>>(&self, model: &M, trap: usize) -> bool {
        let description = model.describe(&self.states[trap]);
        let mut seen = HashSet::from([trap]);
        let mut pending = vec![trap];
        while let Some(state) = pending.pop() {
            if model.describe(&self.states[state]) != description {
                return false;
            }
            let first_edge = self.edges.partition_point(|&(from, _)| (from as usize) < state);
            for &(_, to) in
                self.edges[first_edge..].iter().take_while(|&&(from, _)| from as usize == state)
            {
                if seen.insert(to as usize) {
                    pending.push(to as usize);
                }
            }
        }
        true
    }

    fn counterexample<M: Model<State = S>>(
        &self,
        model: &M,
        failure: Failure,
        verdict: String,
        last: usize,
    ) -> Counterexample {
        let mut root = last;
        while self.parents[root] as usize != root {
            root = self.parents[root] as usize;
        }
        let trace = self.trace(model, last);
        Counterexample { failure, verdict, trace, state_count: self.states.len(), root }
    }

    /// Returns the steps to a state, from the one that its search started from.
    fn trace<M: Model<State = S>>(&self, model: &M, last: usize) -> Vec<String> {
        let mut trace = Vec::new();
        let mut steps = Vec::new();
        let mut index = last;
        while self.parents[index] as usize != index {
            let parent = self.parents[index] as usize;
            model.steps(&self.states[parent], &mut steps);
            let step = steps.drain(..).find(|(_, state)| *state == self.states[index]);
            trace.push(step.map_or_else(String::new, |(action, _)| action.to_string()));
            index = parent;
        }
        trace.reverse();
        trace
    }
}

fn index32(index: usize) -> u32 {
    u32::try_from(index).expect("fewer than 2^32 states fit into memory")
}

#[cfg(test)]
mod tests;
