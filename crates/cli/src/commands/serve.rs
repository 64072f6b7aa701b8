//! `tidegate serve`

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use tidegate_change::{Error, Result};
use tidegate_server::config::{Bytes, NodeRole, Overrides};
use tidegate_server::{Config, Node, NodeEnd};
use tokio::signal::unix::{SignalKind, signal};

use crate::context::Context;

/// Arguments of `serve`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The configuration, YAML or JSON; `tidegate config show` prints all values.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) node: NodeOptions,
}

/// Values of the configuration that have a flag.
#[derive(Debug, Default, Args)]
pub(crate) struct NodeOptions {
    /// Where to listen, HOST:PORT; port 0 takes a free one.
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) listen: Option<SocketAddr>,
    /// How others reach the node, http://HOST:PORT; by default where it listens.
    #[arg(long, value_name = "URL")]
    pub(crate) advertise: Option<String>,
    /// How the metadata nodes of the cluster are reached, this one included, http://HOST:PORT; the same on
    /// every node.
    #[arg(long, value_name = "URL", value_delimiter = ',')]
    pub(crate) peers: Option<Vec<String>>,
    /// What the node does; by default everything.
    #[arg(long, value_name = "ROLE", value_delimiter = ',')]
    pub(crate) roles: Option<Vec<RoleWord>>,
    /// Let others in without encryption.
    #[arg(long)]
    pub(crate) insecure_dev: bool,
}

/// Roles, as words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RoleWord {
    /// Votes on the metadata log.
    Meta,
    /// Drives batches.
    Coordinator,
    /// Executes parts of batches.
    Worker,
}

impl From<RoleWord> for NodeRole {
    fn from(word: RoleWord) -> Self {
        match word {
            RoleWord::Meta => Self::Meta,
            RoleWord::Coordinator => Self::Coordinator,
            RoleWord::Worker => Self::Worker,
        }
    }
}

/// How a node ended.
#[derive(Debug)]
pub(crate) enum Served {
    /// It was asked to stop.
    Stopped,
    /// It failed, and a new start finds out what is true: a supervisor starts it again.
    Failed(Error),
}

pub(crate) async fn run(context: &Context, arguments: Arguments) -> Result<Served> {
    let failed = |e| Error::io("signals of the process", e);
    let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
    let config = load(context, arguments.config.as_ref(), arguments.node)?;
    let mut node = Box::pin(Node::start(config, context.open_options())).await?;
    context.say(&format!("serving on {}", node.endpoint()));
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
        end = node.failed() => return match end {
            NodeEnd::Failed(error) => Ok(Served::Failed(error)),
            NodeEnd::Refused(error) => Err(error),
        },
    }
    context.say("stopping");
    node.stop().await.map(|()| Served::Stopped)
}

/// The configuration in effect.
pub(crate) fn load(
    context: &Context,
    file: Option<&PathBuf>,
    options: NodeOptions,
) -> Result<Config> {
    let roles = options
        .roles
        .map(|roles| roles.into_iter().map(NodeRole::from).collect());
    let flags = Overrides {
        listen: options.listen,
        advertise: options.advertise,
        data: context.local_is_named.then(|| context.local.clone()),
        lake: context.lake.clone(),
        peers: options.peers,
        memory: context.memory.map(Bytes),
        roles,
        insecure_dev: options.insecure_dev,
    };
    let variable = |name: &str| std::env::var(name).ok();
    Config::load(file.map(PathBuf::as_path), variable, flags)
}
