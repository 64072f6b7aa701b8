//! Tables.

use tidegate_change::{Error, Result, TableVersion};
use tidegate_rpc::batch::version_from;
use tidegate_rpc::v1;
use tidegate_rpc::v1::table_service_client::TableServiceClient;

use crate::client::Client;
use crate::repeat::Repeat;

/// A page of tables.
#[derive(Clone, Debug, Default)]
pub struct TablePage {
    /// The tables, in name order.
    pub tables: Vec<v1::TableSummary>,
    /// Where the next page begins; empty on the last.
    pub next_page_token: String,
}

/// A page of versions.
#[derive(Clone, Debug, Default)]
pub struct VersionPage {
    /// The versions, newest first.
    pub versions: Vec<v1::TableVersion>,
    /// Where the next page begins; empty on the last.
    pub next_page_token: String,
}

impl Client {
    /// Creates a table from a spec, YAML or JSON; returns its name and version.
    ///
    /// # Errors
    /// `TABLE_EXISTS`, or what is wrong with the spec.
    pub async fn create_table(&self, spec: &str) -> Result<(String, TableVersion)> {
        let answer = self
            .call(Repeat::WhenNotDone, |channel| async move {
                let message = v1::CreateTableRequest {
                    spec: spec.to_owned(),
                };
                let mut service = TableServiceClient::new(channel);
                service.create_table(self.request(message)).await
            })
            .await?
            .into_inner();
        Ok((answer.table, version_from(answer.version)?))
    }

    /// Gives a table a whole new spec.
    ///
    /// # Errors
    /// `TABLE_NOT_FOUND`, `INVALID_ALTER`, or what is wrong with the spec.
    pub async fn alter_table(&self, table: &str, spec: &str) -> Result<TableVersion> {
        // The same spec twice changes nothing the second time.
        let answer = self
            .call(Repeat::Always, |channel| async move {
                let message = v1::AlterTableRequest {
                    table: table.to_owned(),
                    spec: spec.to_owned(),
                };
                let mut service = TableServiceClient::new(channel);
                service.alter_table(self.request(message)).await
            })
            .await?
            .into_inner();
        version_from(answer.version)
    }

    /// Drops a table, with its files unless they are kept.
    ///
    /// # Errors
    /// `TABLE_NOT_FOUND`.
    pub async fn drop_table(&self, table: &str, keep_files: bool) -> Result<()> {
        self.call(Repeat::WhenNotDone, |channel| async move {
            let message = v1::DropTableRequest {
                table: table.to_owned(),
                keep_files,
            };
            let mut service = TableServiceClient::new(channel);
            service.drop_table(self.request(message)).await
        })
        .await
        .map(drop)
    }

    /// Takes in a table by what it holds; returns its name and version.
    ///
    /// # Errors
    /// `TABLE_NOT_FOUND`, `TABLE_EXISTS`, `INVALID_LOCATION`.
    pub async fn adopt_table(
        &self,
        location: &str,
        name: Option<&str>,
    ) -> Result<(String, TableVersion)> {
        let answer = self
            .call(Repeat::WhenNotDone, |channel| async move {
                let message = v1::AdoptTableRequest {
                    location: location.to_owned(),
                    name: name.unwrap_or_default().to_owned(),
                };
                let mut service = TableServiceClient::new(channel);
                service.adopt_table(self.request(message)).await
            })
            .await?
            .into_inner();
        Ok((answer.table, version_from(answer.version)?))
    }

    /// A page of tables.
    ///
    /// # Errors
    /// `UNAVAILABLE`.
    pub async fn list_tables(&self, page_size: u32, page_token: &str) -> Result<TablePage> {
        let answer = self
            .call(Repeat::Always, |channel| async move {
                let message = v1::ListTablesRequest {
                    page_size,
                    page_token: page_token.to_owned(),
                };
                let mut service = TableServiceClient::new(channel);
                service.list_tables(self.request(message)).await
            })
            .await?
            .into_inner();
        Ok(TablePage {
            tables: answer.tables,
            next_page_token: answer.next_page_token,
        })
    }

    /// Everything about a table.
    ///
    /// # Errors
    /// `TABLE_NOT_FOUND`.
    pub async fn describe_table(&self, table: &str) -> Result<v1::Table> {
        let answer = self
            .call(Repeat::Always, |channel| async move {
                let message = v1::DescribeTableRequest {
                    table: table.to_owned(),
                };
                let mut service = TableServiceClient::new(channel);
                service.describe_table(self.request(message)).await
            })
            .await?;
        let described = answer.into_inner().table;
        described.ok_or_else(|| Error::internal("an answer without a table"))
    }

    /// A page of the versions of a table.
    ///
    /// # Errors
    /// `TABLE_NOT_FOUND`.
    pub async fn list_table_history(
        &self,
        table: &str,
        page_size: u32,
        page_token: &str,
    ) -> Result<VersionPage> {
        let answer = self
            .call(Repeat::Always, |channel| async move {
                let message = v1::ListTableHistoryRequest {
                    table: table.to_owned(),
                    page_size,
                    page_token: page_token.to_owned(),
                };
                let mut service = TableServiceClient::new(channel);
                service.list_table_history(self.request(message)).await
            })
            .await?
            .into_inner();
        Ok(VersionPage {
            versions: answer.versions,
            next_page_token: answer.next_page_token,
        })
    }
}
