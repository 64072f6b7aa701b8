//! What a node does next to belong to its cluster: decided from who it is and what its peers answer.

use tidegate_cluster::metadata::{ClusterId, NodeId};

/// Who the node is.
#[derive(Clone, Debug)]
pub(super) struct Own {
    pub(super) node: NodeId,
    /// The cluster that its directory belongs to.
    pub(super) cluster: Option<ClusterId>,
    /// Whether it began to found that cluster and did not come to the end.
    pub(super) is_about_to_found: bool,
    /// Whether the cluster has it as a voter at its address, as far as it knows.
    pub(super) is_settled: bool,
    /// How it is reached.
    pub(super) endpoint: String,
}

/// A node that answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) node: NodeId,
    pub(super) cluster: Option<ClusterId>,
}

/// A peer of the configuration, and what it answers, if it does.
#[derive(Clone, Debug)]
pub(super) struct Peer {
    pub(super) endpoint: String,
    pub(super) answer: Option<Answer>,
}

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Nothing: the node is where it belongs.
    Stay,
    /// Found the cluster.
    Found,
    /// Ask one of these to be taken in, or to be noted at its address.
    Ask(Vec<String>),
    /// Ask again later.
    Wait,
    /// Stop: the configuration joins what does not belong together.
    Refuse(String),
}

/// The next step of a node with these other peers.
pub(super) fn next(own: &Own, peers: &[Peer]) -> Step {
    if let Some(why) = contradiction(own, peers) {
        return Step::Refuse(why);
    }
    let members = peers.iter().filter(|peer| cluster_of(peer).is_some());
    let members: Vec<String> = members.map(|peer| peer.endpoint.clone()).collect();
    if own.is_about_to_found {
        return Step::Found;
    }
    if own.cluster.is_some() {
        return match (own.is_settled, members.is_empty()) {
            (true, _) => Step::Stay,
            // Only its members know where it belongs; the node itself may be one of them.
            (false, true) => Step::Ask(vec![own.endpoint.clone()]),
            (false, false) => Step::Ask(members),
        };
    }
    if !members.is_empty() {
        return Step::Ask(members);
    }
    // Whoever does not answer may belong to a cluster.
    let all_answer = peers.iter().all(|peer| peer.answer.is_some());
    let comes_first = peers.iter().all(|peer| own.endpoint < peer.endpoint);
    match all_answer && comes_first {
        true => Step::Found,
        false => Step::Wait,
    }
}

fn cluster_of(peer: &Peer) -> Option<ClusterId> {
    peer.answer?.cluster
}

fn contradiction(own: &Own, peers: &[Peer]) -> Option<String> {
    let twin = peers
        .iter()
        .find(|peer| peer.answer.is_some_and(|answer| answer.node == own.node));
    if let Some(twin) = twin {
        return Some(format!(
            "{} answers as node {} too: a copy of this node's directory, or this node under another address",
            twin.endpoint, own.node
        ));
    }
    let known = peers
        .iter()
        .find_map(|peer| Some((peer, cluster_of(peer)?)));
    let (first, cluster) = match (own.cluster, known) {
        (Some(cluster), _) => (format!("this node's directory ({})", own.endpoint), cluster),
        (None, Some((peer, cluster))) => (peer.endpoint.clone(), cluster),
        (None, None) => return None,
    };
    let stranger = peers
        .iter()
        .find_map(|peer| Some((peer, cluster_of(peer).filter(|found| *found != cluster)?)));
    stranger.map(|(peer, found)| {
        format!(
            "{first} belongs to cluster {cluster}, {} to cluster {found}",
            peer.endpoint
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own(cluster: Option<u64>) -> Own {
        Own {
            node: NodeId(1),
            cluster: cluster.map(ClusterId),
            is_about_to_found: false,
            is_settled: false,
            endpoint: "http://a:1".into(),
        }
    }

    fn peer(endpoint: &str, answer: Option<(u64, Option<u64>)>) -> Peer {
        Peer {
            endpoint: endpoint.into(),
            answer: answer.map(|(node, cluster)| Answer {
                node: NodeId(node),
                cluster: cluster.map(ClusterId),
            }),
        }
    }

    fn ask(endpoints: &[&str]) -> Step {
        Step::Ask(endpoints.iter().map(|e| (*e).to_owned()).collect())
    }

    #[test]
    fn the_first_peer_founds_when_all_others_answer_that_they_belong_nowhere() {
        let new = |e| peer(e, Some((if e == "http://b:1" { 2 } else { 3 }, None)));
        let peers = [new("http://b:1"), new("http://c:1")];
        assert_eq!(next(&own(None), &peers), Step::Found);
        let silent = [new("http://b:1"), peer("http://c:1", None)];
        assert_eq!(next(&own(None), &silent), Step::Wait);
        let second = Own {
            endpoint: "http://c:1".into(),
            ..own(None)
        };
        let peers = [new("http://b:1"), peer("http://a:1", Some((3, None)))];
        assert_eq!(next(&second, &peers), Step::Wait);
    }

    #[test]
    fn a_first_peer_that_lost_its_directory_joins_and_does_not_found() {
        let peers = [
            peer("http://b:1", Some((2, Some(7)))),
            peer("http://c:1", None),
        ];
        assert_eq!(next(&own(None), &peers), ask(&["http://b:1"]));
    }

    #[test]
    fn a_founding_that_was_interrupted_goes_on() {
        let own = Own {
            is_about_to_found: true,
            ..own(Some(7))
        };
        assert_eq!(next(&own, &[peer("http://b:1", None)]), Step::Found);
    }

    #[test]
    fn a_member_stays_and_one_that_moved_says_so() {
        let settled = Own {
            is_settled: true,
            ..own(Some(7))
        };
        let peers = [peer("http://b:1", Some((2, Some(7))))];
        assert_eq!(next(&settled, &peers), Step::Stay);
        assert_eq!(next(&own(Some(7)), &peers), ask(&["http://b:1"]));
        let silent = [peer("http://b:1", None)];
        assert_eq!(next(&own(Some(7)), &silent), ask(&["http://a:1"]));
    }

    #[test]
    fn what_does_not_belong_together_is_refused() {
        let other = [peer("http://b:1", Some((2, Some(8))))];
        assert!(matches!(next(&own(Some(7)), &other), Step::Refuse(_)));
        let torn = [
            peer("http://b:1", Some((2, Some(8)))),
            peer("http://c:1", Some((3, Some(7)))),
        ];
        assert!(matches!(next(&own(None), &torn), Step::Refuse(_)));
        let twin = [peer("http://b:1", Some((1, None)))];
        assert!(matches!(next(&own(None), &twin), Step::Refuse(_)));
    }
}
