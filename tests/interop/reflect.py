"""A client that knows only what reflection tells does the whole flow on a running node.

    reflect.py HOST:PORT DIRECTORY

DIRECTORY lies below a directory of the node's sources. Creates a table, submits a batch, watches it, reads
rows and changes, submits the same again, and other content under the same id. Fails when an answer is not
what a scheduler would expect.
"""

import json
import pathlib
import sys

import grpc
from google.protobuf import descriptor_pool, message_factory
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)

SPEC = """
name: reflected
keys: [id]
sequence_by: seq
change_data_feed: true
schema:
  - {name: id, type: long}
  - {name: seq, type: long}
  - {name: city, type: string}
"""

EVENTS = [
    {"id": 1, "seq": 1, "city": "Pune"},
    {"id": 2, "seq": 1, "city": "Delhi"},
    {"id": 1, "seq": 2, "city": "Mumbai"},
]


class Service:
    """The calls of one service, as its descriptor says them."""

    def __init__(self, channel, pool, name):
        self.channel, self.service = channel, pool.FindServiceByName(name)

    def call(self, method, **fields):
        """The answer; a list of answers where the method streams them."""
        found = self.service.methods_by_name[method]
        request = message_factory.GetMessageClass(found.input_type)(**fields)
        answer = message_factory.GetMessageClass(found.output_type)
        path = f"/{self.service.full_name}/{method}"
        kind = self.channel.unary_stream if found.server_streaming else self.channel.unary_unary
        stub = kind(path, request_serializer=type(request).SerializeToString, response_deserializer=answer.FromString)
        called = stub(request, timeout=60)
        return list(called) if found.server_streaming else called


def state(batch):
    """The word of a batch's state."""
    return batch.DESCRIPTOR.fields_by_name["state"].enum_type.values_by_number[batch.state].name


def expect(what, found, wanted):
    if found != wanted:
        raise SystemExit(f"{what}: {found!r} instead of {wanted!r}")


def write(directory, name, events):
    path = directory / name
    path.write_text("".join(json.dumps(event) + "\n" for event in events))
    return [{"url": path.resolve().as_uri()}]


def check_health(channel, pool):
    health = Service(channel, pool, "grpc.health.v1.Health")
    answer = health.call("Check", service="tidegate.v1.BatchService")
    expect("health", answer.status, 1)


def check_batches(batches, sources):
    """Submits, watches, gets; again; and other content."""
    names = {"table": "reflected", "batch_id": "run-1"}
    taken = batches.call("SubmitBatch", sources=sources, **names).batch
    expect("the batch's id", taken.batch_id, "run-1")
    watched = batches.call("WatchBatch", **names)
    expect("the last state", state(watched[-1].batch), "BATCH_STATE_SUCCEEDED")
    result = watched[-1].batch.result
    expect("the counts", (result.version, result.events, result.inserted), (1, 3, 2))
    again = batches.call("SubmitBatch", sources=sources, wait=True, **names).batch
    expect("the answer to a retry", again.result, result)
    expect("the batch by name", batches.call("GetBatch", **names).batch.result, result)
    listed = batches.call("ListBatches", table="reflected").batches
    expect("the list", [batch.batch_id for batch in listed], ["run-1"])
    return names


def check_mismatch(batches, names, sources):
    try:
        batches.call("SubmitBatch", sources=sources, wait=True, **names)
    except grpc.RpcError as error:
        expect("the status", error.code(), grpc.StatusCode.FAILED_PRECONDITION)
        details = dict(error.trailing_metadata())["grpc-status-details-bin"]
        expect("the reason in the details", b"BATCH_CONTENT_MISMATCH" in details, True)
        return
    raise SystemExit("other content was taken under the same id")


def check_reads(tables):
    answers = tables.call("ReadTable", table="reflected", order=True, columns=["id", "city"])
    rows = [json.loads(row) for answer in answers for row in answer.rows]
    expect("the rows", rows, [{"id": 1, "city": "Mumbai"}, {"id": 2, "city": "Delhi"}])
    answers = tables.call("ReadChanges", table="reflected", from_version=1)
    changes = [json.loads(change) for answer in answers for change in answer.changes]
    expect("the changes", sorted(change["_change_type"] for change in changes), ["insert", "insert"])
    described = tables.call("DescribeTable", table="reflected").table
    expect("the description", (described.version, described.rows_count), (1, 2))


def main(address, directory):
    directory = pathlib.Path(directory)
    with grpc.insecure_channel(address) as channel:
        database = ProtoReflectionDescriptorDatabase(channel)
        pool = descriptor_pool.DescriptorPool(database)
        expect("an internal service", [name for name in database.get_services() if "internal" in name], [])
        tables, batches = (Service(channel, pool, f"tidegate.v1.{name}Service") for name in ("Table", "Batch"))
        check_health(channel, pool)
        expect("the new table", tables.call("CreateTable", spec=SPEC).version, 0)
        sources = write(directory, "events.jsonl", EVENTS)
        names = check_batches(batches, sources)
        check_mismatch(batches, names, write(directory, "other.jsonl", EVENTS[:1]))
        check_reads(tables)


if __name__ == "__main__":
    main(*sys.argv[1:])
