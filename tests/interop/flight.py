"""A client of Arrow Flight that knows nothing of Tidegate but the interface document.

    flight.py HOST:PORT

Puts change events as columns and as raw records, hears how the batch goes, and gets versions and changes.
"""

import json
import sys

import pyarrow as pa
import pyarrow.flight as flight

COLUMNS = pa.schema([("id", pa.int64()), ("seq", pa.int64()), ("city", pa.string())])


def expect(what, found, wanted):
    if found != wanted:
        raise SystemExit(f"{what}: {found!r} instead of {wanted!r}")


def put(client, table, batches, **request):
    """The result of a batch, after what was told on the way."""
    descriptor = flight.FlightDescriptor.for_path(table)
    writer, reader = client.do_put(descriptor, batches[0].schema)
    first, *rest = batches
    writer.write_with_metadata(first, json.dumps(request).encode())
    for batch in rest:
        writer.write_batch(batch)
    writer.done_writing()
    told = []
    while (answer := reader.read()) is not None:
        told.append(json.loads(answer.to_pybytes()))
    writer.close()
    expect("what was told first", list(told[0]), ["received"])
    expect("what was told last", list(told[-1]), ["result"])
    return told[-1]["result"]


def get(client, **ticket):
    return client.do_get(flight.Ticket(json.dumps(ticket).encode())).read_all()


def rows(*values):
    return pa.RecordBatch.from_pylist([dict(zip(COLUMNS.names, value)) for value in values], COLUMNS)


def check_columns(client):
    whole = rows((1, 1, "Pune"), (2, 1, "Delhi"), (1, 2, "Mumbai"))
    result = put(client, "columns", [whole], batch_id="c-1", offsets={"shop/0": {"from": 0, "to": 3}})
    expect("the columns", (result["version"], result["events"], result["offsets"]), (1, 3, {"shop/0": 3}))
    pieces = [whole.slice(0, 2), whole.slice(2)]
    again = put(client, "columns", pieces, batch_id="c-1", rows=3)
    expect("the answer to a retry", again, result)
    table = get(client, read={"table": "columns", "order": True})
    expect("the rows", table.to_pydict(), {"id": [1, 2], "seq": [2, 1], "city": ["Mumbai", "Delhi"]})
    try:
        put(client, "columns", [whole.slice(0, 1)], batch_id="c-1")
    except (flight.FlightError, pa.ArrowException) as error:
        expect("the refusal", "other content" in str(error), True)
    else:
        raise SystemExit("other content was taken under the same id")


def check_records(client):
    values = [json.dumps({"id": n, "seq": 1, "city": f"city {n}"}).encode() for n in range(3)]
    records = pa.record_batch(
        {
            "value": pa.array(values, pa.binary()),
            "topic": pa.array(["shop"] * 3),
            "partition": pa.array([1] * 3, pa.int32()),
            "offset": pa.array([5, 6, 7], pa.int64()),
        }
    )
    result = put(client, "records", [records])
    expect("the records", (result["events"], result["offsets"]), (3, {"shop/1": 8}))
    feed = get(client, changes={"table": "records", "from_version": 0})
    expect("the feed", feed["_change_type"].to_pylist(), ["insert"] * 3)


def check_info(client):
    info = client.get_flight_info(flight.FlightDescriptor.for_path("columns"))
    expect("the columns of a table", info.schema, COLUMNS)
    table = client.do_get(info.endpoints[0].ticket).read_all()
    expect("the rows of an endpoint", table.num_rows, 2)
    names = sorted(info.descriptor.path[0].decode() for info in client.list_flights())
    expect("the tables", names, ["columns", "records"])


def main(address):
    with flight.connect(f"grpc://{address}") as client:
        check_columns(client)
        check_records(client)
        check_info(client)


if __name__ == "__main__":
    main(*sys.argv[1:])
