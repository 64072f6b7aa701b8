//! The services from outside, with workers that wait for the test.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use tidegate_change::Code;
use tidegate_rpc::status::error_of;
use tidegate_rpc::v1;
use tidegate_rpc::v1::batch_service_client::BatchServiceClient;
use tidegate_rpc::v1::cluster_service_client::ClusterServiceClient;
use tidegate_rpc::v1::table_service_client::TableServiceClient;
use tonic::transport::Channel;
use tonic::{Request, Status};
use tonic_types::StatusExt;

use crate::node::Node;
use crate::node::tests::{GatedWorkers, channel, create, start, submission};

/// A node with a table `t`, whose batches wait for the gate.
struct Bench {
    dir: TempDir,
    workers: Arc<GatedWorkers>,
    _node: Node,
    channel: Channel,
}

impl Bench {
    async fn new(permits_count: usize) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let workers = GatedWorkers::new(permits_count);
        let node = start(dir.path(), Arc::clone(&workers) as _).await;
        let channel = channel(&node).await;
        create(&channel, "t").await;
        Self {
            dir,
            workers,
            _node: node,
            channel,
        }
    }

    fn batches(&self) -> BatchServiceClient<Channel> {
        BatchServiceClient::new(self.channel.clone())
    }

    fn tables(&self) -> TableServiceClient<Channel> {
        TableServiceClient::new(self.channel.clone())
    }

    fn submission(&self, id: &str, text: &str) -> v1::SubmitBatchRequest {
        submission(self.dir.path(), id, &format!("{id}.jsonl"), text)
    }

    async fn submit(&self, request: v1::SubmitBatchRequest) -> Result<v1::Batch, Status> {
        let answer = self.batches().submit_batch(request).await?;
        Ok(answer.into_inner().batch.unwrap())
    }

    async fn get(&self, id: &str) -> Result<v1::Batch, Status> {
        let request = v1::GetBatchRequest {
            table: "t".into(),
            batch_id: id.into(),
        };
        let answer = self.batches().get_batch(request).await?;
        Ok(answer.into_inner().batch.unwrap())
    }
}

fn waiting(request: v1::SubmitBatchRequest) -> v1::SubmitBatchRequest {
    v1::SubmitBatchRequest {
        wait: true,
        ..request
    }
}

#[tokio::test]
async fn one_batch_by_two_clients_is_one_version_and_other_content_is_refused() {
    let bench = Bench::new(0).await;
    let same = bench.submission("b", "{}");
    let first = bench.submit(same.clone()).await.unwrap();
    assert_eq!(first.state(), v1::BatchState::Running);
    // While it runs.
    let other = submission(bench.dir.path(), "b", "other.jsonl", "{\"a\":1}");
    let refused = bench.submit(other.clone()).await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::FailedPrecondition);
    assert_eq!(error_of(&refused).code(), Code::BatchContentMismatch);
    let second = bench.submit(waiting(same.clone()));
    let third = bench.submit(waiting(same.clone()));
    bench.workers.gate.add_permits(8);
    let (second, third) = tokio::join!(second, third);
    let (second, third) = (second.unwrap(), third.unwrap());
    assert_eq!(second, third);
    assert_eq!(second.result.as_ref().unwrap().version, 1);
    // When it is in the table.
    assert_eq!(bench.submit(same).await.unwrap().result, second.result);
    let refused = bench.submit(other).await.unwrap_err();
    assert_eq!(error_of(&refused).code(), Code::BatchContentMismatch);
    assert_eq!(bench.get("b").await.unwrap().result, second.result);
    assert_eq!(
        7,
        bench.workers.gate.available_permits(),
        "it was executed once"
    );
}

#[tokio::test]
async fn a_batch_is_cancelled_before_it_is_prepared_and_may_run_again() {
    let bench = Bench::new(0).await;
    let request = bench.submission("b", "{}");
    bench.submit(request.clone()).await.unwrap();
    let asked = v1::CancelBatchRequest {
        table: "t".into(),
        batch_id: "b".into(),
    };
    let cancelled = bench.batches().cancel_batch(asked.clone()).await.unwrap();
    let state = cancelled.into_inner().batch.unwrap().state();
    assert_eq!(state, v1::BatchState::Cancelled);
    assert_eq!(
        bench.get("b").await.unwrap().state(),
        v1::BatchState::Cancelled
    );
    bench.workers.gate.add_permits(1);
    let again = bench.submit(waiting(request)).await.unwrap();
    assert_eq!(again.result.unwrap().version, 1);
    // What is done stays done.
    let late = bench.batches().cancel_batch(asked).await.unwrap();
    let state = late.into_inner().batch.unwrap().state();
    assert_eq!(state, v1::BatchState::Succeeded);
}

