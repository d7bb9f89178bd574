# Measures codecs that have packages for Python: pcodec 1.1.0, blosc2 4.14.1, and ALP in DuckDB 2.0.1.
# Reads traces on the standard input, each as two 32-bit counts of columns and rows and then the
# columns as float64. Prints a line of JSON per codec: name, bytes, and seconds of processor time of
# encoding and decoding. Each value that comes back is compared to the bit.
import json, os, struct, sys, tempfile, time

import blosc2
import duckdb
import numpy as np
from pcodec import ChunkConfig, standalone, wrapped


def traces(data):
    at = 0
    while at < len(data):
        columns, rows = struct.unpack_from("<II", data, at)
        at += 8
        trace = [np.frombuffer(data, "<f8", rows, at + 8 * rows * i).copy() for i in range(columns)]
        at += 8 * rows * columns
        yield trace


def decimals(column):
    """The column as integers and the digits behind its point, or as it is."""
    for digits in range(15):
        scale = 10.0**digits
        whole = np.round(column * scale)
        if np.array_equal(whole / scale, column) and np.abs(whole).max() < 2**53:
            return whole.astype(np.int64), digits
    return column, None


def restored(column, digits):
    return column if digits is None else column / 10.0**digits


LEVEL = ChunkConfig(compression_level=12)


def pco(column):
    return standalone.simple_compress(column, LEVEL)


def unpco(blob):
    return standalone.simple_decompress(blob)


def pco_decimals(column):
    whole, digits = decimals(column)
    return pco(whole), digits


def unpco_decimals(blob):
    return restored(unpco(blob[0]), blob[1])


def pco_wrapped(column):
    """Without the standalone format's own header and footer: the fairest beside a trace."""
    whole, digits = decimals(column)
    file = wrapped.FileCompressor()
    chunk = file.chunk_compressor(whole, LEVEL)
    pages = [chunk.write_page(i) for i in range(len(chunk.n_per_page()))]
    return file.write_header(), chunk.write_meta(), pages, chunk.n_per_page(), digits, whole.dtype


def unpco_wrapped(blob):
    header, meta, pages, counts, digits, kind = blob
    file, _ = wrapped.FileDecompressor.new(header)
    chunk, _ = file.chunk_decompressor(meta, str(kind).replace("int", "i").replace("float", "f"))
    out = []
    for page, n in zip(pages, counts):
        part = np.empty(n, kind)
        chunk.read_page_into(page, n, part)
        out.append(part)
    return restored(np.concatenate(out), digits)


def blosc(column):
    return blosc2.compress2(column, codec=blosc2.Codec.ZSTD, clevel=9, typesize=8, nthreads=1,
                            filters=[blosc2.Filter.BITSHUFFLE], filters_meta=[0])


def unblosc(blob):
    return np.frombuffer(blosc2.decompress2(blob, nthreads=1), "<f8")


def size(blob):
    if isinstance(blob, bytes):
        return len(blob)
    if isinstance(blob, (list, tuple)):
        return sum(size(part) for part in blob)
    return 0


def whole(trace):
    """The columns of a trace behind one another."""
    return [np.concatenate(trace)]


def measure(name, sets, encode, decode):
    blobs, spent = [], time.process_time()
    for trace in sets:
        blobs.append([encode(column) for column in trace])
    encoding = time.process_time() - spent
    spent = time.process_time()
    back = [[decode(blob) for blob in trace] for trace in blobs]
    decoding = time.process_time() - spent
    for want, got in zip(sets, back):
        for a, b in zip(want, got):
            if not np.array_equal(a.view("<u8"), np.asarray(b, "<f8").view("<u8")):
                sys.exit(f"{name} does not bring back every bit")
    total = sum(size(blob) for trace in blobs for blob in trace)
    print(json.dumps({"name": name, "bytes": total, "encode": encoding, "decode": decoding}))


def alp(sets):
    """DuckDB has ALP only in its tables, whose blocks have 16 KB at least: rows are repeated."""
    repeat = max(1, 2_000_000 // sum(len(trace[0]) for trace in sets))
    columns = [np.tile(np.concatenate(parts), repeat) for parts in zip(*sets)]
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "alp")
        db = duckdb.connect(path)
        db.execute("set threads=1; set force_compression='alp'")
        source = {f"c{i}": column for i, column in enumerate(columns)}
        db.execute("create table t as from source")
        db.execute("checkpoint")
        used = db.execute("select distinct compression from pragma_storage_info('t') where segment_type = 'DOUBLE'").fetchall()
        if used != [("ALP",)]:
            sys.exit(f"DuckDB compressed with {used}")
        db.close()
        total = os.path.getsize(path)
    print(json.dumps({"name": "ALP in DuckDB, rows repeated", "bytes": round(total / repeat), "encode": 0, "decode": 0}))


sets = list(traces(sys.stdin.buffer.read()))
measure("pcodec, level 12, float64", sets, pco, unpco)
measure("pcodec, level 12, decimals", sets, pco_decimals, unpco_decimals)
measure("pcodec, level 12, decimals, wrapped", sets, pco_wrapped, unpco_wrapped)
measure("blosc2, bitshuffle, zstd 9", [whole(trace) for trace in sets], blosc, unblosc)
alp(sets)
