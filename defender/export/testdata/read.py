"""Reads the tables of muster defender export with pandas and with DuckDB, and prints what
both find as JSON.

usage: read.py DIRECTORY
"""

import json
import sys

import duckdb
import pandas as pd

directory = sys.argv[1]
traces = pd.read_parquet(f"{directory}/traces.parquet")
statistics = pd.read_parquet(f"{directory}/statistics.parquet")
verdicts = pd.read_parquet(f"{directory}/verdicts.parquet")

# The mean of each sensor in each step, computed again from the traces.
means = traces.groupby(["chamber", "run", "sensor", "step"])["value"].mean()
joined = statistics.set_index(["chamber", "run", "sensor", "step"]).join(means)
pandas = {
    "samples": len(traces),
    "statistics": len(statistics),
    "missing": int(traces["value"].isna().sum()),
    "furthest": float((joined["mean"] - joined["value"]).abs().max()),
    "runs": verdicts["run"].tolist(),
    "states": verdicts["state"].tolist(),
    "lots": sorted(verdicts["lot"].unique().tolist()),
    "first": verdicts["start"].min().isoformat(),
    "alarms": len(pd.read_parquet(f"{directory}/alarms.parquet")),
}

query = duckdb.connect()
(samples, missing), = query.sql(
    f"select count(*), count(*) filter (isnan(value)) from '{directory}/traces.parquet'").fetchall()
(furthest,), = query.sql(f"""
    select max(abs(s.mean - t.mean)) from '{directory}/statistics.parquet' s join (
        select chamber, run, sensor, step, avg(value) filter (not isnan(value)) as mean
        from '{directory}/traces.parquet' group by all) t using (chamber, run, sensor, step)""").fetchall()
(alarms,), = query.sql(f"select count(*) from '{directory}/alarms.parquet'").fetchall()
duck = {"samples": samples, "missing": missing, "furthest": furthest, "alarms": alarms}

print(json.dumps({"pandas": pandas, "duckdb": duck}))
