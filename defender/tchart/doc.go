// Package tchart encodes traces, the raw time series of every sensor (SVID) in
// one process run, into compact blobs and back without loss.
//
// # Format
//
// A blob is columnar and describes itself. Version 2:
//
//	"MTC" and the version, 1 byte
//	header       length, then rows, number of SVIDs and strings, coded by words
//	names        length, then the names of SVIDs, likewise; mostly those of the blob before
//	side         length, then the columns that are byte planes or raw
//	description  length, then what describes each column: timestamps, steps, SVIDs
//	symbols      length, then the residuals of all columns
//	bits         low bits and other numbers that nothing can predict
//	checksum     xxHash64 of all before, little-endian
//
// Sensors are read out in steps, so their values are nearly always decimal
// fractions with few digits: integers k times 10^-d. Such a column is kept as
// its integers, to the bit since k/10^d is rounded correctly; values that don't
// fit, such as NaN, are listed as exceptions. (The same idea, for databases, is
// ALP: Afroozeh, Kuffo, Boncz, SIGMOD 2023.) Timestamps are looked at as ticks of
// a clock that were printed with some digits. Full-precision values close to each
// other are kept as the integers that their bits are.
//
// Integers are divided by the greatest common divisor of their differences and
// predicted from the two before, and what remains is coded by rANS with the table,
// of a few dozen, that fits the noise of a block; large residuals leave their low
// bits out of it. Descriptions are coded by adaptive binary arithmetic coding,
// since columns resemble each other. Everything else is split into byte planes, as
// it is or after XOR with or subtraction of the value before, and compressed with
// Zstandard, or left raw. The encoder computes what each way takes and picks the
// shortest.
//
// A blob of another version is an error that matches [ErrVersion].
package tchart
