package ingest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/deprecated"
	"github.com/parquet-go/parquet-go/format"
)

// readParquet reads a Parquet file of flat columns.
func readParquet(data []byte, t *table) error {
	// The library makes room for a footer as long as the file says.
	const magic = "PAR1"
	at := len(data) - len(magic) - 4
	if at < len(magic) || string(data[at+4:]) != magic || int64(binary.LittleEndian.Uint32(data[at:])) > int64(at) {
		return corrupt("Parquet file", errors.New("it has no footer at its end"))
	}
	f, err := parquet.OpenFile(bytes.NewReader(data), int64(len(data)), parquet.SkipPageIndex(true), parquet.SkipBloomFilters(true))
	if err != nil {
		return corrupt("Parquet file", err)
	}
	if err := verifyParquetPages(data, f); err != nil {
		return corrupt("Parquet file", err)
	}
	if f.NumRows() > MaxNumbers {
		return errTooLarge
	}
	fields := f.Root().Columns()
	names := make([]string, len(fields))
	for i, field := range fields {
		names[i] = field.Name()
	}
	if err := t.header(names); err != nil {
		return err
	}
	for at, field := range fields {
		if !t.used(at) {
			continue
		}
		convert, why := parquetCells(field)
		if why != "" {
			t.problems.add(field.Name(), 0, "%s", why)
			continue
		}
		for _, group := range f.RowGroups() {
			if err := readParquetColumn(group.ColumnChunks()[field.Index()], t, at, convert); err != nil {
				return corrupt("Parquet file", err)
			}
		}
	}
	return nil
}

// readParquetColumn gives a column its cells of one row group.
func readParquetColumn(chunk parquet.ColumnChunk, t *table, at int, convert func(parquet.Value) cell) (err error) {
	pages := chunk.Pages()
	defer func() { err = errors.Join(err, pages.Close()) }()
	values := make([]parquet.Value, 512)
	for {
		page, err := pages.ReadPage()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := readParquetPage(page, values, t, at, convert); err != nil {
			return err
		}
	}
}

func readParquetPage(page parquet.Page, values []parquet.Value, t *table, at int, convert func(parquet.Value) cell) error {
	defer parquet.Release(page)
	reader := page.Values()
	for {
		n, err := reader.ReadValues(values)
		for _, v := range values[:n] {
			c := cell{}
			if !v.IsNull() {
				c = convert(v)
			}
			if err := t.add(at, c); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if n == 0 {
			return io.ErrNoProgress
		}
	}
}

// parquetCells returns how the values of a column become cells, or why they can't.
func parquetCells(column *parquet.Column) (convert func(parquet.Value) cell, why string) {
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
		return func(v parquet.Value) cell {
			if v.Boolean() {
				return cell{kind: integer, whole: 1}
			}
			return cell{kind: integer}
		}, ""
	case parquet.Float:
		return func(v parquet.Value) cell { return cell{kind: number, float: float64(v.Float())} }, ""
	case parquet.Double:
		return func(v parquet.Value) cell { return cell{kind: number, float: v.Double()} }, ""
	case parquet.Int32, parquet.Int64:
		return parquetIntegers(logical)
	case parquet.Int96:
		return func(v parquet.Value) cell { return stampOf(int96Time(v.Int96())) }, ""
	case parquet.ByteArray:
		return func(v parquet.Value) cell { return cell{kind: text, text: string(v.ByteArray())} }, ""
	default:
		return nil, fmt.Sprintf("has the type %s, which is not taken: cast it to DOUBLE, INT64, TIMESTAMP or STRING", column.Type())
	}
}

func parquetIntegers(logical format.LogicalTypeValue) (convert func(parquet.Value) cell, why string) {
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
		return func(v parquet.Value) cell { return scaledStamp(whole(v), 24*time.Hour) }, ""
	case *format.TimestampType:
		if is.Unit.Value == nil {
			return nil, "has the type TIMESTAMP without a unit: write the file again"
		}
		unit := is.Unit.Value.Duration()
		return func(v parquet.Value) cell { return scaledStamp(whole(v), unit) }, ""
	case *format.IntType:
		if !is.IsSigned {
			return func(v parquet.Value) cell {
				if v.Kind() == parquet.Int32 {
					return cell{kind: integer, whole: int64(uint32(v.Int32()))}
				}
				return unsigned(uint64(v.Int64()))
			}, ""
		}
	}
	return func(v parquet.Value) cell { return cell{kind: integer, whole: whole(v)} }, ""
}

// scaledStamp returns the cell of a time in some unit since 1970; one that nanoseconds don't reach
// is text, which is a time nowhere.
func scaledStamp(v int64, unit time.Duration) cell {
	if v > math.MaxInt64/int64(unit) || v < math.MinInt64/int64(unit) {
		return cell{kind: text, text: fmt.Sprintf("%d times %v since 1970", v, unit)}
	}
	return cell{kind: stamp, whole: v * int64(unit)}
}

// unsigned returns the cell of an integer without sign, which may be beyond int64.
func unsigned(v uint64) cell {
	if v > math.MaxInt64 {
		return cell{kind: number, float: float64(v)}
	}
	return cell{kind: integer, whole: int64(v)}
}

// int96Time returns a time of the old form that Spark writes: nanoseconds of a day, and the Julian day.
func int96Time(v deprecated.Int96) time.Time {
	const epoch = 2440588 // Julian day of 1970-01-01
	nanos := int64(uint64(v[1])<<32 | uint64(v[0]))
	return time.Unix((int64(v[2])-epoch)*24*3600, nanos)
}
