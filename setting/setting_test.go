package setting

import (
	"errors"
	"strings"
	"testing"
	"time"
)

type config struct {
	Name  string
	Ratio float64
	Wait  time.Duration
	N     int
	On    bool
	Items []string
	URL   string
}

var settings = []Setting[config]{
	New("NAME", "", "a name", Text(func(c *config) *string { return &c.Name })),
	New("RATIO", "0.5", "a ratio", Number(func(c *config) *float64 { return &c.Ratio })),
	New("WAIT_SEC", "30", "a wait", Seconds(func(c *config) *time.Duration { return &c.Wait })),
	New("N", "1", "a count", Int(func(c *config) *int { return &c.N })),
	New("ON", "true", "a switch", Bool(func(c *config) *bool { return &c.On })),
	New("ITEMS", "a,b", "a list", List(func(c *config) *[]string { return &c.Items })),
	New("URL", "", "a place", URL(func(c *config) *string { return &c.URL })),
}

func env(kv map[string]string) Lookup {
	return func(k string) (string, bool) { v, ok := kv[k]; return v, ok }
}

func TestWhatIsUnsetHasItsDefault(t *testing.T) {
	var c config
	if err := Parse(&c, settings, env(nil), nil); err != nil {
		t.Fatal(err)
	}
	if c.Ratio != 0.5 || c.Wait != 30*time.Second || c.N != 1 || !c.On || len(c.Items) != 2 || c.Name != "" || c.URL != "" {
		t.Errorf("got %+v", c)
	}
}

func TestEveryWrongValueIsReportedOnceAndInOrder(t *testing.T) {
	var c config
	err := Parse(&c, settings, env(map[string]string{"RATIO": "NaN", "WAIT_SEC": "1m", "N": "x", "ON": "maybe", "URL": "localhost:9090", "NAME": "none"}),
		func(c config) []Problem { // the check sees RATIO's default and would complain about it, too
			return []Problem{{"RATIO", "0.5", "again"}, {"NAME", c.Name, "use another"}}
		})
	var e *Error
	if !errors.As(err, &e) {
		t.Fatalf("got %v, want an *Error", err)
	}
	var names []string
	for _, p := range e.Problems {
		names = append(names, p.Setting)
	}
	if got, want := strings.Join(names, " "), "NAME RATIO WAIT_SEC N ON URL"; got != want {
		t.Errorf("reported %s, want %s", got, want)
	}
}

func TestJoinMakesOneListOfAllProblems(t *testing.T) {
	a := Problems([]Problem{{"A", "1", "fix a"}}, nil)
	b := Problems([]Problem{{"B", "2", "fix b"}}, nil)
	other := errors.New("no network")
	err := Join(nil, a, other, b)
	var e *Error
	if !errors.As(err, &e) || len(e.Problems) != 2 || !errors.Is(err, other) {
		t.Errorf("got %v", err)
	}
	if err := Join(nil, nil); err != nil {
		t.Errorf("nothing wrong gives %v", err)
	}
}

func TestAFlagIsNamedAfterItsVariable(t *testing.T) {
	if got := Describe(settings)[2].Flag(); got != "wait-sec" {
		t.Errorf("got %q", got)
	}
}

func TestWhatEachKindOfSettingAccepts(t *testing.T) {
	for name, accepts := range map[string]struct{ right, wrong []string }{
		"RATIO":    {[]string{"0", "-1.5", "1e3", " 2 "}, []string{"", "half", "NaN", "Inf", "-Inf", "1e999"}},
		"WAIT_SEC": {[]string{"0", "-1", "300"}, []string{"", "1m", "1.5", "3000000000"}},
		"N":        {[]string{"0", "-7", "2147483647"}, []string{"", "x", "1.0", "2147483648"}},
		"ON":       {[]string{"true", "false", "1", "0"}, []string{"", "maybe", "2"}},
		"URL":      {[]string{"", "http://h", "https://h:9090/p?q=1"}, []string{"localhost:9090", "//h", "http://", "https:///p", "ftp://h", "http://a b"}},
	} {
		for _, v := range accepts.right {
			var c config
			if err := Parse(&c, settings, env(map[string]string{name: v}), nil); err != nil {
				t.Errorf("%s=%q is rejected: %v", name, v, err)
			}
		}
		for _, v := range accepts.wrong {
			var c config
			var e *Error
			err := Parse(&c, settings, env(map[string]string{name: v}), nil)
			if !errors.As(err, &e) || len(e.Problems) != 1 || e.Problems[0].Setting != name || e.Problems[0].Value != v {
				t.Errorf("%s=%q gives %v, want this one problem", name, v, err)
			}
		}
	}
}

func TestAListIsSeparatedByCommasAndBlanksDontCount(t *testing.T) {
	var c config
	if err := Parse(&c, settings, env(map[string]string{"ITEMS": " x, ,y ,"}), nil); err != nil || strings.Join(c.Items, "|") != "x|y" {
		t.Errorf("got %q, %v, want x and y", c.Items, err)
	}
}

func TestAnErrorHasALineForEachProblem(t *testing.T) {
	err := Problems([]Problem{{"N", "x", "write a whole number"}, {"ON", "maybe", "write true or false"}}, nil)
	const want = "2 wrong settings:\n  N=\"x\": write a whole number\n  ON=\"maybe\": write true or false"
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestADefaultThatCantBeReadStopsTheProgram(t *testing.T) {
	defer func() {
		if got := recover(); got != "default of N: write a whole number" {
			t.Errorf("panic is %v", got)
		}
	}()
	var c config
	_ = Parse(&c, []Setting[config]{New("N", "one", "a count", Int(func(c *config) *int { return &c.N }))}, env(nil), nil)
}
