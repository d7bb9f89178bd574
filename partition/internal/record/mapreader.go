package record

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// DecodeAssignment reads an assignment map as it is kept in the bucket. It
// returns every fault it finds.
func DecodeAssignment(data []byte) (*Assignment, error) { return decodeMap(data, nil) }

// MapReader reads the maps of a group one after the other. A plan of a large group is written many times
// while its slots move, and every worker reads each map. The workers are most of a map, and their text is the
// same in all of these, so it is read and checked once. Its maps share their workers: nobody changes a map that
// was read. The zero value is ready to use. It is not safe for several goroutines.
type MapReader struct{ known knownWorkers }

// Decode is [DecodeAssignment].
func (r *MapReader) Decode(data []byte) (*Assignment, error) {
	r.known.begin()
	a, err := decodeMap(data, &r.known)
	if err == nil {
		r.known.areValid()
	}
	return a, err
}

// decodeMap reads a map. Workers that are known are not read again; nil: none are.
func decodeMap(data []byte, known *knownWorkers) (*Assignment, error) {
	const doing = "reading the assignment map: %w"
	if len(data) > maxMapBytes {
		return nil, fmt.Errorf("reading the assignment map: %d bytes, at most %d are read", len(data), maxMapBytes)
	}
	// What else is in a record of another schema may have any form.
	schema, err := mapSchemaOf(data)
	if err != nil {
		return nil, fmt.Errorf(doing, err)
	}

	var a Assignment
	if schema < MapSchema {
		err = json.Unmarshal(data, &a)
	} else {
		err = a.unmarshalPacked(data, known)
	}
	if err != nil {
		return nil, fmt.Errorf(doing, err)
	}

	a.Schema = MapSchema // as which it is written again
	workersAreValid := known != nil && known.hit
	if err := a.validate(workersAreValid); err != nil {
		return nil, fmt.Errorf(doing, err)
	}
	return &a, nil
}

// knownWorkers are the workers of the last valid map. A column says itself where it ends, so the workers of a
// map whose columns begin with the same bytes are the same.
type knownWorkers struct {
	column  []byte
	workers []Process
	hit     bool // the map that is read has these workers

	// Those of the map that is read, until it is known to be valid.
	newColumn  []byte
	newWorkers []Process
}

// begin begins a map.
func (k *knownWorkers) begin() { k.hit, k.newColumn, k.newWorkers = false, nil, nil }

// read reads the workers' column.
func (k *knownWorkers) read(r *columnReader) []Process {
	if k == nil {
		return r.workers()
	}
	if len(k.column) > 0 && bytes.HasPrefix(r.bytes, k.column) {
		k.hit = true
		r.bytes = r.bytes[len(k.column):]
		return k.workers
	}

	all := r.bytes
	workers := r.workers()
	if r.err == nil {
		k.newColumn, k.newWorkers = all[:len(all)-len(r.bytes)], workers
	}
	return workers
}

// areValid remembers the workers of the map that was read.
func (k *knownWorkers) areValid() {
	if k.newColumn != nil {
		k.column, k.workers = bytes.Clone(k.newColumn), k.newWorkers
	}
}
