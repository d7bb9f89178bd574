// Package tchart encodes traces, the raw time series of every sensor (SVID) in
// one process run, into compact blobs and back without loss.
//
// # Format
//
// A blob is columnar and describes itself; FORMAT.md specifies every byte. The encoder
// computes what each of several ways to write a column takes and picks the shortest:
//
// Decimals. Sensors are read out in steps, so their values are nearly always decimal
// fractions with few digits: integers k times 10^-d. Such a column is kept as its
// integers, to the bit since k/10^d is rounded correctly; values that don't fit, such as
// NaN, are listed as exceptions. (The same idea, for databases, is ALP: Afroozeh, Kuffo,
// Boncz, SIGMOD 2023.)
//
// Ticks. Recorders stamp samples with the ticks of a clock and print the time with some
// digits, so timestamps are kept as ticks.
//
// Bit patterns. Full-precision values close to each other are kept as the integers that
// their bits are.
//
// Byte planes. Everything else is split into planes of bytes, as it is or after XOR with
// or subtraction of the value before, and compressed with Zstandard, or left raw.
//
// Integers are divided by the greatest common divisor of their differences and predicted
// from the two before. What remains is coded by rANS with the table, of a few dozen, that
// fits the noise of a block; large residuals leave their low bits out of it. Descriptions
// are coded by adaptive binary arithmetic coding, since columns resemble each other.
//
// A blob of another version is an error that matches [ErrVersion].
package tchart
