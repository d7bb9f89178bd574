package partition

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
	return &Assignment{Schema: mapSchema, Version: 300, Epoch: 21, Leader: Member{"worker-1", 12}, Layout: 2, Slots: 4, FirstAssigned: goldenTime(), Planned: goldenTime().Add(time.Hour), Overrides: 33, Moved: 2,
		Workers: []Member{{"worker-0", 11}, {"worker-1", 12}}, Owner: ownerColumn{0, 1, -1, 1}, Since: versionColumn{1, 300, 2, 7}, Moves: map[int]plannedMove{1: {Next: 0, Version: 7}, 3: {Next: 0, Version: 7}},
		Taking: map[int]bool{0: true}, Restarting: map[int]bool{1: true}, Former: &formerSlots{Layout: 1, Slots: 2, Version: 6, Owner: ownerColumn{0, -1}}}
}

// reading decodes a record that no function of the package is for.
func reading[T any](data []byte) (any, error) {
	var v T
	err := json.Unmarshal(data, &v)
	return v, err
}

func goldenSettings() *groupSettings {
	return &groupSettings{Replicas: 3, MaxAge: duration(time.Hour), MaxBytes: 1 << 30, Duplicates: duration(time.Minute), AckWait: duration(30 * time.Second), HeartbeatInterval: duration(500 * time.Millisecond),
		LeaseTTL: duration(6 * time.Second), LeaseMargin: duration(1500 * time.Millisecond), IDTTL: duration(30 * time.Second), SuspicionGrace: duration(1500 * time.Millisecond), SuspicionMargin: duration(300 * time.Millisecond),
		Retry: retrySettings{Tries: 1, Delay: duration(time.Second), MaxDelay: duration(time.Minute), PerKey: 1000, PerSlot: 10000, Attempts: 5}}
}

func goldenRecords() []record {
	peer := peerMessage{Schema: valueSchema, Kind: peerReleased, From: Member{"worker-0", 11}, To: Member{"worker-1", 12}, Slots: []slotMark{{Slot: 3, Version: 300, Forced: true, Idle: 1500}}}
	return []record{
		{"assignment-map", mapSchema, goldenMap(), func(b []byte) (any, error) { return DecodeAssignment(b) }},
		{"leader", valueSchema, leaderValue{Schema: valueSchema, ID: "worker-1", Claim: 12, N: 5}, func(b []byte) (any, error) { return decodeLeader(b) }},
		{"heartbeat", valueSchema, leaseValue{Schema: valueSchema, ID: "worker-1", Claim: 12, Instance: "i", N: 5, Leaving: true, Draining: true, DrainEnd: 1767323045006, Weight: 1.5, Zone: "z", Pod: "p", Node: "n", Version: 300, State: state.Stable, MapSchema: mapSchema},
			func(b []byte) (any, error) { return decodeLease("worker-1", b) }},
		{"claim", valueSchema, idValue{Schema: valueSchema, Pod: "p", PodUID: "u", Version: "v1", Instance: "i", N: 5}, func(b []byte) (any, error) { return decodeClaim(b) }},
		{"expected", valueSchema, expectedValue{Schema: valueSchema, N: 30}, func(b []byte) (any, error) { return decodeExpected(b) }},
		{"layout-wanted", valueSchema, wantedValue{Schema: valueSchema, Slots: 1024}, func(b []byte) (any, error) { return decodeWanted(b) }},
		{"pins", valueSchema, overridesValue{Schema: valueSchema, Overrides: []Override{{Slot: 3, Key: "a:b", Worker: "worker-1", At: goldenTime()}}}, func(b []byte) (any, error) {
			overrides, err := decodeOverrides(b)
			return overridesValue{Schema: valueSchema, Overrides: overrides}, err
		}},
		{"layout", settledSchema, layoutValue{Schema: settledSchema, Slots: 64, Stream: "jobs", Subject: "jobs.*.*", Shards: 4, Retry: true, Settings: goldenSettings()}, func(b []byte) (any, error) { return decodeLayout(b) }},
		{"load", valueSchema, loadValue{Schema: valueSchema, Weights: versionColumn{1, 300}, Keys: versionColumn{2, 1}}, reading[loadValue]},
		{"peer-message", valueSchema, peer, func(b []byte) (any, error) { return decodePeer(b, maxSlots) }},
		{"fence-report", valueSchema, fenceReport{Schema: valueSchema, From: Member{"worker-0", 11}, To: Member{"worker-1", 12}, Layout: 2, Slots: 4, Slot: 3, Fence: Fence{Version: 300, Claim: 11}, Stored: Fence{Version: 412, Claim: 9}},
			func(b []byte) (any, error) { return decodeFence(b) }},
		{"drain-request", valueSchema, drainRequest{Schema: valueSchema, Until: 1767323045006}, func(b []byte) (any, error) { return decodeDrain(b) }},
		{"drain-reply", valueSchema, drainReply{Schema: valueSchema, ID: "worker-1", Slots: 7}, reading[drainReply]},
		{"standby", 0, report.Standby{Pod: "p", Node: "n", Zone: "z", Since: goldenTime()}, reading[report.Standby]},
		{"queue-claim", 0, queueClaim{Slots: 64, Slot: 3, Fence: Fence{Version: 300, Claim: 12}}, reading[queueClaim]},
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
			got := mustJSON(r.value)
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
				if again := string(mustJSON(got)); again != string(mustJSON(r.value)) && again != string(data) {
					t.Errorf("it is read as\n%s\nwant\n%s", mustJSON(got), mustJSON(r.value))
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
			if err == nil || !strings.Contains(err.Error(), want) || !errors.Is(err, errNewerSchema) || strings.Contains(err.Error(), "\n") || strings.Contains(err.Error(), "unmarshal") {
				t.Errorf("it is refused with %v, want one sentence with %q", err, want)
			}
		})
	}
}
