//! The placement as a metadata member tells it.

use async_trait::async_trait;
use tidegate_change::Result;

use super::{LeaderAt, MetadataView, Placement, Placements};
use crate::metadata::ClusterId;
use crate::metadata::replicated::Member;

impl MetadataView for Member {
    fn leader(&self) -> LeaderAt {
        let status = self.status();
        let Some(leader) = status.leader else {
            return LeaderAt::Nowhere;
        };
        if leader == status.node {
            return LeaderAt::Here;
        }
        let peer = status.members.into_iter().find(|own| own.node == leader);
        peer.map_or(LeaderAt::Nowhere, |own| {
            LeaderAt::Endpoint(own.peer.endpoint)
        })
    }

    fn placement(&self) -> Placement {
        self.with_state(|state| state.placement.clone())
    }

    fn cluster(&self) -> Option<ClusterId> {
        Self::cluster(self)
    }
}

#[async_trait]
impl Placements for Member {
    async fn current(&self) -> Result<Placement> {
        self.caught_up().await?;
        Ok(self.placement())
    }

    async fn newer(&self, epoch: u64) -> Placement {
        loop {
            let placement = self.placement();
            if placement.epoch > epoch {
                return placement;
            }
            self.applied_more().await;
        }
    }
}
