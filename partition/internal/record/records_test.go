package record

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster/partition/event"
	"github.com/muster-dev/muster/partition/report"
	"github.com/muster-dev/muster/partition/state"
)

var writeRecords = flag.Bool("records.write", false, "write the golden files of records that have none for their schema; none is overwritten")

// record is a format in which something is kept, or sent from one worker to another. value has
// every field set, so that a new one changes what is encoded.
type record struct {
	name   string
	schema int // 0: it has none
	value  any
	decode func([]byte) (any, error)
}

func goldenTime() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 6_000_000, time.UTC) }

func goldenMap() *Assignment {
	return &Assignment{Schema: MapSchema, Version: 300, Epoch: 21, Leader: Process{"worker-1", 12}, Layout: 2, Slots: 4, FirstAssigned: goldenTime(), Planned: goldenTime().Add(time.Hour), Overrides: 33, Moved: 2,
		Workers: []Process{{"worker-0", 11}, {"worker-1", 12}}, Owner: OwnerColumn{0, 1, -1, 1}, Since: VersionColumn{1, 300, 2, 7}, Moves: map[int]Move{1: {Next: 0, Version: 7}, 3: {Next: 0, Version: 7}},
		Taking: map[int]bool{0: true}, Restarting: map[int]bool{1: true}, Former: &OldGeneration{Layout: 1, Slots: 2, Version: 6, Owner: OwnerColumn{0, -1}}}
}

// reading decodes a record that no function of the package is for.
func reading[T any](data []byte) (any, error) {
	var v T
	err := json.Unmarshal(data, &v)
	return v, err
}

func goldenSettings() *Settings {
	return &Settings{Replicas: 3, MaxAge: Duration(time.Hour), MaxBytes: 1 << 30, Duplicates: Duration(time.Minute), AckWait: Duration(30 * time.Second), InFlight: 64, HeartbeatInterval: Duration(500 * time.Millisecond),
		LeaseTTL: Duration(6 * time.Second), LeaseMargin: Duration(1500 * time.Millisecond), IDTTL: Duration(30 * time.Second), SuspicionGrace: Duration(1500 * time.Millisecond), SuspicionMargin: Duration(300 * time.Millisecond),
		Retry: RetrySettings{Tries: 1, Delay: Duration(time.Second), MaxDelay: Duration(time.Minute), PerKey: 1000, PerSlot: 10000, Attempts: 5}}
}

func goldenRecords() []record {
	peer := PeerMessage{Schema: Schema, Kind: Released, From: Process{"worker-0", 11}, To: Process{"worker-1", 12}, Slots: []SlotMark{{Slot: 3, Version: 300, Forced: true, Idle: 1500}}, Imports: true}
	return []record{
		{"assignment-map", MapSchema, goldenMap(), func(b []byte) (any, error) { return DecodeAssignment(b) }},
		{"leader", Schema, Leader{Schema: Schema, ID: "worker-1", Claim: 12, N: 5}, func(b []byte) (any, error) { return DecodeLeader(b) }},
		{"heartbeat", Schema, Heartbeat{Schema: Schema, ID: "worker-1", Claim: 12, Instance: "i", N: 5, Leaving: true, Draining: true, DrainEnd: 1767323045006, Weight: 1.5, Zone: "z", Pod: "p", Node: "n", Version: 300, State: state.Stable, MapSchema: 2},
			func(b []byte) (any, error) { return DecodeHeartbeat("worker-1", b) }},
		{"claim", Schema, Claim{Schema: Schema, Pod: "p", PodUID: "u", Version: "v1", Instance: "i", N: 5}, func(b []byte) (any, error) { return DecodeClaim(b) }},
		{"expected", Schema, Expected{Schema: Schema, N: 30}, func(b []byte) (any, error) { return DecodeExpected(b) }},
		{"layout-wanted", Schema, Wanted{Schema: Schema, Slots: 1024}, func(b []byte) (any, error) { return DecodeWanted(b) }},
		{"pins", Schema, Overrides{Schema: Schema, Overrides: []Override{{Slot: 3, Key: "a:b", Worker: "worker-1", At: goldenTime()}}}, func(b []byte) (any, error) { return DecodeOverrides(b) }},
		{"layout", LayoutSchema, Layout{Schema: LayoutSchema, Slots: 64, Stream: "jobs", Subject: "jobs.*.*", Shards: 4, Retry: true, Source: "history", SourceSince: 1767323045006000000, Settings: goldenSettings()}, func(b []byte) (any, error) { return DecodeLayout(b) }},
		{"load", Schema, Load{Schema: Schema, Weights: VersionColumn{1, 300}, Keys: VersionColumn{2, 1}}, reading[Load]},
		{"peer-message", Schema, peer, func(b []byte) (any, error) { return DecodeMessage(b, MaxSlots) }},
		{"fence-report", Schema, FenceReport{Schema: Schema, From: Process{"worker-0", 11}, To: Process{"worker-1", 12}, Layout: 2, Slots: 4, Slot: 3, Fence: Fence{Version: 300, Claim: 11}, Stored: Fence{Version: 412, Claim: 9}},
			func(b []byte) (any, error) { return DecodeFenceReport(b) }},
		{"call", Schema, CallRequest{Schema: Schema, Key: "a:b", Layout: 2, Slots: 4, Slot: 3, Fence: Fence{Version: 300, Claim: 12}, Wait: 2000, Timeout: 10000},
			func(b []byte) (any, error) { return DecodeCall(string(b)) }},
		{"state-request", Schema, StateRequest{Schema: Schema, Transfer: "t", From: Process{"worker-1", 12}, Layout: 2, Slots: 4, Slot: 3, Version: 300, Chunk: 5},
			func(b []byte) (any, error) { return DecodeStateRequest(string(b)) }},
		{"state-chunk", Schema, StateChunk{Schema: Schema, Transfer: "t", Chunk: 5, Outcome: StateLast, Length: 9, Sum: strings.Repeat("0a", 32), Reason: "r"},
			func(b []byte) (any, error) { return DecodeStateChunk(string(b)) }},
		{"drain-request", Schema, DrainRequest{Schema: Schema, Until: 1767323045006}, func(b []byte) (any, error) { return DecodeDrain(b) }},
		{"drain-reply", Schema, DrainReply{Schema: Schema, ID: "worker-1", Slots: 7}, reading[DrainReply]},
		{"standby", 0, report.Standby{Pod: "p", Node: "n", Zone: "z", Since: goldenTime()}, reading[report.Standby]},
		{"queue-claim", 0, QueueClaim{Slots: 64, Slot: 3, Fence: Fence{Version: 300, Claim: 12}}, reading[QueueClaim]},
		{"attempts", 0, Attempts{Sequence: 300, Published: 1767323045006000000, Attempts: 2}, reading[Attempts]},
		{"event", 0, event.Event{Time: goldenTime(), Of: 8, Kind: event.RecordRejected, Worker: "worker-1", Peer: "worker-0", Claim: 12, Epoch: 21, Version: 300, From: state.Follower, To: state.Stable, Slot: 3, Slots: []int{1}, Lost: []int{2},
			Before: 4, After: 5, Count: 6, Keys: 7, Busy: true, Duration: time.Second, Reason: "r", Err: "e"}, reading[event.Event]},
	}
}