#[tokio::test]
async fn a_watch_tells_how_it_goes_and_ends_with_the_batch() {
    let bench = Bench::new(0).await;
    bench.submit(bench.submission("b", "{}")).await.unwrap();
    let request = v1::WatchBatchRequest {
        table: "t".into(),
        batch_id: "b".into(),
    };
    let mut watch = bench
        .batches()
        .watch_batch(request.clone())
        .await
        .unwrap()
        .into_inner();
    let first = watch.message().await.unwrap().unwrap().batch.unwrap();
    assert_eq!(first.state(), v1::BatchState::Running);
    bench.workers.gate.add_permits(1);
    let mut last = first;
    while let Some(message) = watch.message().await.unwrap() {
        last = message.batch.unwrap();
    }
    assert_eq!(last.state(), v1::BatchState::Succeeded);
    assert_eq!(last.result.unwrap().inserted, 1);
    // One that is over is told once.
    let mut watch = bench
        .batches()
        .watch_batch(request)
        .await
        .unwrap()
        .into_inner();
    assert!(watch.message().await.unwrap().is_some());
    assert!(watch.message().await.unwrap().is_none());
}

#[tokio::test]
async fn a_wait_is_answered_before_the_deadline() {
    let bench = Bench::new(0).await;
    let mut request = Request::new(waiting(bench.submission("b", "{}")));
    request.set_timeout(Duration::from_millis(600));
    let answer = bench.batches().submit_batch(request).await.unwrap();
    let batch = answer.into_inner().batch.unwrap();
    assert_eq!(batch.state(), v1::BatchState::Running);
}

#[tokio::test]
async fn a_refused_batch_says_why_and_may_be_tried_again() {
    let bench = Bench::new(2).await;
    let bad = submission(bench.dir.path(), "b", "refused.jsonl", "{}");
    let failed = bench.submit(waiting(bad)).await.unwrap();
    assert_eq!(failed.state(), v1::BatchState::Failed);
    let error = failed.error.unwrap();
    assert_eq!(error.code, "NULL_KEY");
    assert!(error.message.contains("refused.jsonl"), "{}", error.message);
    // Nothing of it is in the table, so the id is free for repaired content.
    let good = bench
        .submit(waiting(bench.submission("b", "{}")))
        .await
        .unwrap();
    assert_eq!(good.result.unwrap().version, 1);
}

#[tokio::test]
async fn a_dry_run_commits_nothing() {
    let bench = Bench::new(1).await;
    let dry = v1::SubmitBatchRequest {
        dry_run: true,
        ..bench.submission("b", "{}")
    };
    let counted = bench.submit(dry).await.unwrap();
    assert_eq!(counted.result.unwrap().inserted, 1);
    let missing = bench.get("b").await.unwrap_err();
    assert_eq!(missing.code(), tonic::Code::NotFound);
}

#[tokio::test]
async fn lists_come_in_pages_newest_first() {
    let bench = Bench::new(64).await;
    create(&bench.channel, "u").await;
    for number in 0..5 {
        let id = format!("b{number}");
        bench
            .submit(waiting(bench.submission(&id, &id)))
            .await
            .unwrap();
    }
    let mut request = bench.submission("other", "x");
    request.table = "u".into();
    bench.submit(waiting(request)).await.unwrap();
    let refused = submission(bench.dir.path(), "bad", "refused.jsonl", "{}");
    bench.submit(waiting(refused)).await.unwrap();
    let of_table = listed(&bench, "t").await;
    assert_eq!(of_table, ["bad", "b4", "b3", "b2", "b1", "b0"]);
    let of_all = listed(&bench, "").await;
    assert_eq!(of_all, ["bad", "other", "b4", "b3", "b2", "b1", "b0"]);
    let versions = history(&bench).await;
    assert_eq!(versions, [5, 4, 3, 2, 1, 0]);
    assert_eq!(table_names(&bench).await, ["t", "u"]);
    let request = v1::ListBatchesRequest {
        page_token: "nonsense".into(),
        ..v1::ListBatchesRequest::default()
    };
    let error = bench.batches().list_batches(request).await.unwrap_err();
    assert_eq!(error.code(), tonic::Code::InvalidArgument);
}

