"""Reads T-charts, with NumPy alone, as FORMAT.md specifies them.

    trace = tchart.read(open("run.tchart", "rb").read())
    trace.svids, trace.time, trace.step, trace.values

It is written from the specification, not from the Go code, so that each checks the
others. Columns in byte planes need PyArrow as well, for Zstandard.
"""

import struct
import zlib
from dataclasses import dataclass, field

import numpy as np

MAX_ROWS, MAX_COLUMNS, MAX_POINTS, MAX_TEXT = 1 << 22, 1 << 14, 1 << 24, 1 << 10

WORDS = """
Ar O2 N2 H2 He Cl2 BCl3 HBr CF4 CHF3 CH2F2 C2F6 C4F6 C4F8 SF6 NF3 N2O NH3 SiH4 WF6 TEOS Argon Oxygen Nitrogen Hydrogen Helium Susceptor
Showerhead Shower Head Electrode Electrostatic Chuck ESC Edge Center Inner Outer Ring Zone Upper Lower Top Btm Bottom Left Right Front Rear
Liner Lid Wall Window Heater Coolant Chiller Foreline Throttle Manometer Baratron Turbo Pump Speed Backing Exhaust Gate Vent Purge Backside
Leak Rate Clamp Lift Pin Spacing Gap Position Angle Optical Emission OES Wavelength Intensity Endpoint Endpt Signal Channel Spectrum
Reflectometer Thickness Rotation RPM Slurry Down Force Torque Motor Current Velocity Source Bias Match Matching Series Shunt Capacitor Cap
Frequency Freq Forward Fwd Reflected Rfl Refl Delivered Generator Gen Voltage Volt Vpp Vdc DC RF TCP ICP HF LF Resistance Reactance
Impedance Magnitude Phase Err Error Temperature Temp Setpoint Set Point SP PV Actual Act Output Out Input In Average Avg Min Max Mean Total
Count Counter Time Status State Mode Number No ID Step Recipe Sensor LoadLock Load Tuner Tune Chamber CH Process Mass MFC Gas Liquid Level
Humidity Pressure Press Flow Power Pwr Valve Vat Throt Water Air tool chamber recipe lot wafer product slot etch clean dep strip test run
ctx calibration
""".split()


class Corrupt(ValueError):
    """The bytes are no T-chart, or not all of one."""


class UnknownVersion(ValueError):
    """The T-chart has another version than 2."""


@dataclass
class Trace:
    tool: bytes = b""
    chamber: bytes = b""
    context: bytes = b""
    recipe: bytes = b""
    product: bytes = b""
    lot: bytes = b""
    wafer: bytes = b""
    svids: list = field(default_factory=list)
    time: np.ndarray = None  # float64, s
    step: np.ndarray = None  # int32
    values: list = field(default_factory=list)  # a float64 array for each SVID


def wrap(v):
    """Returns an integer in 64 bits of two's complement."""
    return (v + (1 << 63) & (1 << 64) - 1) - (1 << 63)


def unzigzag(u):
    return wrap((u >> 1) ^ -(u & 1))


