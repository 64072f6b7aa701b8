//! `tidegate cluster …`

use clap::{Args, Subcommand};
use serde::Serialize;
use tidegate_change::Result;
use tidegate_client::v1;

use crate::context::Context;
use crate::render;

/// What can be done with a cluster.
#[derive(Debug, Subcommand)]
pub(crate) enum Noun {
    /// Show what a node knows of the cluster.
    Status,
    /// Add a metadata node.
    Add(AddArguments),
    /// Remove a metadata node for ever.
    Remove(NodeArguments),
    /// Take all work from a worker, so that it can be stopped.
    Drain(NodeArguments),
}

/// Arguments of `add`.
#[derive(Debug, Args)]
pub(crate) struct AddArguments {
    /// The node's id.
    node_id: u64,
    /// Where it is reached, http://HOST:PORT.
    address: String,
}

/// Arguments of commands that take a node.
#[derive(Debug, Args)]
pub(crate) struct NodeArguments {
    /// The node's id.
    node_id: u64,
}

/// What `status` prints.
#[derive(Debug, Serialize)]
struct Status {
    cluster_id: String,
    node_id: u64,
    leader_node_id: Option<u64>,
    term: u64,
    applied_index: u64,
    placement_epoch: u64,
    program_version: String,
    nodes: Vec<Node>,
}

#[derive(Debug, Serialize)]
struct Node {
    node_id: u64,
    endpoint: String,
    roles: Vec<String>,
    state: String,
    epoch: u64,
}

impl Status {
    fn of(answer: v1::GetClusterStatusResponse) -> Self {
        let node = |node: v1::Node| Node {
            node_id: node.node_id,
            endpoint: node.endpoint,
            roles: node.roles,
            state: node.state,
            epoch: node.epoch,
        };
        Self {
            cluster_id: answer.cluster_id,
            node_id: answer.node_id,
            leader_node_id: answer.leader_node_id,
            term: answer.term,
            applied_index: answer.applied_index,
            placement_epoch: answer.placement_epoch,
            program_version: answer.program_version,
            nodes: answer.nodes.into_iter().map(node).collect(),
        }
    }
}

pub(crate) async fn run(context: &Context, noun: Noun) -> Result<()> {
    let client = context.require_cluster("cluster")?;
    match noun {
        Noun::Status => {
            let status = client.cluster_status().await?;
            render::object(context, &Status::of(status))
        }
        Noun::Add(arguments) => {
            client
                .add_node(arguments.node_id, &arguments.address)
                .await?;
            context.say(&format!("added {}", arguments.node_id));
            Ok(())
        }
        Noun::Remove(arguments) => {
            client.remove_node(arguments.node_id).await?;
            context.say(&format!("removed {}", arguments.node_id));
            Ok(())
        }
        Noun::Drain(arguments) => {
            client.drain_node(arguments.node_id).await?;
            context.say(&format!("drained {}", arguments.node_id));
            Ok(())
        }
    }
}
