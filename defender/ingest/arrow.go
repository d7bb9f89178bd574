package ingest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/muster-dev/muster/defender/internal/cells"
)

// maxArrowBytes is the most memory that an Arrow message may have decoded into.
const maxArrowBytes = 1 << 28

// boundedAllocator gives memory up to a limit: a compressed buffer says itself how large it is.
type boundedAllocator struct {
	memory.Allocator
	room int
}

func (a *boundedAllocator) Allocate(size int) []byte {
	a.take(size)
	return a.Allocator.Allocate(size)
}

func (a *boundedAllocator) Reallocate(size int, b []byte) []byte {
	a.take(size - len(b))
	return a.Allocator.Reallocate(size, b)
}

func (a *boundedAllocator) Free(b []byte) {
	a.room += len(b)
	a.Allocator.Free(b)
}

// take takes memory from the room that is left. The interface has no errors; guarded turns the
// panic into one.
func (a *boundedAllocator) take(size int) {
	if size < 0 || size > a.room {
		panic(fmt.Sprintf("it takes more than %d bytes of memory", maxArrowBytes))
	}
	a.room -= size
}

// arrowLimits has a reader take no more memory than the data can need: a message says itself how
// long it is.
func arrowLimits(data []byte) []ipc.Option {
	size := int64(max(len(data), 1)) // 0 stands for no limit
	return []ipc.Option{
		ipc.WithAllocator(&boundedAllocator{memory.NewGoAllocator(), maxArrowBytes}),
		ipc.WithMetadataSizeLimit(size), ipc.WithBodySizeLimit(size),
	}
}

// readArrowStream reads a table from an Arrow IPC stream.
func readArrowStream(data []byte, t *table) error {
	verifyArrowStream(data)
	// ipc.NewReader would leave out the limits of messages.
	limits := arrowLimits(data)
	r, err := ipc.NewReaderFromMessageReader(ipc.NewMessageReader(bytes.NewReader(data), limits...), limits...)
	if err != nil {
		return corrupt("Arrow stream", err)
	}
	defer r.Release()
	convert, err := arrowHeader(r.Schema(), t)
	if err != nil {
		return err
	}
	for r.Next() {
		if err := addArrowBatch(r.RecordBatch(), t, convert); err != nil {
			return err
		}
	}
	if err := r.Err(); err != nil && !errors.Is(err, io.EOF) {
		return corrupt("Arrow stream", err)
	}
	return nil
}

// readArrowFile reads a table from an Arrow IPC file, which is also Feather, version 2.
func readArrowFile(data []byte, t *table) error {
	verifyArrowFile(data)
	r, err := ipc.NewFileReader(bytes.NewReader(data), arrowLimits(data)...)
	if err != nil {
		return corrupt("Arrow file", err)
	}
	defer func() { _ = r.Close() }()
	convert, err := arrowHeader(r.Schema(), t)
	if err != nil {
		return err
	}
	for i := range r.NumRecords() {
		batch, err := r.RecordBatchAt(i)
		if err != nil {
			return corrupt("Arrow file", err)
		}
		err = addArrowBatch(batch, t, convert)
		batch.Release()
		if err != nil {
			return err
		}
	}
	return nil
}

// arrowCell returns a value of an array as a cell. It is not null.
type arrowCell func(values arrow.Array, i int) cells.Cell

// arrowHeader gives a table its columns and returns how their values become cells, nil for those
// that are not used.
func arrowHeader(s *arrow.Schema, t *table) ([]arrowCell, error) {
	names := make([]string, s.NumFields())
	for i, field := range s.Fields() {
		names[i] = field.Name
	}
	if err := t.header(names); err != nil {
		return nil, err
	}
	cells := make([]arrowCell, s.NumFields())
	for i, field := range s.Fields() {
		if !t.used(i) {
			continue
		}
		if cells[i] = arrowCells(field.Type); cells[i] == nil {
			t.problems.add(field.Name, 0, "has the type %s, which is not taken: cast it to float64, int64, timestamp or string, or name it in ignore-columns", field.Type)
		}
	}
	return cells, nil
}

func addArrowBatch(batch arrow.RecordBatch, t *table, convert []arrowCell) error {
	for at, values := range batch.Columns() {
		if convert[at] == nil {
			continue
		}
		for i := range values.Len() {
			c := cells.Cell{}
			if values.IsValid(i) {
				c = convert[at](values, i)
			}
			if err := t.add(at, c); err != nil {
				return err
			}
		}
	}
	return nil
}

