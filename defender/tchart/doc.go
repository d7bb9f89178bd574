// Package tchart encodes traces, the raw time series of every sensor (SVID) in
// one process run, into compact blobs and back without loss.
//
// # Format
//
// A blob is columnar and describes itself:
//
//	"MTC" and the version, 1 byte
//	header    length, then rows, number of SVIDs, strings, names; deflated if shorter
//	side      length, then the columns that aren't decimals
//	bits      each column's description and the decimals: timestamps, steps, SVIDs
//	checksum  xxHash64 of all before, little-endian
//
// Sensors are read out in steps, so their values are nearly always decimal
// fractions with few digits: integers k times 10^-d. Such a column is kept as
// its integers, to the bit since k/10^d is rounded correctly; values that don't
// fit, such as NaN, are listed as exceptions. (The same idea, for databases, is
// ALP: Afroozeh, Kuffo, Boncz, SIGMOD 2023.) The integers are divided by the
// greatest common divisor of their differences, predicted by a constant, by the
// last value or by the line through the last two, and what remains is written in
// Rice codes whose parameter changes with the noise, every 32 values (as in
// FLAC, RFC 9639), or as runs of zeros where a sensor hardly moves. Everything
// else is XORed with the value before, split into byte planes and compressed
// with Zstandard, or left as it is. The encoder computes what each way takes and
// picks the shortest.
package tchart
