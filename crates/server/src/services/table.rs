//! `TableService`.

use std::sync::Arc;

use futures::StreamExt;
use tidegate_change::{Error, Result, TableSpec, TableVersion};
use tidegate_cluster::metadata::TableStatus;
use tidegate_rpc::batch::version_message;
use tidegate_rpc::flight::{ChangesTicket, ReadTicket, RejectsTicket, Ticket};
use tidegate_rpc::status::{status_of, status_of_field};
use tidegate_rpc::time::{timestamp, timestamp_ms};
use tidegate_rpc::v1;
use tidegate_rpc::v1::table_service_server::TableService;
use tonic::metadata::MetadataMap;
use tonic::{Request, Response, Status};

use super::{Answers, deadline, page, rows};
use crate::description::{HistoryLine, TableDescription};
use crate::embedded::Embedded;
use crate::node::Serving;
use crate::reads;

/// Tables over gRPC.
#[derive(Clone, Debug)]
pub(crate) struct TableApi {
    serving: Serving,
}

impl TableApi {
    pub(crate) fn new(serving: Serving) -> Self {
        Self { serving }
    }

    /// Changes something, to the end, even when the caller's time is over before.
    async fn change<T, F>(
        &self,
        metadata: &MetadataMap,
        change: impl FnOnce(Arc<Embedded>) -> F,
    ) -> Result<T, Status>
    where
        T: Send + 'static,
        F: Future<Output = Result<T>> + Send + 'static,
    {
        let embedded = Arc::clone(&self.serving.embedded);
        let work = self.serving.threads.run(Box::pin(change(embedded)));
        let done = deadline::bounded(metadata, work).await;
        done.map_err(|e| status_of(&e))
    }

    async fn rows(
        &self,
        metadata: &MetadataMap,
        ticket: Ticket,
    ) -> Result<tidegate_query::Rows, Status> {
        let work = async {
            let reader = self.serving.embedded.current_reader().await?;
            reads::open(&reader, ticket).await
        };
        let opened = deadline::bounded(metadata, work).await;
        Ok(opened.map_err(|e| status_of(&e))?.rows)
    }
}

#[tonic::async_trait]
impl TableService for TableApi {
    type ReadTableStream = Answers<v1::ReadTableResponse>;
    type ReadChangesStream = Answers<v1::ReadChangesResponse>;
    type ReadRejectsStream = Answers<v1::ReadRejectsResponse>;

    async fn create_table(
        &self,
        request: Request<v1::CreateTableRequest>,
    ) -> Result<Response<v1::CreateTableResponse>, Status> {
        let spec = spec_of(&request.get_ref().spec)?;
        let table = spec.name.clone();
        let version = self
            .change(request.metadata(), |embedded| async move {
                Box::pin(embedded.create_table(spec)).await
            })
            .await?;
        let version = version_message(version);
        Ok(Response::new(v1::CreateTableResponse { table, version }))
    }

    async fn alter_table(
        &self,
        request: Request<v1::AlterTableRequest>,
    ) -> Result<Response<v1::AlterTableResponse>, Status> {
        let spec = spec_of(&request.get_ref().spec)?;
        let table = request.get_ref().table.clone();
        let version = self
            .change(request.metadata(), |embedded| async move {
                Box::pin(embedded.alter_table(&table, spec)).await
            })
            .await?;
        let version = version_message(version);
        Ok(Response::new(v1::AlterTableResponse { version }))
    }

    async fn drop_table(
        &self,
        request: Request<v1::DropTableRequest>,
    ) -> Result<Response<v1::DropTableResponse>, Status> {
        let asked = request.get_ref().clone();
        self.change(request.metadata(), |embedded| async move {
            embedded.drop_table(&asked.table, asked.keep_files).await
        })
        .await?;
        Ok(Response::new(v1::DropTableResponse {}))
    }

