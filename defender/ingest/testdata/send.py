"""Sends runs to muster defender ingest in every format, with nothing of Muster's own:
pandas and PyArrow write the tables, urllib and NATS' client send them.

usage: send.py HTTP_ADDRESS TOKEN NATS_URL

Prints the answers and the table as JSON. A run is named after its format.
"""

import asyncio
import io
import json
import sys
import urllib.error
import urllib.parse
import urllib.request

import nats
import numpy as np
import pandas as pd
import pyarrow as pa

http, token, broker = sys.argv[1:]

noise = np.random.default_rng(7)
rows = 200
table = pd.DataFrame({
    "ts": pd.Timestamp("2026-03-01T12:00:00Z") + pd.to_timedelta(np.arange(rows) * 100, unit="ms"),
    "step": np.repeat([1, 2, 3, 4], rows // 4),
    "Pressure": np.round(noise.normal(1227, 2, rows), 1),
    "RF Power": noise.normal(350, 1, rows),
    "He Flow": np.where(np.arange(rows) % 10 == 3, np.nan, 12.5),
    "lot_id": pd.Categorical(["L42"] * rows),
})


def parquet(frame):
    out = io.BytesIO()
    frame.to_parquet(out, engine="pyarrow")
    return out.getvalue()


def arrow(frame, new):
    out = io.BytesIO()
    content = pa.Table.from_pandas(frame)
    with new(out, content.schema) as writer:
        writer.write_table(content, max_chunksize=64)
    return out.getvalue()


media = "application/vnd.apache."
formats = {
    "csv": ("text/csv", lambda f: f.to_csv(index=False).encode()),
    "rows": ("application/json", lambda f: f.to_json(orient="records", date_format="iso", double_precision=15).encode()),
    "columns": ("application/json", lambda f: json.dumps(
        {c: [None if pd.isna(v) else str(v) if c == "ts" else v for v in f[c].tolist()] for c in f}).encode()),
    "parquet": (media + "parquet", parquet),
    "arrow-stream": (media + "arrow.stream", lambda f: arrow(f, pa.ipc.new_stream)),
    "arrow-file": (media + "arrow.file", lambda f: arrow(f, pa.ipc.new_file)),
}


def parameters(run):
    return urllib.parse.urlencode({
        "chamber": "etch01:chamber2", "run": run, "recipe": "metal", "wafer": "12",
        "time-column": "ts", "step-column": "step", "lot-column": "lot_id"})


def post(run, content_type, data):
    request = urllib.request.Request(f"http://{http}/ingest?{parameters(run)}", data, method="POST", headers={
        "Content-Type": content_type, "Authorization": "Bearer " + token})
    try:
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as refused:
        return json.load(refused)


async def ask(answers):
    connection = await nats.connect(broker)
    for name, (content_type, write) in formats.items():
        reply = await connection.request("dc-ingest", write(table), timeout=30, headers={
            "Muster-Ingest": parameters("nats-" + name), "Content-Type": content_type})
        answers["nats-" + name] = json.loads(reply.data)
    await connection.close()


answers = {}
for name, (content_type, write) in formats.items():
    answers[name] = post(name, content_type, write(table))
asyncio.run(ask(answers))

answers["again"] = post("csv", formats["parquet"][0], parquet(table))
other = table.assign(Pressure=table["Pressure"] + 1)
answers["other"] = post("csv", formats["parquet"][0], parquet(other))
answers["malformed"] = post("malformed", formats["parquet"][0], parquet(table.assign(Pressure="high")))

print(json.dumps({
    "answers": answers,
    "time": [i / 10 for i in range(rows)],
    "step": table["step"].tolist(),
    "values": {c: [None if np.isnan(v) else v for v in table[c]] for c in ("Pressure", "RF Power", "He Flow")},
}))
