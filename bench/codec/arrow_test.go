package codec

import (
	"bytes"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/muster-dev/muster/tchart"
)

// arrowCodec writes the columns as one record batch of an Arrow IPC stream, whose
// buffers are compressed: the values as they are or, which is what Arrow has for
// signals that are read in steps, those that there are of each column in a
// dictionary, with indices of 16 bits into it.
func arrowCodec(name string, dictionaries bool, compression ipc.Option) codec {
	mem := memory.NewGoAllocator()
	var xs []float64
	return codec{name, func(tr *tchart.Trace) []byte {
		var fields []arrow.Field
		var arrays []arrow.Array
		for i, c := range columns(tr) {
			a := arrowColumn(mem, c, dictionaries)
			fields = append(fields, arrow.Field{Name: fmt.Sprintf("c%03d", i), Type: a.DataType()})
			arrays = append(arrays, a)
		}
		schema := arrow.NewSchema(fields, nil)
		var out bytes.Buffer
		w := ipc.NewWriter(&out, ipc.WithSchema(schema), ipc.WithAllocator(mem), ipc.WithCompressConcurrency(1), compression)
		if err := w.Write(array.NewRecordBatch(schema, arrays, int64(len(tr.Time)))); err != nil {
			panic(err)
		}
		if err := w.Close(); err != nil {
			panic(err)
		}
		return out.Bytes()
	}, func(b []byte, _ *tchart.Trace) float64 {
		r, err := ipc.NewReader(bytes.NewReader(b), ipc.WithAllocator(mem))
		if err != nil {
			panic(err)
		}
		defer r.Release()
		xs = xs[:0]
		for r.Next() {
			for _, column := range r.RecordBatch().Columns() {
				switch a := column.(type) {
				case *array.Float64:
					xs = append(xs, a.Float64Values()...)
				case *array.Dictionary:
					values := a.Dictionary().(*array.Float64)
					for i := range a.Len() {
						xs = append(xs, values.Value(a.GetValueIndex(i)))
					}
				}
			}
		}
		if err := r.Err(); err != nil {
			panic(err)
		}
		return xs[0]
	}}
}

func arrowColumn(mem memory.Allocator, c []float64, dictionary bool) arrow.Array {
	if !dictionary {
		b := array.NewFloat64Builder(mem)
		b.AppendValues(c, nil)
		return b.NewArray()
	}
	b := array.NewDictionaryBuilder(mem, &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Uint16, ValueType: arrow.PrimitiveTypes.Float64}).(*array.Float64DictionaryBuilder)
	for _, v := range c {
		if err := b.Append(v); err != nil {
			panic(err)
		}
	}
	return b.NewArray()
}