    async fn adopt_table(
        &self,
        request: Request<v1::AdoptTableRequest>,
    ) -> Result<Response<v1::AdoptTableResponse>, Status> {
        let asked = request.get_ref().clone();
        let (table, version) = self
            .change(request.metadata(), |embedded| async move {
                let name = Some(asked.name.as_str()).filter(|name| !name.is_empty());
                let table = embedded.adopt(&asked.location, name).await?;
                let reader = embedded.current_reader().await?;
                let version = reader.snapshot(&table, None).await?.version;
                Ok((table, version))
            })
            .await?;
        let version = version_message(version);
        Ok(Response::new(v1::AdoptTableResponse { table, version }))
    }

    async fn list_tables(
        &self,
        request: Request<v1::ListTablesRequest>,
    ) -> Result<Response<v1::ListTablesResponse>, Status> {
        let work = list_tables(&self.serving.embedded, request.get_ref());
        let page = deadline::bounded(request.metadata(), work).await;
        page.map(Response::new).map_err(|e| status_of(&e))
    }

    async fn describe_table(
        &self,
        request: Request<v1::DescribeTableRequest>,
    ) -> Result<Response<v1::DescribeTableResponse>, Status> {
        let work = async {
            let table = &request.get_ref().table;
            table_message(self.serving.embedded.describe(table).await?)
        };
        let table = deadline::bounded(request.metadata(), work).await;
        let table = Some(table.map_err(|e| status_of(&e))?);
        Ok(Response::new(v1::DescribeTableResponse { table }))
    }

    async fn list_table_history(
        &self,
        request: Request<v1::ListTableHistoryRequest>,
    ) -> Result<Response<v1::ListTableHistoryResponse>, Status> {
        let work = list_history(&self.serving.embedded, request.get_ref());
        let page = deadline::bounded(request.metadata(), work).await;
        page.map(Response::new).map_err(|e| status_of(&e))
    }

    async fn read_table(
        &self,
        request: Request<v1::ReadTableRequest>,
    ) -> Result<Response<Self::ReadTableStream>, Status> {
        let ticket = Ticket::Read(read_ticket(request.get_ref()));
        let rows = self.rows(request.metadata(), ticket).await?;
        let messages = rows::messages(rows, |rows| v1::ReadTableResponse { rows });
        Ok(Response::new(messages))
    }

    async fn read_changes(
        &self,
        request: Request<v1::ReadChangesRequest>,
    ) -> Result<Response<Self::ReadChangesStream>, Status> {
        let ticket = Ticket::Changes(changes_ticket(request.get_ref()));
        let rows = self.rows(request.metadata(), ticket).await?;
        let messages = rows::messages(rows, |changes| v1::ReadChangesResponse { changes });
        Ok(Response::new(messages))
    }

    async fn read_rejects(
        &self,
        request: Request<v1::ReadRejectsRequest>,
    ) -> Result<Response<Self::ReadRejectsStream>, Status> {
        let ticket = RejectsTicket {
            table: request.get_ref().table.clone(),
            limit: None,
        };
        let rows = self
            .rows(request.metadata(), Ticket::Rejects(ticket))
            .await?;
        let messages = rows::messages(rows, |rejects| v1::ReadRejectsResponse { rejects });
        Ok(Response::new(messages.boxed()))
    }
}

fn spec_of(text: &str) -> Result<TableSpec, Status> {
    TableSpec::from_yaml(text).map_err(|error| status_of_field("spec", &error))
}

