package ingest

import (
	"encoding/binary"
	"errors"

	flatbuffers "github.com/google/flatbuffers/go"
)

// The Arrow library takes the lengths of vectors in its metadata as they are, and makes slices of
// that length: one wrong bit ends the process, which has no memory for it. So the metadata is
// verified first: each vector has to fit in the bytes that there are.

var errMetadata = errors.New("its metadata is damaged")

// fbTable says which of a FlatBuffers table's fields are verified, by their slots in the table's vtable
// (4, 6, 8 ...), as Schema.fbs, Message.fbs and File.fbs of the Arrow format number them.
type fbTable struct {
	tables  map[flatbuffers.VOffsetT]*fbTable // fields that are tables
	vectors map[flatbuffers.VOffsetT]*fbTable // fields that are vectors of tables
	structs map[flatbuffers.VOffsetT]int      // fields that are vectors of structs or numbers of a size
}

var (
	fbKeyValue    = &fbTable{}
	fbField       = &fbTable{}
	fbSchema      = &fbTable{}
	fbRecordBatch = &fbTable{structs: map[flatbuffers.VOffsetT]int{6: 16, 8: 16, 12: 8}}
	fbDictionary  = &fbTable{tables: map[flatbuffers.VOffsetT]*fbTable{6: fbRecordBatch}}
	fbFooter      = &fbTable{
		tables:  map[flatbuffers.VOffsetT]*fbTable{6: fbSchema},
		vectors: map[flatbuffers.VOffsetT]*fbTable{12: fbKeyValue},
		structs: map[flatbuffers.VOffsetT]int{8: blockBytes, 10: blockBytes},
	}
	// fbHeaders are the kinds of messages, by the number in the message.
	fbHeaders = map[byte]*fbTable{1: fbSchema, 2: fbDictionary, 3: fbRecordBatch}
)

func init() { // a field has fields
	fbField.vectors = map[flatbuffers.VOffsetT]*fbTable{14: fbField, 16: fbKeyValue}
	fbSchema.vectors = map[flatbuffers.VOffsetT]*fbTable{6: fbField, 8: fbKeyValue}
	fbSchema.structs = map[flatbuffers.VOffsetT]int{10: 8}
}

const (
	blockBytes = 24 // of a Block in a footer: offset, length of the metadata, padding, length of the body
	// maxTables bounds the walk: tables may be shared, so few bytes can stand for very many.
	maxTables = 1 << 17
)

// arrowVerifier walks metadata. Offsets that lead out of the bytes are a panic, which guarded turns into an error.
type arrowVerifier struct{ room int }

func (v *arrowVerifier) table(at flatbuffers.Table, of *fbTable) {
	if v.room--; v.room < 0 {
		panic(errMetadata)
	}
	for slot, size := range of.structs {
		if field := flatbuffers.UOffsetT(at.Offset(slot)); field != 0 {
			v.vector(at, field, size)
		}
	}
	for slot, child := range of.tables {
		if field := flatbuffers.UOffsetT(at.Offset(slot)); field != 0 {
			v.table(flatbuffers.Table{Bytes: at.Bytes, Pos: at.Indirect(field + at.Pos)}, child)
		}
	}
	for slot, child := range of.vectors {
		field := flatbuffers.UOffsetT(at.Offset(slot))
		if field == 0 {
			continue
		}
		start, n := v.vector(at, field, flatbuffers.SizeUOffsetT)
		for i := range n {
			v.table(flatbuffers.Table{Bytes: at.Bytes, Pos: at.Indirect(start + flatbuffers.UOffsetT(i*flatbuffers.SizeUOffsetT))}, child)
		}
	}
}

// vector returns where a vector's elements begin and how many there are, all of them within the bytes.
func (v *arrowVerifier) vector(at flatbuffers.Table, field flatbuffers.UOffsetT, size int) (start flatbuffers.UOffsetT, n int) {
	n, start = at.VectorLen(field), at.Vector(field)
	if n < 0 || int64(n)*int64(size) > int64(len(at.Bytes))-int64(start) {
		panic(errMetadata)
	}
	return start, n
}

// root returns the table that some bytes begin with.
func root(data []byte) flatbuffers.Table {
	return flatbuffers.Table{Bytes: data, Pos: flatbuffers.GetUOffsetT(data)}
}

// message verifies the message that data begins with, and returns the rest behind its body; nil at the end of a stream.
func (v *arrowVerifier) message(data []byte) (rest []byte) {
	size := binary.LittleEndian.Uint32(data)
	data = data[4:]
	if size == 0xffffffff { // what messages begin with since Arrow 0.15
		size = binary.LittleEndian.Uint32(data)
		data = data[4:]
	}
	if size == 0 {
		return nil
	}
	m, data := root(data[:size]), data[size:]
	if header := fbHeaders[m.GetByteSlot(6, 0)]; header != nil {
		if field := flatbuffers.UOffsetT(m.Offset(8)); field != 0 {
			v.table(flatbuffers.Table{Bytes: m.Bytes, Pos: m.Indirect(field + m.Pos)}, header)
		}
	}
	v.table(m, &fbTable{vectors: map[flatbuffers.VOffsetT]*fbTable{12: fbKeyValue}})
	body := m.GetInt64Slot(10, 0)
	if body < 0 || body > int64(len(data)) {
		panic(errMetadata)
	}
	return data[body:]
}

// verifyArrowStream panics if the metadata of a stream is damaged.
func verifyArrowStream(data []byte) {
	v := arrowVerifier{room: maxTables}
	for len(data) > 0 {
		data = v.message(data)
	}
}

// verifyArrowFile panics if the metadata of a file is damaged.
func verifyArrowFile(data []byte) {
	const magic = "ARROW1"
	end := len(data) - len(magic) - 4
	if end < 0 || string(data[end+4:]) != magic {
		panic(errors.New("it does not end with " + magic))
	}
	size := int(binary.LittleEndian.Uint32(data[end:]))
	footer := root(data[end-size : end])
	v := arrowVerifier{room: maxTables}
	v.table(footer, fbFooter)
	for _, slot := range []flatbuffers.VOffsetT{8, 10} {
		field := flatbuffers.UOffsetT(footer.Offset(slot))
		if field == 0 {
			continue
		}
		start, n := v.vector(footer, field, blockBytes)
		for i := range n {
			offset := footer.GetInt64(start + flatbuffers.UOffsetT(i*blockBytes))
			v.message(data[offset:])
		}
	}
}
