package trace

import (
	"errors"
	"slices"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/encoding"
)

// parquetPage is a decoded page of a column of flat values. The values are taken as they lie in
// memory: turning each into a [parquet.Value] first costs more than decoding it.
type parquetPage struct {
	page    parquet.Page
	rows    int
	whole   bool            // every row has a value
	present int             // rows with a value
	levels  []byte          // 1 for a row with a value; nil if all rows have one, or none has
	codes   []int32         // of the values, which are indices in values; nil if the page has no dictionary
	values  encoding.Values // of the rows that have one, or those of the dictionary
}

// place is where a row is in a page.
type place struct {
	row   int
	value int // that of the row; if it has none, that of the next row with one
}

var errWrongPage = errors.New("a page has other values than it says")

// newParquetPage returns a page. It takes nothing on trust that would be out of range later.
func newParquetPage(page parquet.Page) (parquetPage, error) {
	p := parquetPage{page: page, rows: int(page.NumValues()), values: page.Data()}
	nulls := int(page.NumNulls())
	p.whole = nulls == 0
	if !p.whole {
		p.levels = page.DefinitionLevels()
	}
	if p.levels != nil && len(p.levels) != p.rows {
		return p, errWrongPage
	}

	values := p.rows - nulls
	p.present = values
	if dictionary := page.Dictionary(); dictionary != nil {
		p.codes = p.values.Int32()
		p.values = dictionary.Page().Data()
		if len(p.codes) < values {
			return p, errWrongPage
		}
		p.codes = p.codes[:values]
		if values > 0 && (slices.Min(p.codes) < 0 || int(slices.Max(p.codes)) >= p.count()) {
			return p, errors.New("a page has values that its dictionary lacks")
		}
		return p, nil
	}
	if p.count() < values {
		return p, errWrongPage
	}
	return p, nil
}

// count returns how many values there are, of booleans at least.
func (p *parquetPage) count() int {
	data, offsets := p.values.Data()
	switch p.values.Kind() {
	case encoding.Boolean:
		return 8 * len(data)
	case encoding.Int32, encoding.Float:
		return len(data) / 4
	case encoding.Int64, encoding.Double:
		return len(data) / 8
	case encoding.Int96:
		return len(data) / 12
	case encoding.ByteArray:
		return max(len(offsets)-1, 0)
	default: // a page of nulls, as of a type that has nothing else
		return 0
	}
}

// distinct returns how many values there are to convert.
func (p *parquetPage) distinct() int {
	if p.codes != nil {
		return p.count()
	}
	return p.present
}

// null reports whether a row has no value.
func (p *parquetPage) null(at place) bool {
	return !p.whole && (p.levels == nil || p.levels[at.row] != 1)
}

// after returns the place of the row n rows later. It may be the first behind the page.
func (p *parquetPage) after(at place, n int) place {
	switch {
	case p.whole:
		at.value += n
	case p.levels != nil:
		for _, level := range p.levels[at.row:min(at.row+n, p.rows)] {
			if level == 1 {
				at.value++
			}
		}
	}
	at.row += n
	return at
}

// value returns a value.
func (p *parquetPage) value(i int) parquet.Value {
	if p.codes != nil {
		i = int(p.codes[i])
	}
	return p.entry(i)
}

// entry returns a value by its place in values.
func (p *parquetPage) entry(i int) parquet.Value {
	switch p.values.Kind() {
	case encoding.Boolean:
		return parquet.BooleanValue(p.values.Boolean()[i/8]>>(i%8)&1 == 1)
	case encoding.Int32:
		return parquet.Int32Value(p.values.Int32()[i])
	case encoding.Int64:
		return parquet.Int64Value(p.values.Int64()[i])
	case encoding.Int96:
		return parquet.Int96Value(p.values.Int96()[i])
	case encoding.Float:
		return parquet.FloatValue(p.values.Float()[i])
	case encoding.Double:
		return parquet.DoubleValue(p.values.Double()[i])
	case encoding.ByteArray:
		return parquet.ByteArrayValue(p.bytes(i))
	default: // is rejected when the file is opened
		return parquet.Value{}
	}
}

// bytes returns a byte array, by its place in values. It is a part of the page.
func (p *parquetPage) bytes(i int) []byte {
	data, offsets := p.values.ByteArray()
	return data[offsets[i]:offsets[i+1]]
}

// coded returns how many of the n rows after a place have the value of its row, where every row
// has one in the dictionary.
func (p *parquetPage) coded(at place, n int) int {
	code := p.codes[at.value]
	for i, other := range p.codes[at.value+1 : at.value+1+n] {
		if other != code {
			return i
		}
	}
	return n
}
