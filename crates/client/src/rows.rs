//! Rows and changes as Arrow batches, by Flight.

use std::fmt;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow_flight::decode::{DecodedPayload, FlightDataDecoder};
use arrow_flight::error::FlightError;
use arrow_flight::flight_service_client::FlightServiceClient;
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use tidegate_change::{Error, Result, TableVersion};
use tidegate_rpc::batch::version_from;
use tidegate_rpc::flight::{StreamEnd, Ticket, from_json, to_json};

use crate::client::{ANSWER_BYTES_MAX, Client};
use crate::repeat::Repeat;

/// Rows of a ticket, as they come.
pub struct RowStream {
    /// The columns.
    pub schema: SchemaRef,
    /// For a stream reader: the version that the rows reach, if there was anything to read.
    pub until: Option<TableVersion>,
    /// The rows.
    pub batches: BoxStream<'static, Result<RecordBatch>>,
}

impl fmt::Debug for RowStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RowStream")
            .field("schema", &self.schema)
            .field("until", &self.until)
            .finish_non_exhaustive()
    }
}

impl Client {
    /// The rows of a ticket. A stream that breaks is an error: what came before is not sent again.
    ///
    /// # Errors
    /// What refuses the ticket; failures of reading come with the rows.
    pub async fn rows(&self, ticket: &Ticket) -> Result<RowStream> {
        let ticket = to_json("a ticket", ticket)?;
        let answer = self
            .call(Repeat::Always, |channel| {
                let ticket = arrow_flight::Ticket::new(ticket.clone());
                async move {
                    let mut service = FlightServiceClient::new(channel)
                        .max_decoding_message_size(ANSWER_BYTES_MAX);
                    service.do_get(self.request(ticket)).await
                }
            })
            .await?;
        let messages = answer.into_inner().map_err(FlightError::from);
        let mut decoder = FlightDataDecoder::new(messages);
        let first = decoder
            .try_next()
            .await
            .map_err(|e| self.unreadable(e))?
            .ok_or_else(|| Error::internal("an answer without columns"))?;
        let DecodedPayload::Schema(schema) = &first.payload else {
            return Err(Error::internal(
                "an answer that does not begin with its columns",
            ));
        };
        let until = match first.inner.app_metadata.as_ref() {
            [] => None,
            text => from_json::<StreamEnd>("the end of a stream", text)?.until,
        };
        let client = self.clone();
        let batches = decoder.filter_map(move |message| {
            let batch = match message {
                Ok(message) => match message.payload {
                    DecodedPayload::RecordBatch(batch) => Some(Ok(batch)),
                    DecodedPayload::Schema(_) | DecodedPayload::None => None,
                },
                Err(error) => Some(Err(client.unreadable(error))),
            };
            std::future::ready(batch)
        });
        Ok(RowStream {
            schema: Arc::clone(schema),
            until: until.map(version_from).transpose()?,
            batches: batches.boxed(),
        })
    }

    fn unreadable(&self, error: FlightError) -> Error {
        match error {
            FlightError::Tonic(status) => self.broken(&status),
            other => Error::internal("an answer is no Arrow data").with_source(other),
        }
    }
}