async fn listed(bench: &Bench, table: &str) -> Vec<String> {
    let (mut ids, mut token) = (Vec::new(), String::new());
    loop {
        let request = v1::ListBatchesRequest {
            table: table.into(),
            page_size: 2,
            page_token: token,
        };
        let page = bench
            .batches()
            .list_batches(request)
            .await
            .unwrap()
            .into_inner();
        assert!(page.batches.len() <= 3, "a page is bounded");
        ids.extend(page.batches.into_iter().map(|batch| batch.batch_id));
        token = page.next_page_token;
        if token.is_empty() {
            return ids;
        }
    }
}

async fn history(bench: &Bench) -> Vec<i64> {
    let (mut versions, mut token) = (Vec::new(), String::new());
    loop {
        let request = v1::ListTableHistoryRequest {
            table: "t".into(),
            page_size: 4,
            page_token: token,
        };
        let page = bench
            .tables()
            .list_table_history(request)
            .await
            .unwrap()
            .into_inner();
        versions.extend(page.versions.into_iter().map(|version| version.version));
        token = page.next_page_token;
        if token.is_empty() {
            return versions;
        }
    }
}

async fn table_names(bench: &Bench) -> Vec<String> {
    let (mut names, mut token) = (Vec::new(), String::new());
    loop {
        let request = v1::ListTablesRequest {
            page_size: 1,
            page_token: token,
        };
        let page = bench
            .tables()
            .list_tables(request)
            .await
            .unwrap()
            .into_inner();
        assert!(page.tables.iter().all(|table| table.status == "active"));
        names.extend(page.tables.into_iter().map(|table| table.name));
        token = page.next_page_token;
        if token.is_empty() {
            return names;
        }
    }
}

#[tokio::test]
async fn refusals_carry_their_details() {
    let bench = Bench::new(0).await;
    let spec = "name: x\nkeys: [id]\nsequence_bye: seq\n".to_owned();
    let request = v1::CreateTableRequest { spec };
    let status = bench.tables().create_table(request).await.unwrap_err();
    assert_eq!(status.code(), tonic::Code::InvalidArgument);
    let info = status.get_details_error_info().unwrap();
    assert_eq!(
        (info.reason.as_str(), info.domain.as_str()),
        ("INVALID_SPEC", "tidegate")
    );
    let violations = status.get_details_bad_request().unwrap().field_violations;
    assert_eq!(violations[0].field, "spec");
    assert!(error_of(&status).hint().unwrap().contains("sequence_by"));
    let request = v1::DescribeTableRequest {
        table: "nope".into(),
    };
    let status = bench.tables().describe_table(request).await.unwrap_err();
    assert_eq!(status.code(), tonic::Code::NotFound);
    assert_eq!(error_of(&status).code(), Code::TableNotFound);
    let long = bench.submission("x", "{}");
    let long = v1::SubmitBatchRequest {
        batch_id: "x".repeat(600),
        ..long
    };
    let status = bench.submit(long).await.unwrap_err();
    let violations = status.get_details_bad_request().unwrap().field_violations;
    assert_eq!(violations[0].field, "batch_id");
}

#[tokio::test]
async fn a_single_member_says_that_nobody_can_join() {
    let bench = Bench::new(0).await;
    let mut cluster = ClusterServiceClient::new(bench.channel.clone());
    let status = cluster
        .get_cluster_status(v1::GetClusterStatusRequest {})
        .await
        .unwrap();
    let status = status.into_inner();
    assert_eq!(status.leader_node_id, Some(status.node_id));
    let roles: BTreeSet<_> = status.nodes[0].roles.iter().map(String::as_str).collect();
    assert_eq!(roles, BTreeSet::from(["coordinator", "voter", "worker"]));
    let request = v1::DrainNodeRequest { node_id: 7 };
    let refused = cluster.drain_node(request).await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::Unimplemented);
    assert!(refused.message().contains('7'), "{}", refused.message());
}
