//! Groups of members in one process.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use openraft::type_config::TypeConfigExt;
use tidegate_change::clock::SystemRandom;
use tidegate_change::{Code, Error, Result};

use crate::consensus::{Applied, Consensus};
use crate::metadata::replicated::transport::memory::MemoryNetwork;
use crate::metadata::replicated::types::Types;
use crate::metadata::replicated::{Member, MemberOptions, NewDirectory, Peer};
use crate::metadata::{Entry, Grant, NodeId, Role};

/// How long a test waits for what must come.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// A directory whose syncs cost nothing, where there is one: what is tested is order, not the disk.
pub(super) fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm")
        .or_else(|_| tempfile::tempdir())
        .unwrap()
}

/// An entry that leaves its own trace: the epoch of a node is the index of its newest grant.
pub(super) fn grant(node: u64) -> Entry {
    Entry::Grant(Grant {
        node: NodeId(node),
        role: Role::Worker,
    })
}

/// The index at which a grant was applied last.
pub(super) fn granted(member: &Member, node: u64) -> Option<u64> {
    let state = member.state();
    state.epochs.get(&NodeId(node))?.get(&Role::Worker).copied()
}

/// A group over a network in memory; members are named by the order in which they came.
pub(super) struct Group {
    pub(super) network: Arc<MemoryNetwork>,
    pub(super) options: MemberOptions,
    members: BTreeMap<usize, Member>,
    directories: Vec<tempfile::TempDir>,
}

impl Group {
    /// A group with one member.
    pub(super) async fn found(adjust: impl FnOnce(&mut MemberOptions)) -> Self {
        let network = MemoryNetwork::new();
        let transport = Arc::clone(&network);
        let new = NewDirectory::Found(Peer::default());
        let mut options = MemberOptions::new(Arc::new(SystemRandom), transport, new);
        adjust(&mut options);
        let mut group = Self {
            network,
            options,
            members: BTreeMap::new(),
            directories: vec![directory()],
        };
        group.start(0).await;
        group
    }

    /// A group with several voters.
    pub(super) async fn of(voters: usize, adjust: impl FnOnce(&mut MemberOptions)) -> Self {
        let mut group = Self::found(adjust).await;
        group.options.new_directory = NewDirectory::Join { cluster: None };
        for _ in 1..voters {
            let new = group.join().await;
            let node = group.member(new).node();
            let leader = group.member(0);
            leader.add_learner(node, Peer::default()).await.unwrap();
            leader.promote(node, PATIENCE).await.unwrap();
        }
        group.agree().await;
        group
    }

    /// Opens a new member, which waits to be called.
    pub(super) async fn join(&mut self) -> usize {
        self.options.new_directory = NewDirectory::Join { cluster: None };
        let number = self.directories.len();
        self.directories.push(directory());
        self.start(number).await;
        number
    }

    /// Opens a member that was ended.
    pub(super) async fn start(&mut self, number: usize) {
        let member = Member::open(self.path(number), &self.options)
            .await
            .unwrap();
        self.network.attach(member.inbox());
        self.members.insert(number, member);
    }

    /// Ends a member as its process's end would.
    pub(super) fn end(&mut self, number: usize) {
        let member = self.members.remove(&number).unwrap();
        self.network.detach(member.node());
        drop(member);
    }

    pub(super) fn path(&self, number: usize) -> &Path {
        self.directories[number].path()
    }

    pub(super) fn member(&self, number: usize) -> &Member {
        &self.members[&number]
    }

    pub(super) fn members(&self) -> impl Iterator<Item = (usize, &Member)> {
        self.members
            .iter()
            .map(|(number, member)| (*number, member))
    }

    /// The number of the member that leads, by the word of a majority.
    pub(super) async fn leader(&self) -> usize {
        self.leader_but(None).await
    }

    /// The number of a leader other than the given member.
    pub(super) async fn leader_but(&self, not: Option<usize>) -> usize {
        until("somebody leads", || {
            let mut votes: BTreeMap<NodeId, usize> = BTreeMap::new();
            for (number, member) in self.members() {
                if Some(number) != not
                    && let Some(leader) = member.status().leader
                {
                    *votes.entry(leader).or_default() += 1;
                }
            }
            let (leader, votes) = votes.into_iter().max_by_key(|(_, votes)| *votes)?;
            let voters = self.members.values().next()?.status().members.len();
            let number = self
                .members()
                .find(|(_, member)| member.node() == leader)?
                .0;
            (votes * 2 > voters && Some(number) != not).then_some(number)
        })
        .await
    }

    /// Waits until all members have applied the same, and checks that their states are equal.
    pub(super) async fn agree(&self) {
        let indexes = || -> Vec<_> {
            let indexes = self.members().map(|(_, m)| m.state().last_applied);
            indexes.collect()
        };
        until("all members have applied the same", || {
            let states: Vec<_> = self.members().map(|(_, m)| m.state()).collect();
            let first = states.first()?.last_applied;
            let same = states.iter().all(|state| state.last_applied == first);
            let settled = self
                .members()
                .all(|(_, m)| m.status().applied_index == first);
            if !same || !settled {
                return None;
            }
            let digest = states[0].digest().unwrap();
            for state in &states {
                assert_eq!(state.digest().unwrap(), digest, "{:?}", indexes());
            }
            Some(())
        })
        .await;
    }
}

/// Asks again and again until there is an answer.
pub(super) async fn until<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let deadline = Types::now() + PATIENCE;
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(Types::now() < deadline, "in vain: {what}");
        Types::sleep(Duration::from_millis(5)).await;
    }
}

/// Proposes until the entry is known to be in.
pub(super) async fn insist(member: &Member, entry: Entry) -> Applied {
    let deadline = Types::now() + PATIENCE;
    loop {
        match member.propose(entry.clone()).await {
            Ok(applied) => return applied,
            Err(error) if may_retry(&error) => {}
            Err(error) => panic!("{error:?}"),
        }
        assert!(Types::now() < deadline, "in vain: {entry}");
    }
}

fn may_retry(error: &Error) -> bool {
    matches!(error.code(), Code::NotLeader | Code::OutcomeUnknown)
}

/// What is known of a proposal.
pub(super) fn fate(proposed: &Result<Applied>) -> Fate {
    match proposed {
        Ok(applied) => Fate::In(applied.index),
        Err(error) if error.code() == Code::NotLeader => Fate::Out,
        Err(error) if error.code() == Code::OutcomeUnknown => Fate::Unknown,
        Err(error) => panic!("{error:?}"),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    In(u64),
    Out,
    Unknown,
}
