package event

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// declaredKinds reads the constants of type Kind in the order in which the
// package's source declares them, each with the comment that names its fields.
func declaredKinds(t *testing.T) (kinds []Kind, comments map[Kind]string) {
	t.Helper()
	fset := token.NewFileSet()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	comments = map[Kind]string{}
	type named struct {
		at   token.Position
		kind Kind
	}
	var all []named
	for _, name := range files {
		f, err := parser.ParseFile(fset, name, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok || g.Tok != token.CONST {
				continue
			}
			for _, s := range g.Specs {
				v := s.(*ast.ValueSpec)
				if id, ok := v.Type.(*ast.Ident); !ok || id.Name != "Kind" {
					continue
				}
				text, err := strconv.Unquote(v.Values[0].(*ast.BasicLit).Value)
				if err != nil {
					t.Fatal(err)
				}
				all = append(all, named{fset.Position(v.Pos()), Kind(text)})
				comments[Kind(text)] = v.Doc.Text() + v.Comment.Text()
			}
		}
	}
	slices.SortFunc(all, func(a, b named) int {
		if c := strings.Compare(a.at.Filename, b.at.Filename); c != 0 {
			return c
		}
		return a.at.Offset - b.at.Offset
	})
	for _, n := range all {
		kinds = append(kinds, n.kind)
	}
	return kinds, comments
}

// TestKinds compares what the package lists of its kinds of event with the
// constants that its source declares.
func TestKinds(t *testing.T) {
	t.Parallel()
	declared, comments := declaredKinds(t)
	if len(declared) < 30 {
		t.Fatalf("found %d kinds in the source", len(declared))
	}
	t.Run("lists every kind that is declared", func(t *testing.T) {
		t.Parallel()
		for _, k := range declared {
			if !slices.Contains(Kinds, k) {
				t.Errorf("Kinds lacks %q", k)
			}
		}
		if len(Kinds) != len(declared) {
			t.Errorf("Kinds has %d kinds, %d are declared", len(Kinds), len(declared))
		}
	})
	t.Run("writes the fields that the kind's comment names, also when they are zero", func(t *testing.T) {
		t.Parallel()
		for _, k := range declared {
			var got map[string]any
			if err := json.Unmarshal(encode(t, Event{Kind: k, Worker: "w-0"}), &got); err != nil {
				t.Fatal(err)
			}
			// "Slot, Reason: the key, Count: attempts" names three fields.
			for _, field := range []string{"Slot", "Before", "After", "Count", "Keys", "Busy"} {
				named := regexp.MustCompile(`(^|[ ,;])` + field + `([:,; ]|$)`).MatchString(strings.TrimSpace(comments[k]))
				if _, written := got[strings.ToLower(field)]; written != named {
					t.Errorf("%s: field %s is written: %t; its comment names it: %t (%s)", k, field, written, named, strings.TrimSpace(comments[k]))
				}
			}
		}
	})
}

// TestEventJSON is about what a reader of the events gets.
func TestEventJSON(t *testing.T) {
	t.Parallel()
	t.Run("has slot 0", func(t *testing.T) {
		t.Parallel()
		if got := string(encode(t, Event{Kind: SlotAcquired, Worker: "orders-0", Version: 1})); !strings.Contains(got, `"slot":0`) {
			t.Errorf("the event is %s", got)
		}
	})
	t.Run("has no slot where none is meant", func(t *testing.T) {
		t.Parallel()
		if got := string(encode(t, Event{Kind: Elected, Worker: "orders-0", Peer: "orders-1"})); strings.Contains(got, "slot") {
			t.Errorf("the event is %s", got)
		}
	})
	t.Run("gives every field back", func(t *testing.T) {
		t.Parallel()
		want := Event{Kind: Planned, Worker: "w"}
		v := reflect.ValueOf(&want).Elem()
		for i := range v.NumField() {
			switch f := v.Field(i); f.Kind() {
			case reflect.String:
				if f.String() == "" {
					f.SetString("text")
				}
			case reflect.Int, reflect.Int64:
				f.SetInt(int64(i + 1))
			case reflect.Uint64:
				f.SetUint(uint64(i + 1))
			case reflect.Bool:
				f.SetBool(true)
			case reflect.Slice:
				f.Set(reflect.ValueOf([]int{0, i}))
			}
		}
		var got Event
		if err := json.Unmarshal(encode(t, want), &got); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v, %v; want %+v", got, err, want)
		}
	})
	t.Run("an event of a slot matches a query for the slot", func(t *testing.T) {
		t.Parallel()
		q := Query{BySlot: true, Slot: 5}
		for kind, want := range map[Kind]bool{SlotAcquired: true, KeyQueued: true, KeyFreed: true, DeadLettered: true, Elected: false} {
			if got := q.Matches(Event{Kind: kind, Slot: 5}); got != want {
				t.Errorf("%s matches: %t", kind, got)
			}
		}
		if q := (Query{BySlot: true}); q.Matches(Event{Kind: Elected}) {
			t.Error("an event without a slot matches slot 0")
		}
	})
}

func encode(t *testing.T, e Event) []byte {
	t.Helper()
	data, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
