"""Prints the rows of a table in an object store as deltalake reads them: bucket.py s3://BUCKET/TABLE"""

import json
import sys

from readers import deltalake_rows

table = deltalake_rows(sys.argv[1], None)
rows = sorted(zip(table["id"].to_pylist(), table["seq"].to_pylist()))
print(json.dumps(rows))
