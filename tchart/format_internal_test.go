package tchart

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// block returns the code block of FORMAT.md behind the comment of a name.
func block(t *testing.T, name string) string {
	t.Helper()
	page, err := os.ReadFile("FORMAT.md")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile("(?s)<!-- " + name + " -->\n```\n(.*?)```").FindSubmatch(page)
	if found == nil {
		t.Fatalf("FORMAT.md has no block %s", name)
	}
	return string(found[1])
}

// TestFormatPage holds FORMAT.md to the code: its example, its list of words, and the checksum
// of the tables.
func TestFormatPage(t *testing.T) {
	t.Parallel()

	t.Run("the example is read and written", func(t *testing.T) {
		var blob []byte
		hexBytes := regexp.MustCompile(`^((?:[0-9a-f]{2} +)+)\S`) // of a line, before its explanation
		for line := range strings.Lines(block(t, "example")) {
			part, err := hex.DecodeString(strings.Join(strings.Fields(hexBytes.FindStringSubmatch(line)[1]), ""))
			if err != nil {
				t.Fatal(err)
			}
			blob = append(blob, part...)
		}
		want := &Trace{
			Tool: "etch1", Recipe: "etch", SVIDs: []string{"Pressure", "RF Power"},
			Time: []float64{0, 1, 2}, Step: []int32{4, 4, 5},
			Values: [][]float64{{1227, 1229, 1221}, {131.5, 131.5, 131.5}},
		}
		got, err := Decode(blob)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("the example is %+v, want %+v", got, want)
		}
		written, err := Encode(want)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(written, blob) {
			t.Errorf("the trace of the example is written as %x, want %x", written, blob)
		}
	})

	t.Run("the words are those of the code", func(t *testing.T) {
		if got := strings.Fields(block(t, "words")); !slices.Equal(got, words().words) {
			t.Errorf("FORMAT.md lists %d words, want the %d of the code in their order", len(got), len(words().words))
		}
	})

	t.Run("the tables have the checksum that it names", func(t *testing.T) {
		page, err := os.ReadFile("FORMAT.md")
		if err != nil {
			t.Fatal(err)
		}
		if want := fmt.Sprintf("`%#x`", tablesOfVersion2); !bytes.Contains(page, []byte(want)) {
			t.Errorf("FORMAT.md doesn't name %s", want)
		}
	})
}
