package trace

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Columns says which columns of a file hold what. A field that is empty stands for the
// column that its comment names; every column that holds nothing named here is a sensor.
type Columns struct {
	Run   string // name of the run: "name"
	Time  string // "Time": seconds, or a timestamp such as 2026-03-01T12:00:00.5Z
	Step  string // "Step Number", an integer; NoStep if the file has none
	Fault string // known fault, empty if normal: "fault" if there is such a column
	// Chamber, Recipe and Group tell runs apart that are not to be judged by one another;
	// none without a name.
	Chamber, Recipe, Group string
	Ignore                 []string // neither sensors nor anything else
}

// NoStep as Columns.Step makes each run one step.
const NoStep = "-"

// role is what a column is for.
type role int

const (
	runRole role = iota
	timeRole
	stepRole
	faultRole
	chamberRole
	recipeRole
	groupRole
	setRole
	waferRole
	roles
)

var roleNames = [roles]string{"run", "time", "step", "fault", "chamber", "recipe", "group", "set", "wafer"}

// names returns the names that columns of each role have, empty where there is none, and
// whether it has to be there.
func (c Columns) names() (names [roles]string, required [roles]bool) {
	or := func(name, def string) string {
		if name == "" {
			return def
		}
		return name
	}
	names = [roles]string{or(c.Run, "name"), or(c.Time, "Time"), or(c.Step, "Step Number"), or(c.Fault, "fault"), c.Chamber, c.Recipe, c.Group, "set", "wafer"}
	required = [roles]bool{true, true, c.Step != NoStep, c.Fault != "", c.Chamber != "", c.Recipe != "", c.Group != "", false, false}
	if c.Step == NoStep {
		names[stepRole] = ""
	}
	return names, required
}

// grouped reports whether columns say which runs belong together.
func (c Columns) grouped() bool { return c.Chamber != "" || c.Recipe != "" || c.Group != "" }

// maxQuoted is how many columns a message lists.
const maxQuoted = 40

func quoted(names []string) string {
	var list []string
	for _, name := range names[:min(len(names), maxQuoted)] {
		list = append(list, strconv.Quote(strings.TrimSpace(name)))
	}
	if more := len(names) - len(list); more > 0 {
		list = append(list, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(list, ", ")
}

// timestamps are the forms that times may have besides seconds.
var timestamps = [...]string{time.RFC3339Nano, "2006-01-02T15:04:05.999999999", "2006-01-02 15:04:05.999999999", "2006-01-02 15:04:05.999999999Z07:00"}

// parseTime returns seconds: of a timestamp those since 1970.
func parseTime(s string) (float64, bool) {
	if v, ok := parse(s); ok {
		return v, true
	}
	s = strings.TrimSpace(s)
	for _, form := range timestamps {
		if t, err := time.Parse(form, s); err == nil {
			return float64(t.Unix()) + float64(t.Nanosecond())/1e9, true
		}
	}
	return 0, false
}