func goldenFile(name string, schema any) string {
	return filepath.Join("testdata", "records", fmt.Sprintf("%s.%v.json", name, schema))
}

// TestRecordFormat compares what each record is encoded to with the golden file of its
// schema. A worker of another version reads it, so a change of the format needs a
// new schema, and a new file beside the ones before.
func TestRecordFormat(t *testing.T) {
	t.Parallel()
	for _, r := range goldenRecords() {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			if field := unset(reflect.ValueOf(r.value), r.name); field != "" {
				t.Errorf("%s is not set in the record of this test, so that its format is not compared", field)
			}
			got := encode(r.value)
			file := goldenFile(r.name, r.schema)
			want, err := os.ReadFile(file)
			if errors.Is(err, os.ErrNotExist) && *writeRecords {
				if err := os.WriteFile(file, got, 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != string(want) {
				t.Errorf("schema %d is encoded to\n%s\nand the golden file has\n%s\nOther versions read it by this schema: raise it, keep reading the one before, and add a file with -records.write.", r.schema, got, want)
			}
		})
	}
}

// encode returns a record as it is stored.
func encode(value any) []byte {
	if a, is := value.(*Assignment); is {
		return a.Encode()
	}
	return Encode(value)
}

// unset returns the first field that is zero in a value, or in what it holds.
func unset(v reflect.Value, path string) string {
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return path
		}
		return unset(v.Elem(), path)
	case reflect.Struct:
		if _, is := v.Interface().(time.Time); is {
			break
		}
		for i := range v.NumField() {
			if field := unset(v.Field(i), path+"."+v.Type().Field(i).Name); field != "" {
				return field
			}
		}
		return ""
	case reflect.Slice:
		if v.Len() > 0 && v.Index(0).Kind() == reflect.Struct {
			return unset(v.Index(0), path+"[0]")
		}
	}
	if v.IsZero() && !strings.HasSuffix(path, "[0]") {
		return path
	}
	return ""
}

// TestOldRecord reads the golden file of every schema that ever was.
func TestOldRecord(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(goldenFile("*", "*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no golden files: %v", err)
	}
	for _, f := range files {
		t.Run(filepath.Base(f), func(t *testing.T) {
			t.Parallel()
			data, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			name, _, _ := strings.Cut(filepath.Base(f), ".")
			for _, r := range goldenRecords() {
				if r.name != name {
					continue
				}
				got, err := r.decode(data)
				if err != nil {
					t.Fatal(err)
				}
				// An older one may know less, which is not made up.
				if again := string(Encode(got)); again != string(Encode(r.value)) && again != string(data) {
					t.Errorf("it is read as\n%s\nwant\n%s", Encode(got), Encode(r.value))
				}
				return
			}
			t.Error("it is of no record")
		})
	}
}

// TestUnknownSchema: a record of a version that this one can't read is refused by its
// schema, whatever else is in it, with both versions in one sentence.
func TestUnknownSchema(t *testing.T) {
	t.Parallel()
	for _, r := range goldenRecords() {
		if r.schema == 0 || r.name == "drain-reply" || r.name == "load" {
			continue
		}
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			// None of the fields has the type that it has today.
			_, err := r.decode(fmt.Appendf(nil, `{"schema":%d,"id":7,"slots":"x","moves":[1],"n":"x","pins":7,"pod":1,"kind":1,"until":"x","owner":{},"stream":1}`, r.schema+1))
			want := fmt.Sprintf("schema %d, this build reads ", r.schema+1)
			if err == nil || !strings.Contains(err.Error(), want) || !errors.Is(err, ErrNewerSchema) || strings.Contains(err.Error(), "\n") || strings.Contains(err.Error(), "unmarshal") {
				t.Errorf("it is refused with %v, want one sentence with %q", err, want)
			}
		})
	}
}
