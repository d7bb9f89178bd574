package trace

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
)

// minBuffer is the smallest size of a buffer that csv.Reader uses as it is.
const minBuffer = 4096

// FuzzCSVRows: rows, their lines and their errors are those of encoding/csv, whatever the text,
// however much of it comes at once, and wherever the buffer ends.
func FuzzCSVRows(f *testing.F) {
	for _, text := range []string{
		"", "\n", "a", "a,b\n1,2\n", "a,b\r\n1,2\r\n\r\n\n3,4\r", "\ufeffa,b\n1,2", "a\n\"1\n2\",3\n4\n", "a\n\"1\r\n2\"\r\n4\n\n5,6\n",
		"a\n1\"2\n3\n", "a\n\"1\"2\n3\n", "a\n\"1\n2\n", "a\n,\n\"\"\n,,\n", "\r", "a\r\nb\rc\r\r\n", "a,\"b\n\nc\"\nd\n\"e\"\n",
	} {
		f.Add(text, 0, false)
		f.Add(text, minBuffer-2, true)
	}
	f.Fuzz(func(t *testing.T, text string, before int, slowly bool) {
		// Rows before it have its lines lie across the ends of the buffer.
		if before = min(max(before, 0), 3*minBuffer); before > 0 {
			text = strings.Repeat("x,y\n", before/4) + strings.Repeat("z", before%4) + "\n" + text
		}
		in := io.Reader(strings.NewReader(text))
		if slowly {
			in = iotest.OneByteReader(in)
		}
		got, want := newCSVRows(in, minBuffer), csv.NewReader(strings.NewReader(strings.TrimPrefix(text, "\ufeff")))
		want.FieldsPerRecord = -1
		for row := 0; ; row++ {
			record, err := want.Read()
			wanted := fmt.Sprintf("%q", record)
			gotErr := got.read()
			if syntax := new(csv.ParseError); errors.As(err, &syntax) {
				bad := new(badRow)
				if !errors.As(gotErr, &bad) || bad.line != syntax.StartLine || !strings.HasPrefix(bad.what, syntax.Err.Error()) {
					t.Fatalf("row %d of %q: %v, want %v", row, text, gotErr, err)
				}
				continue
			}
			if !errors.Is(gotErr, err) {
				t.Fatalf("row %d of %q: %v, want %v", row, text, gotErr, err)
			}
			if err != nil {
				return
			}
			var fields []string
			for i := range got.count() {
				fields = append(fields, got.text(i))
				if line, _ := want.FieldPos(min(i, len(record)-1)); got.line(i) != line {
					t.Fatalf("row %d of %q, field %d: line %d, want %d", row, text, i, got.line(i), line)
				}
				if !got.is(i, fields[i]) || got.is(i, fields[i]+"x") {
					t.Fatalf("row %d of %q: field %d is not itself", row, text, i)
				}
				v, ok := got.number(i)
				w, wantOK := parse(fields[i])
				if ok != wantOK || v != w && v == v {
					t.Fatalf("field %q is %v %t, want %v %t", fields[i], v, ok, w, wantOK)
				}
			}
			if !slices.Equal(fields, record) {
				t.Fatalf("row %d of %q: %q, want %s", row, text, fields, wanted)
			}
		}
	})
}

// TestCSVRows_plain: the lines of a file without quotes are read without encoding/csv, except
// for the first, and one that quotes are in or that is longer than the buffer costs only itself.
func TestCSVRows_plain(t *testing.T) {
	t.Parallel()
	text := "a,b\n1,2\n\n3,4\n\"5\",6\n7,8\r\n" + strings.Repeat("9", 2*minBuffer) + ",10\n11,12\n"
	rows := newCSVRows(strings.NewReader(text), minBuffer)
	if _, err := rows.readHeader(); err != nil {
		t.Fatal(err)
	}
	var plain []string
	for {
		err := rows.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if rows.record == nil {
			plain = append(plain, fmt.Sprintf("%d:%s", rows.line(0), rows.text(1)))
		}
	}
	if want := []string{"2:2", "4:4", "6:8", "8:12"}; !slices.Equal(plain, want) {
		t.Errorf("%q are read without encoding/csv, want %q", plain, want)
	}
}
