package cells

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/deprecated"
	"github.com/parquet-go/parquet-go/format"
)

// OpenParquet opens a Parquet file, none of whose parts claims more memory than it can need.
func OpenParquet(r io.ReaderAt, size int64) (*parquet.File, error) {
	// The library makes room for a footer as long as the file says.
	const magic = "PAR1"
	end := make([]byte, 4+len(magic))
	at := size - int64(len(end))
	if at < int64(len(magic)) {
		return nil, errNoFooter
	}
	if _, err := r.ReadAt(end, at); err != nil {
		return nil, fmt.Errorf("its end: %w", err)
	}
	if string(end[4:]) != magic || int64(binary.LittleEndian.Uint32(end)) > at {
		return nil, errNoFooter
	}

	f, err := parquet.OpenFile(r, size, parquet.SkipPageIndex(true), parquet.SkipBloomFilters(true))
	if err != nil {
		return nil, err
	}
	if err := verifyCodecs(f); err != nil {
		return nil, err
	}
	return f, verifyParquetPages(r, size, f)
}

// verifyCodecs rejects LZ4. The library takes every error in such a block for a buffer that is too small, and doubles it without end.
func verifyCodecs(f *parquet.File) error {
	for _, group := range f.Metadata().RowGroups {
		for _, column := range group.Columns {
			if codec := column.MetaData.Codec; codec == format.Lz4Raw || codec == format.Lz4 {
				return fmt.Errorf("column %s is compressed with LZ4, which is not taken: write it with Snappy or Zstandard", strings.Join(column.MetaData.PathInSchema, "."))
			}
		}
	}
	return nil
}

var errNoFooter = errors.New("it has no footer at its end")

// Parquet returns how the values of a column become cells, or why they can't.
func Parquet(column *parquet.Column) (convert func(parquet.Value) Cell, why string) {
	if !column.Leaf() || column.Repeated() {
		return nil, "is nested: write one value per row, or name it in ignore-columns"
	}
	var logical format.LogicalTypeValue
	if annotated := column.Type().LogicalType(); annotated != nil {
		logical = annotated.Value
	}
	_, decimal := logical.(*format.DecimalType)
	if decimal {
		return nil, "has the type DECIMAL, which is not taken: cast it to DOUBLE"
	}
	switch column.Type().Kind() {
	case parquet.Boolean:
		return func(v parquet.Value) Cell {
			if v.Boolean() {
				return Cell{Kind: Integer, Whole: 1}
			}
			return Cell{Kind: Integer}
		}, ""
	case parquet.Float:
		return func(v parquet.Value) Cell { return Cell{Kind: Number, Float: float64(v.Float())} }, ""
	case parquet.Double:
		return func(v parquet.Value) Cell { return Cell{Kind: Number, Float: v.Double()} }, ""
	case parquet.Int32, parquet.Int64:
		return parquetIntegers(logical)
	case parquet.Int96:
		return func(v parquet.Value) Cell { return StampOf(int96Time(v.Int96())) }, ""
	case parquet.ByteArray:
		return func(v parquet.Value) Cell { return Cell{Kind: Text, Text: string(v.ByteArray())} }, ""
	default:
		return nil, fmt.Sprintf("has the type %s, which is not taken: cast it to DOUBLE, INT64, TIMESTAMP or STRING", column.Type())
	}
}

func parquetIntegers(logical format.LogicalTypeValue) (convert func(parquet.Value) Cell, why string) {
	whole := func(v parquet.Value) int64 {
		if v.Kind() == parquet.Int32 {
			return int64(v.Int32())
		}
		return v.Int64()
	}
	switch is := logical.(type) {
	case *format.TimeType:
		return nil, "has the type TIME, which has no date: cast it to TIMESTAMP"
	case *format.DateType:
		return func(v parquet.Value) Cell { return ScaledStamp(whole(v), 24*time.Hour) }, ""
	case *format.TimestampType:
		if is.Unit.Value == nil {
			return nil, "has the type TIMESTAMP without a unit: write the file again"
		}
		unit := is.Unit.Value.Duration()
		return func(v parquet.Value) Cell { return ScaledStamp(whole(v), unit) }, ""
	case *format.IntType:
		if !is.IsSigned {
			return func(v parquet.Value) Cell {
				if v.Kind() == parquet.Int32 {
					return Cell{Kind: Integer, Whole: int64(uint32(v.Int32()))}
				}
				return Unsigned(uint64(v.Int64()))
			}, ""
		}
	}
	return func(v parquet.Value) Cell { return Cell{Kind: Integer, Whole: whole(v)} }, ""
}

// ScaledStamp returns the cell of a time in some unit since 1970; one that nanoseconds don't reach
// is text, which is a time nowhere.
func ScaledStamp(v int64, unit time.Duration) Cell {
	if v > math.MaxInt64/int64(unit) || v < math.MinInt64/int64(unit) {
		return Cell{Kind: Text, Text: fmt.Sprintf("%d times %v since 1970", v, unit)}
	}
	return Cell{Kind: Stamp, Whole: v * int64(unit)}
}

// Unsigned returns the cell of an integer without sign, which may be beyond int64.
func Unsigned(v uint64) Cell {
	if v > math.MaxInt64 {
		return Cell{Kind: Number, Float: float64(v)}
	}
	return Cell{Kind: Integer, Whole: int64(v)}
}

// int96Time returns a time of the old form that Spark writes: nanoseconds of a day, and the Julian day.
func int96Time(v deprecated.Int96) time.Time {
	const epoch = 2440588 // Julian day of 1970-01-01
	nanos := int64(uint64(v[1])<<32 | uint64(v[0]))
	return time.Unix((int64(v[2])-epoch)*24*3600, nanos)
}
