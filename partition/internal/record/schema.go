package record

import (
	"encoding/json"
	"errors"
	"fmt"
)

// MaxSlots bounds the number of slots: each has one consumer, and a server holds thousands,
// not millions.
const MaxSlots = 1 << 16

// MaxShards bounds Config.Shards.
const MaxShards = 64

// Schema is the schema of every record but the map.
const Schema = 1

// Encode returns a record as it is stored.
func Encode(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("partition: plain data, yet: %v", err))
	}
	return data
}

// ErrNewerSchema is of a record that a newer version of this code has written.
var ErrNewerSchema = errors.New("it was written by a newer version: upgrade this worker")

// decode reads a record of up to limit bytes that has a schema.
func decode(data []byte, limit int, v any) error {
	if len(data) > limit {
		return fmt.Errorf("%d bytes, at most %d are read", len(data), limit)
	}
	if _, err := readSchema(data, Schema, Schema); err != nil {
		return err
	}
	return json.Unmarshal(data, v)
}

// readSchema returns the schema of a record, whatever else is in it, if it is one that is read.
func readSchema(data []byte, oldest, newest int) (int, error) {
	var head struct {
		Schema int `json:"schema"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return 0, err
	}
	return head.Schema, checkSchema(head.Schema, oldest, newest)
}

func checkSchema(have, oldest, newest int) error {
	reads := fmt.Sprint(newest)
	if oldest < newest {
		reads = fmt.Sprintf("%d to %d", oldest, newest)
	}
	switch {
	case have > newest:
		return fmt.Errorf("it is schema %d, this build reads %s: %w", have, reads, ErrNewerSchema)
	case have < oldest:
		return fmt.Errorf("it is schema %d, older than the oldest known; this build reads %s: upgrade what wrote it", have, reads)
	}
	return nil
}

const (
	// MaxBytes bounds what is read as any record but a map and a list of
	// slots. The longest that a worker writes has a few hundred bytes.
	MaxBytes = 16 << 10
)