class Bytes:
    """Bytes that are taken from the front."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, n):
        if n > len(self.data) - self.at:
            raise Corrupt("a section reaches beyond its end")
        self.at += n
        return self.data[self.at - n:self.at]

    def varint(self):
        v = 0
        for shift in range(0, 64, 7):
            b, = self.take(1)
            v |= (b & 127) << shift
            if b < 128:
                if v >> 64:
                    break
                return v
        raise Corrupt("a varint is longer than 64 bits")

    def section(self):
        return self.take(self.varint())

    def rest(self):
        return self.data[self.at:]


PACE = [43691, 26214, 18725, 14564, 11916, 10082, 8738, 7710, 6899, 6242, 5699, 5243, 4855, 4520]


def chances(bits):
    return [[2048, 0] for _ in range(1 << bits)]


class RangeDecoder:
    def __init__(self, data):
        self.data, self.at = data, 0
        self.width, self.code = 0xFFFFFFFF, 0
        for _ in range(4):
            self.next()

    def next(self):
        if self.at >= len(self.data) + 8:
            raise Corrupt("a range-coded section ends too early")
        b = self.data[self.at] if self.at < len(self.data) else 0
        self.at += 1
        self.code = (self.code << 8 | b) & 0xFFFFFFFF

    def fill(self):
        while self.width < 1 << 24:
            self.width = self.width << 8 & 0xFFFFFFFF
            self.next()

    def bit(self, chance):
        p, seen = chance
        bound = (self.width >> 12) * p
        if self.code < bound:
            b, target, self.width = 0, 4064, bound
        else:
            b, target = 1, 32
            self.width -= bound
            self.code -= bound
        chance[0] = p + ((target - p) * PACE[seen] >> 16)
        chance[1] = min(seen + 1, 13)
        self.fill()
        return b

    def plain(self, n):
        v = 0
        for _ in range(n):
            self.width >>= 1
            b = self.code >= self.width
            if b:
                self.code -= self.width
            self.fill()
            v = v << 1 | b
        return v

    def tree(self, of, n):
        at = 1
        for _ in range(n):
            at = 2 * at + self.bit(of[at])
        return at - (1 << n)

    def used_up(self):
        return self.at >= len(self.data)


class Strings:
    """Strings of a range-coded section."""

    def __init__(self, decoder):
        self.decoder = decoder
        self.symbol, self.literal = [chances(8), chances(8)], chances(8)
        self.length = chances(7)

    def number(self):
        n = self.decoder.tree(self.length, 7)
        if n == 0:
            return 0
        if n > 64:
            raise Corrupt("a number has more than 64 bits")
        return 1 << n - 1 | self.decoder.plain(n - 1)

    def string(self):
        out, after = b"", 0
        while True:
            s = self.decoder.tree(self.symbol[after], 8)
            if s == 0:
                return out
            if s == 1:
                out += bytes([self.decoder.tree(self.literal, 8)])
                after = 0
            elif s == 2:
                after = 0
            elif s - 3 < len(WORDS):
                out += b" " * after + WORDS[s - 3].encode()
                after = 1
            else:
                raise Corrupt("a string has a word that is not in the list")
            if len(out) > MAX_TEXT:
                raise Corrupt("a string is too long")

    def end(self):
        if not self.decoder.used_up():
            raise Corrupt("something is left after the last string")


def plain_string(data):
    out = b""
    while True:
        b = data.take(1)
        if b == b"\0":
            return out
        if b == b"\1":
            escaped = data.take(1)
            if escaped not in (b"\1", b"\2"):
                raise Corrupt("a string has an unknown escape")
            b = bytes([escaped[0] - 1])
        out += b
        if len(out) > MAX_TEXT:
            raise Corrupt("a string is too long")


ONE = 1 << 60


def table(shape, number):
    """Returns (frequency, start) for each of the symbols 0 to 63."""
    octave, quarter = divmod(number + 3, 4)
    num, den = 256, (9 + 2 * quarter) << octave
    if number == 0 or num > 8 * den:
        num, den = 8, 1
    if shape:
        num, den = num * 1386294, den * 1000000
    x = num * (1 << 56) // den
    total = term = ONE
    k = 1
    while term > 0:
        term = (term * x >> 60) // k
        total += -term if k % 2 else term
        k += 1
    for _ in range(4):
        total = total * total >> 60

    def beyond(q):
        return q * ONE // (ONE + q) if shape else q // 2

    q = total
    decay = q * q >> 60
    edge = beyond(q)
    p = [0] * 64
    p[31] = ONE - 2 * edge
    whole = p[31]
    for v in range(1, 32):
        q = q * decay >> 60
        x = edge - beyond(q)
        if v > 1 and x < 1 << 49:
            break
        p[31 + v] = p[31 - v] = x
        whole += 2 * x
        edge -= x
    p[63] = 2 * edge + (1 << 49)
    whole += p[63]
    frequency = [max(1, (v // (whole // 2048) + 1) // 2) if v > 0 else 0 for v in p]
    frequency[31] += 1024 - sum(frequency)
    starts, at = [], 0
    for f in frequency:
        starts.append(at)
        at += f
    return frequency, starts


def slots(shape, number):
    """Returns (symbol, frequency, offset) for each of the 1,024 slots of a table."""
    frequency, starts = table(shape, number)
    return [(s, f, i) for s, f in enumerate(frequency) for i in range(f)]


TABLES = [[slots(shape, number) for number in range(33)] for shape in range(2)]
_words = b"".join(struct.pack("<I", s << 21 | f << 10 | i) for shape in TABLES for t in shape for s, f, i in t)
assert zlib.crc32(_words) == 0x5DCFC2BC, "the tables are not those of the format"


class Symbols:
    """The rANS decoder of residuals."""

    def __init__(self, data):
        self.data = Bytes(data)
        self.state = 1 << 16 if not data else int.from_bytes(self.data.take(4), "little")

    def take(self, of):
        symbol, frequency, offset = of[self.state & 1023]
        self.state = frequency * (self.state >> 10) + offset
        if self.state < 1 << 16:
            self.state = self.state << 16 | int.from_bytes(self.data.take(2), "little")
        return symbol

    def used_up(self):
        return self.state == 1 << 16 and not self.data.rest()


class Bits:
    """The bits stream: lowest bits first."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, n):
        end = self.at + n
        if end > 8 * len(self.data):
            raise Corrupt("the bits end too early")
        whole = int.from_bytes(self.data[self.at // 8:(end + 7) // 8], "little")
        v = whole >> self.at % 8 & (1 << n) - 1
        self.at = end
        return v

    def used_up(self):
        left = 8 * len(self.data) - self.at
        return left < 8 and self.take(left) == 0


CLOCKS = [10, 20, 25, 50, 60, 64, 100, 120, 128, 256, 512, 1000, 1024, 2048, 4096, 8192]
SIGNIFICANT = [0, 6, 7, 5]
PREDICTORS = [(0, 0), (1, 0), (2, 0), (3, 0), (4, 0), (5, 0), (6, 0), (7, 0), (8, 0),
              (10, -2), (12, -4), (14, -6), (16, -8), (6, 2), (4, 4), (3, 3)]


class Columns:
    """Takes one column after the other from the four streams."""

    def __init__(self, rows, side, description, symbols, bits):
        self.rows = rows
        self.side, self.description = Bytes(side), RangeDecoder(description)
        self.symbols, self.bits = Symbols(symbols), Bits(bits)
        self.kind, self.digits, self.grid = chances(3), chances(4), chances(4)
        self.predictor, self.level, self.change, self.length = chances(4), chances(8), chances(4), chances(7)
        self.excepted, self.factored, self.constant, self.logistic = ([2048, 0] for _ in range(4))

    def number(self):
        n = self.description.tree(self.length, 7)
        if n > 64:
            raise Corrupt("a number has more than 64 bits")
        return n if n < 2 else 1 << n - 1 | self.bits.take(n - 1)

    def escaped(self):
        n = self.bits.take(4)
        if n == 15:
            n = self.bits.take(6) + 1
        return 0 if n == 0 else 1 << n - 1 | self.bits.take(n - 1)

    def residuals(self, shape):
        blocks = max((self.rows + 16) // 32, 1)
        size = max(-(-self.rows // blocks), 1)
        out, level = [], None
        while len(out) < self.rows:
            if level is None:
                level = self.description.tree(self.level, 8)
            else:
                d = self.description.tree(self.change, 4)
                level = level + unzigzag(d) if d < 15 else self.description.tree(self.level, 8)
            if not 0 <= level <= 248:
                raise Corrupt("a level is out of range")
            of, shift = TABLES[shape][level if level < 33 else 29 + (level - 33) % 4], 0
            if level >= 33:
                shift = 1 + (level - 33) // 4
            for _ in range(min(size, self.rows - len(out))):
                symbol = self.symbols.take(of)
                v = unzigzag(self.escaped()) if symbol == 63 else symbol - 31
                out.append(wrap((v << shift) + self.bits.take(shift)))
        return out

    def integers(self):
        factor = self.number() if self.description.bit(self.factored) else 1
        origin = unzigzag(self.number())
        if self.description.bit(self.constant):
            return [origin] * self.rows
        predictor = self.description.tree(self.predictor, 4)
        a, b = PREDICTORS[predictor]
        residuals = self.residuals(self.description.bit(self.logistic))
        out, last, before = [], 0, 0  # the two before n
        for i, e in enumerate(residuals):
            if i == 0:
                n = last = e  # it also stands for the one before it
            elif predictor == 8:
                n = wrap(e + last)
            else:
                n = wrap(e + (wrap(a * last + b * before + 4) >> 3))
            last, before = n, last
            out.append(wrap(origin + factor * n))
        return out

    def steps(self):
        values = self.integers()
        if any(not -1 << 31 <= v < 1 << 31 for v in values):
            raise Corrupt("a step has more than 32 bits")
        return np.array(values, dtype=np.int32)

    def floats(self):
        kind = self.description.tree(self.kind, 3)
        if kind in (0, 1):
            digits, exceptions = self.decimals()
            whole = self.integers() if kind == 0 else self.ticks(digits)
            values = np.array([float(v) / float(10 ** digits) for v in whole], dtype=np.float64)
            for row, bits in exceptions:
                values.view(np.uint64)[row] = bits
            return values
        if kind == 2:
            k = np.array(self.integers(), dtype=np.int64)
            return (k ^ ((k >> np.int64(63)) & np.int64((1 << 63) - 1))).view(np.float64)
        if kind == 6:
            return np.frombuffer(self.side.take(8 * self.rows), dtype="<f8").astype(np.float64)
        if kind == 7:
            raise Corrupt("a column has an unknown kind")
        bits = self.planes()
        if kind == 4:
            bits = np.bitwise_xor.accumulate(bits)
        elif kind == 5:
            bits = np.add.accumulate(bits)
        return bits.view(np.float64)

    def decimals(self):
        digits = self.description.tree(self.digits, 4)
        exceptions, row = [], -1
        if self.description.bit(self.excepted):
            for _ in range(self.number()):
                row += 1 + self.number()
                if row >= self.rows:
                    raise Corrupt("an exception is beyond the last row")
                exceptions.append((row, self.bits.take(64)))
        return digits, exceptions

    def ticks(self, digits):
        if not 1 <= digits <= 6:
            raise Corrupt("ticks have 1 to 6 digits")
        f = CLOCKS[self.description.tree(self.grid, 4)]
        g = SIGNIFICANT[self.description.plain(2)]
        interval = unzigzag(self.number())
        counts, corrections = self.integers(), self.integers()
        out = []
        for i, (count, correction) in enumerate(zip(counts, corrections)):
            tick = wrap(count + wrap(i * interval))
            if not -1 << 54 <= tick <= 1 << 54:
                raise Corrupt("a tick is out of range")
            sign, t, unit = (-1, -tick, 1) if tick < 0 else (1, tick, 1)
            if g:
                for j in range(digits + 1):
                    if t < -(-10 ** (g + j) * f // 10 ** digits):
                        break
                    unit *= 10
            shown = sign * ((2 * t * 10 ** digits + f * unit) // (2 * f * unit) * unit)
            out.append(wrap(shown + wrap(correction * unit)))
        return out

    def planes(self):
        bits = np.zeros(self.rows, dtype=np.uint64)
        for plane in range(8):
            size = self.side.varint()
            if size == 0:
                content = self.side.take(self.rows)
            elif size > self.rows + 64:
                raise Corrupt("a plane is too large")
            else:
                content = expanded(self.side.take(size), self.rows)
            bits |= np.frombuffer(content, dtype=np.uint8).astype(np.uint64) << np.uint64(8 * plane)
        return bits


def expanded(frame, rows):
    """Returns the bytes of a Zstandard frame, which must be as many as rows."""
    import pyarrow as pa

    try:
        with pa.input_stream(pa.py_buffer(frame), compression="zstd") as stream:
            content = stream.read(rows + 1)
    except (OSError, ValueError) as err:
        raise Corrupt(f"a plane can't be expanded: {err}") from err
    if len(content) != rows:
        raise Corrupt("a plane has another size than the column")
    return content


def xxhash64(data):
    """xxHash64 with seed 0."""
    p1, p2, p3, p4, p5 = (0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5)
    mask = (1 << 64) - 1

    def rotate(v, n):
        return (v << n | v >> 64 - n) & mask

    def mixed(lane, v):
        return rotate(lane + v * p2 & mask, 31) * p1 & mask

    at, n = 0, len(data)
    if n >= 32:
        lanes = [p1 + p2 & mask, p2, 0, -p1 & mask]
        while at + 32 <= n:
            for i, v in enumerate(struct.unpack_from("<4Q", data, at)):
                lanes[i] = mixed(lanes[i], v)
            at += 32
        h = sum(rotate(v, r) for v, r in zip(lanes, (1, 7, 12, 18))) & mask
        for v in lanes:
            h = ((h ^ mixed(0, v)) * p1 + p4) & mask
    else:
        h = p5
    h = h + n & mask
    while at + 8 <= n:
        h = rotate(h ^ mixed(0, *struct.unpack_from("<Q", data, at)), 27) * p1 + p4 & mask
        at += 8
    if at + 4 <= n:
        h = rotate(h ^ struct.unpack_from("<I", data, at)[0] * p1 & mask, 23) * p2 + p3 & mask
        at += 4
    for b in data[at:]:
        h = rotate(h ^ b * p5 & mask, 11) * p1 & mask
    h = (h ^ h >> 33) * p2 & mask
    h = (h ^ h >> 29) * p3 & mask
    return h ^ h >> 32


def read(blob):
    """Returns the Trace of a blob, or raises Corrupt or UnknownVersion."""
    if len(blob) < 12 or blob[:3] != b"MTC":
        raise Corrupt("it does not begin as a T-chart does")
    if blob[3] != 2:
        raise UnknownVersion(f"version {blob[3]}")
    if xxhash64(blob[:-8]) != int.from_bytes(blob[-8:], "little"):
        raise Corrupt("the checksum differs")
    data = Bytes(blob[4:-8])
    h = data.varint()
    header = data.take(h >> 1)
    if h & 1:
        strings = Strings(RangeDecoder(header))
        rows, columns = strings.number(), strings.number()
        check(rows, columns)
        texts = [strings.string() for _ in range(7)]
        strings.end()
        strings = Strings(RangeDecoder(data.section()))
        svids = [strings.string() for _ in range(columns)]
        strings.end()
    else:
        header = Bytes(header)
        rows, columns = header.varint(), header.varint()
        check(rows, columns)
        texts = [plain_string(header) for _ in range(7)]
        svids = [plain_string(header) for _ in range(columns)]
        if header.rest():
            raise Corrupt("the header does not end with the last name")

    reader = Columns(rows, data.section(), data.section(), data.section(), data.rest())
    trace = Trace(*texts, svids=svids, time=reader.floats(), step=reader.steps())
    trace.values = [reader.floats() for _ in svids]
    if reader.side.rest() or not (reader.description.used_up() and reader.symbols.used_up() and reader.bits.used_up()):
        raise Corrupt("something is left after the last column")
    return trace


def check(rows, columns):
    if rows > MAX_ROWS or columns > MAX_COLUMNS or rows * columns > MAX_POINTS:
        raise Corrupt("it claims more rows and columns than there may be")