// arrowCells returns how values of a type become cells, or nil if they can't.
func arrowCells(of arrow.DataType) arrowCell {
	switch of := of.(type) {
	case *arrow.NullType:
		return func(arrow.Array, int) cells.Cell { return cells.Cell{} }
	case *arrow.BooleanType:
		return func(a arrow.Array, i int) cells.Cell {
			if a.(*array.Boolean).Value(i) {
				return cells.Cell{Kind: cells.Integer, Whole: 1}
			}
			return cells.Cell{Kind: cells.Integer}
		}
	case *arrow.TimestampType:
		unit := of.Unit.Multiplier()
		return func(a arrow.Array, i int) cells.Cell {
			return cells.ScaledStamp(int64(a.(*array.Timestamp).Value(i)), unit)
		}
	case *arrow.Date32Type:
		return func(a arrow.Array, i int) cells.Cell {
			return cells.ScaledStamp(int64(a.(*array.Date32).Value(i)), 24*time.Hour)
		}
	case *arrow.Date64Type:
		return func(a arrow.Array, i int) cells.Cell {
			return cells.ScaledStamp(int64(a.(*array.Date64).Value(i)), time.Millisecond)
		}
	case *arrow.DictionaryType:
		value := arrowCells(of.ValueType)
		if value == nil {
			return nil
		}
		return func(a arrow.Array, i int) cells.Cell {
			d := a.(*array.Dictionary)
			at, values := d.GetValueIndex(i), d.Dictionary()
			if values.IsNull(at) {
				return cells.Cell{}
			}
			return value(values, at)
		}
	}
	return arrowPlain(of.ID())
}

// arrowPlain returns how values of a type without parameters become cells, or nil if they can't.
func arrowPlain(of arrow.Type) arrowCell {
	switch of {
	case arrow.FLOAT64:
		return func(a arrow.Array, i int) cells.Cell {
			return cells.Cell{Kind: cells.Number, Float: a.(*array.Float64).Value(i)}
		}
	case arrow.FLOAT32:
		return func(a arrow.Array, i int) cells.Cell {
			return cells.Cell{Kind: cells.Number, Float: float64(a.(*array.Float32).Value(i))}
		}
	case arrow.FLOAT16:
		return func(a arrow.Array, i int) cells.Cell {
			return cells.Cell{Kind: cells.Number, Float: float64(a.(*array.Float16).Value(i).Float32())}
		}
	case arrow.INT8:
		return func(a arrow.Array, i int) cells.Cell {
			return cells.Cell{Kind: cells.Integer, Whole: int64(a.(*array.Int8).Value(i))}
		}
	case arrow.INT16:
		return func(a arrow.Array, i int) cells.Cell {
			return cells.Cell{Kind: cells.Integer, Whole: int64(a.(*array.Int16).Value(i))}
		}
	case arrow.INT32:
		return func(a arrow.Array, i int) cells.Cell {
			return cells.Cell{Kind: cells.Integer, Whole: int64(a.(*array.Int32).Value(i))}
		}
	case arrow.INT64:
		return func(a arrow.Array, i int) cells.Cell {
			return cells.Cell{Kind: cells.Integer, Whole: a.(*array.Int64).Value(i)}
		}
	case arrow.UINT8:
		return func(a arrow.Array, i int) cells.Cell {
			return cells.Cell{Kind: cells.Integer, Whole: int64(a.(*array.Uint8).Value(i))}
		}
	case arrow.UINT16:
		return func(a arrow.Array, i int) cells.Cell {
			return cells.Cell{Kind: cells.Integer, Whole: int64(a.(*array.Uint16).Value(i))}
		}
	case arrow.UINT32:
		return func(a arrow.Array, i int) cells.Cell {
			return cells.Cell{Kind: cells.Integer, Whole: int64(a.(*array.Uint32).Value(i))}
		}
	case arrow.UINT64:
		return func(a arrow.Array, i int) cells.Cell { return cells.Unsigned(a.(*array.Uint64).Value(i)) }
	case arrow.STRING:
		return func(a arrow.Array, i int) cells.Cell {
			return cells.Cell{Kind: cells.Text, Text: a.(*array.String).Value(i)}
		}
	case arrow.LARGE_STRING:
		return func(a arrow.Array, i int) cells.Cell {
			return cells.Cell{Kind: cells.Text, Text: a.(*array.LargeString).Value(i)}
		}
	case arrow.STRING_VIEW:
		return func(a arrow.Array, i int) cells.Cell {
			return cells.Cell{Kind: cells.Text, Text: a.(*array.StringView).Value(i)}
		}
	default:
		return nil
	}
}