fn read_ticket(asked: &v1::ReadTableRequest) -> ReadTicket {
    use v1::read_table_request::At;
    let (version, timestamp_ms) = match &asked.at {
        Some(At::Version(version)) => (Some(*version), None),
        Some(At::Timestamp(time)) => (None, Some(timestamp_ms(time))),
        None => (None, None),
    };
    ReadTicket {
        table: asked.table.clone(),
        version,
        timestamp_ms,
        columns: Some(asked.columns.clone()).filter(|columns| !columns.is_empty()),
        filter: Some(asked.r#where.clone()).filter(|sql| !sql.is_empty()),
        order: asked.order,
        limit: asked.limit,
        min_version: Some(asked.min_version),
    }
}

fn changes_ticket(asked: &v1::ReadChangesRequest) -> ChangesTicket {
    use v1::read_changes_request::{End, Start};
    let (from_version, from_timestamp_ms) = match &asked.start {
        Some(Start::FromVersion(version)) => (Some(*version), None),
        Some(Start::FromTimestamp(time)) => (None, Some(timestamp_ms(time))),
        None => (None, None),
    };
    let (to_version, to_timestamp_ms) = match &asked.end {
        Some(End::ToVersion(version)) => (Some(*version), None),
        Some(End::ToTimestamp(time)) => (None, Some(timestamp_ms(time))),
        None => (None, None),
    };
    ChangesTicket {
        table: asked.table.clone(),
        from_version,
        from_timestamp_ms,
        to_version,
        to_timestamp_ms,
        allow_out_of_range: asked.allow_out_of_range,
    }
}

async fn list_tables(
    embedded: &Embedded,
    asked: &v1::ListTablesRequest,
) -> Result<v1::ListTablesResponse> {
    let after: Option<String> = page::place(&asked.page_token)?;
    let size = page::size(asked.page_size);
    let reader = embedded.current_reader().await?;
    let mut names = reader.names_after(after.as_deref());
    let listed: Vec<&str> = names.by_ref().take(size).collect();
    let next_page_token = match (names.next(), listed.last()) {
        (Some(_), Some(last)) => page::token(last)?,
        _ => String::new(),
    };
    let state = embedded.coordinator.state().await?;
    let mut tables = Vec::with_capacity(listed.len());
    for name in listed {
        let listing = reader.listing(name).await?;
        let status = match state.table_named(name).map(|(_, table)| &table.status) {
            Some(TableStatus::Active) => "active".to_owned(),
            Some(TableStatus::Quarantined { reason }) => reason.clone(),
            Some(TableStatus::Dropping { .. }) | None => "dropped".to_owned(),
        };
        tables.push(v1::TableSummary {
            name: listing.name,
            location: listing.location,
            version: version_message(listing.version),
            status,
        });
    }
    Ok(v1::ListTablesResponse {
        tables,
        next_page_token,
    })
}

async fn list_history(
    embedded: &Embedded,
    asked: &v1::ListTableHistoryRequest,
) -> Result<v1::ListTableHistoryResponse> {
    let below: Option<u64> = page::place(&asked.page_token)?;
    let size = page::size(asked.page_size);
    let log = embedded.current_reader().await?.log(&asked.table)?;
    let entries = log
        .history_below(below.map(TableVersion), Some(size + 1))
        .await?;
    let has_more = entries.len() > size;
    let lines = entries.into_iter().take(size).map(HistoryLine::of);
    let lines = lines.collect::<Result<Vec<_>>>()?;
    let next_page_token = match lines.last() {
        Some(last) if has_more => page::token(&last.version.0)?,
        _ => String::new(),
    };
    Ok(v1::ListTableHistoryResponse {
        versions: lines.into_iter().map(version_line).collect(),
        next_page_token,
    })
}

fn version_line(line: HistoryLine) -> v1::TableVersion {
    v1::TableVersion {
        version: version_message(line.version),
        committed_at: Some(timestamp(line.timestamp_ms)),
        operation: line.operation,
        batch_id: line.batch_id.map(|id| id.0),
        watermark: line.watermark.to_string(),
        inserted: line.inserted,
        updated: line.updated,
        deleted: line.deleted,
        files_added: line.files_added,
        files_removed: line.files_removed,
        bytes_written: line.bytes_written,
    }
}

fn table_message(table: TableDescription) -> Result<v1::Table> {
    let spec = serde_json::to_string(&table.spec)
        .map_err(|e| Error::internal("a spec cannot be written").with_source(e))?;
    Ok(v1::Table {
        name: table.name,
        id: table.id,
        location: table.location,
        version: version_message(table.version),
        watermark: table.watermark.to_string(),
        rows_count: table.rows,
        files_count: table.files,
        bytes: table.bytes,
        spec,
    })
}
