//go:build peers

package codec

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/muster-dev/muster/tchart"
)

// TestPeers prints bytes and speed of pcodec, blosc2 and ALP beside Muster, on the recorded etches:
// a blob per wafer, and all wafers as one trace. PEERS_PYTHON is a Python that has pcodec 1.1.0,
// blosc2 4.14.1, DuckDB 2.0.1 and NumPy.
func TestPeers(t *testing.T) {
	wafers := etch(t)
	for _, set := range []struct {
		name   string
		traces []*tchart.Trace
	}{{"a blob per wafer", wafers}, {"all wafers as one trace", []*tchart.Trace{joined(wafers)}}} {
		points := 0
		for _, tr := range set.traces {
			points += tr.Points()
		}
		var b strings.Builder
		fmt.Fprintf(&b, "%s, %d points: bytes per point, million points encoded and decoded per CPU second\n", set.name, points)
		for _, p := range append([]peer{muster(t, set.traces)}, peers(t, set.traces)...) {
			speed := func(seconds float64) string {
				if seconds == 0 {
					return "-"
				}
				return fmt.Sprintf("%.1f", float64(points)/seconds/1e6)
			}
			fmt.Fprintf(&b, "  %-36s %6.3f %8s %8s\n", p.Name, float64(p.Bytes)/float64(points), speed(p.Encode), speed(p.Decode))
		}
		t.Log(b.String())
	}
}

// peer is a codec and what it took.
type peer struct {
	Name           string
	Bytes          int
	Encode, Decode float64 // seconds
}

func joined(traces []*tchart.Trace) *tchart.Trace {
	all := &tchart.Trace{SVIDs: traces[0].SVIDs, Values: make([][]float64, len(traces[0].Values))}
	for _, tr := range traces {
		all.Time, all.Step = append(all.Time, tr.Time...), append(all.Step, tr.Step...)
		for i, column := range tr.Values {
			all.Values[i] = append(all.Values[i], column...)
		}
	}
	return all
}

func muster(t *testing.T, traces []*tchart.Trace) peer {
	var encoder tchart.Encoder
	var decoder tchart.Decoder
	var back tchart.Trace
	p := peer{Name: "Muster, version 2"}
	var blobs [][]byte
	const rounds = 5
	before := processorTime()
	for range rounds {
		blobs = blobs[:0]
		for _, tr := range traces {
			blob, err := encoder.Append(nil, tr)
			if err != nil {
				t.Fatal(err)
			}
			blobs = append(blobs, blob)
		}
	}
	p.Encode = (processorTime() - before).Seconds() / rounds

	before = processorTime()
	for range rounds {
		for i, blob := range blobs {
			if err := decoder.Decode(blob, &back); err != nil {
				t.Fatal(err)
			}
			if len(back.Time) != len(traces[i].Time) {
				t.Fatalf("%d rows came back of %d", len(back.Time), len(traces[i].Time))
			}
		}
	}
	p.Decode = (processorTime() - before).Seconds() / rounds
	for _, blob := range blobs {
		p.Bytes += len(blob)
	}
	return p
}

func peers(t *testing.T, traces []*tchart.Trace) (list []peer) {
	var in bytes.Buffer
	for _, tr := range traces {
		counts := []uint32{uint32(len(columns(tr))), uint32(len(tr.Time))}
		if err := binary.Write(&in, binary.LittleEndian, counts); err != nil {
			t.Fatal(err)
		}
		for _, column := range columns(tr) {
			for _, v := range column {
				in.Write(binary.LittleEndian.AppendUint64(nil, math.Float64bits(v)))
			}
		}
	}
	cmd := exec.CommandContext(t.Context(), os.Getenv("PEERS_PYTHON"), "testdata/peers.py")
	cmd.Stdin, cmd.Stderr = &in, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("measuring peers: %v: set PEERS_PYTHON to a Python with pcodec, blosc2, duckdb and numpy", err)
	}
	for line := range strings.Lines(string(out)) {
		var p peer
		if err := json.Unmarshal([]byte(line), &p); err != nil {
			t.Fatal(err)
		}
		list = append(list, p)
	}
	return list
}
