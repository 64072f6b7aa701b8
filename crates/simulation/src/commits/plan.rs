//! What a seed makes happen.

use super::log::LogFaults;
use crate::dice::Dice;
use crate::toxic::{Operation, Rule, Toxin};

/// Chances of events between two steps, in ten thousand.
#[derive(Clone, Copy, Debug, Default)]
pub struct Events {
    /// A node ends where it stands.
    pub crash: usize,
    /// A node starts anew while its old process goes on.
    pub zombie: usize,
    /// A stranger writes a commit that changes nothing.
    pub harmless: usize,
    /// Staged commits are lost.
    pub lost_staged: usize,
    /// A data file of an attempt is lost before its commit was sent.
    pub lost_data: usize,
    /// A clock jumps.
    pub clock: usize,
    /// The log has another leader.
    pub election: usize,
    /// A member of the log starts from a snapshot.
    pub restore: usize,
    /// All nodes end.
    pub blackout: usize,
}

/// The history of a seed.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Nodes that coordinate.
    pub nodes: usize,
    /// Clients, each with a source of its own.
    pub clients: usize,
    /// Batches of each client.
    pub batches: usize,
    /// Commits of at most that many bytes ride in the log.
    pub inline_bytes_max: usize,
    /// What the store does.
    pub rules: Vec<Rule>,
    /// What the log does.
    pub log: LogFaults,
    /// What happens between steps.
    pub events: Events,
    /// Whether a stranger appends rows, which ends the table's life.
    pub foreign_append: bool,
    /// Whether writes that are under way land after everything was repaired.
    pub late_at_the_end: bool,
    /// Whether another group takes the table over at the end.
    pub adopt: bool,
}

impl Plan {
    /// The plan of a seed.
    #[must_use]
    pub fn of(dice: &Dice) -> Self {
        let mut rules: Vec<_> = Toxin::ALL
            .into_iter()
            .filter(|_| dice.percent(30))
            .map(|toxin| rule(toxin, dice))
            .collect();
        // Creates of commits are what everything turns on.
        if dice.percent(60) {
            let toxin = *dice.pick(&[
                Toxin::AnswerLost,
                Toxin::Late,
                Toxin::FalseConflict,
                Toxin::OwnConflict,
                Toxin::TimedOut,
            ]);
            let slots = Rule::new(toxin).at(&[Operation::Create]);
            rules.push(slots.keys_with("_delta_log").chance(dice.between(10, 50)));
        }
        Self {
            nodes: dice.between(2, 3),
            clients: dice.between(2, 3),
            batches: dice.between(2, 4),
            inline_bytes_max: if dice.percent(50) { 0 } else { 32 << 10 },
            rules,
            log: log_faults(dice),
            events: events(dice),
            foreign_append: dice.percent(10),
            late_at_the_end: dice.percent(50),
            adopt: dice.percent(40),
        }
    }
}

fn rule(toxin: Toxin, dice: &Dice) -> Rule {
    let chance = match toxin {
        Toxin::SlowDown | Toxin::ReadOnly | Toxin::Unauthorized => 1,
        _ => dice.between(1, 6),
    };
    let rule = Rule::new(toxin).chance(chance);
    match toxin {
        // Commits between two heads have no digest that anybody knows; files and staged commits have one.
        Toxin::BitFlip => {
            let part = *dice.pick(&["l0-", "_tidegate"]);
            rule.keys_with(part)
        }
        _ => rule,
    }
}

fn log_faults(dice: &Dice) -> LogFaults {
    if dice.percent(40) {
        return LogFaults::default();
    }
    LogFaults {
        not_leader: dice.below(5),
        answer_lost: dice.below(5),
        dropped: dice.below(4),
        late: dice.below(5),
        unreadable: dice.below(3),
    }
}

fn events(dice: &Dice) -> Events {
    let some = |chance: usize| if dice.percent(50) { chance } else { 0 };
    Events {
        crash: some(60),
        zombie: some(50),
        harmless: some(40),
        lost_staged: some(40),
        lost_data: some(30),
        clock: some(40),
        election: some(40),
        restore: some(30),
        blackout: some(8),
    }
}
