"""Decodes T-charts by the Python reader and prints a line of JSON for each: what it holds, with floats
as the bytes that they are, or that it is corrupt.

usage: decode.py DIRECTORY_OF_READER FILE...
"""

import json
import sys

sys.path.insert(0, sys.argv[1])
import tchart  # noqa: E402

for name in sys.argv[2:]:
    with open(name, "rb") as file:
        blob = file.read()
    try:
        t = tchart.read(blob)
    except tchart.Corrupt as err:
        print(json.dumps({"error": "corrupt", "why": str(err)}))
        continue
    except tchart.UnknownVersion:
        print(json.dumps({"error": "version"}))
        continue
    texts = [t.tool, t.chamber, t.context, t.recipe, t.product, t.lot, t.wafer, *t.svids]
    print(json.dumps({
        "texts": [text.hex() for text in texts],
        "step": t.step.tolist(),
        "floats": [column.astype("<f8").tobytes().hex() for column in [t.time, *t.values]],
    }))
